"""Table map events: bytes to ``TableMap``.

Knows: the layout of a table map event's body, its optional metadata included. Never knows: which tables are
wanted, or what the target's table looks like. Used by ``core/binlog.py``.
Source: mysql::binlog::event::Table_map_event, "Table_map_event::Optional_metadata_fields".
"""

from __future__ import annotations

from collections.abc import Iterator

from vmerge.core.events import TableMap
from vmerge.errors import CorruptEvent


class _Field(IntEnum):
    """Table_map_event::Optional_metadata_field_type."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_LABELS = 5
    ENUM_LABELS = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12
    VECTOR_DIMENSIONALITY = 13


def read_length(data: bytes, offset: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the offset behind it.

    Raises:
        CorruptEvent: the bytes end within the number, or it is none.
    """
    first = data[offset]
    if first < 251:
        return first, offset + 1
    width = {252: 2, 253: 3, 254: 8}.get(first)
    if width is None or offset + 1 + width > len(data):
        raise CorruptEvent(f"a length in a binlog event is not readable (first byte {first})")
    return int.from_bytes(data[offset + 1 : offset + 1 + width], "little"), offset + 1 + width


def read_table_map(body: bytes) -> TableMap:
    """Read a table map event's body (behind the common header, without checksum).

    Raises:
        CorruptEvent: the body is cut, or its parts contradict each other.
    """
    try:
        return _read_table_map(body)
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptEvent(f"a table map event is not readable: {error}") from error


def _read_table_map(body: bytes) -> TableMap:
    flags = int.from_bytes(body[6:8], "little")
    database, offset = _read_name(body, 8)
    table, offset = _read_name(body, offset)
    tail = body[offset:]
    count, start = read_length(tail, 0)
    types = tail[start : start + count]
    size, offset = read_length(tail, start + count)
    metadata = tail[offset : offset + size]
    offset += size
    nullable = tail[offset : offset + (count + 7) // 8]
    offset += (count + 7) // 8
    if offset > len(tail):
        raise CorruptEvent(f"the table map of {database}.{table} is cut")
    optional = OptionalFields(real_types(types, metadata))
    for field, value in _optional_fields(tail, offset):
        optional.take(field, value)
    return TableMap(
        database,
        table,
        flags,
        types,
        metadata,
        nullable,
        tail,
        optional.names,
        optional.unsigned,
        optional.collation_ids,
        optional.labels,
        optional.primary_key,
        optional.visible,
        optional.geometries,
        optional.dimensions,
    )


def _read_name(body: bytes, offset: int) -> tuple[str, int]:
    """Read a name: its length in bytes (one byte), the name in utf8mb3, and a zero."""
    length = body[offset]
    end = offset + 1 + length
    if body[end] != 0:
        raise CorruptEvent("a name in a table map event does not end where its length says")
    return body[offset + 1 : end].decode("utf-8"), end + 1


def _optional_fields(tail: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    while offset < len(tail):
        field = tail[offset]
        size, start = read_length(tail, offset + 1)
        if start + size > len(tail):
            raise CorruptEvent("the optional metadata of a table map event is cut")
        yield field, tail[start : start + size]
        offset = start + size
