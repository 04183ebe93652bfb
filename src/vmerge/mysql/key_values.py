"""Parts of keys as SQL: how a value is read exactly, written as a literal, and shown.

Knows: the types of MySQL. Never knows: which rows are asked for. Used by ``collisions.py``.

A value passes through Python as text that the server made, and goes back as a literal that gives the very same value
to a comparison with the column: text as bytes behind the name of its character set, so that the column's own collation
compares; numbers as digits; FLOAT through DOUBLE, as its own text drops digits; ENUM, SET and BIT as numbers. So
neither the connection's character set nor quoting matters. Found by trying each type: all of them use the index.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from pymysql.constants import FIELD_TYPE

from vmerge.core.schema import Column, KeyPart
from vmerge.mysql.sql import quoted


class Form(Enum):
    """How a value travels."""

    NUMBER = "number"
    APPROXIMATE = "approximate"
    WHOLE = "whole"
    """BIT, ENUM: by the number behind the value."""
    SIGNED = "signed"
    """SET: by the same, which a server compares as a number with a sign: the 64th member has the sign's bit."""
    QUOTED = "quoted"
    """Times and years."""
    TEXT = "text"
    BYTES = "bytes"


_FORMS = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "double"), Form.NUMBER),
    "float": Form.APPROXIMATE,
    **dict.fromkeys(("bit", "enum"), Form.WHOLE),
    "set": Form.SIGNED,
    **dict.fromkeys(("date", "time", "datetime", "timestamp", "year"), Form.QUOTED),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), Form.TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Form.BYTES),
}

_WIRE_FORMS = {
    **dict.fromkeys(
        (
            FIELD_TYPE.TINY,
            FIELD_TYPE.SHORT,
            FIELD_TYPE.INT24,
            FIELD_TYPE.LONG,
            FIELD_TYPE.LONGLONG,
            FIELD_TYPE.NEWDECIMAL,
            FIELD_TYPE.DOUBLE,
        ),
        Form.NUMBER,
    ),
    FIELD_TYPE.FLOAT: Form.APPROXIMATE,
    FIELD_TYPE.BIT: Form.WHOLE,
    **dict.fromkeys(
        (FIELD_TYPE.DATE, FIELD_TYPE.TIME, FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.YEAR), Form.QUOTED
    ),
    **dict.fromkeys(
        (
            FIELD_TYPE.STRING,
            FIELD_TYPE.VAR_STRING,
            FIELD_TYPE.VARCHAR,
            FIELD_TYPE.TINY_BLOB,
            FIELD_TYPE.BLOB,
            FIELD_TYPE.MEDIUM_BLOB,
            FIELD_TYPE.LONG_BLOB,
        ),
        Form.TEXT,
    ),
}
"""The forms of what expressions give, by the type that a server names beside a result."""

_CLOCKS = {"time": "TIME", "datetime": "DATETIME", "timestamp": "DATETIME"}
_WIDER_CHARSETS = frozenset({"latin1", "utf8mb3", "utf8mb4"})

_BYTES = "binary"
_ARGUMENTS = re.compile(r"\(\d+(,\d+)?\)")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_HEX = re.compile(r"([0-9A-F]{2})*")
_QUOTED = re.compile(r"[-0-9:. ]+")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One part of a key."""

    name: str
    """For display."""
    expression: str
    """What is compared."""
    form: Form
    charset: str | None = None
    is_labelled: bool = False
    """Whether the number behind the value says less to a reader than its text."""
    widening: str = "{}"
    """What a value of a narrower column, at a source, becomes in this one; see ``core/widening.py``."""

    @property
    def read(self) -> str:
        """The expression that reads the value as text of ASCII characters."""
        value = self.widening.format(self.expression)
        match self.form:
            case Form.TEXT | Form.BYTES:
                return f"HEX({value})"
            case Form.APPROXIMATE:
                return f"CAST({value} + 0e0 AS CHAR)"
            case Form.WHOLE:
                return f"CAST(CAST({value} AS UNSIGNED) AS CHAR)"
            case Form.SIGNED:
                return f"CAST(CAST({value} AS SIGNED) AS CHAR)"
            case Form.NUMBER | Form.QUOTED:
                return f"CAST({value} AS CHAR)"

    @property
    def shown(self) -> str:
        """The expression that reads the value for a person."""
        match self.form:
            case Form.TEXT:
                return f"CONVERT({self.expression} USING utf8mb4)"
            case Form.BYTES:
                return f"CONCAT('0x', HEX({self.expression}))"
            case Form.WHOLE | Form.SIGNED if self.is_labelled:
                return f"CAST({self.expression} AS CHAR)"
            case _:
                return self.read

    def literal(self, text: str) -> str:
        """Return what was read as a literal. The text is a server's, and still must look like what it should be."""
        match self.form:
            case Form.TEXT:
                return f"_{self.charset} X'{_checked(text, _HEX)}'"
            case Form.BYTES:
                return f"_binary X'{_checked(text, _HEX)}'"
            case Form.QUOTED:
                return f"'{_checked(text, _QUOTED)}'"
            case Form.NUMBER | Form.APPROXIMATE | Form.WHOLE | Form.SIGNED:
                return _checked(text, _NUMBER)


def _checked(text: str, pattern: re.Pattern[str]) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError("a server gave a value of another form than its type has")
    return text


def column_value(column: Column, prefix_length: int | None = None) -> KeyValue | None:
    """Return how a column, or its first characters or bytes, is handled; None for types that no key can hold."""
    form = _FORMS.get(column.family)
    if form is None:
        return None
    if form is Form.TEXT and column.charset in (None, _BYTES):
        form = Form.BYTES
    expression = quoted(column.name)
    name = column.name
    if prefix_length is not None:
        expression = f"LEFT({expression}, {prefix_length})"
        name = f"{name}({prefix_length})"
    is_labelled = column.family in ("enum", "set")
    return KeyValue(name, expression, form, column.charset, is_labelled, _widening(column, form))


def _widening(column: Column, form: Form) -> str:
    """Return the cast after which a narrower column's value has this column's text; digits and characters matter."""
    arguments = _ARGUMENTS.search(column.type_text)
    if form is Form.TEXT and column.charset in _WIDER_CHARSETS:
        return f"CONVERT({{}} USING {column.charset})"
    if column.family == "decimal" and arguments is not None:
        return f"CAST({{}} AS DECIMAL{arguments[0]})"
    if column.family in _CLOCKS and arguments is not None:
        return f"CAST({{}} AS {_CLOCKS[column.family]}{arguments[0]})"
    return "{}"


def expression_value(part: KeyPart, wire_type: int, charset: str) -> KeyValue | None:
    """Return how a key's expression is handled, by what a server says of its results; None for other types."""
    form = _WIRE_FORMS.get(wire_type)
    if form is None:
        return None
    if form is Form.TEXT and charset == _BYTES:
        form = Form.BYTES
    return KeyValue(str(part), expression_text(part), form, charset)


def expression_text(part: KeyPart) -> str:
    """Return a key's expression as SQL: the schema views escape quotes and backslashes once too often."""
    text = _ESCAPE.sub(r"\1", part.expression or "")
    return f"({text})"
