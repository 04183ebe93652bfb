"""Rows of the simulator: tables, changes of single rows, and their disguise as rows events.

Knows: how a change travels inside a ``RowsEvent``: as real row images, every column a short text, so that the real
net effect of a run can be made of them. Never knows: streams, players or locks. Used by the other modules of the
simulator.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap

Value = int | str | None
Row = tuple[Value, ...]
"""The first value is the primary key."""
RowKey = tuple[str, Value]
"""Table and primary key."""
Rows = Mapping[RowKey, Row]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its first column is the primary key."""

    name: str
    unique: tuple[tuple[int, ...], ...] = ()
    """Unique keys as column indexes; a NULL in any of them never conflicts."""
    parents: tuple[tuple[int, str], ...] = ()
    """Foreign keys: column index and the table whose primary key it names."""


class Change(NamedTuple):
    """One row's change: an insert has no ``before``, a delete no ``after``."""

    table: str
    before: Row | None
    after: Row | None

    @property
    def kind(self) -> RowsKind:
        """What kind of rows event carries it."""
        if self.before is None:
            return RowsKind.WRITE
        return RowsKind.DELETE if self.after is None else RowsKind.UPDATE

    def __repr__(self) -> str:
        return f"Change({self.table!r}, {self.before!r}, {self.after!r})"


def insert(table: str, *values: Value) -> Change:
    """Return the insert of a row."""
    return Change(table, None, values)


def delete(table: str, *values: Value) -> Change:
    """Return the delete of a row, given whole."""
    return Change(table, values, None)


def update(table: str, before: Row, after: Row) -> Change:
    """Return the update of a row."""
    return Change(table, before, after)


@cache
def _table_map(table: str, columns: int) -> TableMap:
    varchar = b"\x0f" * columns, b"\xff\x00" * columns
    return TableMap("shop", table, 1, *varchar, b"\xff" * ((columns + 7) // 8), b"", (), None)


@cache
def _shape(table: str, columns: int, kind: RowsKind) -> RowsShape:
    bitmap = ((1 << columns) - 1).to_bytes((columns + 7) // 8, "little")
    bitmaps = bitmap * (2 if kind is RowsKind.UPDATE else 1)
    return RowsShape(_table_map(table, columns), kind, 0, bytes((columns,)) + bitmaps)


def _image(row: Row) -> bytes:
    nulls = sum(1 << column for column, value in enumerate(row) if value is None)
    texts = [json.dumps(value).encode() for value in row if value is not None]
    return nulls.to_bytes((len(row) + 7) // 8, "little") + b"".join(bytes((len(text),)) + text for text in texts)


@cache
def encode(change: Change) -> RowsEvent:
    """Return the rows event that carries a change."""
    rows = [row for row in (change.before, change.after) if row is not None]
    return RowsEvent(_shape(change.table, len(rows[0]), change.kind), b"".join(map(_image, rows)))


def _read_image(image: bytes, columns: int) -> tuple[Row, bytes]:
    offset = (columns + 7) // 8
    nulls = int.from_bytes(image[:offset], "little")
    row: list[Value] = []
    for column in range(columns):
        if nulls >> column & 1:
            row.append(None)
            continue
        end = offset + 1 + image[offset]
        row.append(json.loads(image[offset + 1 : end]))
        offset = end
    return tuple(row), image[offset:]


@cache
def decode(event: RowsEvent) -> Change:
    """Return the change that a rows event of one row carries."""
    table = event.shape.table
    first, rest = _read_image(event.images, table.column_count)
    match event.shape.kind:
        case RowsKind.WRITE:
            return Change(table.table, None, first)
        case RowsKind.DELETE:
            return Change(table.table, first, None)
        case _:
            return Change(table.table, first, _read_image(rest, table.column_count)[0])


def unique_entries(table: Table, row: Row) -> Iterable[tuple[int, Row]]:
    """Yield the entries that a row has in its table's unique keys: the key's number and its values."""
    for number, columns in enumerate(table.unique):
        values = tuple(row[column] for column in columns)
        if None not in values:
            yield number, values


def is_consistent(tables: Mapping[str, Table], rows: Rows) -> bool:
    """Tell, looking at all rows, whether no unique key has an entry twice and no foreign key dangles."""
    seen: set[tuple[str, int, Row]] = set()
    for (table_name, _), row in rows.items():
        table = tables[table_name]
        for number, values in unique_entries(table, row):
            if (table_name, number, values) in seen:
                return False
            seen.add((table_name, number, values))
        for column, parent in table.parents:
            if row[column] is not None and (parent, row[column]) not in rows:
                return False
    return True


def changed(tables: Mapping[str, Table], rows: Rows, change: Change) -> dict[RowKey, Row] | None:
    """Return the rows after a change; None if it is not possible on these rows.

    Raises AssertionError if the row to update or delete is not there, or is another than the change says.
    """
    following = dict(rows)
    if change.before is not None:
        found = following.pop((change.table, change.before[0]), None)
        assert found == change.before, f"{change} meets {found}"
    if change.after is not None:
        key = (change.table, change.after[0])
        if key in following:
            return None
        following[key] = change.after
    return following if is_consistent(tables, following) else None
