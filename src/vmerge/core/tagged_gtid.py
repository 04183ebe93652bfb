"""GTID_TAGGED events (type 42, MySQL 8.3 and later): bytes to a GTID and its commit time.

Knows: the self-describing serialisation these events use. Never knows: what the decoder does with the result.
Used by ``core/binlog.py``. Source: mysql-server, libs/mysql/serialization (variable_length_integers.h) and
``Gtid_event::define_fields``.
"""

from __future__ import annotations

from vmerge.core.position import Gtid
from vmerge.errors import CorruptEvent

_FLAGS, _SOURCE, _NUMBER, _TAG = 0, 1, 2, 3
_LAST_COMMITTED, _SEQUENCE_NUMBER = 4, 5
_COMMIT_TIME = 6


def read_varlen(data: bytes, offset: int) -> tuple[int, int]:
    """Read an unsigned number: the count of trailing one bits in its first byte is the count of further bytes.

    Raises:
        CorruptEvent: the bytes end within the number.
    """
    if offset >= len(data):
        raise CorruptEvent("a tagged GTID event is cut")
    extra = (~data[offset] & (data[offset] + 1)).bit_length() - 1
    end = offset + 1 + extra
    if end > len(data):
        raise CorruptEvent("a tagged GTID event is cut")
    if extra == 8:
        return int.from_bytes(data[offset + 1 : end], "little"), end
    return int.from_bytes(data[offset:end], "little") >> (extra + 1), end


def read_tagged_gtid(body: bytes) -> tuple[Gtid, int]:
    """Read the body behind the common header; return the GTID and the commit time in microseconds.

    Raises:
        CorruptEvent: the body is cut, or has no source or number.
    """
    offset = 0
    for _ in range(3):  # format version, size of the message, last field that must not be ignored
        _, offset = read_varlen(body, offset)
    source = b""
    tag = ""
    number = committed_at = 0
    while offset < len(body):
        field, offset = read_varlen(body, offset)
        if field == _SOURCE:
            source, offset = _read_source(body, offset)
        elif field == _TAG:
            size, offset = read_varlen(body, offset)
            tag, offset = body[offset : offset + size].decode("ascii"), offset + size
        elif field > _COMMIT_TIME:
            break
        else:
            value, offset = read_varlen(body, offset)
            if field == _NUMBER:
                number = value >> 1  # signed: the sign is the lowest bit, and a GTID's number is positive
            elif field == _COMMIT_TIME:
                committed_at = value
    if len(source) != 16 or number < 1:
        raise CorruptEvent("a tagged GTID event names no transaction")
    return Gtid(source, tag, number), committed_at


def _read_source(body: bytes, offset: int) -> tuple[bytes, int]:
    """Read the uuid: sixteen numbers, so that a byte of 128 and more takes two."""
    parts = []
    for _ in range(16):
        part, offset = read_varlen(body, offset)
        parts.append(part)
    return bytes(parts), offset
