"""Values of one column: the bytes of a row image → a SQL literal that gives a column of that type the very same bytes.

Knows: how each type but JSON lies in a row image, and what MySQL makes of a literal. Never knows: tables, names or
rows. Used by ``core/literals.py``.

No value passes through a date, a float in decimal rounding, or text of any character set: integers are printed from
their bits, times digit by digit from their packed fields, text goes as bytes behind the name of its character set.

Source of the layouts: Field_*::pack in mysql-server's sql/field.cc; my_time.cc for times, decimal.cc for DECIMAL. What
literals do was found by trying every type on MySQL 9.7.4: see tests/values.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Callable
from functools import lru_cache
from struct import unpack

from vmerge.core.column_types import ColumnShape, ColumnType, decimal_bytes, length_bytes
from vmerge.errors import CorruptEvent, UnsupportedEvent

Literal = Callable[[bytes], bytes]
"""The bytes of a value, as they stand in an image → SQL.

Raises ``UnsupportedEvent`` for a value that no MySQL column of the type takes, with the reason only: the caller names
the column.
"""

_INTEGERS = frozenset({ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG})
MOST_DECIMAL_DIGITS = 65
TEXT_TYPES = frozenset({ColumnType.STRING, ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.BLOB})
"""Text or bytes, as their collation says."""
_MOST_FRACTION = 6
_GROUP_DIGITS = 9
_TIME_OFFSET = 0x80_0000
_DATETIME_OFFSET = 0x80_0000_0000
_LAST_TIMESTAMP = 0x7FFF_FFFF
_LAST_YEAR = 9999
_MOST_HOURS = 838
_MONTHS_A_YEAR = 13
"""DATETIME counts a month 0 in each year."""
_DAY_SECONDS = 86_400


def value_literal(shape: ColumnShape, unsigned: bool | None, charset: str | None) -> Literal:
    """Return how values of a column become literals. ``charset`` is that of text, ``binary`` for bytes.

    Raises:
        UnsupportedEvent: the type cannot be written, or the source does not send what it needs.
        CorruptEvent: the type's metadata contradict themselves.
    """
    kind, data = shape.type, shape.metadata
    if kind in _INTEGERS:
        if unsigned is None:
            raise UnsupportedEvent("the source does not say whether its numbers have a sign")
        return _unsigned if unsigned else _signed
    if kind in TEXT_TYPES:
        return text_literal(length_bytes(shape), charset)
    make = _MADE.get(kind)
    if make is not None:
        return make(data)
    found = _PLAIN.get(kind)
    if found is None:
        raise UnsupportedEvent(f"values of type {kind.name} cannot be written as SQL")
    return found


# Numbers


def _signed(value: bytes) -> bytes:
    return b"%d" % int.from_bytes(value, "little", signed=True)


def _unsigned(value: bytes) -> bytes:
    return b"%d" % int.from_bytes(value, "little")


def _float(value: bytes) -> bytes:
    return approximate(unpack("<f", value)[0])


def _double(value: bytes) -> bytes:
    return approximate(unpack("<d", value)[0])


def approximate(value: float) -> bytes:
    """Return the shortest digits that name this double, with an exponent: without one, -0 would lose its sign.

    A FLOAT is a double, too, and converts back to the same FLOAT.
    """
    text = b"%a" % finite(value)
    return text if b"e" in text else text + b"e0"


def finite(value: float) -> float:
    """Return the number; no column takes one that is not finite."""
    if value - value != 0:
        raise UnsupportedEvent("a number that is not finite")
    return value


def _year(value: bytes) -> bytes:
    """As a number: the text '0' would be the year 2000."""
    return b"%d" % (1900 + value[0] if value[0] else 0)


def _bits(value: bytes) -> bytes:
    return b"%d" % int.from_bytes(value, "big")


def _decimal(metadata: bytes) -> Literal:
    precision, scale = metadata
    if not 0 < precision <= MOST_DECIMAL_DIGITS or scale > precision:
        raise CorruptEvent(f"a DECIMAL of {precision} digits, {scale} of them behind the point")
    return _decimal_reader(precision, scale)


def decimal_digits(value: bytes, precision: int, scale: int) -> bytes:
    """Return a packed DECIMAL as digits, all its zeros behind the point included."""
    return _decimal_reader(precision, scale)(value)


@lru_cache(maxsize=256)
def _decimal_reader(precision: int, scale: int) -> Literal:
    """Nine digits are four bytes; the group that is not full is the first in front of the point, the last behind it."""
    full, rest = divmod(precision - scale, _GROUP_DIGITS)
    widths = [rest] * bool(rest) + [_GROUP_DIGITS] * full
    full, rest = divmod(scale, _GROUP_DIGITS)
    widths += [_GROUP_DIGITS] * full + [rest] * bool(rest)
    sizes = [8 * decimal_bytes(width) for width in widths]
    groups = [
        (sum(sizes[at + 1 :]), (1 << size) - 1, 10**width)
        for at, (width, size) in enumerate(zip(widths, sizes, strict=True))
    ]
    positive = 1 << sum(sizes) - 1
    inverted = positive - 1

    def literal(value: bytes) -> bytes:
        packed = int.from_bytes(value, "big")
        is_negative = packed < positive
        packed ^= inverted if is_negative else positive
        number = 0
        for shift, mask, power in groups:
            group = packed >> shift & mask
            if group >= power:
                raise UnsupportedEvent("a DECIMAL with a group of too many digits")
            number = number * power + group
        if is_negative:
            if not number:
                raise UnsupportedEvent("a DECIMAL that is a negative zero")
            number = -number
        if not scale:
            return b"%d" % number
        digits = b"%0*d" % (scale + 1 + is_negative, number)
        return digits[:-scale] + b"." + digits[-scale:]

    return literal


# Dates and times


def _date(value: bytes) -> bytes:
    number = int.from_bytes(value, "little")
    return b"'%s'" % _date_text(number >> 9, number >> 5 & 15, number & 31)


def _date_text(year: int, month: int, day: int) -> bytes:
    """Return a date as text; zeros and days that the month does not have are MySQL's own, anything else is refused."""
    if year > _LAST_YEAR or month > 12:
        raise UnsupportedEvent(f"a date in month {month} of the year {year}")
    return b"%04d-%02d-%02d" % (year, month, day)


