"""A source's table as its rows come to the target: what stands behind FROM.

Knows: how a table's rule is said in SQL. Never knows: why rows are read. Used by ``mysql/lookup.py`` and
``mysql/collisions.py``.

The view has the target's columns, and only the rows that pass the filter. It is a derived table that the server merges
into the query, so conditions on its columns use the source's own indexes, and conditions on a constant column are
decided before a row is read. The session must have time_zone +00:00, for filters by TIMESTAMP.
"""

from __future__ import annotations

from vmerge.core.rules import Constant, TableName, TableRule
from vmerge.core.schema import Column, TableSchema
from vmerge.mysql.sql import quoted

_ALIAS = "v"
_BYTES = "binary"


def quoted_name(name: TableName) -> str:
    """Return the SQL name of a table."""
    return f"{quoted(name[0])}.{quoted(name[1])}"


def source_rows(name: TableName, target: TableSchema, rule: TableRule | None, *, index: str | None = None) -> str:
    """Return the SQL that reads a source's table in the shape of the target's.

    ``index`` is one of the source's indexes, and no other is used. Columns that the source lacks make the query fail.
    """
    force = "" if index is None else f" FORCE INDEX ({quoted(index)})"
    table = f"{quoted_name(name)}{force}"
    if rule is None:
        return table
    renamed = {ours.lower(): theirs for ours, theirs in rule.renamed.items()}
    constants = {ours.lower(): value for ours, value in rule.constants.items()}
    columns = []
    for column in target.columns:
        folded = column.name.lower()
        value = constant(constants[folded], column) if folded in constants else quoted(renamed.get(folded, column.name))
        columns.append(f"{value} AS {quoted(column.name)}")
    condition = "" if rule.where is None else f" WHERE {rule.where.to_sql()}"
    return f"(SELECT {', '.join(columns)} FROM {table}{condition}) AS {_ALIAS}"


def constant(value: Constant, column: Column) -> str:
    """Return a constant column's value as SQL: the same to every comparison as the value of the target's column.

    ENUM values are the numbers of their labels, as wherever rows are compared.
    """
    match value:
        case None:
            return "NULL"
        case int():
            return f"({value})"
    if column.family == "enum":
        return str(column.labels.index(value) + 1)
    data = value.encode("utf-8")
    if column.charset in (None, _BYTES):
        size = column.octet_length if column.family == "binary" else None
        return f"_binary X'{data.ljust(size or 0, bytes(1)).hex()}'"
    text = f"CONVERT(_utf8mb4 X'{data.hex()}' USING {column.charset})"
    return f"({text} COLLATE {column.collation})"
