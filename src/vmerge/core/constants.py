"""The bytes that a constant has in the row images of a column.

Knows: which constants which types of columns take, and how each stands in an image. Never knows: rows, or where a
constant comes from. Used by ``core/layout.py``.
Source: Field_*::pack in mysql-server's sql/field.cc.
"""

from __future__ import annotations

from vmerge.core.column_types import ColumnShape, ColumnType, length_bytes
from vmerge.core.proof import expected_shape
from vmerge.core.rules import Constant
from vmerge.core.schema import Column


class NotTaken(Exception):
    """A column does not take a constant. The text tells why, as the end of a sentence about the column."""


_INTEGER_BYTES = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
}

_UTF8_BYTES_A_CHARACTER = {"utf8mb4": 4, "utf8mb3": 3}
_ASCII_CHARSETS = frozenset({"ascii", "latin1"})
"""In latin1 what is beyond ASCII could be meant in two ways, as MySQL's is not ISO's."""

_PAD_OF_TEXT, _PAD_OF_BYTES = b" ", b"\0"


def constant_image(value: Constant, column: Column) -> bytes | None:
    """Return a value as it stands in an image of this column; None for NULL.

    Raises:
        NotTaken: the column does not take it.
    """
    if column.generated is not None:
        raise NotTaken("is generated, and takes no constant")
    if value is None:
        if not column.nullable:
            raise NotTaken("is NOT NULL, and cannot be NULL in all rows")
        return None
    shape = expected_shape(column)
    if shape is not None and shape.type in _INTEGER_BYTES:
        return _integer(value, column, _INTEGER_BYTES[shape.type])
    if shape is not None and shape.type is ColumnType.ENUM:
        return _label(value, column, shape.metadata[0])
    if shape is not None and shape.type in (ColumnType.VARCHAR, ColumnType.STRING, ColumnType.BLOB):
        return _text(value, column, shape)
    raise NotTaken(f"is {column.type_text}: constants are for integers, text, bytes and ENUM")


def _integer(value: int | str, column: Column, width: int) -> bytes:
    if not isinstance(value, int):
        raise NotTaken(f"is {column.type_text}, and takes no text")
    try:
        return value.to_bytes(width, "little", signed=not column.is_unsigned)
    except OverflowError:
        raise NotTaken(f"is {column.type_text}, which {value} is out of the range of") from None


def _label(value: int | str, column: Column, width: int) -> bytes:
    if not isinstance(value, str):
        raise NotTaken("is ENUM, and takes one of its labels, not a number")
    if column.label_bytes is None or value not in column.labels:
        raise NotTaken(f"is ENUM, and has no label {value!r}")
    return (column.labels.index(value) + 1).to_bytes(width, "little")


def _text(value: int | str, column: Column, shape: ColumnShape) -> bytes:
    if not isinstance(value, str):
        raise NotTaken(f"is {column.type_text}, and takes no number")
    content = _encode(value, column)
    if shape.type is ColumnType.STRING:  # kept without its padding
        content = content.rstrip(_PAD_OF_BYTES if column.charset is None else _PAD_OF_TEXT)
    limit = column.octet_length or 0
    if len(content) > limit or (column.charset is not None and len(value) * _bytes_a_character(column) > limit):
        raise NotTaken(f"is {column.type_text}, which {value!r} is too long for")
    return len(content).to_bytes(length_bytes(shape), "little") + content


def _encode(value: str, column: Column) -> bytes:
    charset = column.charset
    if charset is None or charset == "utf8mb4":
        return value.encode("utf-8")
    if charset == "utf8mb3":
        if any(ord(character) > 0xFFFF for character in value):
            raise NotTaken(f"has the character set utf8mb3, which lacks a character of {value!r}")
        return value.encode("utf-8")
    if charset not in _ASCII_CHARSETS:
        raise NotTaken(f"has the character set {charset}: constants are for utf8mb4, utf8mb3, latin1 and ascii")
    if not value.isascii():
        raise NotTaken(f"has the character set {charset}: its constant must be plain ASCII, not {value!r}")
    return value.encode("ascii")


def _bytes_a_character(column: Column) -> int:
    """TEXT is bounded in bytes, CHAR and VARCHAR in characters."""
    return _UTF8_BYTES_A_CHARACTER.get(column.charset or "", 1) if "char" in column.family else 0