def _clock_text(hour: int, minute: int, second: int, fraction: int, digits: int) -> bytes:
    """Return a time of day, or a span of time, as text."""
    if minute > 59 or second > 59 or fraction >= 10**digits:
        raise UnsupportedEvent(f"a time of {minute} minutes, {second} seconds and a fraction of {fraction}")
    text = b"%02d:%02d:%02d" % (hour, minute, second)
    return text + b".%0*d" % (digits, fraction) if digits else text


def _fraction_digits(metadata: bytes) -> int:
    if metadata[0] > _MOST_FRACTION:
        raise CorruptEvent(f"a time with {metadata[0]} fractional digits")
    return metadata[0]


def _fraction(value: bytes, digits: int) -> int:
    """Read a fraction: a byte has two digits, so an odd count has a zero behind it."""
    number = int.from_bytes(value, "big")
    if digits % 2 == 0:
        return number
    number, rest = divmod(number, 10)
    if rest:
        raise UnsupportedEvent(f"a fraction of a second with more than {digits} digits")
    return number


def _datetime(metadata: bytes) -> Literal:
    digits = _fraction_digits(metadata)

    def literal(value: bytes) -> bytes:
        packed = int.from_bytes(value[:5], "big") - _DATETIME_OFFSET
        return b"'%s'" % datetime_text(packed, _fraction(value[5:], digits), digits)

    return literal


def datetime_text(packed: int, fraction: int, digits: int) -> bytes:
    """Return date and time, packed into one number as DATETIME is, as text."""
    year, month = divmod(packed >> 22, _MONTHS_A_YEAR)
    hour, minute, second = packed >> 12 & 31, packed >> 6 & 63, packed & 63
    if packed < 0 or year > _LAST_YEAR or hour > 23 or minute > 59 or second > 59 or fraction >= 10**digits:
        raise UnsupportedEvent(f"a DATETIME of the year {year}, the time {hour}:{minute}:{second} or {fraction} behind")
    text = b"%04d-%02d-%02d %02d:%02d:%02d" % (year, month, packed >> 17 & 31, hour, minute, second)
    return text + b".%0*d" % (digits, fraction) if digits else text


