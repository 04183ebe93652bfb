"""A dump connection to core.events, from a position.

Knows: how to ask a source for its binlog by GTID, and how packets frame events. Never knows: what the events are
for. It never reconnects by itself: a lost connection raises, and the stream is opened anew from its checkpoint.
Used by the player through its ``Source`` protocol.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, NoReturn
from uuid import UUID

import zstandard
from pymysql.connections import Connection
from pymysql.constants import COMMAND
from pymysql.err import MySQLError, OperationalError

from vmerge.core.binlog import BinlogDecoder, Surroundings
from vmerge.core.events import SourceItem
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stop_position import SourcePast
from vmerge.errors import CorruptEvent, PositionPurged, SourceLost, SourceRejected, VmergeError
from vmerge.mysql import sql
from vmerge.mysql.breaker import Breaker
from vmerge.mysql.connect import Endpoint, connect, drop, short_connection
from vmerge.mysql.faults import source_fault

HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS = 10.0
"""A source that sends neither events nor heartbeats for this long is taken for lost."""

_CHUNK_BYTES = 256 * 1024
_PACKET_HEAD = Struct("<IB")
"""Length (3 bytes) and number (1 byte), and the first byte of the payload."""
_FULL_BYTES = 0xFFFFFF
_ERROR = 0xFF
_DUMP_HEAD = Struct("<HII")
_THROUGH_GTID = 0x04


class DumpSource:
    """Reads one source's binlog from a position.

    Promise: items come in the source's order, each once for each opening, and a lost connection raises. Owner: the
    stream's thread. ``close`` may be called by another thread to break a read that hangs.
    """

    def __init__(self, endpoint: Endpoint, *, server_id: int, replica_uuid: str, surroundings: Surroundings) -> None:
        self._breaker = Breaker()
        self._endpoint = endpoint.breakable(self._breaker)
        self._server_id = server_id
        self._replica_uuid = replica_uuid
        self._surroundings = surroundings
        self._connection: Connection[Any] | None = None
        self._socket: socket.socket | None = None
        self._decoder = BinlogDecoder(surroundings)
        self._packets = _Packets(self._raise_end)
        self._failure: VmergeError | None = None

    def open(self, position: GtidSet) -> None:
        """Ask for everything behind ``position``.

        Raises:
            SourceLost: the source cannot be reached now.
            PositionPurged: the source no longer has all of it.
            SourceRejected: account or server refuse.
        """
        self.close()
        try:
            self._connection = connect(self._endpoint, read_timeout_seconds=SILENCE_SECONDS, session={})
            self._require_binlogs(position)
            self._start_dump(position)
        except (MySQLError, OSError) as error:
            raise source_fault(error, f"opening the binlog of {self._endpoint}") from error

    def _require_binlogs(self, position: GtidSet) -> None:
        assert self._connection is not None
        executed, purged = _positions(self._connection)
        missing = purged.subtract(position)
        if not missing.is_empty():
            raise PositionPurged(f"{self._endpoint} has purged transactions that this stream needs: {missing}")
        ahead = position.subtract(executed)
        # A source sends a transaction a moment before it counts it as executed, so a little patience is due.
        if not ahead.is_empty() and self._query_one(sql.WAIT_FOR_EXECUTED, str(ahead)) != ("0",):
            raise SourceRejected(
                f"{self._endpoint} lacks transactions that this stream has applied already: {ahead}",
                hint="The source was restored or replaced by a server that lags: use one that has them.",
            )

    def _query_one(self, statement: str, *values: str) -> tuple[str, ...]:
        assert self._connection is not None
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return tuple(str(value) for value in cursor.fetchone())

    def _start_dump(self, position: GtidSet) -> None:
        assert self._connection is not None
        period = int(HEARTBEAT_SECONDS * 1e9)
        with self._connection.cursor() as cursor:
            cursor.execute(sql.SET_DUMP_OPTIONS, (period, period, self._replica_uuid, self._replica_uuid))
        encoded = position.encode()
        # Flags, server id, length of the file's name (none: the source finds the file), offset 4, the set.
        request = _DUMP_HEAD.pack(_THROUGH_GTID, self._server_id, 0) + (4).to_bytes(8, "little")
        request += len(encoded).to_bytes(4, "little") + encoded
        self._connection._execute_command(COMMAND.COM_BINLOG_DUMP_GTID, request)  # type: ignore[attr-defined]  # no public way
        # From here on the socket only delivers, so it is read in large chunks, past PyMySQL's packet reader.
        self._socket = self._connection._sock  # type: ignore[attr-defined]  # no public way
        self._socket.settimeout(SILENCE_SECONDS)
        self._decoder = BinlogDecoder(self._surroundings)
        self._packets = _Packets(self._raise_end)
        self._failure = None

    def read(self) -> list[SourceItem]:
        """Return what the next chunk completes: possibly nothing. Blocks for about one heartbeat at most.

        Raises:
            SourceLost: the connection is gone, or silent for too long.
            CorruptEvent, UnsupportedEvent: see ``BinlogDecoder.decode``.
            SpoolFailed: a large transaction finds no room.
        """
        return self._decode(self._receive() if self._failure is None else b"")

    @property
    def in_progress(self) -> Gtid | None:
        """The transaction that has begun and not ended; after an error, the one that met it."""
        return self._decoder.in_progress

    def poll(self) -> list[SourceItem]:
        """Return what has arrived already; never blocks. Raises as ``read`` does."""
        if self._socket is not None and not _has_more(self._socket):
            return []
        return self._decode(self._receive())

    def _decode(self, chunk: bytes) -> list[SourceItem]:
        if self._failure is not None:
            raise self._failure
        events: list[bytes] = []
        items: list[SourceItem] = []
        try:
            try:
                self._packets.cut(chunk, events)
            finally:  # what came before the end of the dump counts, and may itself be wrong
                items.extend(self._decoder.decode(events))
        except VmergeError as error:
            # What was complete before it is not lost with it. What is behind it would follow a gap: only open() helps.
            self._failure = error
            if not items:
                raise
        return items

    def _receive(self) -> bytes:
        """Return the bytes that are there, or wait for some; a TLS connection gives at most 16 KiB at a time."""
        sock = self._socket
        if sock is None:
            raise SourceLost(f"{self._endpoint} is not connected")
        pieces: list[bytes] = []
        size = 0
        try:
            while size < _CHUNK_BYTES and (not pieces or _has_more(sock)):
                piece = sock.recv(_CHUNK_BYTES)
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
        except (OSError, ValueError) as error:  # ValueError: closed by another thread
            raise SourceLost(f"reading the binlog of {self._endpoint}: {error}") from error
        if not pieces:
            raise SourceLost(f"{self._endpoint} closed the connection")
        return b"".join(pieces)

    def _raise_end(self, status: int, payload: bytes) -> NoReturn:
        """Raise what a packet says that is no event: an error, or the end of the dump."""
        if status != _ERROR:
            raise SourceLost(f"{self._endpoint} ended the dump")
        errno = int.from_bytes(payload[:2], "little")
        text = payload[8:].decode("utf-8", "replace")
        raise source_fault(OperationalError(errno, text), f"reading the binlog of {self._endpoint}")

    def interrupt(self) -> None:
        """Break a call that hangs, from another thread; it raises ``SourceLost``."""
        self._breaker.break_off()

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            drop(connection)


def source_positions(endpoint: Endpoint) -> tuple[GtidSet, GtidSet]:
    """Return what a source has executed, and what of it its binlogs no longer hold.

    Raises:
        SourceError: as ``mysql/faults.py`` classes it.
    """
    with short_connection(endpoint, "reading positions", source_fault) as connection:
        return _positions(connection)


def source_past(endpoint: Endpoint) -> SourcePast:
    """Return what a source has committed.

    Raises:
        SourceError: as ``mysql/faults.py`` classes it.
    """
    with short_connection(endpoint, "reading positions", source_fault) as connection:
        executed, purged = _positions(connection)
        with connection.cursor() as cursor:
            cursor.execute(sql.SOURCE_UUID)
            row = cursor.fetchone()
    assert row is not None
    return SourcePast(UUID(row[0]).bytes, executed, purged)


def _positions(connection: Connection[Any]) -> tuple[GtidSet, GtidSet]:
    with connection.cursor() as cursor:
        cursor.execute(sql.SOURCE_FACTS)
        row = cursor.fetchone()
    assert row is not None
    return GtidSet.parse(row[0]), GtidSet.parse(row[1])


def _has_more(sock: socket.socket) -> bool:
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    poll = select.poll()  # unlike select it takes descriptors above 1023
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


class _Packets:
    """Cuts a byte stream into packets, joining those above 16 MiB; copies no byte more than twice.

    A packet is a length (3 bytes), a number (1 byte) and a payload; a payload of the full 2**24 - 1 bytes goes on in
    the next packet. Source: MySQL client/server protocol, "Packets".
    """

    def __init__(self, raise_end: Callable[[int, bytes], NoReturn]) -> None:
        self._raise_end = raise_end
        self._pieces: list[bytes] = []
        self._missing = 0
        self._large: list[bytes] = []

    def cut(self, chunk: bytes, events: list[bytes]) -> None:
        """Add the events that ``chunk`` completes to ``events``: payloads that begin with a zero, without it.

        Any other first byte is a status; it is given to ``raise_end``, with the rest of its payload.
        """
        if len(chunk) < self._missing:
            self._pieces.append(chunk)
            self._missing -= len(chunk)
            return
        if self._pieces:
            self._pieces.append(chunk)
            chunk = b"".join(self._pieces)
            self._pieces.clear()
        offset, size = 0, len(chunk)
        last = size - _PACKET_HEAD.size
        unpack, append, large = _PACKET_HEAD.unpack_from, events.append, self._large
        while offset <= last:
            head, status = unpack(chunk, offset)
            length = head & _FULL_BYTES
            end = offset + 4 + length
            if end > size:
                break
            if status or large or length == _FULL_BYTES:
                self._join(chunk[offset + 4 : end], events)
            else:
                append(chunk[offset + 5 : end])
            offset = end
        if large and chunk[offset : offset + 3] == b"\0\0\0" and size == offset + 4:
            # The empty packet behind a payload of exactly the full size, with nothing behind it yet.
            self._join(b"", events)
            offset += 4
        self._keep(chunk[offset:])

    def _join(self, payload: bytes, events: list[bytes]) -> None:
        """Add the event that a packet completes which is no plain one: large, the end of a large one, or a status."""
        self._large.append(payload)
        if len(payload) == _FULL_BYTES:
            return
        # Byte by byte the largest objects there are, so they are joined once and never cut.
        first, *rest = self._large
        self._large.clear()
        if first[0]:
            self._raise_end(first[0], b"".join((first[1:], *rest)))
        events.append(b"".join((first[1:], *rest)))

    def _keep(self, rest: bytes) -> None:
        self._missing = 0
        if not rest:
            return
        self._pieces.append(rest)
        needed = 4 + int.from_bytes(rest[:3], "little") if len(rest) >= 4 else 4
        self._missing = needed - len(rest)


def decompress(compressed: bytes | memoryview) -> Iterable[bytes]:
    """Yield the content of zstandard frames in pieces of bounded size.

    Raises:
        CorruptEvent: the bytes are no such frames.
    """
    try:
        with zstandard.ZstdDecompressor().stream_reader(compressed, read_across_frames=True) as reader:
            while piece := reader.read(_CHUNK_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise CorruptEvent(f"a compressed transaction cannot be read: {error}") from error
