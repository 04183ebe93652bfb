"""Skipping a transaction: which one is next behind a stream's checkpoint, and moving the checkpoint past it.

Knows: how both are established. Never knows: who may skip, or why. Used by ``hosting/assembly.py`` for the supervisor.

Next, without guessing
----------------------
The source itself says which transaction follows the checkpoint: it is asked for its binlog from there, as the stream
asks, and the first transaction that comes is the next one. Rows are not looked at, so that neither a table that does
not fit nor a value that cannot be carried is in the way; and of a transaction that cannot be read at all, the name that
stands in front of it is enough. The first half of an XA transaction, which the stream passes without a word, is passed
here likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.events import Heartbeat, SchemaChange, SourceItem
from vmerge.core.ownership import Claim
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stretch import gtids_of
from vmerge.errors import CorruptEvent, OrderRefused, UnsupportedEvent
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import Endpoint, short_connection
from vmerge.mysql.faults import commit_fault, target_fault

LOG_KIND = "transaction skipped"


class Reader(Protocol):
    """What is needed of a source: ``mysql/source.py``, told to carry no table."""

    def open(self, position: GtidSet) -> None: ...
    def read(self) -> Sequence[SourceItem]: ...
    def close(self) -> None: ...
    @property
    def in_progress(self) -> Gtid | None: ...


@dataclass(frozen=True, slots=True)
class Skip:
    """What an operator wants to be skipped, and why."""

    gtid: Gtid
    reason: str
    by: str
    """Who does it: the daemon's host and process."""


def done_with_next(reader: Reader, position: GtidSet, wanted: Gtid, stream: str) -> list[Gtid]:
    """Return the GTIDs that are done with the transaction that follows a position, which must be ``wanted``.

    Raises:
        OrderRefused: another one is next, or none, or a schema change.
        SourceError: the source cannot be read.
    """
    if position.contains(wanted):
        raise OrderRefused(f"transaction {wanted} is behind stream {stream} already; its position is {position}")
    try:
        reader.open(position)
        return _first(reader, wanted, stream)
    finally:
        reader.close()


def _first(reader: Reader, wanted: Gtid, stream: str) -> list[Gtid]:
    while True:
        try:
            items = reader.read()
        except (UnsupportedEvent, CorruptEvent):
            unreadable = reader.in_progress
            if unreadable is None:
                raise
            _require(unreadable, wanted, stream)
            return [unreadable]
        if items:
            return _done_with(items[0], wanted, stream)


def _done_with(item: SourceItem, wanted: Gtid, stream: str) -> list[Gtid]:
    if isinstance(item, Heartbeat):
        raise OrderRefused(
            f"nothing follows the position of stream {stream}: the source has no transaction {wanted} yet"
        )
    _require(item.gtid, wanted, stream)
    if isinstance(item, SchemaChange):
        raise OrderRefused(
            f"transaction {wanted} is a schema change, which is not skipped",
            hint="Make the change on the target by hand, then `vmerge start --past-schema-change "
            f"{wanted} -- WORKFLOW {stream}`.",
        )
    return gtids_of([item])


def _require(following: Gtid, wanted: Gtid, stream: str) -> None:
    if following != wanted:
        raise OrderRefused(
            f"transaction {wanted} is not next in stream {stream}: transaction {following} is",
            hint="Only the very next one can be skipped. Start the stream: it goes on until one stops it.",
        )


def move_past(
    target: Endpoint, tables: ControlTables, claim: Claim, position: GtidSet, done: Sequence[Gtid], skip: Skip
) -> GtidSet:
    """Move a checkpoint past skipped transactions and log that, in one target transaction; return where it is then.

    The stream gets a new epoch with it, so that no session of an earlier one can write behind our back.

    Raises:
        OrderRefused: the stream runs, or is no longer at ``position``.
        Fenced: another daemon took the stream over after the claim was made.
        CommitUnknown: it may be done or not.
    """
    after = position.advanced(done)
    with short_connection(target, "skipping a transaction", target_fault) as connection:
        connection.begin()
        epoch = tables.lock_standing(connection, claim, position)
        tables.skip(connection, claim, epoch, after)
        message = f"transaction {skip.gtid} was skipped by {skip.by}: {skip.reason}"
        tables.append_log(connection, claim.stream, LOG_KIND, message)
        _commit(connection, target)
    return after


def _commit(connection: Connection[Any], target: Endpoint) -> None:
    try:
        connection.commit()
    except (MySQLError, OSError) as error:
        raise commit_fault(error, f"committing on {target}") from error
