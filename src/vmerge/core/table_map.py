"""Table map events: bytes to ``TableMap``.

Knows: the layout of a table map event's body, its optional metadata included. Never knows: which tables are
wanted, or what the target's table looks like. Used by ``core/source_tables.py`` and ``core/map_columns.py``.
Source: mysql::binlog::event::Table_map_event, "Table_map_event::Optional_metadata_fields".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from enum import IntEnum
from typing import TypeVar

from vmerge.core.column_types import CHARACTER_TYPES, NUMERIC_TYPES, ColumnShape, ColumnType, column_shapes
from vmerge.core.events import TableMap
from vmerge.errors import CorruptEvent

_Value = TypeVar("_Value")

MOST_COLUMNS = 4096
"""Of one table, in any storage engine ("Limits on Table Column Count" in MySQL's manual)."""


class MapField(IntEnum):
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


ENUM_AND_SET = frozenset({ColumnType.ENUM, ColumnType.SET})
_COLLATED: dict[int, frozenset[ColumnType]] = {
    MapField.DEFAULT_CHARSET: CHARACTER_TYPES,
    MapField.COLUMN_CHARSET: CHARACTER_TYPES,
    MapField.ENUM_AND_SET_DEFAULT_CHARSET: ENUM_AND_SET,
    MapField.ENUM_AND_SET_COLUMN_CHARSET: ENUM_AND_SET,
}


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


def write_length(number: int) -> bytes:
    """Return a length-encoded integer, such that ``read_length`` reads it."""
    if number < 251:
        return bytes((number,))
    width, first = next((width, first) for width, first in ((2, 252), (3, 253), (8, 254)) if number < 1 << 8 * width)
    return bytes((first,)) + number.to_bytes(width, "little")


def read_table_map(body: bytes) -> TableMap:
    """Read a table map event's body (behind the common header, without checksum).

    Raises:
        CorruptEvent: the body is cut, or its parts contradict each other.
    """
    try:
        return _read_table_map(body)
    except (IndexError, ValueError) as error:
        raise CorruptEvent(f"a table map event is not readable: {error}") from error


def write_table_map(table: TableMap) -> bytes:
    """Return the body of a table map event, such that ``read_table_map`` gives an equal table map."""
    names = b"".join(
        bytes((len(name),)) + name + b"\0" for name in (table.database.encode("utf-8"), table.table.encode("utf-8"))
    )
    return bytes(6) + table.flags.to_bytes(2, "little") + names + table.tail


def _read_table_map(body: bytes) -> TableMap:
    flags = int.from_bytes(body[6:8], "little")
    database, offset = _read_name(body, 8)
    table, offset = _read_name(body, offset)
    tail = body[offset:]
    count, start = read_length(tail, 0)
    if not 0 < count <= MOST_COLUMNS:
        raise CorruptEvent(f"the table map of {database}.{table} has {count} columns")
    types = tail[start : start + count]
    size, offset = read_length(tail, start + count)
    metadata = tail[offset : offset + size]
    offset += size
    nullable = tail[offset : offset + (count + 7) // 8]
    offset += (count + 7) // 8
    if offset > len(tail):
        raise CorruptEvent(f"the table map of {database}.{table} is cut")
    columns = _Columns(column_shapes(types, metadata) or ())
    if columns.shapes:
        for field, value in _optional_fields(tail, offset):
            columns.take(field, value)
        if columns.names and len(columns.names) != count:
            raise CorruptEvent(f"the table map of {database}.{table} has another count of names than of columns")
    return TableMap(
        database,
        table,
        flags,
        types,
        metadata,
        nullable,
        tail,
        columns.names,
        columns.unsigned,
        columns.collation_ids(),
        columns.labels(),
        columns.primary_key,
        columns.visible,
        columns.geometries,
        columns.dimensions,
    )


class _Columns:
    """The optional metadata of one table map, spread over all columns.

    The event numbers the columns of each kind by themselves: the third bit of the signedness is that of the third
    numeric column.
    """

    def __init__(self, shapes: Sequence[ColumnShape]) -> None:
        self.shapes = shapes
        self.names: tuple[str, ...] = ()
        self.unsigned: tuple[bool, ...] | None = None
        self.primary_key: tuple[int, ...] | None = None
        self.visible: tuple[bool, ...] | None = None
        self.geometries: tuple[int | None, ...] | None = None
        self.dimensions: tuple[int | None, ...] | None = None
        self._collation_ids: dict[int, int] = {}
        self._labels: dict[int, tuple[bytes, ...]] = {}

    def collation_ids(self) -> tuple[int | None, ...] | None:
        return self._spread(self._collation_ids) if self._collation_ids else None

    def labels(self) -> tuple[tuple[bytes, ...] | None, ...] | None:
        return self._spread(self._labels) if self._labels else None

    def take(self, field: int, value: bytes) -> None:
        """Read one field. One that is not known here is left alone: what it says is more than we ask."""
        match field:
            case MapField.DEFAULT_CHARSET | MapField.ENUM_AND_SET_DEFAULT_CHARSET:
                self._take_default_collation(_COLLATED[field], value)
            case MapField.COLUMN_CHARSET | MapField.ENUM_AND_SET_COLUMN_CHARSET:
                self._collation_ids.update(self._numbers(_COLLATED[field], value))
            case MapField.ENUM_LABELS | MapField.SET_LABELS:
                kind = ColumnType.ENUM if field == MapField.ENUM_LABELS else ColumnType.SET
                self._take_labels(self._indexes({kind}), value)
            case MapField.SIMPLE_PRIMARY_KEY:
                self.primary_key = tuple(_read_numbers(value))
            case MapField.PRIMARY_KEY_WITH_PREFIX:
                self.primary_key = tuple(_read_numbers(value)[::2])  # each index is followed by a length
            case _:
                self._take_plain(field, value)

    def _take_plain(self, field: int, value: bytes) -> None:
        match field:
            case MapField.SIGNEDNESS:
                indexes = self._indexes(NUMERIC_TYPES)
                bits = dict(zip(indexes, _read_bits(value, len(indexes)), strict=True))
                self.unsigned = tuple(bits.get(index, False) for index in range(len(self.shapes)))
            case MapField.COLUMN_NAME:
                self.names = tuple(name.decode("utf-8") for name in _read_texts(value))
            case MapField.COLUMN_VISIBILITY:
                self.visible = _read_bits(value, len(self.shapes))
            case MapField.GEOMETRY_TYPE:
                self.geometries = self._spread(self._numbers({ColumnType.GEOMETRY}, value))
            case MapField.VECTOR_DIMENSIONALITY:
                self.dimensions = self._spread(self._numbers({ColumnType.VECTOR}, value))

    def _indexes(self, types: Set[ColumnType]) -> list[int]:
        return [index for index, shape in enumerate(self.shapes) if shape.type in types]

    def _numbers(self, types: Set[ColumnType], value: bytes) -> dict[int, int]:
        indexes, numbers = self._indexes(types), _read_numbers(value)
        if len(indexes) != len(numbers):
            raise CorruptEvent("the optional metadata of a table map event has another count of columns")
        return dict(zip(indexes, numbers, strict=True))

    def _take_default_collation(self, types: Set[ColumnType], value: bytes) -> None:
        """Read the collation of most columns, then index and collation of each other one."""
        default, *others = _read_numbers(value)
        indexes = self._indexes(types)
        self._collation_ids.update(dict.fromkeys(indexes, default))
        for index, collation_id in zip(others[::2], others[1::2], strict=True):
            self._collation_ids[indexes[index]] = collation_id

    def _take_labels(self, indexes: list[int], value: bytes) -> None:
        offset = 0
        for index in indexes:
            count, offset = read_length(value, offset)
            labels = []
            for _ in range(count):
                label, offset = _read_text(value, offset)
                labels.append(label)
            self._labels[index] = tuple(labels)

    def _spread(self, values: Mapping[int, _Value]) -> tuple[_Value | None, ...]:
        return tuple(values.get(index) for index in range(len(self.shapes)))


def _read_name(body: bytes, offset: int) -> tuple[str, int]:
    """Read a name: its length in bytes (one byte), the name in utf8mb3, and a zero."""
    length = body[offset]
    end = offset + 1 + length
    if body[end] != 0:
        raise CorruptEvent("a name in a table map event does not end where its length says")
    return body[offset + 1 : end].decode("utf-8"), end + 1


def _optional_fields(tail: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    met: set[int] = set()
    while offset < len(tail):
        field = tail[offset]
        if field in met:
            raise CorruptEvent("a table map event has a field of its optional metadata twice")
        met.add(field)
        size, start = read_length(tail, offset + 1)
        if start + size > len(tail):
            raise CorruptEvent("the optional metadata of a table map event is cut")
        yield field, tail[start : start + size]
        offset = start + size


def _read_numbers(value: bytes) -> list[int]:
    numbers = []
    offset = 0
    while offset < len(value):
        number, offset = read_length(value, offset)
        numbers.append(number)
    return numbers


def _read_text(value: bytes, offset: int) -> tuple[bytes, int]:
    length, start = read_length(value, offset)
    if start + length > len(value):
        raise CorruptEvent("a text in the optional metadata of a table map event is cut")
    return value[start : start + length], start + length


def _read_texts(value: bytes) -> list[bytes]:
    texts = []
    offset = 0
    while offset < len(value):
        text, offset = _read_text(value, offset)
        texts.append(text)
    return texts


def _read_bits(value: bytes, count: int) -> tuple[bool, ...]:
    """Read ``count`` bits, most significant first."""
    return tuple(bool(value[index // 8] & (0x80 >> index % 8)) for index in range(count))
