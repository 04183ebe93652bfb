"""The binlog's column types: what a table map's type and metadata bytes say about a column.

Knows: the type codes and the metadata of each. Never knows: tables, or the schemas that servers describe in words.
Used by ``core/table_map.py``, ``core/proof.py`` and whoever reads row images.
Source: mysql::binlog::event::Table_map_event, "Table_map_event column types: numerical identifier and metadata".
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ColumnType(IntEnum):
    """The codes that occur in table maps of MySQL 5.7 and later."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_METADATA_WIDTHS: dict[int, int] = {
    **dict.fromkeys(ColumnType, 0),
    ColumnType.FLOAT: 1,
    ColumnType.DOUBLE: 1,
    ColumnType.VARCHAR: 2,
    ColumnType.BIT: 2,
    ColumnType.TIMESTAMP2: 1,
    ColumnType.DATETIME2: 1,
    ColumnType.TIME2: 1,
    ColumnType.VECTOR: 1,
    ColumnType.JSON: 1,
    ColumnType.NEWDECIMAL: 2,
    ColumnType.ENUM: 2,
    ColumnType.SET: 2,
    ColumnType.BLOB: 1,
    ColumnType.VAR_STRING: 2,
    ColumnType.STRING: 2,
    ColumnType.GEOMETRY: 1,
}

NUMERIC_TYPES = frozenset(
    {
        ColumnType.TINY,
        ColumnType.SHORT,
        ColumnType.LONG,
        ColumnType.FLOAT,
        ColumnType.DOUBLE,
        ColumnType.LONGLONG,
        ColumnType.INT24,
        ColumnType.YEAR,
        ColumnType.NEWDECIMAL,
    }
)
"""The types that have a signedness bit; YEAR is one of them, and always unsigned."""

CHARACTER_TYPES = frozenset(
    {ColumnType.STRING, ColumnType.VAR_STRING, ColumnType.VARCHAR, ColumnType.BLOB, ColumnType.VECTOR}
)
"""The types whose collation is sent, also when it is that of bytes (63)."""

_NAMES = {
    ColumnType.TINY: "tinyint",
    ColumnType.SHORT: "smallint",
    ColumnType.LONG: "int",
    ColumnType.LONGLONG: "bigint",
    ColumnType.INT24: "mediumint",
    ColumnType.TIMESTAMP: "timestamp in the format before 5.6",
    ColumnType.TIME: "time in the format before 5.6",
    ColumnType.DATETIME: "datetime in the format before 5.6",
}


class ColumnShape(NamedTuple):
    """One column's type and its metadata bytes. ENUM and SET stand for themselves, not behind STRING."""

    type: ColumnType
    metadata: bytes

    def __str__(self) -> str:
        """Return the shape in words near SQL's."""
        kind, data = self.type, self.metadata
        match kind:
            case ColumnType.VARCHAR | ColumnType.VAR_STRING:
                return f"a varchar or varbinary of {int.from_bytes(data, 'little')} bytes"
            case ColumnType.STRING:
                return f"a char or binary of {fixed_length(data)} bytes"
            case ColumnType.BLOB:
                size = ("tiny", "", "medium", "long")[data[0] - 1] if 1 <= data[0] <= 4 else "?"
                return f"a {size}text or {size}blob"
            case ColumnType.NEWDECIMAL:
                return f"decimal({data[0]},{data[1]})"
            case ColumnType.BIT:
                return f"bit({data[0] + data[1] * 8})"
            case ColumnType.TIMESTAMP2 | ColumnType.DATETIME2 | ColumnType.TIME2:
                return f"{kind.name[:-1].lower()}({data[0]})"
            case ColumnType.ENUM | ColumnType.SET:
                return f"{kind.name.lower()} of {data[0]} bytes"
        return _NAMES.get(kind, kind.name.lower())


_DIGITS_TO_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_GROUP_DIGITS = 9


def fixed_length(metadata: bytes) -> int:
    """Return the length in bytes of a CHAR or BINARY column; its two high bits lie inverted in the type byte."""
    return (((metadata[0] << 4) & 0x300) ^ 0x300) | metadata[1]


def length_bytes(shape: ColumnShape) -> int:
    """Return how many bytes the length has that stands in front of each value of a column."""
    kind, data = shape.type, shape.metadata
    match kind:
        case ColumnType.VARCHAR | ColumnType.VAR_STRING:
            return 1 if int.from_bytes(data, "little") < 256 else 2
        case ColumnType.STRING:
            return 1 if fixed_length(data) < 256 else 2
    return data[0]


def decimal_bytes(digits: int) -> int:
    """Return how many bytes the digits of a DECIMAL take on one side of its point."""
    return digits // _GROUP_DIGITS * 4 + _DIGITS_TO_BYTES[digits % _GROUP_DIGITS]


def column_shapes(types: bytes, metadata: bytes) -> tuple[ColumnShape, ...] | None:
    """Cut a table map's metadata into columns; None when there is a type that is not known here.

    Raises IndexError when the metadata is cut.
    """
    shapes = []
    offset = 0
    for code in types:
        width = _METADATA_WIDTHS.get(code)
        if width is None:
            return None
        data = metadata[offset : offset + width]
        if len(data) != width:
            raise IndexError("the metadata of the columns is cut")
        offset += width
        if code == ColumnType.STRING and data[0] in (ColumnType.ENUM, ColumnType.SET):
            shapes.append(ColumnShape(ColumnType(data[0]), data[1:]))
        else:
            shapes.append(ColumnShape(ColumnType(code), data))
    return tuple(shapes)
