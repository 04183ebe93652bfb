"""Whether rows that come with a table map can be applied to a table by position, without changing a value.

Knows: which type and metadata bytes the binlog has for a column that a server describes in words. Never knows:
which tables a stream carries. Used by ``core/plan.py``.

A server that applies row events is silent where it should not be: a table with fewer columns loses values, labels in
another order become other labels, swapped columns of one type swap values. So every column is compared by all that
the table map says about it.
Source: Field::do_save_field_metadata of each type in MySQL's sql/field.cc; tried with every type in
tests/integration/test_schemas.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from vmerge.core.column_types import ColumnShape, ColumnType, column_shapes
from vmerge.core.events import TableMap
from vmerge.core.schema import Column, TableSchema, label_difference

_ARGUMENTS = re.compile(r"\((\d+)(?:,(\d+))?\)")

_PLAIN = {
    "tinyint": ColumnShape(ColumnType.TINY, b""),
    "smallint": ColumnShape(ColumnType.SHORT, b""),
    "mediumint": ColumnShape(ColumnType.INT24, b""),
    "int": ColumnShape(ColumnType.LONG, b""),
    "bigint": ColumnShape(ColumnType.LONGLONG, b""),
    "float": ColumnShape(ColumnType.FLOAT, b"\x04"),
    "double": ColumnShape(ColumnType.DOUBLE, b"\x08"),
    "date": ColumnShape(ColumnType.DATE, b""),
    "year": ColumnShape(ColumnType.YEAR, b""),
    "json": ColumnShape(ColumnType.JSON, b"\x04"),
    "vector": ColumnShape(ColumnType.VECTOR, b"\x04"),
}

_BLOBS = ("tinytext", "text", "mediumtext", "longtext"), ("tinyblob", "blob", "mediumblob", "longblob")
"""The place of each is the count of its length bytes, less one."""

_GEOMETRIES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geomcollection",
)
"""The place of each is its number in a table map."""

BYTES_COLLATION_ID = 63


def expected_shape(column: Column) -> ColumnShape | None:
    """Return the type and metadata bytes that table maps have for a column; None for a type not known here."""
    family = column.family
    if family in _PLAIN:
        return _PLAIN[family]
    if family in _GEOMETRIES:
        return ColumnShape(ColumnType.GEOMETRY, b"\x04")
    for names in _BLOBS:
        if family in names:
            return ColumnShape(ColumnType.BLOB, bytes((names.index(family) + 1,)))
    make = _SHAPES.get(family)
    return make(column) if make is not None else None


def _arguments(column: Column, default: int = 0) -> tuple[int, int]:
    match = _ARGUMENTS.search(column.type_text)
    return (int(match[1]), int(match[2] or 0)) if match is not None else (default, 0)


def _temporal(kind: ColumnType) -> Callable[[Column], ColumnShape]:
    return lambda column: ColumnShape(kind, bytes((_arguments(column)[0],)))


def _varying(column: Column) -> ColumnShape:
    return ColumnShape(ColumnType.VARCHAR, (column.octet_length or 0).to_bytes(2, "little"))


def _fixed(column: Column) -> ColumnShape:
    """The two high bits of a length up to 1023 hide in the type byte, inverted."""
    length = column.octet_length or 0
    return ColumnShape(ColumnType.STRING, bytes((ColumnType.STRING ^ ((length & 0x300) >> 4), length & 0xFF)))


def _bit(column: Column) -> ColumnShape:
    whole, rest = divmod(_arguments(column, 1)[0], 8)
    return ColumnShape(ColumnType.BIT, bytes((rest, whole)))


def _set(column: Column) -> ColumnShape:
    """A SET has a bit a label, in 1, 2, 3, 4 or 8 bytes."""
    width = (len(column.labels) + 7) // 8
    return ColumnShape(ColumnType.SET, bytes((8 if width > 4 else width,)))


_SHAPES: dict[str, Callable[[Column], ColumnShape]] = {
    "time": _temporal(ColumnType.TIME2),
    "datetime": _temporal(ColumnType.DATETIME2),
    "timestamp": _temporal(ColumnType.TIMESTAMP2),
    "decimal": lambda column: ColumnShape(ColumnType.NEWDECIMAL, bytes(_arguments(column))),
    "bit": _bit,
    "varchar": _varying,
    "varbinary": _varying,
    "char": _fixed,
    "binary": _fixed,
    "enum": lambda column: ColumnShape(ColumnType.ENUM, b"\x01" if len(column.labels) < 256 else b"\x02"),
    "set": _set,
}


def map_differences(table_map: TableMap, schema: TableSchema, side: str) -> tuple[str, ...]:
    """Say how a table's columns differ from what a table map says of its rows; ``side`` is how the table is called."""
    count = table_map.column_count
    if count != len(schema.columns):
        return (f"the rows have {count} columns, {side} has {len(schema.columns)}",)
    shapes = column_shapes(table_map.types, table_map.metadata)
    if shapes is None:
        return ("the rows have a column of a type that is not known here",)
    found: list[str] = []
    for index, (shape, column) in enumerate(zip(shapes, schema.columns, strict=True)):
        found.extend(
            f"column {column.position} (`{column.name}` in {side}): {text}"
            for text in _column_differences(table_map, index, shape, column)
        )
    return tuple(found)


