"""Row images: where one ends, and the bytes of its columns.

Knows: how long the value of every column type is. Never knows: what a value means: nothing is decoded. Used by
``core/fold.py``, ``core/effect.py``, ``core/quarantine.py``, ``core/projection.py`` and ``core/literals.py``.
Source: mysql::binlog::event::Rows_event; Field_*::pack in mysql-server's sql/field.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from vmerge.core.column_types import ColumnShape, ColumnType, column_shapes, decimal_bytes, length_bytes
from vmerge.core.events import RowsKind, RowsShape, TableMap
from vmerge.core.table_map import write_length
from vmerge.errors import CorruptEvent, UnsupportedEvent

Key = tuple[bytes, ...]
"""The bytes of a row's key columns, as they stand in its image. Equal bytes are the same row of one shard."""

Slices = tuple[bytes | None, ...]
"""The bytes of a row's columns, as they stand in its image; None for NULL."""

_Image = TypeVar("_Image", tuple[Key, bytes], Slices)

_Measure = Callable[[bytes, int], int]
"""Image and the offset of a value → the offset behind it."""

_FIXED: dict[ColumnType, int] = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.LONG: 4,
    ColumnType.FLOAT: 4,
    ColumnType.DOUBLE: 8,
    ColumnType.TIMESTAMP: 4,
    ColumnType.LONGLONG: 8,
    ColumnType.INT24: 3,
    ColumnType.DATE: 3,
    ColumnType.TIME: 3,
    ColumnType.DATETIME: 8,
    ColumnType.YEAR: 1,
}

_FRACTIONAL: dict[ColumnType, int] = {ColumnType.TIMESTAMP2: 4, ColumnType.DATETIME2: 5, ColumnType.TIME2: 3}


def _fixed(size: int) -> _Measure:
    return lambda _image, offset: offset + size


def _prefixed(width: int) -> _Measure:
    return lambda image, offset: offset + width + int.from_bytes(image[offset : offset + width], "little")


def _measure(shape: ColumnShape) -> _Measure:
    """Return how a column's value is measured."""
    kind, data = shape.type, shape.metadata
    if kind in _FIXED:
        return _fixed(_FIXED[kind])
    if kind in _FRACTIONAL:
        return _fixed(_FRACTIONAL[kind] + (data[0] + 1) // 2)
    match kind:
        case ColumnType.VARCHAR | ColumnType.VAR_STRING | ColumnType.STRING | ColumnType.BLOB:
            return _prefixed(length_bytes(shape))
        case ColumnType.BIT:
            return _fixed(data[1] + (1 if data[0] else 0))
        case ColumnType.NEWDECIMAL if data[0] >= data[1]:
            return _fixed(decimal_bytes(data[0] - data[1]) + decimal_bytes(data[1]))
        case ColumnType.ENUM | ColumnType.SET:
            return _fixed(data[0])
        case ColumnType.JSON | ColumnType.GEOMETRY | ColumnType.VECTOR:
            return _prefixed(length_bytes(shape))
    raise UnsupportedEvent(f"row images with columns of type {kind.name} cannot be cut")


class ImageCutter:
    """Cuts the images of one table's rows. Immutable.

    Raises ``UnsupportedEvent`` when a column's type is not known here, ``CorruptEvent`` when there is no column.
    """

    def __init__(self, table: TableMap, key_columns: Sequence[int]) -> None:
        shapes = column_shapes(table.types, table.metadata)
        if shapes is None:
            raise UnsupportedEvent(f"{table.name} has a column of a type whose images cannot be cut")
        if not shapes:
            raise CorruptEvent(f"the table map of {table.name} has no columns")
        self._name = table.name
        self._measures = tuple(_measure(shape) for shape in shapes)
        self._key_columns = sorted(set(key_columns))
        self._bitmap_bytes = (len(shapes) + 7) // 8

    def cut(self, images: bytes) -> Iterator[tuple[Key, bytes]]:
        """Yield each full row image in ``images`` with its key, in order.

        Raises:
            CorruptEvent: the images end within a row.
        """
        for start, nulls, bounds in self._walk(images):
            key = [images[bounds[at] : bounds[at + 1]] for at in self._key_columns if not nulls >> at & 1]
            yield tuple(key), images[start : bounds[-1]]

    def slices(self, images: bytes) -> Iterator[Slices]:
        """Yield the columns of each full row image in ``images``, in order. Raises as ``cut`` does."""
        measures, bitmap_bytes = self._measures, self._bitmap_bytes
        offset = 0
        while offset < len(images):
            nulls = int.from_bytes(images[offset : offset + bitmap_bytes], "little")
            offset += bitmap_bytes
            row: list[bytes | None] = []
            for measure in measures:
                if nulls & 1:
                    row.append(None)
                else:
                    start, offset = offset, measure(images, offset)
                    row.append(images[start:offset])
                nulls >>= 1
            if offset > len(images):
                raise CorruptEvent(f"a row image of {self._name} is cut")
            yield tuple(row)

    def _walk(self, images: bytes) -> Iterator[tuple[int, int, list[int]]]:
        """Yield where each row begins, which of its columns are NULL, one bit each, and where each begins and ends."""
        offset = 0
        while offset < len(images):
            start = offset
            offset += self._bitmap_bytes
            nulls = int.from_bytes(images[start:offset], "little")
            bounds = [offset]
            for at, measure in enumerate(self._measures):
                if not nulls >> at & 1:
                    offset = measure(images, offset)
                bounds.append(offset)
            if offset > len(images):
                raise CorruptEvent(f"a row image of {self._name} is cut")
            yield start, nulls, bounds


def join_slices(slices: Sequence[bytes | None]) -> bytes:
    """Return the image of a row with these columns. As servers do, bits behind the last column are set."""
    width = (len(slices) + 7) // 8
    nulls = -1 << len(slices) & (1 << width * 8) - 1
    for at, one in enumerate(slices):
        if one is None:
            nulls |= 1 << at
    return nulls.to_bytes(width, "little") + b"".join(one for one in slices if one is not None)


def pairs(images: Iterator[_Image]) -> Iterator[tuple[_Image, _Image]]:
    """Yield before- and after-image of each updated row, in whatever form they come.

    Raises:
        CorruptEvent: the last row lacks its after-image.
    """
    for before in images:
        after = next(images, None)
        if after is None:
            raise CorruptEvent("an update has a row without its after-image")
        yield before, after


def whole_rows(table: TableMap, kind: RowsKind, flags: int) -> RowsShape:
    """Return the shape of rows whose images have all columns."""
    count = table.column_count
    bitmap = ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
    return RowsShape(table, kind, flags, write_length(count) + bitmap * (2 if kind is RowsKind.UPDATE else 1))
