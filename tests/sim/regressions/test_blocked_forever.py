"""A stream must not be shown as blocked when its wait has ended in another way than by its own commit.

Found by the exhaustive search: what an earlier player was blocked by stayed on the board when that player ended by an
error, until the next commit; for a stream with nothing more to do, for ever.
"""

from __future__ import annotations

import pytest
from tests.sim.history import from_real_order
from tests.sim.rows import Table, delete, insert
from tests.sim.search import finish
from tests.sim.world import Settings, World

HISTORY = from_real_order(
    (Table("u"),), [(0, (insert("u", 7),)), (0, (delete("u", 7),)), (1, (insert("u", 7),))], initial=((), ())
)


@pytest.mark.parametrize("ends_by", ["crash", "close", "time-out"])
def test_a_wait_that_ends_by_an_error_is_over(ends_by: str) -> None:
    """However a blocked player ends, its stream is no longer shown as blocked, and the blocked time is counted."""
    world = World(HISTORY, Settings(batch=1, timeout_seconds=20.0))
    while world.vector != (0, 1):
        world.step("B")
    while not world.is_asleep("A"):
        world.step("A")
    assert world.board.progress("A").blocked is not None
    world.clock.advance(5.0)
    match ends_by:
        case "crash":
            world.crash("A")
        case "close":
            world.streams["A"].player.close()
        case _:
            finish(world)
    progress = world.board.progress("A")
    assert progress.blocked is None
    assert progress.counters.blocked_seconds >= 5.0
