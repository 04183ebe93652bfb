"""Net effects of tables with foreign keys must fit whenever the rows they end in do.

Found by searching histories of parents and children: such tables kept their updates as updates, between all deletes and
all inserts. So a value could not be swapped among parents, a child could not turn from a parent that went to one that
came, and a parent with children could not move to another shard. Each of these streams waited for ever.
"""

from __future__ import annotations

import pytest
from tests.sim.history import History, from_real_order
from tests.sim.rows import Table, delete, insert, update
from tests.sim.search import assert_ends_well, finish
from tests.sim.world import World

A, B = 0, 1
TABLES = (Table("parent", unique=((1,),)), Table("child", parents=((1, "parent"),)))

CHILD_TURNS = from_real_order(
    TABLES,
    [
        (
            A,
            (
                insert("parent", 2, "hot"),
                update("child", (1, 1), (1, 2)),
                delete("parent", 1, None),
                update("parent", (2, "hot"), (2, None)),
            ),
        ),
        (B, (insert("parent", 3, "hot"),)),
    ],
    initial=((insert("parent", 1, None), insert("child", 1, 1)), ()),
)
PARENTS_SWAP = History(
    TABLES,
    (((update("parent", (1, "a"), (1, "b")),),), ((update("parent", (2, "b"), (2, "a")),),)),
    ((insert("parent", 1, "a"), insert("child", 1, 1)), (insert("parent", 2, "b"), insert("child", 2, 2))),
)
PARENT_MOVES = History(
    TABLES,
    (((delete("parent", 1, "a"),),), ((insert("parent", 1, "a"),),)),
    ((insert("parent", 1, "a"), insert("child", 1, 1)), ()),
)


@pytest.mark.parametrize(
    ("history", "counter"),
    [(CHILD_TURNS, "jumps"), (PARENTS_SWAP, "joints"), (PARENT_MOVES, "joints")],
    ids=["a child turns", "parents swap", "a parent moves"],
)
def test_related_rows_change_together(history: History, counter: str) -> None:
    """The remedy that is left, a jump or a joint commit, fits though the rows refer to each other."""
    world = World(history)
    while history is CHILD_TURNS and world.vector != (0, 1):
        world.step("B")
    finish(world)
    assert_ends_well(world)
    assert world.vector == history.end
    assert getattr(world.board.progress("A").counters, counter) == 1
