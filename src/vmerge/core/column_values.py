"""Values of single columns: the bytes in a row image to something that can be compared as MySQL compares.

Knows: how numbers, texts and times are stored in a row image. Never knows: tables, filters, or how a value is written
in SQL. Used by ``core/predicate_binding.py``.
Source: Field_*::pack in MySQL's sql/field.cc; my_datetime_packed_to_binary and my_timestamp_to_binary in
sql-common/my_time.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from vmerge.core.column_types import ColumnShape, ColumnType, fixed_length, length_bytes
from vmerge.core.value_literals import decimal_digits

WIDTHS = {
    ColumnType.TINY: 1,
    ColumnType.SHORT: 2,
    ColumnType.INT24: 3,
    ColumnType.LONG: 4,
    ColumnType.LONGLONG: 8,
}
"""The whole numbers, and their bytes."""

CHARACTERS = frozenset({ColumnType.STRING, ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.BLOB})
"""Texts and bytes."""

ZERO_TIMESTAMP = -(10**18)
"""0000-00-00 00:00:00, which is before every other time."""

_FRACTION_BITS = 24


def whole_reader(shape: ColumnShape, *, unsigned: bool) -> Callable[[bytes], int]:
    """Return what reads a whole number, a YEAR or a BIT."""
    if shape.type is ColumnType.YEAR:
        return _read_year
    if shape.type is ColumnType.BIT:
        return lambda data: int.from_bytes(data, "big")
    return lambda data: int.from_bytes(data, "little", signed=not unsigned)


def bit_count(shape: ColumnShape) -> int:
    """Return how many bits a BIT has."""
    return shape.metadata[0] + shape.metadata[1] * 8


def _read_year(data: bytes) -> int:
    return 1900 + data[0] if data[0] else 0


def decimal_reader(shape: ColumnShape) -> Callable[[bytes], Decimal]:
    """Return what reads a DECIMAL."""
    precision, scale = shape.metadata
    return lambda data: Decimal(decimal_digits(data, precision, scale).decode("ascii"))


def bytes_reader(shape: ColumnShape, *, is_text: bool) -> Callable[[bytes], bytes]:
    """Return what reads a text or bytes: without the length in front; BINARY with the zeros that are not stored."""
    width = length_bytes(shape)
    if shape.type is ColumnType.STRING and not is_text:
        size = fixed_length(shape.metadata)
        return lambda data: data[width:].ljust(size, b"\0")
    return lambda data: data[width:]


def read_index(data: bytes) -> int:
    """Read the number of an ENUM's label; 0 is the empty text that stands for a value that was refused."""
    return int.from_bytes(data, "little")


def read_date(data: bytes) -> int:
    """Read a DATE; zero and partial dates too. Earlier dates are smaller numbers."""
    return int.from_bytes(data, "little")


def pack_date(at: datetime) -> int:
    """Return what ``read_date`` gives for a day."""
    return at.year << 9 | at.month << 5 | at.day


def datetime_reader(shape: ColumnShape) -> Callable[[bytes], int]:
    """Return what reads a DATETIME, zero and partial ones too. Earlier times are smaller numbers."""
    unit = _fraction_unit(shape)

    def read(data: bytes) -> int:
        return (int.from_bytes(data[:5], "big") << _FRACTION_BITS) + int.from_bytes(data[5:], "big") * unit

    return read


def pack_datetime(at: datetime) -> int:
    """Return what ``datetime_reader`` reads for a time: month and day, then the time, behind a sign that is set."""
    days = (at.year * 13 + at.month) << 5 | at.day
    seconds = at.hour << 12 | at.minute << 6 | at.second
    return (1 << 39 | days << 17 | seconds) << _FRACTION_BITS | at.microsecond


def timestamp_reader(shape: ColumnShape) -> Callable[[bytes], int]:
    """Return what reads a TIMESTAMP: microseconds since 1970 in UTC, or ``ZERO_TIMESTAMP``."""
    unit = _fraction_unit(shape)

    def read(data: bytes) -> int:
        seconds = int.from_bytes(data[:4], "big")
        if not seconds:
            return ZERO_TIMESTAMP
        return seconds * 1_000_000 + int.from_bytes(data[4:], "big") * unit

    return read


def pack_timestamp(at: datetime) -> int:
    """Return what ``timestamp_reader`` reads for a time in UTC."""
    return int(at.replace(microsecond=0, tzinfo=UTC).timestamp()) * 1_000_000 + at.microsecond


def _fraction_unit(shape: ColumnShape) -> int:
    """Return how many microseconds one is in the fraction; it is stored in pairs of digits."""
    return int(10 ** (6 - (shape.metadata[0] + 1) // 2 * 2))
