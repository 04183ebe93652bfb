"""A COMMIT of unknown outcome that took effect must wake the siblings that wait for what it released.

Found by the exhaustive search: the stream that lost its connection learned from its checkpoint that it had moved, and
told nobody; a sibling slept on to the end of its pause, up to two seconds.
"""

from __future__ import annotations

from tests.sim.ends import Fault
from tests.sim.history import from_real_order
from tests.sim.rows import Table, delete, insert
from tests.sim.world import Settings, World

HISTORY = from_real_order(
    (Table("u"),), [(0, (delete("u", 7),)), (1, (insert("u", 7),))], initial=((insert("u", 7),), ())
)


def test_a_commit_of_unknown_outcome_wakes_siblings() -> None:
    """B waits for A's row; A's COMMIT takes effect and its connection is lost; B is awake as soon as A is back."""
    world = World(HISTORY, Settings(batch=1))
    while not world.is_asleep("B"):
        world.step("B")
    while "A" not in world.database.open:
        world.step("A")
    assert world.fail("A", Fault.AFTER_COMMIT)
    assert world.vector == (1, 0)
    assert not world.is_asleep("B")
