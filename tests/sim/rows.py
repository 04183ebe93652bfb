"""Rows of the simulator: tables, changes of single rows, and their disguise as rows events.

Knows: how a change travels inside a ``RowsEvent``. Never knows: streams, players or locks. The player never looks
into images, so their bytes here are what ``SimTarget`` likes best. Used by the other modules of the simulator.
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
def _shape(table: str, kind: RowsKind) -> RowsShape:
    table_map = TableMap("shop", table, 1, b"\x03", b"", b"\x00", b"", (), None)
    return RowsShape(table_map, kind, 0, b"\x01\xff")


@cache
def encode(change: Change) -> RowsEvent:
    """Return the rows event that carries a change."""
    images = json.dumps([change.before, change.after]).encode()
    return RowsEvent(_shape(change.table, change.kind), images)


@cache
def _decode_images(images: bytes) -> tuple[Row | None, Row | None]:
    before, after = (None if image is None else tuple(image) for image in json.loads(images))
    return before, after


def decode(event: RowsEvent) -> Change:
    """Return the change that a rows event carries."""
    return Change(event.shape.table.table, *_decode_images(event.images))


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
