"""A table map, column by column: taken apart, and put together of other columns.

Knows: what a table map says of one column, and how it is written. Never knows: why a table has other columns than its
source's. Used by ``core/projection.py`` and ``core/carriage.py``.
Source: mysql::binlog::event::Table_map_event, "Table_map_event::Optional_metadata_fields".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from vmerge.core.column_types import CHARACTER_TYPES, NUMERIC_TYPES, ColumnShape, ColumnType, column_shapes
from vmerge.core.events import TableMap
from vmerge.core.schema import Column
from vmerge.core.table_map import ENUM_AND_SET, MapField, read_table_map, write_length, write_table_map
from vmerge.errors import UnsupportedEvent

_Fact = TypeVar("_Fact")


@dataclass(frozen=True, slots=True)
class MapColumn:
    """What a table map says of one column; None where it says nothing, or nothing of a column of this type."""

    shape: ColumnShape
    nullable: bool
    name: str | None = None
    unsigned: bool | None = None
    collation_id: int | None = None
    labels: tuple[bytes, ...] | None = None
    visible: bool | None = None
    geometry: int | None = None
    dimension: int | None = None


def columns_of(table: TableMap) -> tuple[MapColumn, ...]:
    """Take a table map apart.

    Raises:
        UnsupportedEvent: a column's type is not known here.
    """
    shapes = column_shapes(table.types, table.metadata)
    if shapes is None:
        raise UnsupportedEvent(f"{table.name} has a column of a type that is not known here")
    nothing = (None,) * len(shapes)
    told = zip(
        shapes,
        (bool(table.nullable[at // 8] & 1 << at % 8) for at in range(len(shapes))),
        table.names or nothing,
        table.unsigned or nothing,
        table.collation_ids or nothing,
        table.labels or nothing,
        table.visible or nothing,
        table.geometries or nothing,
        table.dimensions or nothing,
        strict=True,
    )
    return tuple(MapColumn(*one) for one in told)


def put_together(like: TableMap, columns: Sequence[MapColumn]) -> TableMap:
    """Return the table map of a table with that map's name and these columns.

    Of each kind of fact it says something only if that is known of all columns that can have one. The primary key is
    never told.
    """
    types, metadata = bytearray(), bytearray()
    for shape in (column.shape for column in columns):
        is_hidden = shape.type in ENUM_AND_SET
        types.append(ColumnType.STRING if is_hidden else shape.type)
        metadata += (bytes((shape.type,)) if is_hidden else b"") + shape.metadata
    nullable = sum(1 << at for at, column in enumerate(columns) if column.nullable)
    tail = write_length(len(types)) + types + write_length(len(metadata)) + metadata
    tail += nullable.to_bytes((len(columns) + 7) // 8, "little")
    for field, value in _fields(columns):
        tail += bytes((field,)) + write_length(len(value)) + value
    return read_table_map(write_table_map(replace(like, tail=tail)))


def told_in_full(table: TableMap, columns: Sequence[Column]) -> TableMap:
    """Return what a source would have told of these columns of its table with binlog_row_metadata=FULL.

    Labels are left out where their bytes are not known.
    """
    pairs = zip(columns_of(table), columns, strict=True)
    return put_together(table, [_in_full(told, column) for told, column in pairs])


def _in_full(told: MapColumn, column: Column) -> MapColumn:
    return replace(
        told,
        name=column.name,
        collation_id=column.collation_id if told.collation_id is None else told.collation_id,
        labels=column.label_bytes if column.labels else None,
        visible=not column.invisible,
    )


def _fields(columns: Sequence[MapColumn]) -> Iterator[tuple[MapField, bytes]]:
    """Yield what is optional in a table map. All names mean: of the columns that can have one."""
    found = {
        MapField.SIGNEDNESS: _all(columns, NUMERIC_TYPES, lambda column: column.unsigned, _bits),
        MapField.COLUMN_CHARSET: _all(columns, CHARACTER_TYPES, lambda column: column.collation_id, _numbers),
        MapField.COLUMN_NAME: _all(columns, None, lambda column: column.name, _texts),
        MapField.SET_LABELS: _all(columns, {ColumnType.SET}, lambda column: column.labels, _labels),
        MapField.ENUM_LABELS: _all(columns, {ColumnType.ENUM}, lambda column: column.labels, _labels),
        MapField.GEOMETRY_TYPE: _all(columns, {ColumnType.GEOMETRY}, lambda column: column.geometry, _numbers),
        MapField.ENUM_AND_SET_COLUMN_CHARSET: _all(columns, ENUM_AND_SET, lambda column: column.collation_id, _numbers),
        MapField.COLUMN_VISIBILITY: _all(columns, None, lambda column: column.visible, _bits),
        MapField.VECTOR_DIMENSIONALITY: _all(columns, {ColumnType.VECTOR}, lambda column: column.dimension, _numbers),
    }
    return ((field, value) for field, value in found.items() if value is not None)


def _all(
    columns: Sequence[MapColumn],
    types: Set[ColumnType] | None,
    read: Callable[[MapColumn], _Fact | None],
    write: Callable[[Sequence[_Fact]], bytes],
) -> bytes | None:
    """Write a fact of all columns of some types, or of all; None if there is none, or it is not known of each."""
    facts = [read(column) for column in columns if types is None or column.shape.type in types]
    known = [fact for fact in facts if fact is not None]
    return write(known) if known and len(known) == len(facts) else None


def _bits(flags: Sequence[bool]) -> bytes:
    """Most significant first."""
    written = bytearray((len(flags) + 7) // 8)
    for at, flag in enumerate(flags):
        written[at // 8] |= 0x80 >> at % 8 if flag else 0
    return bytes(written)


def _numbers(numbers: Sequence[int]) -> bytes:
    return b"".join(map(write_length, numbers))


def _texts(texts: Sequence[str]) -> bytes:
    return _strings([text.encode("utf-8") for text in texts])


def _labels(labels: Sequence[Sequence[bytes]]) -> bytes:
    return b"".join(write_length(len(some)) + _strings(some) for some in labels)


def _strings(strings: Sequence[bytes]) -> bytes:
    return b"".join(write_length(len(one)) + one for one in strings)
