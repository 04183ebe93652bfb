"""Schema changes on the target: run once for all streams, and what online schema change tools did so far.

Knows: how a statement is rehearsed, run and recorded, and how a later run finds out what an earlier one did. Never
knows: when streams may pass a change. Used by the player through its ``Ledger`` protocol.

Run once
--------
The server commits by itself around a schema change, so the statement and the streams' checkpoints cannot share a
transaction. In its place:

1. a user lock is taken, which a session holds for as long as a statement of it runs, even if its client is gone;
2. the statement runs on an empty copy of the table, which tells the definition that the table will have behind it;
3. the statement, each stream's transaction and the definitions before and after are stored, and committed: *begun*;
4. the statement runs;
5. all streams' checkpoints move behind it, each from where its stream waits, in one transaction with *done*.

Behind the lock each stream must still stand where it waits: while the lock is held nobody else runs the change, and no
stream comes behind it otherwise. So a daemon that slept, and whose streams another one has, runs nothing late.

Whoever comes to the change again finds what was begun, waits for the lock, and looks at the table: as before it, the
statement was not run, for it takes effect whole or not at all; as behind it, it was. Anything else nobody can tell, and
stops the stream. A statement that changes no definition changes no row either, and may run again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.barrier import Arrival
from vmerge.core.ownership import Claim
from vmerge.core.position import Gtid
from vmerge.core.rules import TableName
from vmerge.core.schema_policy import Note, ShadowStatement
from vmerge.core.target_statement import target_statement
from vmerge.errors import KeyConflict, LockConflict, SchemaUnclear, TargetError, TargetRejected
from vmerge.mysql import sql
from vmerge.mysql.breaker import Breaker
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import Endpoint, connect, drop, short_connection
from vmerge.mysql.definitions import comparable, read_definitions
from vmerge.mysql.faults import commit_fault, target_fault
from vmerge.mysql.joint_commit import membership_of
from vmerge.mysql.schemas import show_generated_keys
from vmerge.mysql.source_memory import SourceMemory
from vmerge.mysql.user_locks import get_lock, lock_name

LONGEST_STATEMENT_SECONDS = 30 * 24 * 3600
"""A large table is altered for hours; an operator's stop ends the call in any case."""

LOCK_SECONDS = 10
"""A session that runs a change has the lock for as long as it runs, also when its client is gone."""

_SESSION: dict[str, str | int] = {
    "time_zone": "+00:00",
    "lock_wait_timeout": 20,  # for the table's metadata lock; tried again after a pause
    "innodb_lock_wait_timeout": 5,
    "wait_timeout": 30,
}


@dataclass(frozen=True, slots=True)
class _Begun:
    """A change that is recorded as begun."""

    id: int
    statements: tuple[str, ...]
    definitions: tuple[str, ...]
    """One more than there are statements."""


