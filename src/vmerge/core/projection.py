"""Rows of a source's table into rows of a target's: columns chosen, renamed, put in order and added; rows filtered.

Knows: how the bytes of one image become those of another. Never knows: what a value means: every column is copied as it
stands, or is a constant's bytes. Used by ``core/plan.py``, which makes projections, and by ``core/binlog.py``, which
sends the rows of a table through its own before anything else sees them.

So everything behind the decoder has only rows in the target's shape: batches, net effects, quarantine and evidence need
no word about rules. The table map that such rows have keeps the source's name of the table, and says of each column as
much as the source said.

A row filter sees the row as it is at the source. An update that takes a row into the filter is an insert, one that
takes it out is a delete, one outside of it is nothing. So one rows event may become several, in the order of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from vmerge.core.column_types import NUMERIC_TYPES
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.layout import Copied, Layout
from vmerge.core.map_columns import MapColumn, columns_of, put_together
from vmerge.core.proof import expected_shape
from vmerge.core.rowimage import ImageCutter, Slices, join_slices, pairs, whole_rows
from vmerge.core.schema import GENERATED_KEY, Column, TableSchema
from vmerge.errors import UnsupportedEvent

Keeps = Callable[[Slices], bool | None]
"""Whether a row, as it is at the source, is carried; None counts as no, as in WHERE."""

_Change = tuple[RowsKind, bytes]
"""One change of a row, and its image or images."""

GENERATED_KEY_FLAG = 0x04
"""TM_GENERATED_INVISIBLE_PRIMARY_KEY_F: the first column is a primary key that the server made by itself."""


@dataclass(frozen=True, slots=True)
class Carried:
    """How a stream carries rows of one shape."""

    table: TableMap
    """What the rows have behind the decoder."""
    projection: Projection | None = None
    """What makes them so; None when their images are that already."""


class Projection:
    """What happens to the rows of one shape of a source's table. Owner: the decoder that asked for it.

    Raises ``UnsupportedEvent`` when a column's type is not known here.
    """

    def __init__(self, source: TableMap, layout: Layout, target: TableSchema, keeps: Keeps | None = None) -> None:
        self.table = _projected_map(source, layout, target)
        self._source = source
        self._cutter = ImageCutter(source, ())
        self._keeps = keeps
        # A row's slices with the constants behind them, and which of these the target's columns are.
        self._constants: Slices = ()
        self._order: list[int] = []
        for place in layout.places:
            if isinstance(place, Copied):
                self._order.append(place.index)
            else:
                self._order.append(source.column_count + len(self._constants))
                self._constants += (place.image,)
        self._shapes: dict[tuple[RowsKind, int], RowsShape] = {}

    def rows(self, event: RowsEvent) -> Iterator[RowsEvent]:
        """Yield what rows of the source come to, in their order; nothing when none passes the filter.

        Raises:
            UnsupportedEvent: the images are partial.
            CorruptEvent: an image is cut.
        """
        kind, flags = event.shape.kind, event.shape.flags
        if kind is RowsKind.PARTIAL_UPDATE:
            raise UnsupportedEvent(
                f"partial images came for rows of {self._source.name}, which the rules change",
                hint="Set binlog_row_value_options='' on the source, in every session too.",
            )
        slices = self._cutter.slices(event.images)
        if self._keeps is None:
            images = b"".join(map(self._image, slices))
            if images:
                yield RowsEvent(self._shape(kind, flags), images)
            return
        filtered = self._updates(slices, self._keeps) if kind is RowsKind.UPDATE else None
        changes = filtered or self._kept(kind, slices, self._keeps)
        for changed, group in groupby(changes, key=lambda change: change[0]):
            yield RowsEvent(self._shape(changed, flags), b"".join(image for _, image in group))

    def _kept(self, kind: RowsKind, slices: Iterator[Slices], keeps: Keeps) -> Iterator[_Change]:
        return ((kind, self._image(one)) for one in slices if keeps(one))

    def _updates(self, slices: Iterator[Slices], keeps: Keeps) -> Iterator[_Change]:
        for before, after in pairs(slices):
            match bool(keeps(before)), bool(keeps(after)):
                case True, True:
                    yield RowsKind.UPDATE, self._image(before) + self._image(after)
                case True, False:
                    yield RowsKind.DELETE, self._image(before)
                case False, True:
                    yield RowsKind.WRITE, self._image(after)

    def _image(self, slices: Slices) -> bytes:
        pool = slices + self._constants
        return join_slices([pool[index] for index in self._order])

    def _shape(self, kind: RowsKind, flags: int) -> RowsShape:
        """Return one object for each shape: identity is what lets rows be joined."""
        shape = self._shapes.get((kind, flags))
        if shape is None:
            shape = self._shapes[kind, flags] = whole_rows(self.table, kind, flags)
        return shape


def _projected_map(source: TableMap, layout: Layout, target: TableSchema) -> TableMap:
    """Return what a source's table map says of the columns that are carried, under the target's names.

    Names, labels and visibility are told if the source tells them (binlog_row_metadata=FULL).
    """
    theirs = columns_of(source)
    columns = []
    for place, column in zip(layout.places, target.columns, strict=True):
        if isinstance(place, Copied):
            copied = theirs[place.index]
            columns.append(replace(copied, name=column.name) if source.names else copied)
        else:
            columns.append(_constant_column(column, is_full=bool(source.names)))
    flags = source.flags & ~GENERATED_KEY_FLAG
    return put_together(
        replace(source, flags=flags | (GENERATED_KEY_FLAG if _has_generated_key(target) else 0)), columns
    )


def _constant_column(column: Column, *, is_full: bool) -> MapColumn:
    shape = expected_shape(column)
    assert shape is not None  # it takes a constant
    is_labelled = bool(column.labels)
    return MapColumn(
        shape,
        column.nullable,
        column.name if is_full else None,
        column.is_unsigned if shape.type in NUMERIC_TYPES else None,
        column.collation_id if is_full or not is_labelled else None,
        column.label_bytes if is_full and is_labelled else None,
        not column.invisible if is_full else None,
    )


def _has_generated_key(target: TableSchema) -> bool:
    """Whether a server takes the table for one whose primary key it has made by itself."""
    first, key = target.columns[0], target.primary_key
    is_made = first.name == GENERATED_KEY and first.invisible and first.auto_increment
    return is_made and key is not None and [part.column for part in key.parts] == [GENERATED_KEY]
