"""A stream that has let a long run pass by, goes on alone for a while, and then needs a long run again.

Found by reading: the source had gone on beyond what the backlog keeps, and the second run was continued from there. So
what lay between was left out of it: a gap in the position, and rows that were never applied.
"""

from __future__ import annotations

from tests.sim.history import from_real_order
from tests.sim.rows import Table, delete, insert
from tests.sim.search import assert_ends_well, finish
from tests.sim.world import Settings, World

A, B = 0, 1
LATER = ((A, (delete("u", 2, "second"),)), *((A, (insert("u", number, None),)) for number in range(100, 110)))
HISTORY = from_real_order(
    (Table("u", unique=((1,),)),),
    [
        (B, (delete("u", 20, "first"),)),
        (A, (insert("u", 1, "first"),)),
        (A, (insert("u", 2, "second"),)),
        *((A, (insert("u", number, None),)) for number in range(3, 8)),
        *LATER,
        (B, (insert("u", 10, "second"),)),
    ],
    initial=((), (insert("u", 20, "first"),)),
)


def test_a_second_long_run_begins_where_the_backlog_ends() -> None:
    """A waits for the first value with all that has arrived passed by, takes it, and is overtaken at the second."""
    world = World(HISTORY, Settings(batch=1, chunk=1, reach=2))
    source = world.streams["A"].source
    arrives_later = source.rest[-len(LATER) :]
    del source.rest[-len(LATER) :]
    while source.rest or not world.is_asleep("A"):
        world.clock.advance(0.1)
        world.step("A")
    source.rest.extend(arrives_later)
    while world.vector[B] < 2:
        world.step("B")
    finish(world)
    assert_ends_well(world)
    assert world.vector == HISTORY.end
