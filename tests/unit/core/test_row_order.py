"""The order of net effects: what goes, comes back and comes, checked when everything it may refer to is settled."""

from __future__ import annotations

from tests.unit.core.table_rules import Rules

from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.fold import fold
from vmerge.core.row_order import Share, in_order


class Relations(Rules):
    """Tables with foreign keys, of which children refer to the first column, and some columns more."""

    def __init__(self, *, referenced: tuple[int, ...] = (0,), circle: str = "", child: int = 0) -> None:
        super().__init__(has_foreign_keys=True, child=child)
        self._referenced = referenced
        self._circle = circle

    def target_name(self, table_map: TableMap) -> tuple[str, str]:
        return "merged", table_map.table

    def referenced_columns(self, table_map: TableMap) -> tuple[int, ...]:
        return self._referenced

    def is_in_circle(self, table_map: TableMap) -> bool:
        return table_map.table == self._circle


class Unrelated(Relations):
    """Tables without foreign keys."""

    def has_foreign_keys(self, table_map: TableMap) -> bool:
        return False


def make_table(name: str) -> TableMap:
    return TableMap("d", name, 0, b"\x03\x03", b"", b"\x00", b"", (), None)


PARENT, CHILD = make_table("parent"), make_table("child")

Row = tuple[int, int]


def event(kind: RowsKind, table: TableMap, *rows: Row) -> RowsEvent:
    shape = RowsShape(table, kind, 0, b"\x02\xff" * (2 if kind is RowsKind.UPDATE else 1))
    return RowsEvent(shape, b"".join(b"\x00" + b"".join(value.to_bytes(4, "little") for value in row) for row in rows))


def insert(table: TableMap, *row: int) -> RowsEvent:
    return event(RowsKind.WRITE, table, (row[0], row[1]))


def delete(table: TableMap, *row: int) -> RowsEvent:
    return event(RowsKind.DELETE, table, (row[0], row[1]))


def update(table: TableMap, before: Row, after: Row) -> RowsEvent:
    return event(RowsKind.UPDATE, table, before, after)


Step = tuple[str, str, str, Row]


def order(rules: Relations, **runs: list[RowsEvent]) -> list[Step]:
    """Return the ordered rows as (owner, what is done, table, row); ``lift`` and ``put`` are not checked."""
    shares = [Share(owner, fold(run, rules), rules) for owner, run in runs.items()]
    return [(owner, _verb(row.shape), row.shape.table.table, _values(row.images)) for owner, row in in_order(shares)]


def _verb(shape: RowsShape) -> str:
    assert len(shape.columns) == 2
    is_checked = not shape.flags & NO_FOREIGN_KEY_CHECKS_FLAG
    if shape.kind is RowsKind.DELETE:
        return "delete" if is_checked else "lift"
    assert shape.kind is RowsKind.WRITE
    return "insert" if is_checked else "put"


def _values(image: bytes) -> Row:
    assert len(image) == 9
    return int.from_bytes(image[1:5], "little"), int.from_bytes(image[5:], "little")


def test_without_foreign_keys_all_goes_before_anything_comes() -> None:
    """Over all shares: deletes, then inserts, an update being both."""
    first = [update(PARENT, (1, 10), (1, 20)), insert(CHILD, 5, 5)]
    second = [update(PARENT, (2, 20), (2, 10)), delete(CHILD, 6, 6)]
    steps = order(Unrelated(), a=first, b=second)
    assert [step[1] for step in steps] == ["delete"] * 3 + ["insert"] * 3
    assert set(steps[:3]) == {
        ("a", "delete", "parent", (1, 10)),
        ("b", "delete", "parent", (2, 20)),
        ("b", "delete", "child", (6, 6)),
    }


def test_a_row_that_comes_back_is_lifted() -> None:
    """An update goes without a check and comes with it, so that children neither hinder it nor are forgotten."""
    run = [
        insert(PARENT, 2, 0),
        update(CHILD, (1, 1), (1, 2)),
        delete(PARENT, 1, 0),
    ]
    assert order(Relations(child=1), a=run) == [
        ("a", "lift", "child", (1, 1)),
        ("a", "delete", "parent", (1, 0)),
        ("a", "insert", "parent", (2, 0)),
        ("a", "insert", "child", (1, 2)),
    ]


def test_a_row_that_comes_back_with_other_references_is_checked() -> None:
    """What children refer to may not change under them."""
    run = [update(PARENT, (1, 10), (1, 20))]
    assert order(Relations(referenced=(1,)), a=run)[0] == ("a", "delete", "parent", (1, 10))


def test_parents_come_first_and_go_last_over_all_shares() -> None:
    """A child may stand in one share and its parent in another."""
    children = [delete(CHILD, 1, 1), insert(CHILD, 2, 2)]
    parents = [delete(PARENT, 1, 0), insert(PARENT, 2, 0)]
    assert order(Relations(child=1), a=children, b=parents) == [
        ("a", "delete", "child", (1, 1)),
        ("b", "delete", "parent", (1, 0)),
        ("b", "insert", "parent", (2, 0)),
        ("a", "insert", "child", (2, 2)),
    ]


def test_a_row_that_moves_to_another_share_is_lifted() -> None:
    """Its children find it again; a row of another key, or without what they refer to, is no such row."""
    moves = order(Relations(), a=[delete(PARENT, 1, 10)], b=[insert(PARENT, 1, 20)])
    assert moves == [("a", "lift", "parent", (1, 10)), ("b", "insert", "parent", (1, 20))]
    for rules, arrival in ((Relations(), (2, 10)), (Relations(referenced=(1,)), (1, 20))):
        first = order(rules, a=[delete(PARENT, 1, 10)], b=[insert(PARENT, *arrival)])[0]
        assert first == ("a", "delete", "parent", (1, 10))


def test_rows_of_a_circle_are_proven_at_the_end() -> None:
    """They go and come without a check; then each that went and each that came is tried with it."""
    run = [delete(PARENT, 1, 0), update(PARENT, (2, 1), (2, 3)), insert(PARENT, 3, 0)]
    assert order(Relations(circle="parent"), a=run) == [
        ("a", "lift", "parent", (1, 0)),
        ("a", "lift", "parent", (2, 1)),
        ("a", "put", "parent", (1, 0)),
        ("a", "delete", "parent", (1, 0)),
        ("a", "put", "parent", (3, 0)),
        ("a", "put", "parent", (2, 3)),
        ("a", "lift", "parent", (3, 0)),
        ("a", "insert", "parent", (3, 0)),
        ("a", "lift", "parent", (2, 3)),
        ("a", "insert", "parent", (2, 3)),
    ]
