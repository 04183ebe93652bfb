"""GTID_TAGGED events (type 42, MySQL 8.3 and later): bytes to a GTID and its commit time.

Knows: the self-describing serialisation these events use. Never knows: what the decoder does with the result.
Used by ``core/binlog.py``. Source: mysql-server, libs/mysql/serialization (variable_length_integers.h) and
``Gtid_event::define_fields``.
"""

from __future__ import annotations

import re

from vmerge.core.position import Gtid
from vmerge.errors import CorruptEvent, UnsupportedEvent

_FLAGS, _SOURCE, _NUMBER, _TAG = 0, 1, 2, 3
_LAST_COMMITTED, _SEQUENCE_NUMBER = 4, 5
_COMMIT_TIME = 6
_LAST_KNOWN = 11
"""The fields behind the commit time: its value at the origin, sizes, versions, a ticket. None of them matters here."""

_TAG_TEXT = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.ASCII)


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
        CorruptEvent: the body is cut, or has no source, tag or number.
        UnsupportedEvent: it has a field that must not be ignored and is not known here.
    """
    offset = _read_head(body)
    source = b""
    tag = ""
    number = committed_at = 0
    while offset < len(body):
        field, offset = read_varlen(body, offset)
        if field == _SOURCE:
            source, offset = _read_source(body, offset)
        elif field == _TAG:
            size, offset = read_varlen(body, offset)
            tag, offset = body[offset : offset + size].decode("latin-1"), offset + size
            if offset > len(body):
                raise CorruptEvent("a tagged GTID event is cut")
        elif field > _COMMIT_TIME:
            break
        else:
            value, offset = read_varlen(body, offset)
            if field == _NUMBER:
                number = value >> 1  # signed: the sign is the lowest bit, and a GTID's number is positive
            elif field == _COMMIT_TIME:
                committed_at = value
    if len(source) != 16 or number < 1 or not _TAG_TEXT.fullmatch(tag):
        raise CorruptEvent("a tagged GTID event names no transaction")
    return Gtid(source, tag, number), committed_at


def _read_head(body: bytes) -> int:
    """Return where the fields begin: behind the version, the size and one more than the last must-know field."""
    offset = must_know = 0
    for _ in range(3):
        must_know, offset = read_varlen(body, offset)
    if must_know > _LAST_KNOWN + 1:
        raise UnsupportedEvent("the source writes tagged GTIDs in a form that is not known here")
    return offset


def _read_source(body: bytes, offset: int) -> tuple[bytes, int]:
    """Read the uuid: sixteen numbers, so that a byte of 128 and more takes two."""
    parts = []
    for _ in range(16):
        part, offset = read_varlen(body, offset)
        parts.append(part)
    if max(parts) > 255:
        raise CorruptEvent("the source of a tagged GTID event is no uuid")
    return bytes(parts), offset
