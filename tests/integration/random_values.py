"""Random values of each type, as they stand in row images.

The layouts are written down here a second time on purpose.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from random import Random
from struct import unpack

Draw = Callable[[Random], bytes]


def _bytes(size: int) -> Draw:
    return lambda draw: draw.randbytes(size)


def _finite(form: str, size: int) -> Draw:
    """Any bits but those of NaN and infinity."""

    def make(draw: Random) -> bytes:
        while True:
            value = draw.randbytes(size)
            if isfinite(unpack(form, value)[0]):
                return value

    return make


def _decimal(whole: tuple[int, ...], fraction: tuple[int, ...]) -> Draw:
    """Groups of so many digits in front of and behind the point."""

    def make(draw: Random) -> bytes:
        sizes = {9: 4, 8: 4, 7: 4, 6: 3, 5: 3, 4: 2, 3: 2, 2: 1, 1: 1}
        groups = [
            (draw.randrange(10**digits) if draw.random() < 0.8 else 0, sizes[digits]) for digits in whole + fraction
        ]
        value = bytearray(b"".join(group.to_bytes(size, "big") for group, size in groups))
        value[0] |= 0x80
        if any(group for group, _ in groups) and draw.random() < 0.5:
            return bytes(byte ^ 0xFF for byte in value)
        return bytes(value)

    return make


def _clock(draw: Random, hours: int) -> int:
    return draw.randrange(hours) << 12 | draw.randrange(60) << 6 | draw.randrange(60)


def _day(draw: Random) -> int:
    """Year and month in one number, then a day that the month may not have."""
    return draw.randrange(10_000 * 13) << 5 | draw.randrange(32)


def _date(draw: Random) -> bytes:
    months, day = divmod(_day(draw), 32)
    return (months // 13 << 9 | months % 13 << 5 | day).to_bytes(3, "little")


def _fraction(draw: Random, digits: int) -> bytes:
    """Two digits a byte; an odd last digit has a zero behind it."""
    number = draw.randrange(10**digits) * (10 if digits % 2 else 1)
    return number.to_bytes((digits + 1) // 2, "big")


def _datetime(draw: Random) -> bytes:
    return (1 << 39 | _day(draw) << 17 | _clock(draw, 24)).to_bytes(5, "big") + _fraction(draw, 6)


def _timestamp(digits: int) -> Draw:
    return lambda draw: draw.randrange(1, 1 << 31).to_bytes(4, "big") + _fraction(draw, digits)


def _time(digits: int) -> Draw:
    def make(draw: Random) -> bytes:
        fraction = _fraction(draw, digits)
        number = _clock(draw, 838) << 8 * len(fraction) | int.from_bytes(fraction, "big")
        width = 3 + len(fraction)
        return ((1 << 8 * width - 1) + draw.choice((-1, 1)) * number).to_bytes(width, "big")

    return make


def _text(draw: Random) -> bytes:
    value = draw.randbytes(draw.randrange(20))
    return bytes((len(value),)) + value


def _document(make: Draw) -> Draw:
    def document(draw: Random) -> bytes:
        value = make(draw)
        return len(value).to_bytes(4, "little") + value

    return document


def _double_document(draw: Random) -> bytes:
    return b"\x0b" + _finite("<d", 8)(draw)


def _whole_document(draw: Random) -> bytes:
    """A whole number, with a sign or without, in as few bytes as a server takes for it."""
    number = draw.getrandbits(draw.randrange(1, 64)) * draw.choice((-1, 1))
    signed = number < 0 or draw.random() < 0.5
    size = next(size for size in (2, 4, 8) if _fits(number, size, signed=signed))
    kind = {2: 5, 4: 7, 8: 9}[size] + (not signed)
    return bytes((kind,)) + number.to_bytes(size, "little", signed=signed)


def _fits(number: int, size: int, *, signed: bool) -> bool:
    return number.bit_length() + signed <= 8 * size or number == -1 << 8 * size - 1


def _time_document(draw: Random) -> bytes:
    kind = draw.choice((7, 10, 11, 12))
    micro = draw.randrange(10**6)
    if kind == 11:
        number = draw.choice((-1, 1)) * (_clock(draw, 838) << 24 | micro)
    elif kind == 10:
        number = _day(draw) << 41
    elif kind == 12:
        number = (_day(draw) << 17 | _clock(draw, 24)) << 24 | micro
    else:
        months = draw.randrange(1970, 2038) * 13 + draw.randrange(1, 13)
        number = ((months << 5 | draw.randrange(1, 29)) << 17 | _clock(draw, 24)) << 24 | micro
    return b"\x0f" + bytes((kind, 8)) + number.to_bytes(8, "little", signed=True)


def _bytes_document(draw: Random) -> bytes:
    kind = draw.choice((15, 249, 250, 251, 252, 254))
    value = draw.randbytes(draw.randrange(1, 100))
    return bytes((0x0F, kind, len(value))) + value


RANDOM: tuple[tuple[str, Draw], ...] = (
    ("BIGINT", _bytes(8)),
    ("MEDIUMINT UNSIGNED", _bytes(3)),
    ("DOUBLE", _finite("<d", 8)),
    ("FLOAT", _finite("<f", 4)),
    ("DECIMAL(65,30)", _decimal((8, 9, 9, 9), (9, 9, 9, 3))),
    ("DECIMAL(20,10)", _decimal((1, 9), (9, 1))),
    ("BIT(64)", _bytes(8)),
    ("YEAR", _bytes(1)),
    ("DATE", _date),
    ("DATETIME(6)", _datetime),
    ("TIMESTAMP(6) NULL", _timestamp(6)),
    ("TIMESTAMP(3) NULL", _timestamp(3)),
    ("TIME(6)", _time(6)),
    ("TIME(5)", _time(5)),
    ("TIME(1)", _time(1)),
    ("VARBINARY(20)", _text),
    ("VARCHAR(20) CHARACTER SET latin1", _text),
    ("JSON", _document(_double_document)),
    ("JSON", _document(_whole_document)),
    ("JSON", _document(_time_document)),
    ("JSON", _document(_bytes_document)),
)
"""Types, and what draws the bytes of a value of each."""
