"""A ring behind a transaction that has no rows for the target.

Found by reading: a position that moved past such a transaction is stored only later, and a blocked stream never came to
that. So the position it offered was not the stored one, and every joint commit with it was refused.
"""

from __future__ import annotations

import pytest
from tests.sim.history import History
from tests.sim.rows import Table, insert, update
from tests.sim.search import finish
from tests.sim.world import Settings, World

U = Table("u", unique=((1,),))
OTHERS = ()
"""What concerns other tables only."""


@pytest.mark.parametrize("leading", [(True, False), (False, True), (True, True)])
def test_streams_that_passed_transactions_without_rows_can_join(leading: tuple[bool, bool]) -> None:
    """Leader and members alike store the position that they offer."""
    swap = update("u", (1, "a"), (1, "b")), update("u", (2, "b"), (2, "a"))
    streams = tuple(
        (OTHERS, (change,)) if passes else ((change,),) for change, passes in zip(swap, leading, strict=True)
    )
    history = History((U,), streams, ((insert("u", 1, "a"),), (insert("u", 2, "b"),)))
    world = World(history, Settings(batch=1))
    finish(world)
    assert world.vector == history.end
    assert [world.board.progress(name).counters.joints for name in "AB"] == [1, 1]
