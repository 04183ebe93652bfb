"""The net effect of a run of transactions of one stream.

Knows: which rows a run changes, from what to what. Never knows: servers, conflicts, or what a value means. Used for a
jump. Follows each row from before-image to after-image:

    insert + update = insert of the last       insert + delete = nothing
    update + update = first before, last after update + delete = delete of the first before
    delete + insert = update                   an update that changes the key moves the row

A row that this run inserts and deletes leaves no trace, least of all a DELETE: by then the row with that key may be a
sibling's. The effect is all deletes of first before-images, then all inserts of last after-images, an update being
both: so unique values may be permuted among the rows in any way. Foreign keys are not checked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.rowimage import ImageCutter, Key
from vmerge.errors import CorruptEvent, UnsupportedEvent

KeyColumns = Callable[[TableMap], tuple[int, ...]]
"""Table → the positions, from 0, of the columns of its primary key; none when it has no primary key. May itself raise
``UnsupportedEvent``, for a table whose rows do not tell all."""


class _Change:
    """What a run does to the row of one key: from ``before`` (None: not there) to ``after`` (None: gone)."""

    __slots__ = ("after", "before")

    def __init__(self, before: bytes | None) -> None:
        self.before = before
        self.after = before


class _TableFold:
    """The changes of one table, in the order in which their keys were first met."""

    def __init__(self, table: TableMap, key_columns: tuple[int, ...]) -> None:
        if not key_columns:
            raise UnsupportedEvent(f"rows of {table.name} cannot be followed: it has no primary key")
        self.table = table
        self.cutter = ImageCutter(table, key_columns)
        self.changes: dict[Key, _Change] = {}
        self.flags = 0

    def add(self, rows: RowsEvent) -> None:
        """Follow the rows of one event."""
        images = self.cutter.cut(rows.images)
        self.flags |= rows.shape.flags
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

    def deletes(self) -> list[bytes]:
        """Return the first before-images of the rows that are gone or changed."""
        return [one.before for one in self.changes.values() if one.before is not None and one.before != one.after]

    def inserts(self) -> list[bytes]:
        """Return the last after-images of the rows that are new or changed."""
        return [one.after for one in self.changes.values() if one.after is not None and one.before != one.after]

    def events(self, kind: RowsKind, images: list[bytes]) -> Iterator[RowsEvent]:
        """Yield the images as rows events of one shape."""
        shape = RowsShape(self.table, kind, self.flags | NO_FOREIGN_KEY_CHECKS_FLAG, _all_columns(self.table))
        for image in images:
            yield RowsEvent(shape, image)


def fold(rows: Iterable[RowsEvent], key_columns: KeyColumns) -> list[RowsEvent]:
    """Return the net effect of rows in their source's order: deletes, then inserts.

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
            folded = tables[table.name] = _TableFold(table, key_columns(table))
        elif folded.table is not table:
            raise UnsupportedEvent(f"rows of {table.name} cannot be followed: its definition changed among them")
        folded.add(event)
    effect: list[RowsEvent] = []
    for folded in tables.values():
        effect.extend(folded.events(RowsKind.DELETE, folded.deletes()))
    for folded in tables.values():
        effect.extend(folded.events(RowsKind.WRITE, folded.inserts()))
    return effect


def _pairs(images: Iterator[tuple[Key, bytes]]) -> Iterator[tuple[tuple[Key, bytes], tuple[Key, bytes]]]:
    """Yield before- and after-image of each updated row."""
    for before in images:
        after = next(images, None)
        if after is None:
            raise CorruptEvent("an update has a row without its after-image")
        yield before, after


def _all_columns(table: TableMap) -> bytes:
    """Return the column count and a bitmap with all columns present, as they stand in a rows event."""
    count = table.column_count
    head = bytes((count,)) if count < 251 else b"\xfc" + count.to_bytes(2, "little")
    return head + ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
