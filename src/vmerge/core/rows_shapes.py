"""Rows events: what may be joined with what.

Knows: the part of a rows event in front of its row images. Never knows: the images. Used by ``core/binlog.py``.
Source: mysql::binlog::event::Rows_event.
"""

from __future__ import annotations

from typing import NamedTuple

from vmerge.core.event_types import (
    HEADER_LENGTH,
    KNOWN_ROWS_FLAGS,
    RELAXED_UNIQUE_CHECKS_FLAG,
    ROWS_KINDS,
    STATEMENT_END_FLAG,
    WRITE_ROWS,
)
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.table_map import read_length
from vmerge.errors import CorruptEvent, UnsupportedEvent

_FLAGS = slice(HEADER_LENGTH + 6, HEADER_LENGTH + 8)
_AFTER_FLAGS = HEADER_LENGTH + 8
_KEY = slice(HEADER_LENGTH + 6, _AFTER_FLAGS + 4)
"""The flags, and enough behind them to tell the partitions of a table apart (length, type, number)."""


_MANY_PREFIXES = 1000
"""Kept at most of one table: some for each partition; with version 1 a row's first bytes may count as well."""


class _Prefix(NamedTuple):
    """The bytes between an event's flags and its first row image, and what they mean."""

    content: bytes
    end: int
    shape: RowsShape


_new = tuple.__new__
"""Makes a named tuple past its own constructor, for the values that each transaction has: a tenth of its whole cost."""


class TableEntry:
    """One shape of a source table and the rows prefixes met with it. Owner: the decoder that made it."""

    __slots__ = ("_prefixes", "_shapes", "table", "wanted")

    def __init__(self, table: TableMap, wanted: bool) -> None:
        self.table = table
        self.wanted = wanted
        self._prefixes: dict[bytes, _Prefix] = {}
        self._shapes: dict[tuple[RowsKind, int], RowsShape] = {}

    def read_rows(self, event: bytes, end: int | None) -> RowsEvent:
        """Cut a rows event, whose content ends at ``end``, into its shape and its row images.

        Raises:
            CorruptEvent: the column count is not the table map's.
            UnsupportedEvent: the images do not have all columns, or they have flags of unknown meaning.
        """
        key = event[4:5] + event[_KEY]
        prefix = self._prefixes.get(key)
        if prefix is None or not event.startswith(prefix.content, _AFTER_FLAGS):
            prefix = self._read_prefix(event)
            if len(self._prefixes) >= _MANY_PREFIXES:
                self._prefixes.clear()
            self._prefixes[key] = prefix
        _, at, shape = prefix
        return _new(RowsEvent, (shape, event[at:end]))

    def _read_prefix(self, event: bytes) -> _Prefix:
        kind = ROWS_KINDS[event[4]]
        flags = int.from_bytes(event[_FLAGS], "little") & ~(STATEMENT_END_FLAG | RELAXED_UNIQUE_CHECKS_FLAG)
        if flags & ~KNOWN_ROWS_FLAGS:
            raise UnsupportedEvent(f"rows of {self.table.name} have flags that are not known here ({flags:#x})")
        start = _AFTER_FLAGS
        if event[4] >= WRITE_ROWS:  # from version 2 on: extra data behind a length that counts itself
            extra = int.from_bytes(event[start : start + 2], "little")
            if extra < 2:
                raise CorruptEvent(f"rows of {self.table.name} have a prefix that is shorter than itself")
            start += extra
        count, bitmaps = read_length(event, start)
        if count != self.table.column_count:
            raise CorruptEvent(f"rows of {self.table.name} have another count of columns than their table map")
        width = (count + 7) // 8
        images = 1 if kind in (RowsKind.WRITE, RowsKind.DELETE) else 2
        end = bitmaps + width * images
        if not all(_has_all_columns(event[at : at + width], count) for at in range(bitmaps, end, width)):
            raise UnsupportedEvent(
                f"rows of {self.table.name} were written without all their columns",
                hint="Set binlog_row_image=FULL on the source, in every session too.",
            )
        # One object for each shape: identity is what lets rows be joined. All columns are there, so these two decide.
        shape = self._shapes.get((kind, flags))
        if shape is None:
            shape = self._shapes[kind, flags] = RowsShape(self.table, kind, flags, event[start:end])
        return _Prefix(event[_AFTER_FLAGS:end], end, shape)


def _has_all_columns(bitmap: bytes, count: int) -> bool:
    """Whether the first ``count`` bits are set; those behind the last column may be anything."""
    return ~int.from_bytes(bitmap, "little") & ((1 << count) - 1) == 0
