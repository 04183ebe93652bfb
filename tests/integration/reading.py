"""Reads real servers through the real reader, for the tests of this folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vmerge.core.binlog import Surroundings
from vmerge.core.events import Heartbeat, SourceItem, TableMap, Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.projection import Carried
from vmerge.lab.servers import Server
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.source import DumpSource, decompress
from vmerge.mysql.spool import SpooledRows
from vmerge.mysql.tls import Tls, TlsMode

READER_UUID = "b6d1c9e0-5d0b-4c1e-9d5e-0242ac120002"
READER_ID = 1_234_567
NOWHERE = Endpoint("recorded", "nowhere", 0, "root", "")
READS = 2000
"""More than any test needs; each read is bounded by a heartbeat."""


Carriage = Callable[[TableMap], Carried | None]


class Change(NamedTuple):
    """The rows of one rows event."""

    kind: str
    table: str
    images: bytes


def endpoint(server: Server, *, user: str = "root", password: str = "", tls: Tls | None = None) -> Endpoint:
    """The server's socket; over TCP if TLS is asked for."""
    socket = str(server.socket_path) if tls is None else None
    return Endpoint(server.name, server.host, server.port, user, password, socket, tls or Tls(TlsMode.DISABLED))


def executed(server: Server) -> GtidSet:
    """What the server has executed."""
    return GtidSet.parse(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])


def make_source(
    server: Server,
    database: str | None = None,
    *,
    at: Endpoint | None = None,
    spool_above_bytes: int = 1 << 30,
    uuid: str = READER_UUID,
    server_id: int = READER_ID,
    carriage: Carriage | None = None,
) -> DumpSource:
    """A reader that keeps the rows of one database, or of all, as they are; or what is said by ``carriage``."""

    def as_they_are(table: TableMap) -> Carried | None:
        return Carried(table) if database in (None, table.database) else None

    surroundings = Surroundings(carriage or as_they_are, SpooledRows, decompress, spool_above_bytes)
    return DumpSource(at or endpoint(server), server_id=server_id, replica_uuid=uuid, surroundings=surroundings)


@contextlib.contextmanager
def opened(source: DumpSource, position: GtidSet) -> Iterator[DumpSource]:
    """The source, open behind a position, closed afterwards."""
    source.open(position)
    try:
        yield source
    finally:
        source.close()


def read_until(source: DumpSource, is_enough: Callable[[list[SourceItem]], bool]) -> list[SourceItem]:
    """Read until what has come is enough."""
    items: list[SourceItem] = []
    for _ in range(READS):
        items.extend(source.read())
        if is_enough(items):
            return items
    raise AssertionError(f"only {len(items)} items came")


def read_behind(
    server: Server,
    start: GtidSet,
    database: str | None = None,
    *,
    spool_above_bytes: int = 1 << 30,
    carriage: Carriage | None = None,
) -> list[SourceItem]:
    """Everything that the server has behind a position; heartbeats are left out."""
    needed = executed(server).subtract(start)

    def is_enough(items: list[SourceItem]) -> bool:
        return Heartbeat() in items or not needed.subtract(gtids_of(items))

    source = make_source(server, database, spool_above_bytes=spool_above_bytes, carriage=carriage)
    with opened(source, start):
        return [item for item in read_until(source, is_enough) if not isinstance(item, Heartbeat)]


class Recorder(DumpSource):
    """A reader that keeps the bytes it gets."""

    bytes_read = b""

    def _receive(self) -> bytes:
        chunk = super()._receive()
        self.bytes_read += chunk
        return chunk


class Replay(DumpSource):
    """A reader of recorded bytes, which arrive in pieces of one size."""

    def __init__(self, recorded: bytes, width: int) -> None:
        surroundings = Surroundings(Carried, SpooledRows, decompress, 1 << 30)
        super().__init__(NOWHERE, server_id=READER_ID, replica_uuid=READER_UUID, surroundings=surroundings)
        self._chunks = [recorded[at : at + width] for at in range(0, len(recorded), width)]

    def _receive(self) -> bytes:
        return self._chunks.pop(0)

    def read_all(self) -> list[SourceItem]:
        """Everything but heartbeats."""
        items: list[SourceItem] = []
        while self._chunks:
            items.extend(self.read())
        return [item for item in items if not isinstance(item, Heartbeat)]


def record_behind(server: Server, start: GtidSet) -> bytes:
    """The bytes in which a server sends everything that it has behind a position."""
    needed = executed(server).subtract(start)
    surroundings = Surroundings(Carried, SpooledRows, decompress, 1 << 30)
    source = Recorder(endpoint(server), server_id=READER_ID, replica_uuid=READER_UUID, surroundings=surroundings)
    with opened(source, start):
        read_until(source, lambda items: not needed.subtract(gtids_of(items)))
    return source.bytes_read


def run(server: Server, *statements: str, database: str | None = None, charset: str = "utf8mb4") -> None:
    """Run statements in one session."""
    with server.connect(database, charset=charset) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def read_effect(server: Server, database: str, *statements: str, charset: str = "utf8mb4") -> list[SourceItem]:
    """Run statements in one session and in that database, and read what they put into the binlog."""
    start = executed(server)
    run(server, *statements, database=database, charset=charset)
    return read_behind(server, start, database)


def gtids_of(items: Sequence[SourceItem]) -> GtidSet:
    """The GTIDs of items, those of XA transactions' first halves included."""
    found: list[Gtid] = []
    for item in items:
        if not isinstance(item, Heartbeat):
            found.append(item.gtid)
        if isinstance(item, Transaction) and item.prepared is not None:
            found.append(item.prepared)
    return GtidSet().advanced(found)


def changes(item: SourceItem) -> list[Change]:
    """The rows of a transaction."""
    assert isinstance(item, Transaction)
    return [Change(shape.kind.name, shape.table.table, images) for shape, images in item.rows]


def all_changes(items: Sequence[SourceItem]) -> list[list[Change]]:
    """The rows of every transaction."""
    return [changes(item) for item in items if isinstance(item, Transaction)]


def row(*values: int) -> bytes:
    """The image of a row of INT columns without NULLs."""
    return bytes((len(values) + 7) // 8) + b"".join(value.to_bytes(4, "little", signed=True) for value in values)
