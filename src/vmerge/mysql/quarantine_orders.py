"""What an operator does about rows in quarantine: list, show, retry, drop.

Knows: in which transaction a row is settled, and how its image is made readable. Never knows: players, or how an order
came here. Used by the daemon, from any thread; each order opens a connection of its own.

An order is exact whether the stream runs or not: it locks the entry's row first, and a stream changes that very row in
each transaction that concerns the entry (``mysql/quarantine.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.effect import Effect
from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG
from vmerge.core.events import RowsShape, Transaction
from vmerge.core.plan import Plan
from vmerge.core.quarantine import EntryState
from vmerge.core.schema import Column
from vmerge.errors import ConflictUnresolved, DaemonError, KeyConflict, TargetError, UnsupportedEvent, VmergeError
from vmerge.mysql.applier import open_applier
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import SHORT_TIMEOUT_SECONDS, Endpoint, connect, drop
from vmerge.mysql.definitions import Definitions
from vmerge.mysql.faults import commit_fault, target_fault
from vmerge.mysql.key_values import column_value
from vmerge.mysql.probe import Asker, Probe
from vmerge.mysql.quarantine import QuarantineTable, StoredEntry
from vmerge.mysql.schemas import show_generated_keys
from vmerge.mysql.sql import quoted
from vmerge.mysql.target import SESSION

MakePlan = Callable[[str], tuple[Plan, Definitions]]
"""A stream → its tables as they are now, proven, and the target's definitions. Raises as a stream's start does."""


@dataclass(frozen=True, slots=True)
class ShownRow:
    """One row in quarantine, with its values as text; None is NULL."""

    stored: StoredEntry
    values: tuple[tuple[str, str | None], ...]


class QuarantineOrders:
    """Orders about one workflow's rows in quarantine.

    Every call raises ``TargetError`` when the target cannot be reached or refuses.
    """

    def __init__(
        self,
        target: Endpoint,
        control_database: str,
        tables: ControlTables,
        entries: QuarantineTable,
        make_plan: MakePlan,
        server_id: Callable[[str], int],
        now: Callable[[], float],
    ) -> None:
        self._target = target
        self._control_database = control_database
        self._tables = tables
        self._entries = entries
        self._make_plan = make_plan
        self._server_id = server_id
        self._now = now

    def list(self) -> Sequence[StoredEntry]:
        """Return all rows in quarantine, in the order in which they came."""
        with self._session("listing the quarantine") as connection:
            return self._entries.read(connection)

    def show(self, id: int) -> ShownRow:
        """Return one row with its values.

        Raises:
            DaemonError: there is no such row.
            SchemaMismatch: the table was altered since, so its values cannot be read.
        """
        stored = self._find(id)
        plan, definitions = self._make_plan(stored.stream)
        with self._session("showing a row in quarantine") as connection:
            probe = self._probe(connection, stored, plan, definitions)
            planned = plan.table(stored.entry.table.database, stored.entry.table.table)
            assert planned is not None, "the probe has looked it up"
            assert planned.target is not None
            columns = planned.target.columns
            texts = probe.render(stored.name[0], [_shown(column) for column in columns])
        return ShownRow(stored, tuple(zip((column.name for column in columns), texts, strict=True)))

    def retry(self, id: int) -> StoredEntry:
        """Bring one row to its table, whatever is to become of it, and return it as it was in quarantine.

        Raises:
            DaemonError: there is no such row.
            ConflictUnresolved: a key is still held; nothing has changed.
            SchemaMismatch: the table was altered since.
        """
        stream = self._find(id).stream
        plan, definitions = self._make_plan(stream)
        with self._session("retrying a row in quarantine") as connection:
            applier = open_applier(connection, plan, definitions, self._server_id(stream))
            stored = self._lock(connection, id)
            _require_carried(plan, stored)
            row = stored.entry.insert()
            try:
                applier.apply([Transaction(stored.entry.gtid, int(self._now() * 1e6), (row,), len(row.images))], [row])
            except MySQLError as error:
                connection.rollback()
                fault = target_fault(error, f"bringing row {id} back")
                if isinstance(fault, KeyConflict):
                    raise self._still_held(connection, stored, plan, definitions, fault) from error
                raise fault from error
            self._entries.remove(connection, stored.entry)
            self._tell(connection, stored, "quarantine left", "retried by an operator")
            _commit(connection)
        return stored

    def drop(self, id: int) -> StoredEntry:
        """Give one row up: it stays off the target, and in quarantine until it ends at its source.

        Raises:
            DaemonError: there is no such row.
        """
        with self._session("dropping a row in quarantine") as connection:
            stored = self._lock(connection, id)
            if stored.entry.state is not EntryState.DROPPED:
                self._entries.set_state(connection, id, EntryState.DROPPED)
                self._tell(connection, stored, "quarantine dropped", "given up by an operator")
            _commit(connection)
        return stored

    @contextlib.contextmanager
    def _session(self, purpose: str) -> Iterator[Connection[Any]]:
        """Open a session like a stream's; without a commit it leaves no trace."""
        connection: Connection[Any] | None = None
        try:
            connection = connect(self._target, read_timeout_seconds=SHORT_TIMEOUT_SECONDS, session=SESSION)
            show_generated_keys(connection)
            yield connection
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"{purpose} on {self._target}") from error
        finally:
            if connection is not None:
                drop(connection)

    def _find(self, id: int) -> StoredEntry:
        stored = next((one for one in self.list() if one.id == id), None)
        if stored is None:
            raise _unknown(id)
        return stored

    def _lock(self, connection: Connection[Any], id: int) -> StoredEntry:
        stored = self._entries.lock(connection, id)
        if stored is None:
            raise _unknown(id)
        return stored

    def _tell(self, connection: Connection[Any], stored: StoredEntry, kind: str, text: str) -> None:
        row = f"row {stored.entry.grounds.own} of {'.'.join(stored.name[0])}, transaction {stored.entry.gtid}"
        self._tables.append_log(connection, stored.stream, kind, f"{row}: {text}")

    def _probe(self, connection: Connection[Any], stored: StoredEntry, plan: Plan, definitions: Definitions) -> Probe:
        """Return a probe of the row; its table is another than that of the stream's own witness."""
        _require_carried(plan, stored)
        row = stored.entry.insert()
        unchecked = row._replace(shape=_unchecked(row.shape))
        asker = Asker(
            f"{stored.stream} by hand",
            self._server_id(stored.stream),
            self._control_database,
            plan,
            definitions,
        )
        run = [Transaction(stored.entry.gtid, 0, (unchecked,), len(unchecked.images))]
        return Probe(asker, connection, run, Effect((), (unchecked,), is_net=True))

    def _still_held(
        self, connection: Connection[Any], stored: StoredEntry, plan: Plan, definitions: Definitions, fault: TargetError
    ) -> VmergeError:
        """Return the error that names who has the key; without the name where that cannot be found."""
        row = f"row {stored.id} in quarantine ({stored.entry.grounds.own} of {'.'.join(stored.name[0])})"
        hint = "Change or delete one of the two rows at its source first."
        try:
            matches = self._probe(connection, stored, plan, definitions).search()
        except UnsupportedEvent:
            matches = ()
        if not matches:
            return ConflictUnresolved(f"{row} cannot come back: {fault.message}", hint=hint)
        match = matches[0]
        return ConflictUnresolved(
            f"{row} cannot come back: unique key {match.query.key} is held by row {match.holder.shown}", hint=hint
        )


