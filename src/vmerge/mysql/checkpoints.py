"""The control tables on the target.

Knows: where positions, states and the log of each stream are kept. Never knows: rows or events. ``mysql/target.py``
writes checkpoints through it inside the target transaction; the supervisor keeps states with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.barrier import Arrival
from vmerge.core.joint import Part
from vmerge.core.log_entry import LogEntry, StoredEntry
from vmerge.core.ownership import Claim, place_of
from vmerge.core.position import GtidSet
from vmerge.core.states import StreamState
from vmerge.errors import Fenced, JointRefused, OrderRefused, TargetRejected
from vmerge.mysql import sql
from vmerge.mysql.control_layout import ControlLayout
from vmerge.mysql.user_locks import get_lock, holder_of, kill_session, lock_name, silent_seconds

ER_NO_SUCH_TABLE = 1146
ER_BAD_DB = 1049

MESSAGE_CHARACTERS = 8000
"""Of a message that is stored: some name GTID sets of any length, and a TEXT has 64 KiB."""


SILENT_SECONDS = 2
"""A session that works says something many times a second."""

DISPLACE_SECONDS = 3
"""For the rollback of a session that was ended; a long one goes on aside, and whoever meets its locks tries again."""


@dataclass(frozen=True, slots=True)
class StoredStream:
    """One stream as the target remembers it."""

    name: str
    position: GtidSet
    state: StreamState
    message: str
    applied_at: float | None
    """Seconds since 1970."""
    owner: str
    """Who has it; see ``core/ownership.py``."""
    stops_at: GtidSet = field(default_factory=GtidSet)
    """Where it is ordered to stop; the empty set: nowhere."""


class ControlTables:
    """Statements on the control tables of one workflow.

    Promise: a checkpoint is written only in the session of the newest epoch, and nobody takes over a stream, or writes
    its state, against his claim. Holds no connection: each call is given one, whose transaction it takes part in.
    """

    def __init__(self, database: str, workflow: str) -> None:
        self._database = database
        self._control = sql.quoted(database).replace("%", "%%")  # values are put in by % formatting
        self.workflow = workflow

    def create(self, connection: Connection[Any]) -> None:
        """Create what is missing. Never inside a transaction: the statements commit."""
        ControlLayout(self._database).create(connection)

    def read_streams(self, connection: Connection[Any]) -> dict[str, StoredStream]:
        """Return the workflow's streams by name; none when nothing was ever created."""
        try:
            rows = self._run(connection, sql.READ_STREAMS, self.workflow)
        except MySQLError as error:
            if error.args[0] in (ER_NO_SUCH_TABLE, ER_BAD_DB):
                return {}
            raise
        return {row[0]: _stored_stream(row) for row in rows}

    def register(self, connection: Connection[Any], claim: Claim, position: GtidSet) -> None:
        """Enter a new stream with its start position; it is ours."""
        self._run(connection, sql.REGISTER_STREAM, self.workflow, claim.stream, str(position), claim.owner)

    def fenced(self, stream: str, owner: str) -> Fenced:
        """Return the error that says who has a stream now."""
        place = place_of(owner)
        message = f"stream {stream} of workflow {self.workflow} was taken over by another daemon"
        return Fenced(f"{message} ({place})" if place else message)

    def take_over(self, connection: Connection[Any], claim: Claim) -> tuple[GtidSet, int]:
        """Take a new epoch in a transaction of its own; return position and epoch.

        The row lock makes this the answer to a connection lost in COMMIT: a transaction of the earlier owner that
        has written its checkpoint is waited for, and one that has not can no longer write it.

        Raises:
            Fenced: another daemon took the stream over after the claim was made.
        """
        connection.begin()
        rows = self._run(connection, sql.LOCK_STREAM, self.workflow, claim.stream)
        if not rows:
            connection.rollback()
            raise TargetRejected(
                f"stream {claim.stream} of workflow {self.workflow} is not in the control tables",
                hint="Start the workflow again: it enters its streams anew at their start positions.",
            )
        position, epoch, owner = rows[0]
        if not claim.covers(owner):
            connection.rollback()
            raise self.fenced(claim.stream, owner)
        self._run(connection, sql.TAKE_EPOCH, epoch + 1, claim.owner, self.workflow, claim.stream)
        connection.commit()
        get_lock(connection, self._session_lock(claim.stream, epoch + 1), 0)
        return GtidSet.parse(position), epoch + 1

    def displace(self, connection: Connection[Any], claim: Claim) -> None:
        """End the earlier session of a stream that is to be taken over, if its client is gone or asleep.

        Such a session may hold locks until its time-out. Nothing rests on this: whatever it does is fenced by the
        take-over, and one that works learns from that, in words, that it was taken over.
        """
        rows = self._run(connection, sql.READ_OWNER, self.workflow, claim.stream)
        if not rows or not claim.covers(rows[0][0]):
            return
        lock = self._session_lock(claim.stream, rows[0][1])
        session = holder_of(connection, lock)
        if session is not None and silent_seconds(connection, session) >= SILENT_SECONDS:
            kill_session(connection, session)
            get_lock(connection, lock, DISPLACE_SECONDS)

    def _session_lock(self, stream: str, epoch: int) -> str:
        """Return the name by which the session of an epoch is found."""
        return lock_name("session", self._database, self.workflow, stream, str(epoch))

    def require_newest(self, connection: Connection[Any], stream: str, epoch: int) -> None:
        """Raise ``Fenced`` when a stream was taken over behind this epoch."""
        rows = self._run(connection, sql.READ_OWNER, self.workflow, stream)
        if not rows or rows[0][1] != epoch:
            raise self.fenced(stream, rows[0][0] if rows else "")

    def hold(self, connection: Connection[Any], claim: Claim) -> None:
        """Keep others from taking a stream over until the open transaction ends.

        Raises:
            Fenced: another daemon has it; the caller rolls back.
        """
        rows = self._run(connection, sql.HOLD_OWNER, self.workflow, claim.stream)
        owner = rows[0][0] if rows else ""
        if owner != claim.owner:
            raise self.fenced(claim.stream, owner)

    def require_waiting(self, connection: Connection[Any], arrival: Arrival, epoch: int) -> None:
        """Raise ``JointRefused`` when a stream no longer stands in front of the schema change at which it waited."""
        rows = self._run(connection, sql.READ_STAND, self.workflow, arrival.stream)
        if rows != [(str(arrival.position), epoch)]:
            raise self._moved(arrival.stream)

    def write_checkpoint(
        self, connection: Connection[Any], stream: str, position: GtidSet, applied_at_microseconds: int, epoch: int
    ) -> None:
        """Write the position in the open transaction.

        Raises:
            Fenced: another daemon took the stream over; the caller rolls back.
        """
        with connection.cursor() as cursor:
            matched = cursor.execute(
                sql.WRITE_CHECKPOINT.format(control=self._control),
                (str(position), applied_at_microseconds or None, self.workflow, stream, epoch),
            )
        self._require_matched(connection, matched, stream)

    def write_joint_checkpoint(self, connection: Connection[Any], part: Part, epoch: int) -> None:
        """Write the position of a joint commit's member in the open transaction.

        Raises:
            JointRefused: the member has moved, or started anew; the caller rolls back.
        """
        move = part.offer.position, part.position
        self._move(connection, part.stream, epoch, move, part.stretch.committed_at_microseconds)

    def write_barrier_checkpoint(self, connection: Connection[Any], arrival: Arrival, epoch: int) -> None:
        """Write, in the open transaction, that a stream is behind the schema change at which it waits.

        Raises:
            JointRefused: the stream has moved, or started anew; the caller rolls back.
        """
        move = arrival.position, arrival.position.advanced([arrival.gtid])
        self._move(connection, arrival.stream, epoch, move, arrival.committed_at_microseconds)

    def _move(
        self, connection: Connection[Any], stream: str, epoch: int, move: tuple[GtidSet, GtidSet], applied_at: int
    ) -> None:
        before, after = move
        with connection.cursor() as cursor:
            matched = cursor.execute(
                sql.WRITE_JOINT_CHECKPOINT.format(control=self._control),
                (str(after), applied_at or None, self.workflow, stream, epoch, str(before)),
            )
        if matched != 1:
            raise self._moved(stream)

    def _moved(self, stream: str) -> JointRefused:
        return JointRefused(
            f"stream {stream} of workflow {self.workflow} has moved, or was taken over, since its offer"
        )

    def lock_standing(self, connection: Connection[Any], claim: Claim, position: GtidSet) -> int:
        """Lock a stream that stands still at a position until the open transaction ends; return its epoch.

        Raises:
            OrderRefused: it does not; the caller rolls back.
            Fenced: another daemon took the stream over after the claim was made.
        """
        rows = self._run(connection, sql.LOCK_STANDING, self.workflow, claim.stream)
        stored, epoch, owner, state = rows[0] if rows else ("", 0, "", "")
        if rows and not claim.covers(owner):
            raise self.fenced(claim.stream, owner)
        if not rows or GtidSet.parse(stored) != position or state == StreamState.RUNNING.value:
            raise OrderRefused(
                f"stream {claim.stream} of workflow {self.workflow} does not stand still at {position}",
                hint=f"Look at `vmerge status {self.workflow}` and order again.",
            )
        return int(epoch)

    def skip(self, connection: Connection[Any], claim: Claim, epoch: int, position: GtidSet) -> None:
        """Move a locked stream to a position, in a new epoch of ours."""
        self._run(connection, sql.SKIP, str(position), epoch + 1, claim.owner, self.workflow, claim.stream)

    def write_state(self, connection: Connection[Any], claim: Claim, state: StreamState, message: str) -> None:
        """Store a stream's durable state.

        Raises:
            Fenced: another daemon took the stream over; its state is that daemon's.
        """
        owners = claim.owner, claim.found
        with connection.cursor() as cursor:
            matched = cursor.execute(
                sql.WRITE_STATE.format(control=self._control),
                (state.value, message[:MESSAGE_CHARACTERS], self.workflow, claim.stream, owners),
            )
        self._require_matched(connection, matched, claim.stream)

    def _require_matched(self, connection: Connection[Any], matched: int, stream: str) -> None:
        if matched != 1:
            rows = self._run(connection, sql.READ_OWNER, self.workflow, stream)
            raise self.fenced(stream, rows[0][0] if rows else "")

    def append_log(self, connection: Connection[Any], stream: str, kind: str, message: str) -> None:
        """Add an entry to the log and let go of the oldest."""
        self._run(connection, sql.APPEND_LOG, self.workflow, stream, kind, message[:MESSAGE_CHARACTERS])
        self._trim_log(connection, stream)

    def append_conflicts(self, connection: Connection[Any], entries: Sequence[LogEntry], now: float) -> None:
        """Add entries that happened a while ago, in one transaction, and let go of the oldest."""
        connection.begin()
        for entry in entries:
            age_microseconds = int(max(0.0, now - entry.at) * 1e6)
            values = entry.kind, entry.message[:MESSAGE_CHARACTERS], json.dumps(entry.facts)
            self._run(connection, sql.APPEND_CONFLICT, self.workflow, entry.stream, age_microseconds, *values)
        for stream in sorted({entry.stream for entry in entries}):
            self._trim_log(connection, stream)
        connection.commit()

    def read_log(self, connection: Connection[Any], streams: Sequence[str], limit: int) -> list[StoredEntry]:
        """Return the last entries about some streams, the oldest first."""
        rows = self._run(connection, sql.READ_LOG, self.workflow, tuple(streams), limit)
        return [_stored_entry(row) for row in reversed(rows)]

    def _trim_log(self, connection: Connection[Any], stream: str) -> None:
        self._run(connection, sql.TRIM_LOG, self.workflow, stream, self.workflow, stream)

    def _run(self, connection: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(control=self._control), values)
            return list(cursor.fetchall())


def _stored_entry(row: tuple[Any, ...]) -> StoredEntry:
    id, stream, happened_at, kind, message, facts = row
    return StoredEntry(id, stream, happened_at, kind, message, None if facts is None else json.loads(facts))


def _stored_stream(row: tuple[Any, ...]) -> StoredStream:
    name, position, state, message, applied_at, owner = row
    seconds = applied_at.replace(tzinfo=UTC).timestamp() if isinstance(applied_at, datetime) else None
    return StoredStream(name, GtidSet.parse(position), StreamState(state), message, seconds, owner)
