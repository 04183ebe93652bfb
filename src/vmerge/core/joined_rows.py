"""The conditions under which a row of the target is one of many rows that stand in a statement.

Knows: how a column of the target is compared with a column of values. Never knows: rows. Used by
``core/row_statements.py``, which writes ``(VALUES ROW(…), …) AS vmerge_rows (b0, b1, …) STRAIGHT_JOIN table ON …``.

There a value is no constant but a column of its own, with the type of its literals. So what a constant gets by itself
has to be said: which collation compares, and what a text is that means a time. With it the server looks each row up by
the primary key; found with EXPLAIN on 9.7.4 for every type that is here. Tables whose keys are of other types are
written one row a statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmerge.core.rules import TableName
from vmerge.core.schema import Column, TableSchema

ROWS = "vmerge_rows"
"""What the rows of a statement are called in it."""

JOINED_COLUMNS = 100
"""Of a table at most: wider rows are long enough to go alone."""

_BYTES = "binary"
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"})
_BY_NUMBER = frozenset({"year", "bit", "enum", "set"})
_TIMES = frozenset({"datetime", "timestamp", "time"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_PLAIN = frozenset({"float", "double", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})


def key_condition(schema: TableSchema, place: str) -> str | None:
    """Return the condition that finds a row by its primary key; None when this takes more than a join.

    ``place`` is the table's quoted name.
    """
    if not schema.primary_key_positions or len(schema.columns) > JOINED_COLUMNS:
        return None
    parts = [_key_part(place, schema.columns[at], at) for at in schema.primary_key_positions]
    return None if None in parts else " AND ".join(part for part in parts if part is not None)


def _key_part(place: str, column: Column, at: int) -> str | None:
    name, value = f"{place}.{quoted(column.name)}", f"{ROWS}.b{at}"
    family = column.family
    if family in _NUMBERS or family == "varbinary":
        return f"{name} = {value}"
    if family in _TEXTS:
        return f"{name} = {_converted(value, column)} COLLATE {column.collation}"
    if family == "binary":
        return f"{name} = {_padded(value, column)}"
    if family == "date":
        return f"{name} = CAST({value} AS DATE)"
    if family in ("datetime", "timestamp"):
        return f"{name} = CAST({value} AS DATETIME({_digits(column)}))"
    return None


def guard(schema: TableSchema, place: str, columns: Sequence[int], charsets: Sequence[str | None]) -> str:
    """Return the condition that these columns have the bytes of the values, NULL among them.

    ``charsets`` are those in which text is written: ``binary`` where it is in the column's own.
    """
    return " AND ".join(_same(place, schema.columns[at], at, charsets[at]) for at in columns)


def _same(place: str, column: Column, at: int, charset: str | None) -> str:
    name, value = f"{place}.{quoted(column.name)}", f"{ROWS}.b{at}"
    family = column.family
    if family in _NUMBERS or family in _PLAIN:
        return f"{name} <=> {value}"
    if family == "json":  # documents are equal also when 1 stands for 1.0, which their texts tell apart
        texts = (f"CAST({each} AS CHAR) COLLATE utf8mb4_bin" for each in (name, value))
        return f"{name} <=> {value} AND {' <=> '.join(texts)}"
    if family in _BY_NUMBER:
        return f"CAST({name} AS UNSIGNED) <=> {value}"
    if family == "binary":
        return f"{name} <=> {_padded(value, column)}"
    if family in _TIMES:  # the source's may have fewer digits
        kind = "TIME" if family == "time" else "DATETIME"
        value = f"CAST(CAST({value} AS {kind}({_digits(column)})) AS BINARY)"
    elif family in _TEXTS and charset != _BYTES:
        value = f"CAST({_converted(value, column)} AS BINARY)"
    return f"CAST({name} AS BINARY) <=> {value}"


def after_value(column: Column, at: int) -> str:
    """Return what an update sets a column to.

    Numbers of which some are above 2**63 make a column of decimals, and a SET takes these for signed: on 9.7.4 it loses
    its 64th member without an error.
    """
    value = f"{ROWS}.a{at}"
    return f"CAST({value} AS UNSIGNED)" if column.family == "set" else value


def place_of(name: TableName) -> str:
    """Return the quoted name of a table, which stands for it everywhere: a DELETE takes no alias across databases."""
    return f"{quoted(name[0])}.{quoted(name[1])}"


def _converted(value: str, column: Column) -> str:
    return f"CONVERT({value} USING {column.charset})"


def _padded(value: str, column: Column) -> str:
    """BINARY is stored with the zeros at its end, and sent without."""
    return f"CAST({value} AS BINARY({column.octet_length}))"


def _digits(column: Column) -> int:
    """Return the fractional digits of a time."""
    return int(column.type_text[-2]) if column.type_text.endswith(")") else 0


def quoted(name: str) -> str:
    """Quote one identifier."""
    return "`" + name.replace("`", "``") + "`"