def _unchecked(shape: RowsShape) -> RowsShape:
    return RowsShape(shape.table, shape.kind, shape.flags | NO_FOREIGN_KEY_CHECKS_FLAG, shape.columns)


def _require_carried(plan: Plan, stored: StoredEntry) -> None:
    """Pass when the row still belongs to the table. Raises ``SchemaMismatch`` when that was altered."""
    if not plan.still_carries(stored.entry.table):
        raise DaemonError(
            f"stream {stored.stream} does not carry {stored.entry.table.name} any more",
            hint="Put the table back into the workflow file.",
        )


def _unknown(id: int) -> DaemonError:
    return DaemonError(
        f"there is no row {id} in quarantine", hint="`vmerge quarantine list WORKFLOW` has the rows and their numbers."
    )


def _commit(connection: Connection[Any]) -> None:
    try:
        connection.commit()
    except (MySQLError, OSError) as error:
        raise commit_fault(error, "committing; `vmerge quarantine list WORKFLOW` tells the outcome") from error


def _shown(column: Column) -> str:
    """Return the SQL of a column's value for a person."""
    value = column_value(column)
    if value is not None:
        return value.shown
    if column.family == "json":
        return f"CAST({quoted(column.name)} AS CHAR)"
    return f"CONCAT('0x', HEX({quoted(column.name)}))"
