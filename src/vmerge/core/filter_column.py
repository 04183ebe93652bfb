"""The columns of a source's rows, as row filters see them.

Knows: what gives the bytes of a column's values their meaning, from a table map or from a schema. Never knows: what a
filter does with it (``core/predicate_binding.py``). Used by ``core/projection.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmerge.core.column_types import ColumnShape, column_shapes
from vmerge.core.events import TableMap
from vmerge.core.proof import expected_shape
from vmerge.core.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class FilterColumn:
    """One column of a row image."""

    name: str
    shape: ColumnShape | None
    """None for a type that is not known here."""
    nullable: bool
    unsigned: bool | None
    """None where that is not known."""
    collation_id: int | None
    """None where that is not known, and for columns without characters."""
    label_bytes: tuple[bytes, ...] | None
    """The labels of an ENUM, in the column's own charset; None where they are not known."""


def columns_of_schema(schema: TableSchema) -> tuple[FilterColumn, ...]:
    """Return the columns that rows of a table have, if the schema is still the one of the rows."""
    return tuple(_column_of_schema(column) for column in schema.columns)


def _column_of_schema(column: Column) -> FilterColumn:
    return FilterColumn(
        column.name,
        expected_shape(column),
        column.nullable,
        column.is_unsigned,
        column.collation_id,
        column.label_bytes if column.labels else None,
    )


def columns_of_map(table: TableMap) -> tuple[FilterColumn, ...]:
    """Return the columns that a table map describes; it must have their names (binlog_row_metadata=FULL)."""
    shapes = column_shapes(table.types, table.metadata) or (None,) * table.column_count
    return tuple(
        FilterColumn(
            table.names[index],
            shape,
            bool(table.nullable[index // 8] & (1 << index % 8)),
            None if table.unsigned is None else table.unsigned[index],
            None if table.collation_ids is None else table.collation_ids[index],
            None if table.labels is None else table.labels[index],
        )
        for index, shape in enumerate(shapes)
    )
