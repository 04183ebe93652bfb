"""Rows events: what may be joined with what.

Knows: the part of a rows event in front of its row images. Never knows: the images, or what the rules make of them.
Used by ``core/source_tables.py``.
Source: mysql::binlog::event::Rows_event.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from vmerge.core.projection import Carried, Projection
from vmerge.core.table_map import read_length
from vmerge.errors import CorruptEvent, UnsupportedEvent

_FLAGS = slice(HEADER_LENGTH + 6, HEADER_LENGTH + 8)
_AFTER_FLAGS = HEADER_LENGTH + 8


class Prefix(NamedTuple):
    """The bytes between an event's header and its first row image, and what they mean."""

    rest: bytes
    """Those behind the key under which the prefix is kept."""
    end: int
    shape: RowsShape


class ProjectedPrefix(NamedTuple):
    """The same, of a table whose rows are changed on their way."""

    rest: bytes
    end: int
    shape: RowsShape
    """At the source."""
    projection: Projection

    def project(self, images: bytes) -> Iterator[RowsEvent]:
        """Yield what rows with these images come to. Raises as ``Projection.rows`` does."""
        return self.projection.rows(RowsEvent(self.shape, images))


class TableEntry:
    """One shape of a source table. Owner: the decoder that made it."""

    __slots__ = ("_shapes", "carried", "table")

    def __init__(self, table: TableMap, carried: Carried | None) -> None:
        self.table = table
        self.carried = carried
        """None for a table whose rows are not wanted."""
        self._shapes: dict[tuple[RowsKind, int], RowsShape] = {}

    def read_prefix(self, carried: Carried, event: bytes, key_end: int) -> Prefix | ProjectedPrefix:
        """Read how a rows event of a wanted table begins; the caller keeps it under what is before ``key_end``.

        Raises:
            CorruptEvent: the column count is not the table map's.
            UnsupportedEvent: the images do not have all columns, or they have flags of unknown meaning.
        """
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
            table = carried.table if carried.projection is None else self.table
            shape = self._shapes[kind, flags] = RowsShape(table, kind, flags, event[start:end])
        if carried.projection is None:
            return Prefix(event[key_end:end], end, shape)
        return ProjectedPrefix(event[key_end:end], end, shape, carried.projection)


def _has_all_columns(bitmap: bytes, count: int) -> bool:
    """Whether the first ``count`` bits are set; those behind the last column may be anything."""
    return ~int.from_bytes(bitmap, "little") & ((1 << count) - 1) == 0