def _column_differences(table_map: TableMap, index: int, shape: ColumnShape, column: Column) -> Iterator[str]:
    if table_map.names and table_map.names[index].lower() != column.name.lower():
        yield f"is called `{table_map.names[index]}` in the rows"
    if shape != expected_shape(column):
        yield f"is {shape} in the rows, {column.type_text} in the table"
        return
    if table_map.nullable[index // 8] & (1 << index % 8) and not column.nullable:
        yield "may be NULL in the rows, not in the table"
    if table_map.visible is not None and table_map.visible[index] == column.invisible:
        yield f"is {'visible' if column.invisible else 'invisible'} in the rows, not in the table"
    yield from _value_differences(table_map, index, column)


def _value_differences(table_map: TableMap, index: int, column: Column) -> Iterator[str]:
    """Compare what gives the bytes of a value their meaning."""
    if table_map.unsigned is not None and table_map.unsigned[index] != column.is_unsigned:
        yield f"is {'unsigned' if table_map.unsigned[index] else 'signed'} in the rows, not in the table"
    collation_id = table_map.collation_ids[index] if table_map.collation_ids is not None else None
    if collation_id is not None and collation_id != _collation_id(column):
        yield f"has the collation with number {collation_id} in the rows, {column.collation or 'none'} in the table"
    geometry = table_map.geometries[index] if table_map.geometries is not None else None
    if geometry is not None and _geometry(geometry) != column.family:
        yield f"is {_geometry(geometry)} in the rows, {column.family} in the table"
    dimension = table_map.dimensions[index] if table_map.dimensions is not None else None
    if dimension is not None and dimension != _arguments(column)[0]:
        yield f"has {dimension} dimensions in the rows, {_arguments(column)[0]} in the table"
    labels = table_map.labels[index] if table_map.labels is not None else None
    if labels is not None:
        yield from _label_differences(labels, column)


def _geometry(number: int) -> str:
    return _GEOMETRIES[number] if number < len(_GEOMETRIES) else f"geometry {number}"


def _collation_id(column: Column) -> int | None:
    return BYTES_COLLATION_ID if column.family == "vector" else column.collation_id


def _label_differences(labels: tuple[bytes, ...], column: Column) -> Iterator[str]:
    if column.label_bytes is None:
        if len(labels) != len(column.labels):
            yield f"has {len(labels)} labels in the rows, {len(column.labels)} in the table"
    elif labels != column.label_bytes:
        ours = tuple(label.decode("utf-8", "backslashreplace") for label in labels)
        theirs = tuple(label.decode("utf-8", "backslashreplace") for label in column.label_bytes)
        yield label_difference(ours, theirs)
