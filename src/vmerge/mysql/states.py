"""Durable states of a workflow's streams.

Knows: how a state, a start position or a log entry gets into the control tables by itself, outside of any player. Never
knows: players or threads. Used by the supervisor through its ``Assembly`` protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pymysql.connections import Connection
from pymysql.err import IntegrityError, MySQLError

from vmerge.core.log_entry import LogEntry, StoredEntry
from vmerge.core.ownership import Claim
from vmerge.core.position import GtidSet
from vmerge.core.states import StreamState
from vmerge.mysql.checkpoints import ControlTables, StoredStream
from vmerge.mysql.connect import Endpoint, short_connection
from vmerge.mysql.faults import describe, errno_of, target_fault
from vmerge.mysql.stop_positions import StopPositions

logger = logging.getLogger(__name__)

ER_DUP_ENTRY = 1062


class MySqlStates:
    """States kept on the target. Each call opens a connection of its own; any thread may call.

    Every call raises ``TargetError`` when the target cannot be reached or refuses.
    """

    def __init__(self, target: Endpoint, tables: ControlTables, stop_positions: StopPositions) -> None:
        self._target = target
        self._tables = tables
        self._stop_positions = stop_positions

    def claim(self, stream: str, owner: str) -> Claim:
        """Return a claim to what is stored of a stream now, in an owner's name."""
        stored = self.read(stream)
        return Claim(stream, owner, stored.owner if stored is not None else "")

    def find(self, claim: Claim) -> StoredStream | None:
        """Return what is stored of a stream; None when it was never started.

        Raises ``Fenced`` when another daemon took it over after the claim was made.
        """
        stored = self.read(claim.stream)
        if stored is not None and not claim.covers(stored.owner):
            raise self._tables.fenced(claim.stream, stored.owner)
        return stored

    def read(self, stream: str) -> StoredStream | None:
        """Return what is stored of a stream, whoever has it."""
        with short_connection(self._target, "reading states", target_fault) as connection:
            stored = self._tables.read_streams(connection).get(stream)
            return stored and replace(stored, stops_at=self._stop_positions.read(connection, stream))

    def enter(self, claim: Claim, find_start: Callable[[], GtidSet]) -> None:
        """Enter a new stream with its start position, creating the control tables where they are missing.

        A stream that another process has entered meanwhile stays as it is.
        """
        with short_connection(self._target, "entering a stream", target_fault) as connection:
            self._tables.create(connection)
            try:
                self._tables.register(connection, claim, find_start())
            except IntegrityError as error:
                if errno_of(error) != ER_DUP_ENTRY:
                    raise
                return
            self._append(connection, claim.stream, "entered", "")

    def write(self, claim: Claim, state: StreamState, message: str, stops_at: GtidSet | None = None) -> None:
        """Store a state, why, and where the stream shall stop: None leaves that as it is, the empty set is nowhere.

        Raises ``Fenced`` when another daemon took the stream over after the claim.
        """
        with short_connection(self._target, "storing a state", target_fault) as connection:
            connection.begin()
            self._tables.write_state(connection, claim, state, message)
            if stops_at is not None:
                self._stop_positions.write(connection, claim.stream, stops_at)
            connection.commit()
            self._append(connection, claim.stream, state.value, message)

    def _append(self, connection: Connection[Any], stream: str, kind: str, message: str) -> None:
        """Add an entry about what is stored already: the log's errors are not the state's."""
        try:
            self._tables.append_log(connection, stream, kind, message)
        except (MySQLError, OSError) as error:
            logger.warning(
                "the log table could not be written: %s",
                describe(error),
                extra={"stream": f"{self._tables.workflow}/{stream}"},
            )

    def append_conflicts(self, entries: Sequence[LogEntry], now: float) -> None:
        """Add entries to the log; ``now`` is the instant on the clock that their times are of."""
        with short_connection(self._target, "writing the log", target_fault) as connection:
            self._tables.append_conflicts(connection, entries, now)

    def read_log(self, streams: Sequence[str], limit: int) -> list[StoredEntry]:
        """Return the last entries about some streams, the oldest first."""
        with short_connection(self._target, "reading the log", target_fault) as connection:
            return self._tables.read_log(connection, streams, limit)
