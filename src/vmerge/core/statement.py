"""The one builder of what stands inside a ``BINLOG`` statement.

Knows: how row events of a source are laid out so that a server applies them like a replica. Never knows: base64,
connections, or which transactions share a target transaction. Used by ``mysql/events_applier.py``.

The shape of a BINLOG
---------------------
A wrong shape is not an error but a crash of the server: rows of an unfinished statement that go on in the next BINLOG
without their table map end mysqld 9.7.4 with a segmentation fault. So every piece built here is one *group*: the
table maps of all its tables, then its rows events, of which the last one and only the last one has the end-of-statement
flag. Nothing goes on from one piece to the next, however large the transaction is.

Within a group a table stands once, in one shape, and all rows share their flags (how foreign keys are treated is one),
because the server takes tables and flags from the start of a statement. Neighbouring rows events of one shape are
joined into one. The order of the rows is always the source's. Checksums are made anew, as lengths, names and flags
have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from zlib import crc32

from vmerge.core.event_types import FORMAT_DESCRIPTION, STATEMENT_END_FLAG, TABLE_MAP
from vmerge.core.events import RowsEvent, RowsShape, TableMap

_HEADER = Struct("<IBIIIH")
"""Time, type, server id, size, next position (unused), flags."""

_OVERHEAD_BYTES = _HEADER.size + 4
_NO_EXTRA_DATA = (2).to_bytes(2, "little")
_ROWS_HEAD_BYTES = 10
"""Table number, flags, extra data."""
_MAP_HEAD_BYTES = 8
_NAME_BYTES = 2
"""A name's length and its zero."""

_MANY_TABLES = 10_000
"""Remembered at most: a source may create tables for ever."""

TargetName = tuple[str, str]
"""Database and table on the target."""

TargetNames = Callable[[TableMap], TargetName]

# Lengths of the fixed part of the event types 1 to 40, as a server tells them; only those of the types sent here count.
_FIXED_LENGTHS = bytes.fromhex("000d0008000000000400040000006300041a08000000000000020000000a0a0a2a2a001234000a28")
_SERVER_VERSION = b"8.0.0-vmerge"


def format_description(server_id: int) -> bytes:
    """Return the format description that the events built here follow: ours, as every event is laid out anew.

    A server takes no other BINLOG before it has seen one.
    """
    body = (4).to_bytes(2, "little") + _SERVER_VERSION.ljust(50, b"\0") + bytes(4)
    body += bytes((_HEADER.size,)) + _FIXED_LENGTHS + b"\x01"
    return with_checksum(_HEADER.pack(0, FORMAT_DESCRIPTION, server_id, len(body) + _OVERHEAD_BYTES, 0, 0) + body)


def with_checksum(event: bytes) -> bytes:
    """Return an event with its CRC32 appended."""
    return event + crc32(event).to_bytes(4, "little")


class _Group:
    """Table maps and rows events of one piece, in the making."""

    __slots__ = ("events", "flags", "size", "tables")

    def __init__(self) -> None:
        self.tables: dict[TargetName, TableMap] = {}
        self.events: list[tuple[RowsShape, list[bytes]]] = []
        self.flags = 0
        self.size = 0


class StatementBuilder:
    """Builds BINLOG pieces for one stream.

    Promise: the shape above, for every input. Invariant: a piece is larger than ``limit_bytes`` only when a single
    rows event with its table map is. Owner: the stream's thread (it caches what it encodes).
    """

    def __init__(self, target_name: TargetNames, limit_bytes: int, server_id: int) -> None:
        self._target_name = target_name
        self._limit_bytes = limit_bytes
        self._server_id = server_id
        self._names: dict[TableMap, TargetName] = {}
        self._numbers: dict[TableMap, bytes] = {}
        self.touched: set[TargetName] = set()
        """The target's tables in the pieces of the last ``build``, as far as it was walked."""

    def build(self, rows: Iterable[RowsEvent], seconds: int) -> Iterator[bytes]:
        """Yield pieces, each the whole content of one BINLOG before base64.

        ``seconds`` is the time stamped on the events: the source's commit time, since 1970.
        """
        self.touched = set()
        if len(self._names) > _MANY_TABLES:
            self._names.clear()
            self._numbers.clear()
        group = _Group()
        last: RowsShape | None = None
        images: list[bytes] = []
        for shape, image in rows:
            size = len(image)
            if shape is last and group.size + size <= self._limit_bytes:
                images.append(image)
                group.size += size
                continue
            if not self._fits(group, shape, size):
                yield self._finish(group, seconds)
                group = _Group()
            images = [image]
            self._add(group, shape, images)
            last = shape
        if group.events:
            yield self._finish(group, seconds)

    def _fits(self, group: _Group, shape: RowsShape, size: int) -> bool:
        if not group.events:
            return True
        if group.flags != shape.flags:
            return False
        table = shape.table
        known = group.tables.get(self._name(table))
        if known is None:
            size += self._map_size(table)
        elif known is not table:
            return False
        return group.size + size + _OVERHEAD_BYTES + _ROWS_HEAD_BYTES + len(shape.columns) <= self._limit_bytes

    def _add(self, group: _Group, shape: RowsShape, images: list[bytes]) -> None:
        name = self._name(shape.table)
        if name not in group.tables:
            self.touched.add(name)
            group.tables[name] = shape.table
            group.size += self._map_size(shape.table)
        group.flags = shape.flags
        group.events.append((shape, images))
        group.size += len(images[0]) + _OVERHEAD_BYTES + _ROWS_HEAD_BYTES + len(shape.columns)

    def _map_size(self, table: TableMap) -> int:
        names = sum(len(name.encode("utf-8")) + _NAME_BYTES for name in self._name(table))
        return _OVERHEAD_BYTES + _MAP_HEAD_BYTES + names + len(table.tail)

    def _name(self, table: TableMap) -> TargetName:
        name = self._names.get(table)
        if name is None:
            name = self._names[table] = self._target_name(table)
        return name

    def _number(self, table: TableMap) -> bytes:
        """Number a table: ours, since one table may have had several numbers at the source within one batch."""
        number = self._numbers.get(table)
        if number is None:
            number = self._numbers[table] = (len(self._numbers) + 1).to_bytes(6, "little")
        return number

    def _finish(self, group: _Group, seconds: int) -> bytes:
        pieces = [self._event(seconds, TABLE_MAP, self._table_map(table)) for table in group.tables.values()]
        last = len(group.events) - 1
        for index, (shape, images) in enumerate(group.events):
            flags = shape.flags | (STATEMENT_END_FLAG if index == last else 0)
            head = self._number(shape.table) + flags.to_bytes(2, "little") + _NO_EXTRA_DATA + shape.columns
            pieces.append(self._event(seconds, shape.kind, head + b"".join(images)))
        return b"".join(pieces)

    def _table_map(self, table: TableMap) -> bytes:
        flags = table.flags.to_bytes(2, "little")
        names = b"".join(_encode_name(name) for name in self._name(table))
        return self._number(table) + flags + names + table.tail

    def _event(self, seconds: int, event_type: int, body: bytes) -> bytes:
        size = len(body) + _OVERHEAD_BYTES
        return with_checksum(_HEADER.pack(seconds, event_type, self._server_id, size, 0, 0) + body)


def _encode_name(name: str) -> bytes:
    encoded = name.encode("utf-8")
    return bytes((len(encoded),)) + encoded + b"\0"
