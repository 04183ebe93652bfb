"""Durable states of a workflow's streams.

Knows: how a state, a start position or a log entry gets into the control tables by itself, outside of any player. Never
knows: players or threads. Used by the supervisor through its ``Assembly`` protocol.
"""

from __future__ import annotations

from collections.abc import Callable

from pymysql.err import IntegrityError

from vmerge.core.position import GtidSet
from vmerge.core.states import StreamState
from vmerge.mysql.checkpoints import ControlTables, StoredStream
from vmerge.mysql.connect import Endpoint, short_connection
from vmerge.mysql.faults import errno_of, target_fault

ER_DUP_ENTRY = 1062


class MySqlStates:
    """States kept on the target. Each call opens a connection of its own; any thread may call.

    Every call raises ``TargetError`` when the target cannot be reached or refuses.
    """

    def __init__(self, target: Endpoint, tables: ControlTables) -> None:
        self._target = target
        self._tables = tables

    def find(self, stream: str) -> StoredStream | None:
        """Return what is stored of a stream; None when it was never started."""
        with short_connection(self._target, "reading states", target_fault) as connection:
            return self._tables.read_streams(connection).get(stream)

    def enter(self, stream: str, find_start: Callable[[], GtidSet]) -> None:
        """Enter a new stream with its start position, creating the control tables where they are missing.

        A stream that another process has entered meanwhile stays as it is.
        """
        with short_connection(self._target, "entering a stream", target_fault) as connection:
            self._tables.create(connection)
            try:
                self._tables.register(connection, stream, find_start())
            except IntegrityError as error:
                if errno_of(error) != ER_DUP_ENTRY:
                    raise
                return
            self._tables.append_log(connection, stream, "entered", "")

    def write(self, stream: str, state: StreamState, message: str, *, epoch: int) -> None:
        """Store a state, and why. Raises ``Fenced`` when the stream's epoch is not this one any more."""
        with short_connection(self._target, "storing a state", target_fault) as connection:
            self._tables.write_state(connection, stream, state, message, epoch)
            self._tables.append_log(connection, stream, state.value, message)
