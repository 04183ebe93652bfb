"""Foreign keys across shards: parents and children of different shards, in any order, always end in the union.

The named cases are searched to the end; random histories go beyond what anybody thought of. ``parent`` has a unique
value, ``child`` a parent, and ``node`` a parent of its own kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.conftest import CI, LONG
from tests.sim.history import History, Work, from_real_order
from tests.sim.rows import Change, Row, RowKey, Table, delete, insert, is_consistent, update
from tests.sim.search import Search, Tally, finish
from tests.sim.test_converge import converge, schedules, settings_of_worlds
from tests.sim.world import Settings, World

from vmerge.errors import ConflictUnresolved

PARENT = Table("parent", unique=((1,),))
CHILD = Table("child", parents=((1, "parent"),))
NODE = Table("node", unique=((2,),), parents=((1, "node"),))
TABLES = (PARENT, CHILD, NODE)
BY_NAME = {table.name: table for table in TABLES}


@dataclass
class Families:
    """All shards in real time: takes wishes, does what keeps all keys, and writes down what was done."""

    streams: int
    rows: dict[RowKey, tuple[int, Row]] = field(default_factory=dict)
    works: list[list[Work]] = field(default_factory=list)
    _last: tuple[int, ...] = ()
    """Who took part in the last moment; the same alone may do more in the same transaction."""

    def __post_init__(self) -> None:
        self.works = [[] for _ in range(self.streams)]

    def wish(self, stream: int, row: tuple[str, Row], kind: str, joins: bool) -> None:
        """Put, delete or move a row, if no key is broken at the end of that moment."""
        table, wished = row
        held = self.rows.get((table, wished[0]))
        if held is None:
            self._do([(stream, insert(table, *wished))], joins)
        elif kind == "delete":
            self._do([(held[0], delete(table, *held[1]))], joins)
        elif kind == "move" and held[0] != stream:
            self._do([(held[0], delete(table, *held[1])), (stream, insert(table, *wished))], joins)
        elif held[1] != wished:
            self._do([(held[0], update(table, held[1], wished))], joins)

    def swap(self, table: str, column: int, ids: tuple[int, int]) -> None:
        """Swap a value of two rows in one moment."""
        first, second = (self.rows.get((table, id_)) for id_ in ids)
        if first is None or second is None or first[1][column] == second[1][column]:
            return
        changes = [
            (owner, update(table, row, (*row[:column], other[column], *row[column + 1 :])))
            for (owner, row), other in ((first, second[1]), (second, first[1]))
        ]
        self._do(changes, joins=False)

    def _do(self, changes: Sequence[tuple[int, Change]], joins: bool) -> None:
        following = dict(self.rows)
        for _, change in changes:
            if change.before is not None:
                del following[change.table, change.before[0]]
        for stream, change in changes:
            if change.after is not None:
                following[change.table, change.after[0]] = (stream, change.after)
        if not is_consistent(BY_NAME, {key: row for key, (_, row) in following.items()}):
            return
        self.rows = following
        streams = tuple(dict.fromkeys(stream for stream, _ in changes))
        for stream in streams:
            work = tuple(change for owner, change in changes if owner == stream)
            if joins and self._last == streams:
                self.works[stream][-1] += work
            else:
                self.works[stream].append(work)
        self._last = streams

    def history(self) -> History:
        """Return what was done."""
        return History(TABLES, tuple(map(tuple, self.works)))


# Named cases

A, B, C = 0, 1, 2
NAMED = {
    "a parent moves, children on two shards stay": History(
        TABLES,
        (((delete("parent", 1, None),),), ((insert("parent", 1, None),),), ((insert("child", 2, None),),)),
        ((insert("parent", 1, None), insert("child", 1, 1)), (), (insert("child", 3, 1),)),
    ),
    "two rows that are each other's parents": History(
        TABLES,
        (
            ((insert("parent", 1, "x"), insert("child", 1, 2)),),
            ((insert("parent", 2, "y"), insert("child", 2, 1)),),
        ),
    ),
    "a child that needs the other's parent, which needs our value": History(
        TABLES,
        (((update("parent", (1, "a"), (1, None)), insert("child", 1, 2)),), ((insert("parent", 2, "a"),),)),
        ((insert("parent", 1, "a"),), ()),
    ),
    "a parent that is deleted first and comes back elsewhere": from_real_order(
        TABLES,
        [
            (A, (insert("parent", 1, "a"),)),
            (B, (insert("child", 1, 1),)),
            (B, (delete("child", 1, 1),)),
            (A, (delete("parent", 1, "a"),)),
            (B, (insert("parent", 1, "a"),)),
            (A, (insert("child", 1, 1),)),
        ],
    ),
    "a tree whose root is on another shard": from_real_order(
        TABLES,
        [(A, (insert("node", 1, None, None),)), (B, (insert("node", 2, 1, None), insert("node", 3, 2, None)))],
    ),
    "a tree that is turned upside down in a jump": from_real_order(
        TABLES,
        [
            (A, (insert("node", 9, None, "hot"), update("node", (2, 1, None), (2, None, None)))),
            (A, (update("node", (1, None, None), (1, 2, None)),)),
            (A, (insert("node", 8, 1, None), update("node", (2, None, None), (2, 2, None)))),
            (A, (delete("node", 3, 1, None), delete("node", 9, None, "hot"))),
            (B, (insert("node", 7, None, "hot"),)),
        ],
        initial=((insert("node", 1, None, None), insert("node", 2, 1, None), insert("node", 3, 1, None)), ()),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_named_families_converge(name: str, tally: Tally) -> None:
    """From every interleaving, with batches of one and three and a crash anywhere, the union."""
    history = NAMED[name]
    tally.histories += 1
    for batch, crashes in ((1, 0), (3, 1)):
        ends = Search(history, Settings(batch=batch, calm=2, jump_after_seconds=0.0), crashes, tally).run()
        assert ends == {history.end}


def test_a_child_whose_parent_never_comes_ends_in_a_time_out() -> None:
    """The stream with the child gives up after the time-out and keeps what is before it; the sibling is at its end."""
    history = History(
        TABLES,
        (((insert("parent", 5, None),), (insert("child", 1, 9),)), ((insert("parent", 1, None),),)),
    )
    world = World(history, Settings(timeout_seconds=20.0))
    finish(world)
    assert world.vector == (1, 1)
    failure = world.streams["A"].failure
    assert type(failure) is ConflictUnresolved
    assert "longer than conflict_timeout_seconds" in failure.message
    assert world.clock.now >= 1020.0


# Random histories

ids = st.integers(1, 3)
references = st.one_of(st.none(), ids)
values = st.sampled_from([None, "a", "b"])
rows = st.one_of(
    st.tuples(st.just("parent"), st.tuples(ids, values)),
    st.tuples(st.just("child"), st.tuples(ids, references)),
    st.tuples(st.just("node"), st.tuples(ids, references, values)),
)


@st.composite
def families(draw: st.DrawFn) -> History:
    """Histories of two to four shards whose union is without fault at every moment."""
    shards = Families(draw(st.integers(2, 4)))
    streams = st.integers(0, shards.streams - 1)
    kinds = st.sampled_from(["update", "update", "move", "delete", "swap"])
    for stream, row, kind, joins, other in draw(
        st.lists(st.tuples(streams, rows, kinds, st.booleans(), ids), min_size=6, max_size=24)
    ):
        if kind == "swap" and row[0] != "child":
            shards.swap(row[0], len(row[1]) - 1, (row[1][0], other))
        else:
            shards.wish(stream, row, kind, joins)
    return shards.history()


@CI
@given(families(), settings_of_worlds, schedules)
def test_random_families_converge(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """Any history of parents and children under any schedule ends in the union."""
    converge(history, settings, schedule)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@LONG
@given(families(), settings_of_worlds, schedules)
def test_many_random_families_converge(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """The same, for as long as one likes."""
    converge(history, settings, schedule)
