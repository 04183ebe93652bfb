"""The fast lane of the binlog decoder: whole transactions of the usual form, read in one loop.

Knows: GTID (plain or tagged), ``BEGIN``, then table maps and rows events in any number, then XID. Never knows: what to
do about anything else. Used by ``core/binlog.py`` alone.

How it stays honest
-------------------
Nearly all transactions have this form, and handling each event by its own method costs more than what is read from it.
So the lane has one loop with all in it, and one rule: **it only looks**. It changes nothing but the memory of how
events begin, which is of no consequence. At the first event that it does not know, or that is not as it should be, it
stops and gives back everything from that transaction's GTID on; the decoder reads the same events again, by its own
methods, and says what is wrong, spools, or goes on. So the lane needs no error of its own, and whatever it returns is
what the decoder would have returned: the tests decode everything both ways.

It takes a transaction only if all its events are at hand, its table maps are known ones under their known numbers, and
its rows need no spooling. Checksums are the caller's: it verifies those of all events before any is read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct

from vmerge.core.event_types import CHECKSUM_LENGTH, GTID, GTID_TAGGED, HEADER_LENGTH, QUERY, TABLE_MAP, XID
from vmerge.core.events import RowsEvent, Transaction, new_named
from vmerge.core.position import LAST_NUMBER, Gtid
from vmerge.core.query import FIXED_BYTES, FIXED_PART
from vmerge.core.rows_shapes import ProjectedPrefix
from vmerge.core.source_tables import KEY_END, NUMBER_AT, NUMBER_BYTES, SourceTables
from vmerge.core.tagged_gtid import read_tagged_gtid
from vmerge.errors import SourceError

GTID_BODY = Struct("<16sq17xQ")
"""Behind the flags: source uuid, number, logical clock (skipped), commit time in the low 55 bits of 8 bytes."""

GTID_AT = HEADER_LENGTH + 1
COMMIT_TIME_MASK = (1 << 55) - 1

BEGIN = b"BEGIN"
_KIND = slice(4, 5)
_QUERY = bytes((QUERY,))
_END = -CHECKSUM_LENGTH
_BEHIND_SECONDS = HEADER_LENGTH + 8
"""Where that part of a query event begins that a session's BEGINs have in common."""
_MANY_BEGINS = 1000
"""Kept at most: their status variables may tell the time."""


def begins(event: bytes, end: int | None) -> bool:
    """Whether a query event, whose content ends at ``end``, is a ``BEGIN``."""
    name_length, status_length = FIXED_PART.unpack_from(event, HEADER_LENGTH)
    return event[HEADER_LENGTH + FIXED_BYTES + status_length + name_length + 1 : end] == BEGIN


class UsualTransactions:
    """The fast lane of one decoder. Owner: that decoder."""

    def __init__(self, tables: SourceTables, spool_above_bytes: int) -> None:
        self._tables = tables
        self._spool_above_bytes = spool_above_bytes
        self._begins: set[bytes] = set()
        """What follows the seconds in the BEGINs met so far."""

    def take(  # noqa: C901  # one loop on purpose, see above
        self, events: Sequence[bytes], first: int, taken: list[Transaction]
    ) -> int:
        """Read the usual transactions from ``events[first]`` on; return the index of the first event that is left.

        The events have right checksums, and ``events[first]`` stands between two transactions. A transaction that is
        cut short by the end of ``events`` is left, too.
        """
        if first + 1 < len(events) and events[first + 1][_KIND] != _QUERY:
            return first  # a compressed transaction, or none at all: not worth the rest
        left = first
        numbers, entries, prefixes = self._tables.numbers, self._tables.entries, self._tables.prefixes
        last_map = self._tables.last_map
        known_begins = self._begins
        read_gtid = GTID_BODY.unpack_from
        gtid: Gtid | None = None
        committed_at = byte_count = 0
        rows: list[RowsEvent] = []
        try:
            for index in range(first, len(events)):
                event = events[index]
                kind = event[4]
                if gtid is None:
                    if kind == GTID:
                        source, number, committed_at = read_gtid(event, GTID_AT)
                        gtid = new_named(Gtid, (source, "", number))
                        committed_at &= COMMIT_TIME_MASK
                    elif kind == GTID_TAGGED:
                        gtid, committed_at = read_tagged_gtid(event[HEADER_LENGTH:_END])
                        number = gtid.number
                    else:
                        break
                    if not 0 < number <= LAST_NUMBER:
                        break
                    rows = []
                    byte_count = 0
                elif kind == TABLE_MAP:
                    body = event[HEADER_LENGTH:_END]
                    if body != last_map:
                        if numbers[body[:NUMBER_BYTES]] is not entries[body]:
                            break
                        last_map = body
                elif kind in prefixes:
                    prefix = prefixes[kind].get(event[NUMBER_AT:KEY_END])
                    if prefix is None or not event.startswith(prefix.rest, KEY_END):
                        found = self._tables.prefix_of(event)
                        if found is None:
                            continue  # a table that is not wanted
                        if isinstance(found, ProjectedPrefix):
                            for one in found.project(event[found.end : _END]):
                                rows.append(one)
                                byte_count += len(one.images)
                            continue
                        prefix = found
                    _, at, shape = prefix
                    images = event[at:_END]
                    rows.append(new_named(RowsEvent, (shape, images)))
                    byte_count += len(images)
                elif kind == XID:
                    if byte_count > self._spool_above_bytes:
                        break
                    taken.append(new_named(Transaction, (gtid, committed_at, rows, byte_count, None)))
                    gtid = None
                    left = index + 1
                elif kind != QUERY or not (event[_BEHIND_SECONDS:_END] in known_begins or self._is_begin(event)):
                    break
        except (LookupError, ValueError, struct.error, SourceError):
            pass  # not as it should be: the decoder will meet it, and say what it is
        return left

    def _is_begin(self, event: bytes) -> bool:
        if not begins(event, _END):
            return False
        if len(self._begins) >= _MANY_BEGINS:
            self._begins.clear()
        self._begins.add(event[_BEHIND_SECONDS:_END])
        return True