class MySqlLedger:
    """What the target keeps and does about the schema changes of one stream.

    Owner: the stream's thread; ``kill_query`` and ``interrupt`` may be called by another.
    """

    def __init__(self, endpoint: Endpoint, control_database: str, tables: ControlTables, claim: Claim) -> None:
        self._breaker = Breaker()
        self._aside = endpoint
        """For what is asked while calls of the stream hang."""
        self._endpoint = endpoint.breakable(self._breaker)
        self._database = control_database
        self._control = sql.quoted(control_database).replace("%", "%%")  # values are put in by % formatting
        self._tables = tables
        self._claim = claim
        self._stream = claim.stream
        self._connection: Connection[Any] | None = None

    # Online schema changes

    def note(self, gtid: Gtid, reading: ShadowStatement, statement: str) -> None:
        """See ``vmerge.player.schema_changes.Ledger``."""
        stream, shadow = (self._tables.workflow, self._stream), reading.shadow
        with short_connection(self._endpoint, "noting a schema change", target_fault) as connection:
            connection.begin()
            self._tables.hold(connection, self._claim)  # a late word would put the statements out of their order
            if reading.note is Note.BEGINS:
                self._execute(connection, sql.FORGET_SHADOW, *stream, *shadow)
            else:
                self._execute(connection, sql.FORGET_SHADOW_STATEMENT, *stream, str(gtid))
                self._execute(connection, sql.NOTE_SHADOW_STATEMENT, *stream, *shadow, str(gtid), statement)
            connection.commit()

    def collected(self, shadow: TableName) -> Sequence[str]:
        """See ``vmerge.player.schema_changes.Ledger``."""
        with short_connection(self._endpoint, "reading schema changes", target_fault) as connection:
            rows = self._execute(connection, sql.READ_SHADOW, self._tables.workflow, self._stream, *shadow)
        return [row[0] for row in rows]

    def outdate(self, tables: frozenset[TableName] | None, at_microseconds: int) -> None:
        """See ``vmerge.player.schema_changes.Ledger``."""
        with short_connection(self._endpoint, "noting a schema change", target_fault) as connection:
            connection.begin()
            self._tables.hold(connection, self._claim)
            self._memory(self._stream).outdate(connection, tables, at_microseconds // 1_000_000)
            connection.commit()

    def _memory(self, stream: str) -> SourceMemory:
        return SourceMemory(self._database, self._tables.workflow, stream)

    def log(self, kind: str, message: str) -> None:
        """See ``vmerge.player.schema_changes.Ledger``."""
        with short_connection(self._endpoint, "writing the log", target_fault) as connection:
            self._tables.append_log(connection, self._stream, kind, message)

    # Running a change

    def carry_out(self, members: Sequence[Arrival]) -> None:
        """See ``vmerge.player.schema_changes.Ledger``."""
        with self._session() as connection:
            self._lock(connection)
            for member in members:
                self._tables.require_waiting(connection, member, membership_of(member.membership).epoch)
            begun = self._find_begun(connection, members) or self._begin(connection, members)
            self._run(connection, begun, members)
            self._finish(connection, begun, members)

    @contextlib.contextmanager
    def _session(self) -> Iterator[Connection[Any]]:
        connection: Connection[Any] | None = None
        try:
            connection = connect(self._endpoint, read_timeout_seconds=LONGEST_STATEMENT_SECONDS, session=_SESSION)
            self._connection = connection
            show_generated_keys(connection)
            yield connection
        except (MySQLError, OSError) as error:
            raise _fatal_if_conflict(target_fault(error, f"changing a schema on {self._endpoint}")) from error
        finally:
            self._connection = None
            if connection is not None:
                drop(connection)

    def _lock(self, connection: Connection[Any]) -> None:
        if not get_lock(connection, lock_name(self._database, self._tables.workflow), LOCK_SECONDS):
            raise LockConflict(f"{self._endpoint}: an earlier session still runs a schema change of this workflow")

    def _find_begun(self, connection: Connection[Any], members: Sequence[Arrival]) -> _Begun | None:
        table = members[0].statement.table
        ours = {member.stream: str(member.gtid) for member in members}
        for number, gtids, statements, definitions in self._execute(
            connection, sql.READ_BEGUN_CHANGES, self._tables.workflow, *table
        ):
            if any(ours.get(stream) == gtid for stream, gtid in json.loads(gtids).items()):
                return _Begun(number, tuple(json.loads(statements)), tuple(json.loads(definitions)))
        return None

    def _begin(self, connection: Connection[Any], members: Sequence[Arrival]) -> _Begun:
        statement = members[0].statement
        before = self._definition(connection, statement.table)
        if statement.is_create and before:
            raise TargetRejected(
                f"the target has table {'.'.join(statement.table)} by now, which a schema change makes",
                hint="Start the streams again: one that finds the table there passes the statement.",
            )
        definitions = self._rehearse(connection, members[0], before)
        gtids = {member.stream: str(member.gtid) for member in members}
        values = json.dumps(gtids), json.dumps(statement.texts), json.dumps(definitions)
        with connection.cursor() as cursor:
            cursor.execute(
                sql.BEGIN_SCHEMA_CHANGE.format(control=self._control),
                (self._tables.workflow, *statement.table, *values),
            )
            return _Begun(cursor.lastrowid, statement.texts, tuple(definitions))

    def _rehearse(self, connection: Connection[Any], arrival: Arrival, before: str) -> list[str]:
        """Run the statements on an empty copy of the table; return its definitions before each and behind the last."""
        table = arrival.statement.table
        copy = (self._database, f"rehearsal_{sha256(self._tables.workflow.encode()).hexdigest()[:16]}")
        definitions = [before]
        self._send(connection, sql.DROP_REHEARSAL.format(table=_full(copy)))
        self._set(connection, {"foreign_key_checks": 0})
        if before:
            head = f"CREATE TABLE {sql.quoted(table[1])} "
            self._send(connection, f"CREATE TABLE {_full(copy)} {before.removeprefix(head)}")
        try:
            self._set(connection, {**dict(arrival.session), "foreign_key_checks": 0})
            for text in arrival.statement.texts:
                renamed = target_statement(text, "", lambda name: copy if name == table else name)
                self._send(connection, renamed.texts[0])
                found = self._definition(connection, copy)
                definitions.append(found.replace(copy[1], sql.quoted(table[1])[1:-1]))
        finally:
            with contextlib.suppress(MySQLError, OSError):
                self._send(connection, sql.DROP_REHEARSAL.format(table=_full(copy)))
        return definitions

    def _run(self, connection: Connection[Any], begun: _Begun, members: Sequence[Arrival]) -> None:
        table = members[0].statement.table
        found = comparable(self._definition(connection, table), table)
        known = [comparable(definition, table) for definition in begun.definitions]
        if found not in known:
            raise SchemaUnclear(
                f"a schema change of {'.'.join(table)} was begun by an earlier run, and whether it took effect "
                f"cannot be told: {'; '.join(begun.statements)[:200]}",
                hint=f"Compare SHOW CREATE TABLE {_full(table)} with `definitions` of row {begun.id} of "
                f"{self._database}.schema_change, make the table as the last of them says, then start the streams.",
            )
        self._set(connection, dict(members[0].session))
        for text in begun.statements[known.index(found) :]:
            self._send(connection, text)

    def _finish(self, connection: Connection[Any], begun: _Begun, members: Sequence[Arrival]) -> None:
        self._set(connection, {"time_zone": "+00:00"})
        connection.begin()
        for member in members:
            at = member.committed_at_microseconds // 1_000_000
            self._memory(member.stream).outdate(connection, [member.statement.table], at)
            self._tables.write_barrier_checkpoint(connection, member, membership_of(member.membership).epoch)
        self._execute(connection, sql.END_SCHEMA_CHANGE, begun.id)
        for member in members:
            text = f"transaction {member.gtid}: {'; '.join(begun.statements)}"
            self._tables.append_log(connection, member.stream, "schema change", text)
        try:
            connection.commit()
        except (MySQLError, OSError) as error:
            raise commit_fault(error, f"committing on {self._endpoint}") from error

    # Statements

    def _definition(self, connection: Connection[Any], table: TableName) -> str:
        """Return a table's definition; nothing if there is no such table."""
        if not self._execute(connection, sql.FIND_TABLE, *table):
            return ""
        return read_definitions(connection, [table])[table]

    def _set(self, connection: Connection[Any], variables: dict[str, int | str]) -> None:
        """Set variables of the session, whose names come from our own code."""
        with connection.cursor() as cursor:
            for name, value in variables.items():
                cursor.execute(f"SET SESSION {name} = %s", (value,))

    def _send(self, connection: Connection[Any], text: str) -> None:
        """Run a statement as it is."""
        with connection.cursor() as cursor:
            cursor.execute(text)

    def _execute(self, connection: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(control=self._control), values)
            return list(cursor.fetchall())

    # From another thread

    def kill_query(self) -> None:
        """Ask the server, over a side connection, to end the running statement; best effort."""
        connection = self._connection
        if connection is None:
            return
        with (
            contextlib.suppress(TargetError),
            short_connection(self._aside, "killing a query", target_fault) as side,
        ):
            side.query(sql.KILL_QUERY.format(id=connection.thread_id()))  # type: ignore[no-untyped-call]

    def interrupt(self) -> None:
        """Break a call that hangs."""
        self._breaker.break_off()


def _full(table: TableName) -> str:
    return f"{sql.quoted(table[0])}.{sql.quoted(table[1])}"


def _fatal_if_conflict(fault: TargetError) -> TargetError:
    """Two rows that a new unique key cannot both take are no conflict that a sibling ends: all siblings wait here."""
    if not isinstance(fault, KeyConflict):
        return fault
    return TargetRejected(
        f"a schema change cannot be run on the target: {fault.message}",
        hint="Rows of different shards do not fit the new key: settle them at their sources, or make the change on the "
        "target by hand in another way and pass it with `vmerge start --past-schema-change`.",
    )
