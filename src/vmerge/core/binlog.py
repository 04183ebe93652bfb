"""Binlog bytes to events.

Knows: the layout of the events a MySQL source sends in a dump, and which of them end a transaction. Never knows:
sockets, files, servers or the target. ``mysql/source.py`` feeds it; the tests feed it recorded bytes.

The event types are an allow-list: handled, ignored on purpose, or fatal. An unknown type is fatal unless the
source itself flagged it as ignorable.

The position rule
-----------------
A GTID event comes *before* its transaction. It is therefore remembered as *in progress* and becomes part of a
position only inside the ``Transaction`` that its last event (XID, COMMIT, XA PREPARE in one phase) completes, and
only after the target has committed that whole transaction. An XA transaction has two GTIDs, one at PREPARE and one
at COMMIT, perhaps far apart. The first stays out of every position until the second is applied: a position is a
set, so it may have that hole, and after a restart the source sends the prepared half again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from vmerge.core import event_types
from vmerge.core.event_types import CHECKSUM_LENGTH, CHECKSUM_RESIDUE, HEADER_LENGTH
from vmerge.core.events import Heartbeat, RowsEvent, SchemaChange, SourceItem, TableMap, Transaction, new_named
from vmerge.core.payload import Decompress, split_events
from vmerge.core.position import LAST_NUMBER, Gtid
from vmerge.core.projection import Carried
from vmerge.core.query import Query, read_query
from vmerge.core.refusals import REFUSED, refused_end, refused_event, refused_statement
from vmerge.core.row_store import RowStore
from vmerge.core.rows_shapes import ProjectedPrefix
from vmerge.core.source_tables import SourceTables
from vmerge.core.tagged_gtid import read_tagged_gtid
from vmerge.core.usual import COMMIT_TIME_MASK, GTID_AT, GTID_BODY, UsualTransactions, begins
from vmerge.core.xa import PreparedTransactions, XaStatement, read_xa
from vmerge.errors import CorruptEvent, UnsupportedEvent

_FORMAT_VERSION = b"\x04\x00"
_HEADER_LENGTH_AT = HEADER_LENGTH + 56
"""Where a format description tells the length of event headers."""

_ENDS = frozenset({b"COMMIT", b"ROLLBACK"})
"""Statements that end a transaction to which no engine with transactions has added anything."""

_SOUND = frozenset({CHECKSUM_RESIDUE})
"""All that there is among the checksums of events that are sound."""


class Surroundings(NamedTuple):
    """What the decoder needs from outside its zone."""

    carriage: Callable[[TableMap], Carried | None]
    """How rows of this table are carried, None if not at all; asked once a shape."""
    open_store: Callable[[], RowStore]
    decompress: Decompress
    """Zstandard bytes → the uncompressed bytes, in pieces."""
    spool_above_bytes: int
    """A transaction with more bytes of row images than this goes to a store."""


class BinlogDecoder:
    """Turns the events of one dump, in order, into whole transactions, schema changes and heartbeats.

    Promise: every event is accounted for: its checksum is verified; its type is handled, ignored on purpose or
    raises. Rows of wanted tables are never left out. After an error it is of no further use. Owner: the thread of the
    stream that reads the dump.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._spool_above_bytes = surroundings.spool_above_bytes
        self._handlers = self._make_handlers()
        self._file = ""
        self._is_checksummed: bool | None = None
        """None until the first format description."""
        self._end: int | None = None
        """Where the content of the event at hand ends: a slice's end."""
        self._last_event = b""
        self._prepared = PreparedTransactions(surroundings.open_store, surroundings.spool_above_bytes)
        self._tables = SourceTables(surroundings.carriage)
        self._usual = UsualTransactions(self._tables, surroundings.spool_above_bytes)
        # The open transaction: its GTID has been seen, its end has not.
        self._gtid: Gtid | None = None
        self._committed_at = 0
        self._is_begun = False
        self._rows: list[RowsEvent] = []
        self._byte_count = 0
        self._xid = b""
        self._is_plain = True
        """Whether the next two are None, as for nearly all transactions."""
        self._store: RowStore | None = None
        self._created: Query | None = None

    @property
    def in_progress(self) -> Gtid | None:
        """The transaction that has begun and not ended; after an error, the one that met it. None: none is known."""
        return self._gtid

    def decode(self, events: Sequence[bytes]) -> Iterator[SourceItem]:
        """Take events as the source sent them; yield what they complete.

        However a dump is cut into such sequences, the same comes out: longer ones are only cheaper.

        Raises:
            CorruptEvent: checksum, size or content is wrong.
            UnsupportedEvent: the event cannot be carried exactly.
        """
        are_sound = self._is_checksummed is True and _SOUND.issuperset(map(crc32, events))
        index = 0
        while index < len(events):
            if are_sound and self._is_checksummed and self._gtid is None:
                usual: list[Transaction] = []
                index = self._usual.take(events, index, usual)
                if usual:
                    self._last_event = events[index - 1]
                    yield from usual
            item, index = self._decode_next(events, index, are_sound)
            if item is not None:
                yield item

    def _decode_next(self, events: Sequence[bytes], first: int, are_sound: bool) -> tuple[SourceItem | None, int]:
        """Read events one by one until they complete something; return it, and the index of the next event."""
        for index in range(first, len(events)):
            event = events[index]
            try:
                if not (are_sound and self._is_checksummed):
                    self._find_end(event)
                item = self._handlers[event[4]](event)
            except (IndexError, ValueError, struct.error) as error:
                raise CorruptEvent(f"an event cannot be read, {self._where(event)}: {error}") from error
            self._last_event = event
            if item is not None:
                return item, index + 1
        return None, len(events)

    def _find_end(self, event: bytes) -> None:
        """Verify an event that is not known to be sound, and set where its content ends if it may have no checksum."""
        if self._is_checksummed and crc32(event) == CHECKSUM_RESIDUE:
            return
        if len(event) < HEADER_LENGTH or int.from_bytes(event[9:13], "little") != len(event):
            raise CorruptEvent(f"an event has another size than it says, {self._where(event)}")
        if event[4] == event_types.FORMAT_DESCRIPTION:
            return  # it says itself, and is checked there
        if self._is_checksummed:
            raise CorruptEvent(f"the checksum of an event is wrong, {self._where(event)}")
        self._end = None
        if self._is_checksummed is None:
            if event[4] not in event_types.BEFORE_FORMAT:
                raise CorruptEvent(f"an event comes before the format description, {self._where(event)}")
            # Nothing says yet whether there are checksums: there are if one fits.
            self._end = -CHECKSUM_LENGTH if crc32(event) == CHECKSUM_RESIDUE else None

    def _make_handlers(self) -> dict[int, Callable[[bytes], SourceItem | None]]:
        """Return what handles each event type there can be."""
        return {
            **dict.fromkeys(range(256), self._refuse_unknown),
            event_types.GTID: self._begin,
            event_types.GTID_TAGGED: self._begin_tagged,
            event_types.QUERY: self._query,
            event_types.TABLE_MAP: self._table_map,
            event_types.XID: self._commit,
            event_types.XA_PREPARE: self._prepare,
            event_types.TRANSACTION_PAYLOAD: self._payload,
            event_types.HEARTBEAT: self._heartbeat,
            event_types.HEARTBEAT_V2: self._heartbeat,
            event_types.ROTATE: self._rotate,
            event_types.FORMAT_DESCRIPTION: self._describe_format,
            **dict.fromkeys(REFUSED, self._refuse),
            **dict.fromkeys(event_types.ROWS_KINDS, self._read_rows),
            **dict.fromkeys(event_types.IGNORED, self._ignore),
        }

    def _where(self, event: bytes) -> str:
        inside = f" inside transaction {self._gtid}" if self._gtid is not None else ""
        end = int.from_bytes(event[13:17], "little")
        return f"in binlog {self._file or '?'} before position {end}{inside}"

    # Transactions

    def _begin(self, event: bytes) -> None:
        source, number, committed_at = GTID_BODY.unpack_from(event, GTID_AT)
        self._open(event, new_named(Gtid, (source, "", number)), committed_at & COMMIT_TIME_MASK)

    def _begin_tagged(self, event: bytes) -> None:
        gtid, committed_at = read_tagged_gtid(event[HEADER_LENGTH : self._end])
        self._open(event, gtid, committed_at)

    def _open(self, event: bytes, gtid: Gtid, committed_at: int) -> None:
        if self._gtid is not None or not 0 < gtid.number <= LAST_NUMBER:
            raise CorruptEvent(f"transaction {gtid} begins {self._where(event)}")
        self._gtid = gtid
        self._committed_at = committed_at
        self._is_begun = False
        self._rows = []
        self._byte_count = 0
        self._tables.forget_if_many()

    def _commit(self, event: bytes) -> SourceItem:
        gtid = self._gtid or self._current(event)
        self._gtid = None
        if self._is_plain:
            return new_named(Transaction, (gtid, self._committed_at, self._rows, self._byte_count, None))
        return self._commit_special(gtid)

    def _commit_special(self, gtid: Gtid) -> SourceItem:
        """Complete a transaction that is spooled, or that creates a table together with its rows."""
        store, created = self._store, self._created
        self._store = self._created = None
        self._is_plain = True
        if created is not None and not self._byte_count:
            return SchemaChange(gtid, self._committed_at, created.database, created.text, created.session)
        if store is None:
            return Transaction(gtid, self._committed_at, self._rows, self._byte_count)
        store.extend(self._rows)
        return Transaction(gtid, self._committed_at, store, self._byte_count)

    def _current(self, event: bytes) -> Gtid:
        if self._gtid is None:
            raise CorruptEvent(f"an event of type {event[4]} stands outside of any transaction, {self._where(event)}")
        return self._gtid

    # Rows

    def _table_map(self, event: bytes) -> None:
        self._tables.take_map(event[HEADER_LENGTH : self._end])

    def _read_rows(self, event: bytes) -> None:
        self._current(event)
        try:
            prefix = self._tables.prefix_of(event)
        except KeyError:
            raise CorruptEvent(f"rows come without a table map, {self._where(event)}") from None
        if prefix is None:
            return  # not wanted
        images = event[prefix.end : self._end]
        as_it_is = (new_named(RowsEvent, (prefix.shape, images)),)
        for one in prefix.project(images) if isinstance(prefix, ProjectedPrefix) else as_it_is:
            self._rows.append(one)
            self._byte_count += len(one.images)
        if self._byte_count > self._spool_above_bytes:
            self._spool()

    def _spool(self) -> None:
        if self._store is None:
            self._store = self._surroundings.open_store()
            self._is_plain = False
        self._store.extend(self._rows)
        self._rows = []

    # Statements

    def _query(self, event: bytes) -> SourceItem | None:
        if begins(event, self._end):
            self._is_begun = True
            return None
        return self._statement(event, self._current(event), read_query(event, self._end))

    def _statement(self, event: bytes, gtid: Gtid, query: Query) -> SourceItem | None:
        word = query.first_word
        if word == "XA":
            return self._xa(event, gtid, query)
        if not self._is_begun:
            return self._schema_change(event, gtid, query)
        if query.statement in _ENDS:
            if self._byte_count:
                raise refused_end(gtid, word)
            return self._commit(event)
        if word == "SAVEPOINT":
            return None  # what was rolled back to it is not in the binlog
        if query.creates_with_rows:
            # The rows count, and whether the target's table fits them is proven like for all others.
            self._created = query
            self._is_plain = False
            return None
        raise refused_statement(gtid, word)

    def _schema_change(self, event: bytes, gtid: Gtid, query: Query) -> SourceItem:
        if self._byte_count:
            raise CorruptEvent(f"rows come without a BEGIN, {self._where(event)}")
        if query.drops_nothing:
            return self._commit(event)
        self._gtid = None
        return SchemaChange(gtid, self._committed_at, query.database, query.text, query.session)

    # XA: see the position rule at the top.

    def _xa(self, event: bytes, gtid: Gtid, query: Query) -> SourceItem | None:
        statement = read_xa(query.statement)
        if statement is None:
            raise refused_statement(gtid, query.first_word)
        if statement.verb == "START":
            self._is_begun = True
            self._xid = statement.xid
            return None
        if statement.verb == "END":
            return None
        return self._end_xa(event, statement)

    def _end_xa(self, event: bytes, statement: XaStatement) -> SourceItem:
        prepared = self._prepared.take(statement.xid)
        if prepared is None and statement.verb == "COMMIT":
            gtid = self._current(event)
            raise UnsupportedEvent(
                f"transaction {gtid} ends an XA transaction that was prepared before the start position",
                hint="Start the stream from a position before that XA PREPARE.",
            )
        ending = self._commit(event)
        if not isinstance(ending, Transaction) or ending.byte_count:
            raise CorruptEvent(f"the end of an XA transaction holds more than that, {self._where(event)}")
        if prepared is None:  # of what was prepared before the start position nothing is known, and need not be
            return ending
        if statement.verb == "ROLLBACK":
            return ending._replace(prepared=prepared.gtid)
        return ending._replace(rows=prepared.rows, byte_count=prepared.byte_count, prepared=prepared.gtid)

    def _prepare(self, event: bytes) -> SourceItem | None:
        xid, self._xid = self._xid, b""
        transaction = self._commit(event)
        if not xid or not isinstance(transaction, Transaction):
            raise CorruptEvent(f"an XA PREPARE stands alone, {self._where(event)}")
        if event[HEADER_LENGTH]:  # one phase: this is the commit
            return transaction
        self._prepared.add(xid, transaction)
        return None

    # The stream itself

    def _payload(self, event: bytes) -> SourceItem | None:
        self._current(event)
        result: SourceItem | None = None
        outer_end, self._end = self._end, None  # the events inside have no checksums
        for inner in split_events(memoryview(event)[HEADER_LENGTH:outer_end], self._surroundings.decompress):
            if result is not None or inner[4] in event_types.NEVER_INSIDE_PAYLOAD:
                raise CorruptEvent(f"a compressed transaction holds what does not belong there, {self._where(event)}")
            result = self._handlers[inner[4]](inner)
        self._end = outer_end
        return result

    def _describe_format(self, event: bytes) -> None:
        if self._gtid is not None or event[19:21] != _FORMAT_VERSION or event[_HEADER_LENGTH_AT] != HEADER_LENGTH:
            raise CorruptEvent(f"a format description is not understood or out of place, {self._where(event)}")
        # The event ends with the checksum algorithm of the events behind it and, in every case, four bytes of
        # checksum. Without an algorithm these are not to be relied on; but they must not prove that there was one.
        algorithm = event[-CHECKSUM_LENGTH - 1]
        if algorithm > 1:
            raise UnsupportedEvent(f"the source's checksum algorithm {algorithm} is not known here")
        claimed = event[: -CHECKSUM_LENGTH - 1] + b"\x01" + event[-CHECKSUM_LENGTH:]
        if (crc32(claimed) == CHECKSUM_RESIDUE) != (algorithm == 1):
            raise CorruptEvent(f"the checksum of the format description is wrong, {self._where(event)}")
        self._is_checksummed = algorithm == 1
        self._end = -CHECKSUM_LENGTH if self._is_checksummed else None
        self._tables.forget_numbers()

    def _rotate(self, event: bytes) -> None:
        self._file = event[HEADER_LENGTH + 8 : self._end].decode("utf-8", "backslashreplace")

    def _heartbeat(self, event: bytes) -> Heartbeat | None:
        """A source at its head repeats the position of what it sent last.

        While it skips what we have already, its heartbeats tell how far it has come: those say nothing.
        """
        is_at_head = self._gtid is None and event[13:17] == self._last_event[13:17]
        return Heartbeat() if is_at_head else None

    def _ignore(self, event: bytes) -> None:
        """Ignored on purpose: see ``event_types.IGNORED``."""

    def _refuse(self, event: bytes) -> None:
        raise refused_event(event[4], self._where(event))

    def _refuse_unknown(self, event: bytes) -> None:
        if not int.from_bytes(event[17:19], "little") & event_types.IGNORABLE_FLAG:
            self._refuse(event)
