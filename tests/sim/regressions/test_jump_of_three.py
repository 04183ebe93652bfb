"""A jump that fits at one length only, and that length is no power of two.

Found by the random search when a jump's length doubled (2, 4, 8, …). Two transactions do not release the key yet; four
also take a value that a third stream releases only once the jump is done. Only three fit.
"""

from __future__ import annotations

from tests.sim.history import from_real_order
from tests.sim.rows import Table, delete, insert, update
from tests.sim.search import assert_ends_well, finish
from tests.sim.world import Settings, World

A, B, C = 0, 1, 2
HISTORY = from_real_order(
    (Table("u", unique=((1,),)),),
    [
        (B, (insert("u", 10, "key"),)),
        (B, (insert("u", 11, None),)),
        (B, (delete("u", 10, "key"), update("u", (5, "taken by C"), (5, None)))),
        (A, (insert("u", 1, "key"),)),
        (C, (insert("u", 20, "taken by C"),)),
        (C, (delete("u", 6, "held by C"),)),
        (B, (insert("u", 12, "held by C"),)),
    ],
    streams=3,
    initial=((), (insert("u", 5, "taken by C"),), (insert("u", 6, "held by C"),)),
)


def test_a_jump_of_three_is_found() -> None:
    """A has overtaken B; B's next three transactions fit together, neither two nor four of them do."""
    world = World(HISTORY, Settings(batch=1))
    while world.vector != (1, 0, 0):
        world.step("A")
    assert set(HISTORY.jumps(world.vector)) == {(1, 3, 0)}
    finish(world)
    assert_ends_well(world)
    assert world.vector == HISTORY.end
