"""Values of single columns: the bytes in a row image to something that can be compared as MySQL compares.

Knows: how numbers, texts and times are stored in a row image. Never knows: tables, filters, or how a value is written
in SQL. Used by ``core/predicate_binding.py``.
Source: Field_*::pack in MySQL's sql/field.cc; decimal2bin in strings/decimal.cc; my_datetime_packed_to_binary and
my_timestamp_to_binary in sql-common/my_time.cc.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal

from vmerge.core.column_types import ColumnShape, ColumnType

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

_DIGITS_TO_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
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
    """Return what reads a DECIMAL.

    Nine digits stand in four bytes, fewer in as few as they need: the rest of the whole part in front, that of the
    fraction behind. The sign is the first bit, inverted; a negative number has all its bits inverted.
    """
    precision, scale = shape.metadata
    whole, fraction = divmod(precision - scale, 9), divmod(scale, 9)
    pieces = [whole[1], *[9] * whole[0], *[9] * fraction[0], fraction[1]]

    def read(data: bytes) -> Decimal:
        is_negative = not data[0] & 0x80
        bits = int.from_bytes(data, "big") ^ (0x80 << 8 * (len(data) - 1))
        if is_negative:
            bits ^= (1 << 8 * len(data)) - 1
        plain = bits.to_bytes(len(data), "big")
        number = offset = 0
        for digits in pieces:
            size = _DIGITS_TO_BYTES[digits]
            number = number * 10**digits + int.from_bytes(plain[offset : offset + size], "big")
            offset += size
        return Decimal((int(is_negative and number > 0), tuple(map(int, str(number))), -scale))

    return read


def bytes_reader(shape: ColumnShape, *, is_text: bool) -> Callable[[bytes], bytes]:
    """Return what reads a text or bytes: without the length in front; BINARY with the zeros that are not stored."""
    width = _length_bytes(shape)
    if shape.type is ColumnType.STRING and not is_text:
        size = _fixed_length(shape)
        return lambda data: data[width:].ljust(size, b"\0")
    return lambda data: data[width:]


def _length_bytes(shape: ColumnShape) -> int:
    match shape.type:
        case ColumnType.STRING:
            return 1 if _fixed_length(shape) < 256 else 2
        case ColumnType.BLOB:
            return shape.metadata[0]
    return 1 if int.from_bytes(shape.metadata, "little") < 256 else 2


def _fixed_length(shape: ColumnShape) -> int:
    return (((shape.metadata[0] << 4) & 0x300) ^ 0x300) | shape.metadata[1]


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
