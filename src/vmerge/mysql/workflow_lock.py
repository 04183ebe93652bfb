"""The lock that tells which daemon runs a workflow: one user lock of the target, held by a session of its own.

Knows: the session, how long the server keeps it when its client is gone, and where the holder's name stands. Never
knows: what follows when somebody else has the lock. Used by ``hosting/tenure.py`` by its ``WorkflowLock`` protocol.

Why it tells the truth within seconds
-------------------------------------
A process that ends, however, has its connections closed by its system, and the server lets go of the lock at once. One
that is stopped, or whose host or network is gone, says nothing: a session that says nothing for ``LEASE_SECONDS`` is
ended by the server (``wait_timeout``), and its lock goes to who waits for it. A holder speaks every second.
Nothing is guarded by the lock: it can be lost while its owner writes. See ``mysql/checkpoints.py`` for what guards.
"""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.ownership import place_of
from vmerge.mysql import sql
from vmerge.mysql.breaker import break_off
from vmerge.mysql.connect import Endpoint, connect, drop, short_connection
from vmerge.mysql.control_layout import ControlLayout
from vmerge.mysql.faults import errno_of, target_fault
from vmerge.mysql.sql import quoted
from vmerge.mysql.user_locks import get_lock, holder_of, kill_session, lock_name

LEASE_SECONDS = 5
"""Long enough for a busy machine, whose daemon speaks every second; short enough for whoever waits."""

_SESSION: dict[str, str | int] = {
    "time_zone": "+00:00",
    "lock_wait_timeout": 2,
    "innodb_lock_wait_timeout": 1,
    "wait_timeout": LEASE_SECONDS,
    "net_read_timeout": LEASE_SECONDS,
    "net_write_timeout": LEASE_SECONDS,
}

_NOT_YET = frozenset({1044, 1049, 1142, 1146})
"""No such database or table, or none that the account may use: the first stream that is entered makes them."""


class MySqlWorkflowLock:
    """One daemon's session for one workflow's lock.

    Every call raises ``TargetError`` when the target cannot be reached or refuses; the session is closed then. Owner:
    the thread that keeps the lock; ``interrupt`` may be called by another.
    """

    def __init__(self, endpoint: Endpoint, control_database: str, workflow: str, owner: str) -> None:
        self._endpoint = endpoint
        self._database = control_database
        self._control = quoted(control_database).replace("%", "%%")  # values are put in by % formatting
        self._workflow = workflow
        self._owner = owner
        self._name = lock_name("workflow", control_database, workflow)
        self._connection: Connection[Any] | None = None
        self._session = 0
        """The last one's number at the server: a client that lost it may find it still there, with the lock."""
        self._is_recorded = False

    def is_same(self, other: MySqlWorkflowLock) -> bool:
        """Whether another lock is this one, whatever account asks for it."""
        ours, theirs = self._endpoint, other._endpoint
        return self._name == other._name and (ours.host, ours.port, ours.unix_socket) == (
            theirs.host,
            theirs.port,
            theirs.unix_socket,
        )

    def use(self, endpoint: Endpoint) -> None:
        """Connect like this from now on."""
        self._endpoint = endpoint

    def acquire(self, seconds: int) -> str | None:
        """Wait so long for the lock; return None if it is ours, else who has it, in words for an operator."""
        try:
            connection = self._opened()
            if get_lock(connection, self._name, seconds):
                self._record(connection)
                return None
            return self._holder(connection)
        except (MySQLError, OSError) as error:
            self.close()
            raise target_fault(
                error, f"asking for the lock of workflow {self._workflow} on {self._endpoint}"
            ) from error

    def seize(self) -> None:
        """End the session that has the lock; ``acquire`` gets it then, unless another waits for it."""
        try:
            connection = self._opened()
            holder = holder_of(connection, self._name)
            if holder is not None:
                kill_session(connection, holder)
        except (MySQLError, OSError) as error:
            self.close()
            raise target_fault(error, self._doing("taking")) from error

    def keep(self) -> bool:
        """Say something; return whether the lock is still ours."""
        if self._connection is None:
            return False
        try:
            if holder_of(self._connection, self._name) != self._session:
                return False
            if not self._is_recorded:
                self._record(self._connection)
            return True
        except (MySQLError, OSError) as error:
            self.close()
            raise target_fault(error, self._doing("keeping")) from error

    def prepare(self) -> str:
        """Upgrade older control tables; return in words which there are.

        Raises:
            TargetRejected: they are of a newer version, or the account may not change them.
        """
        with short_connection(self._endpoint, "looking at the control tables", target_fault) as connection:
            layout = ControlLayout(self._database)
            found = layout.upgrade(connection)
            version = layout.version(connection)
        if version is None:
            return f"no control tables in {self._database} yet"
        words = f"control tables in {self._database} of layout {version}"
        return words if found is None else f"{words}, upgraded from {found}"

    def interrupt(self) -> None:
        """Break a call that hangs, from another thread."""
        connection = self._connection
        if connection is not None:
            break_off(connection)

    def close(self) -> None:
        """Let go of the lock, if it is ours, by ending the session."""
        connection, self._connection, self._is_recorded = self._connection, None, False
        if connection is not None:
            drop(connection)

    def _doing(self, verb: str) -> str:
        return f"{verb} the lock of workflow {self._workflow} on {self._endpoint}"

    def _opened(self) -> Connection[Any]:
        """Return the session, a new one if need be; an earlier one of ours that outlived its connection is ended."""
        if self._connection is None:
            connection = connect(self._endpoint, read_timeout_seconds=LEASE_SECONDS, session=_SESSION)
            former, self._session = self._session, connection.thread_id()  # type: ignore[no-untyped-call]
            self._connection = connection
            if former and holder_of(connection, self._name) == former:
                kill_session(connection, former)
        return self._connection

    def _holder(self, connection: Connection[Any]) -> str:
        session = holder_of(connection, self._name)
        try:
            rows = self._run(connection, sql.READ_DAEMON, self._workflow, session)
        except MySQLError as error:
            if errno_of(error) not in _NOT_YET:
                raise
            rows = []
        place = place_of(rows[0][0]) if rows else ""
        return place or f"session {session or 'unknown'} of the target"

    def _record(self, connection: Connection[Any]) -> None:
        """Write who has the lock. Where that is not possible, as the tables are not there yet, it is tried again."""
        try:
            with connection.cursor() as cursor:
                values = self._owner, self._session, self._workflow
                if not cursor.execute(sql.RENEW_DAEMON.format(control=self._control), values):
                    cursor.execute(sql.ENTER_DAEMON.format(control=self._control), values)
        except MySQLError:  # a connection that is lost is noticed by the next word
            return
        self._is_recorded = True

    def _run(self, connection: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(control=self._control), values)
            return list(cursor.fetchall())
