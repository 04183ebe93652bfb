"""Rows grouped by kind end like the rows in their own order, or fail."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.grouping import group_by_kind

Row = tuple[int, int]
"""A primary key and a unique value; 0 stands for NULL."""
TABLE = TableMap("d", "t", 0, b"\x03\x03", b"", b"\x02", b"", (), None)
SHAPES = {kind: RowsShape(TABLE, kind, 0, b"") for kind in RowsKind}


class Refused(Exception):
    """A unique key is violated, or a row is not found."""


def alone(table: TableMap) -> bool:
    """No table has foreign keys."""
    return False


def rows_event(kind: RowsKind, *rows: Row) -> RowsEvent:
    return RowsEvent(SHAPES[kind], bytes(number for row in rows for number in row))


def put(table: dict[int, int], row: Row) -> None:
    key, value = row
    if key in table or (value and value in table.values()):
        raise Refused
    table[key] = value


def take(table: dict[int, int], row: Row) -> None:
    if table.pop(row[0], None) is None:
        raise Refused


def apply(start: dict[int, int], events: list[RowsEvent]) -> dict[int, int]:
    """Apply like a server: rows are found by primary key alone, every unique key is checked at every row."""
    table = dict(start)
    for shape, images in events:
        rows = list(zip(images[::2], images[1::2], strict=True))
        for number, row in enumerate(rows):
            is_after = shape.kind is RowsKind.WRITE or (shape.kind is RowsKind.UPDATE and number % 2)
            (put if is_after else take)(table, row)
    return table


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[int, int], list[RowsEvent]]:
    """A table and changes that are legal on it in their order."""
    values = st.sampled_from([0, 0, 7, 8, 9])
    keys = st.integers(1, 5)
    start: dict[int, int] = {}
    events: list[RowsEvent] = []

    def change(table: dict[int, int], following: list[RowsEvent]) -> dict[int, int] | None:
        try:
            return apply(table, following)
        except Refused:
            return None

    for key, value in draw(st.dictionaries(keys, values, max_size=3)).items():
        start = change(start, [rows_event(RowsKind.WRITE, (key, value))]) or start
    table = dict(start)
    for _ in range(draw(st.integers(1, 10))):
        key, new_key, value = draw(keys), draw(keys), draw(values)
        kind = draw(st.sampled_from([RowsKind.WRITE, RowsKind.UPDATE, RowsKind.DELETE]))
        old = (key, table.get(key, 0))
        rows = {RowsKind.WRITE: [(key, value)], RowsKind.UPDATE: [old, (new_key, value)], RowsKind.DELETE: [old]}
        made = rows_event(kind, *rows[kind])
        following = change(table, [made])
        if following is not None:
            table = following
            events.append(made)
    return start, events


@given(histories())
def test_another_order_fails_or_ends_the_same(history: tuple[dict[int, int], list[RowsEvent]]) -> None:
    """Whatever a legal history does, its grouped rows are refused by the server's checks or end in the same rows."""
    start, events = history
    grouped = group_by_kind(events, alone)
    if not events:
        assert grouped is None
        return
    assert grouped is not None
    try:
        end = apply(start, grouped)
    except Refused:
        event("refused")
        return
    event("the same")
    assert end == apply(start, events)


def test_rows_of_a_kind_stay_in_order_and_stand_together() -> None:
    """Inserts, updates, deletes: one event each, the rows in the source's order."""
    events = [
        rows_event(RowsKind.DELETE, (1, 1)),
        rows_event(RowsKind.WRITE, (2, 2)),
        rows_event(RowsKind.UPDATE, (3, 3), (3, 4)),
        rows_event(RowsKind.WRITE, (5, 5)),
    ]
    assert group_by_kind(events, alone) == [
        rows_event(RowsKind.WRITE, (2, 2), (5, 5)),
        rows_event(RowsKind.UPDATE, (3, 3), (3, 4)),
        rows_event(RowsKind.DELETE, (1, 1)),
    ]


def test_what_may_not_change_places_does_not() -> None:
    """Partial images, one kind in two shapes, a table in two forms, or other flags: the source's order is kept."""
    write = rows_event(RowsKind.WRITE, (1, 1))
    other_form = TableMap("d", "t", 0, b"\x03", b"", b"", b"", (), None)
    for shape in (
        SHAPES[RowsKind.PARTIAL_UPDATE],
        RowsShape(TABLE, RowsKind.WRITE, 0, b"other columns"),
        RowsShape(other_form, RowsKind.UPDATE, 0, b""),
        RowsShape(TABLE, RowsKind.UPDATE, 2, b""),
    ):
        assert group_by_kind([write, RowsEvent(shape, b"")], alone) is None
    assert group_by_kind([write], lambda table: table is TABLE) is None
