"""Writes the events of a dump as a source does, and reads them back through the real decoder.

The layouts are written down here a second time on purpose, independent of the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from zlib import crc32

import zstandard

from vmerge.core.binlog import BinlogDecoder, Surroundings
from vmerge.core.events import RowsEvent, SourceItem, TableMap, Transaction
from vmerge.core.position import Gtid
from vmerge.core.projection import Carried
from vmerge.errors import CorruptEvent, VmergeError

SERVER = bytes.fromhex("3e11fa4771ca11e19e33c80aa9429562")
COMMITTED_AT = 1_700_000_000_123_456
WRITE, UPDATE, DELETE, PARTIAL_UPDATE = 30, 31, 32, 39
TWO_INTS = bytes.fromhex("020303") + b"\0" + b"\2"
"""Column count, types, no metadata, which may be NULL."""


def integer(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def row(*values: int) -> bytes:
    """One image of an all-INT row without NULLs."""
    return bytes((len(values) + 7) // 8) + b"".join(integer(value, 4) for value in values)


def make_event(kind: int, body: bytes, *, checksum: bool = True, position: int = 0, flags: int = 0) -> bytes:
    size = 19 + len(body) + (4 if checksum else 0)
    head = integer(5, 4) + bytes((kind,)) + integer(1, 4) + integer(size, 4) + integer(position, 4) + integer(flags, 2)
    return head + body + (integer(crc32(head + body), 4) if checksum else b"")


Carriage = Callable[[TableMap], Carried | None]


def carried(wants: Callable[[TableMap], bool]) -> Carriage:
    """Some tables, as they are."""
    return lambda table: Carried(table) if wants(table) else None


class MemoryStore:
    """A store that remembers how it was filled."""

    def __init__(self) -> None:
        self.rows: list[RowsEvent] = []
        self.largest = 0

    def extend(self, rows: Sequence[RowsEvent]) -> None:
        self.rows.extend(rows)
        self.largest = max(self.largest, len(rows))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[RowsEvent]:
        return iter(self.rows)


class Dump:
    """The events of one dump. Each method appends one event, at the next position of the file."""

    def __init__(self, *, checksums: bool = True, fake_rotate_has_checksum: bool = True) -> None:
        self.events: list[bytes] = []
        self.checksums = fake_rotate_has_checksum
        self.position = 4
        self.table_number = 7
        self.fake_rotate("binlog.000001")
        self.format_description(checksums=checksums)

    def add(self, kind: int, body: bytes, *, flags: int = 0) -> Dump:
        size = 19 + len(body) + (4 if self.checksums else 0)
        self.position = (self.position + size) % 2**32
        event = make_event(kind, body, checksum=self.checksums, position=self.position, flags=flags)
        assert len(event) == size
        self.events.append(event)
        return self

    # The stream

    def fake_rotate(self, file: str) -> Dump:
        body = integer(4, 8) + file.encode()
        self.events.append(make_event(4, body, checksum=self.checksums, flags=0x20))
        return self

    def format_description(self, *, checksums: bool) -> Dump:
        self.position = 127
        self.checksums = checksums
        body = integer(4, 2) + b"9.7.4".ljust(50, b"\0") + bytes(4) + b"\x13" + bytes(41) + bytes((checksums,))
        self.events.append(make_event(15, body, position=self.position))
        return self

    def next_file(self, *, checksums: bool) -> Dump:
        """End the file as ``FLUSH BINARY LOGS`` does, and begin another."""
        self.add(4, integer(4, 8) + b"binlog.000002")
        return self.after_crash(checksums=checksums)

    def after_crash(self, *, checksums: bool) -> Dump:
        """Begin another file with nothing to end the last one."""
        return self.fake_rotate("binlog.000002").format_description(checksums=checksums)

    def heartbeat(self, *, position: int | None = None, kind: int = 27) -> Dump:
        at = self.position if position is None else position
        self.events.append(make_event(kind, b"binlog.000001", checksum=self.checksums, position=at))
        return self

    # Transactions

    def gtid(self, number: int, *, committed_at: int = COMMITTED_AT) -> Dump:
        clock = b"\2" + integer(1, 8) + integer(2, 8)
        # The 56th bit of the time says that the time at the origin follows.
        times = integer(committed_at | 1 << 55, 7) + integer(committed_at - 1, 7)
        return self.add(33, b"\0" + SERVER + integer(number, 8) + clock + times + b"\xfc\x22\x01" + integer(90704, 4))

    def query(self, text: str | bytes, *, database: str = "d", status: bytes = b"", flags: int = 0) -> Dump:
        statement = text.encode() if isinstance(text, str) else text
        head = integer(3, 4) + integer(0, 4) + bytes((len(database),)) + integer(0, 2) + integer(len(status), 2)
        return self.add(2, head + status + database.encode() + b"\0" + statement, flags=flags)

    def begin(self) -> Dump:
        return self.query("BEGIN")

    def xid(self) -> Dump:
        return self.add(16, integer(42, 8))

    def xa_prepare(self, gtrid: bytes, *, one_phase: bool = False) -> Dump:
        return self.add(38, bytes((one_phase,)) + integer(1, 4) + integer(len(gtrid), 4) + integer(0, 4) + gtrid)

    def table_map(self, table: str = "t", *, number: int = 7, tail: bytes = TWO_INTS) -> Dump:
        self.table_number = number
        names = b"".join(bytes((len(name),)) + name.encode() + b"\0" for name in ("d", table))
        return self.add(19, integer(number, 6) + b"\1\0" + names + tail)

    def rows(
        self,
        images: bytes,
        *,
        kind: int = WRITE,
        number: int | None = None,
        flags: int = 1,
        columns: bytes | None = None,
        extra: bytes = b"",
    ) -> Dump:
        bitmaps = b"\xff" if kind in (WRITE, DELETE) else b"\xff\xff"
        head = integer(self.table_number if number is None else number, 6) + integer(flags, 2)
        head += integer(2 + len(extra), 2) + extra
        return self.add(kind, head + (b"\2" + bitmaps if columns is None else columns) + images)

    def insert(self, number: int, images: bytes) -> Dump:
        """One whole transaction that inserts into d.t."""
        return self.gtid(number).begin().table_map().rows(images).xid()

    @contextmanager
    def payload(self, *, compressed: bool = True, cut: int = 0) -> Iterator[None]:
        """Put what is added meanwhile into one compressed transaction."""
        outer, self.events, checksums, self.checksums = self.events, [], self.checksums, False
        yield
        inner, self.events, self.checksums = b"".join(self.events), outer, checksums
        content = zstandard.ZstdCompressor().compress(inner) if compressed else inner
        content = content[: len(content) - cut]
        method = b"\2\1\0" if compressed else b"\2\3\xfc\xff\0"
        sizes = b"\3\3\xfc" + integer(len(inner), 2) + b"\1\3\xfc" + integer(len(content), 2)
        self.add(40, method + sizes + b"\0" + content)

    # Reading

    def decode(
        self,
        *,
        carriage: Carriage = Carried,
        spool_above_bytes: int = 1 << 30,
        open_store: Callable[[], MemoryStore] = MemoryStore,
    ) -> list[SourceItem]:
        return decode(self.events, carriage=carriage, spool_above_bytes=spool_above_bytes, open_store=open_store)


def decode(
    events: Iterable[bytes],
    *,
    carriage: Carriage = Carried,
    spool_above_bytes: int = 1 << 30,
    open_store: Callable[[], MemoryStore] = MemoryStore,
) -> list[SourceItem]:
    """Decode all events at once; one by one, which no fast lane can take, they must come to the same.

    At once but for the first two, which tell whether there are checksums.
    """
    answers: dict[tuple[str, bytes], Carried | None] = {}

    def asks(table: TableMap) -> Carried | None:
        answers[table.name, table.tail] = carriage(table)
        return answers[table.name, table.tail]

    whole = list(events)
    items, error = decode_cut(Surroundings(asks, open_store, decompress, spool_above_bytes), [whole[:2], whole[2:]])
    again = Surroundings(lambda table: answers[table.name, table.tail], MemoryStore, decompress, spool_above_bytes)
    slow, slow_error = decode_cut(again, [[event] for event in whole])
    assert [as_plain(item) for item in items] == [as_plain(item) for item in slow]
    assert (type(error), str(error)) == (type(slow_error), str(slow_error))
    if error is not None:
        raise error
    return items


def decode_cut(
    surroundings: Surroundings, sequences: Iterable[Sequence[bytes]]
) -> tuple[list[SourceItem], VmergeError | None]:
    """What one decoder makes of events that arrive in these sequences: items, and the error that ends them."""
    decoder = BinlogDecoder(surroundings)
    items: list[SourceItem] = []
    try:
        for events in sequences:
            items.extend(decoder.decode(events))
    except VmergeError as error:
        return items, error
    return items, None


def as_plain(item: SourceItem) -> object:
    """An item without shapes, which are equal to themselves only; whether rows are spooled counts."""
    if not isinstance(item, Transaction):
        return item
    rows = [
        (shape.table.name, shape.table.tail, shape.kind, shape.flags, shape.columns, images)
        for shape, images in item.rows
    ]
    return item.gtid, item.committed_at_microseconds, type(item.rows), rows, item.byte_count, item.prepared


def decompress(compressed: bytes | memoryview) -> Iterable[bytes]:
    """In small pieces, so that events lie across them; otherwise as the real one."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(compressed) as reader:
            while piece := reader.read(10):
                yield piece
    except zstandard.ZstdError as error:
        raise CorruptEvent(str(error)) from error


def gtid(number: int, tag: str = "") -> Gtid:
    return Gtid(SERVER, tag, number)


def changes(item: SourceItem) -> list[tuple[str, str, bytes]]:
    """The rows of a transaction: kind, table and images of each event."""
    assert isinstance(item, Transaction)
    return [(shape.kind.name, shape.table.table, images) for shape, images in item.rows]


def summary(items: Iterable[SourceItem]) -> list[tuple[int, list[tuple[str, str, bytes]]]]:
    """Of transactions only: their number and their rows."""
    return [(item.gtid.number, changes(item)) for item in items if isinstance(item, Transaction)]
