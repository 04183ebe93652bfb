"""The net effect of a run of transactions of one stream.

Knows: which rows a run changes, from what to what. Never knows: servers, conflicts, or what a value means. Used by
``mysql/target.py`` for a jump. Follows each row from before-image to after-image:

    insert + update = insert of the last       insert + delete = nothing
    update + update = first before, last after update + delete = delete of the first before
    delete + insert = update                   an update that changes the key moves the row

A row that this run inserts and deletes leaves no trace, least of all a DELETE: by then the row with that key may be a
sibling's. The effect is all deletes of first before-images, then all inserts of last after-images, an update being
both: so unique values may be permuted among the rows in any way.

A table with foreign keys keeps its updates as updates, between the deletes and the inserts, and its keys are checked as
the source's events say. So a jump never brings a row that the target would refuse; at worst it fails, and the stream
waits on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.rowimage import ImageCutter, Key
from vmerge.errors import CorruptEvent, UnsupportedEvent


class TableRules(Protocol):
    """What must be known of a table to follow its rows."""

    def key_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """Return where, from 0, the columns of the primary key stand; none without one.

        Raises ``UnsupportedEvent`` for a table whose rows do not tell all.
        """

    def has_foreign_keys(self, table_map: TableMap) -> bool:
        """Whether the table is child or parent of any foreign key."""

    def depth(self, table_map: TableMap) -> int:
        """Return how many parents stand above the table, one above the other; 0 for a table without parents."""


@dataclass(frozen=True, slots=True)
class NetEffect:
    """What a run does in the end: to be applied in this order, each part as it stands.

    Deletes begin with children, inserts with parents.
    """

    deletes: tuple[RowsEvent, ...]
    updates: tuple[RowsEvent, ...]
    inserts: tuple[RowsEvent, ...]

    def rows(self) -> Iterator[RowsEvent]:
        """Yield everything in its order."""
        yield from self.deletes
        yield from self.updates
        yield from self.inserts


class _Change:
    """What a run does to the row of one key: from ``before`` (None: not there) to ``after`` (None: gone)."""

    __slots__ = ("after", "before")

    def __init__(self, before: bytes | None) -> None:
        self.before = before
        self.after = before


class _TableFold:
    """The changes of one table, in the order in which their keys were first met."""

    def __init__(self, table: TableMap, key_columns: tuple[int, ...], *, keeps_updates: bool) -> None:
        if not key_columns:
            raise UnsupportedEvent(f"rows of {table.name} cannot be followed: it has no primary key")
        self.table = table
        self.cutter = ImageCutter(table, key_columns)
        self.changes: dict[Key, _Change] = {}
        self._keeps_updates = keeps_updates
        self._flags: int | None = None

    def add(self, rows: RowsEvent) -> None:
        """Follow the rows of one event."""
        images = self.cutter.cut(rows.images)
        if self._flags not in (None, rows.shape.flags):
            raise UnsupportedEvent(f"rows of {self.table.name} cannot be followed: their flags differ")
        self._flags = rows.shape.flags
        match rows.shape.kind:
            case RowsKind.WRITE:
                for key, image in images:
                    self._appear(key, image)
            case RowsKind.DELETE:
                for key, image in images:
                    self._vanish(key, image)
            case RowsKind.UPDATE:
                for (old_key, before), (key, after) in _pairs(images):
                    self._vanish(old_key, before)
                    self._appear(key, after)
            case RowsKind.PARTIAL_UPDATE:
                raise UnsupportedEvent(f"rows of {self.table.name} cannot be followed: their images are partial")

    def _appear(self, key: Key, image: bytes) -> None:
        change = self.changes.setdefault(key, _Change(None))
        if change.after is not None:
            raise self._contradiction()
        change.after = image

    def _vanish(self, key: Key, image: bytes) -> None:
        change = self.changes.setdefault(key, _Change(image))
        if change.after is None:
            raise self._contradiction()
        change.after = None

    def _contradiction(self) -> UnsupportedEvent:
        """A row came or went in a way that is not in the binlog, as by a cascade that its source does not write."""
        return UnsupportedEvent(f"rows of {self.table.name} cannot be followed: one appears or vanishes twice")

    def deletes(self) -> Iterator[RowsEvent]:
        """Yield the first before-images of the rows that go, or change unless updates are kept."""
        images = [one.before for one in self._changed() if one.before and not (one.after and self._keeps_updates)]
        return self._events(RowsKind.DELETE, images)

    def updates(self) -> Iterator[RowsEvent]:
        """Yield first before- and last after-images of the rows that change, if updates are kept."""
        both = [one.before + one.after for one in self._changed() if one.before and one.after]
        return self._events(RowsKind.UPDATE, both if self._keeps_updates else [])

    def inserts(self) -> Iterator[RowsEvent]:
        """Yield the last after-images of the rows that come, or change unless updates are kept."""
        images = [one.after for one in self._changed() if one.after and not (one.before and self._keeps_updates)]
        return self._events(RowsKind.WRITE, images)

    def _changed(self) -> Iterator[_Change]:
        return (one for one in self.changes.values() if one.before != one.after)

    def _events(self, kind: RowsKind, images: list[bytes]) -> Iterator[RowsEvent]:
        columns = _count_of_columns(self.table) + _all_columns(self.table) * (2 if kind is RowsKind.UPDATE else 1)
        shape = RowsShape(self.table, kind, self._flags or 0, columns)
        return (RowsEvent(shape, image) for image in images)


def fold(rows: Iterable[RowsEvent], rules: TableRules) -> NetEffect:
    """Return the net effect of rows in their source's order.

    Raises:
        UnsupportedEvent: a row cannot be followed (no primary key, partial images, a table in two shapes, changes
            that are not in the binlog).
        CorruptEvent: an image is cut.
    """
    tables: dict[str, _TableFold] = {}
    for event in rows:
        table = event.shape.table
        folded = tables.get(table.name)
        if folded is None:
            keeps_updates = rules.has_foreign_keys(table)
            folded = tables[table.name] = _TableFold(table, rules.key_columns(table), keeps_updates=keeps_updates)
        elif folded.table.tail != table.tail:  # flags may differ: a source marks what a row needs a parent for
            raise UnsupportedEvent(f"rows of {table.name} cannot be followed: its definition changed among them")
        folded.add(event)
    parents_first = sorted(tables.values(), key=lambda folded: rules.depth(folded.table))
    return NetEffect(
        tuple(event for folded in reversed(parents_first) for event in folded.deletes()),
        tuple(event for folded in parents_first for event in folded.updates()),
        tuple(event for folded in parents_first for event in folded.inserts()),
    )


def _pairs(images: Iterator[tuple[Key, bytes]]) -> Iterator[tuple[tuple[Key, bytes], tuple[Key, bytes]]]:
    """Yield before- and after-image of each updated row."""
    for before in images:
        after = next(images, None)
        if after is None:
            raise CorruptEvent("an update has a row without its after-image")
        yield before, after


def _count_of_columns(table: TableMap) -> bytes:
    """Return the column count as it stands in a rows event."""
    count = table.column_count
    return bytes((count,)) if count < 251 else b"\xfc" + count.to_bytes(2, "little")


def _all_columns(table: TableMap) -> bytes:
    """Return the bitmap with all columns present."""
    return ((1 << table.column_count) - 1).to_bytes((table.column_count + 7) // 8, "little")