def _timestamp(metadata: bytes) -> Literal:
    """In UTC: sessions have the time zone +00:00."""
    digits = _fraction_digits(metadata)

    def literal(value: bytes) -> bytes:
        seconds = int.from_bytes(value[:4], "big")
        fraction = _fraction(value[4:], digits)
        if seconds == 0:
            if fraction:
                raise UnsupportedEvent("a TIMESTAMP within the first second of 1970")
            return b"'0000-00-00 %s'" % _clock_text(0, 0, 0, 0, digits)
        if seconds > _LAST_TIMESTAMP:
            raise UnsupportedEvent("a TIMESTAMP after 2038-01-19")
        days, rest = divmod(seconds, _DAY_SECONDS)
        clock = _clock_text(rest // 3600, rest // 60 % 60, rest % 60, fraction, digits)
        return b"'%s %s'" % (_day_text(days), clock)

    return literal


@lru_cache(maxsize=1024)
def _day_text(days: int) -> bytes:
    """Return the Gregorian date of a day counted from 1970-01-01, not before it. Rows come in few days at a time."""
    from_march = days + 719_468  # days from 0000-03-01: the leap day ends a year
    era, day_of_era = divmod(from_march, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return _date_text(era * 400 + year_of_era + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1)


def _time(metadata: bytes) -> Literal:
    """The whole value is one number, fraction and all, so a negative one is the complement of both parts."""
    digits = _fraction_digits(metadata)
    width = (digits + 1) // 2
    zero = _TIME_OFFSET << 8 * width

    def literal(value: bytes) -> bytes:
        number = int.from_bytes(value, "big") - zero
        packed, rest = divmod(abs(number), 1 << 8 * width)
        return b"'%s'" % time_text(number < 0, packed, _fraction(rest.to_bytes(width, "big"), digits), digits)

    return literal


def time_text(negative: bool, packed: int, fraction: int, digits: int) -> bytes:
    """Return a span of time, packed into one number as TIME is, as text."""
    hour = packed >> 12
    if hour > _MOST_HOURS:
        raise UnsupportedEvent(f"a TIME of {hour} hours")
    clock = _clock_text(hour, packed >> 6 & 63, packed & 63, fraction, digits)
    return b"-" + clock if negative else clock


# Text and bytes


def text_literal(width: int, charset: str | None) -> Literal:
    """Return how values behind a length of ``width`` bytes become literals."""
    if charset is None:
        raise UnsupportedEvent("the source does not say in which character set its text is")
    # What is valid in utf8mb3 has the same bytes in utf8mb4, and its own name would give a warning for each value.
    introducer = "utf8mb4" if charset == "utf8mb3" else charset
    head = b"_%s X'" % introducer.encode("ascii")

    def literal(value: bytes) -> bytes:
        return head + hexlify(memoryview(value)[width:]) + b"'"

    return literal


def _vector(metadata: bytes) -> Literal:
    return text_literal(metadata[0], "binary")


def _geometry(metadata: bytes) -> Literal:
    width = metadata[0]
    write = text_literal(width, "binary")

    def literal(value: bytes) -> bytes:
        if len(value) == width:
            raise UnsupportedEvent("a geometry without any byte")
        return write(value)

    return literal


_PLAIN: dict[ColumnType, Literal] = {
    ColumnType.FLOAT: _float,
    ColumnType.DOUBLE: _double,
    ColumnType.YEAR: _year,
    ColumnType.BIT: _bits,
    ColumnType.DATE: _date,
    ColumnType.ENUM: _unsigned,
    ColumnType.SET: _unsigned,
}

_MADE: dict[ColumnType, Callable[[bytes], Literal]] = {
    ColumnType.NEWDECIMAL: _decimal,
    ColumnType.DATETIME2: _datetime,
    ColumnType.TIMESTAMP2: _timestamp,
    ColumnType.TIME2: _time,
    ColumnType.VECTOR: _vector,
    ColumnType.GEOMETRY: _geometry,
}
"""By metadata."""
