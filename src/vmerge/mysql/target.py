"""The target of one stream.

Knows: sessions, target transactions, and that a checkpoint belongs into each. Never knows: why a batch is applied
or what follows an error. Used by the player through its ``Target`` protocol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.events import RowsEvent, TableMap, Transaction
from vmerge.core.fold import Fold, fold
from vmerge.core.grouping import group_by_kind
from vmerge.core.joint import Part
from vmerge.core.literals import SQL_MODE
from vmerge.core.ownership import Claim
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.quarantine import Diversion, DivertedFold, Grounds, Quarantine, RowName, names_in, visible
from vmerge.core.row_order import Effect, Share, in_order
from vmerge.core.spool_use import SpoolUse
from vmerge.errors import (
    JointRefused,
    KeyConflict,
    QuarantineSettled,
    RowMissing,
    TargetError,
    TargetLost,
)
from vmerge.mysql import sql
from vmerge.mysql.applier import Applier, open_applier
from vmerge.mysql.breaker import Breaker
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import Endpoint, connect, drop, short_connection
from vmerge.mysql.definitions import Definitions
from vmerge.mysql.faults import commit_fault, target_fault
from vmerge.mysql.joint_commit import JointCommit, MemberRules, Membership
from vmerge.mysql.quarantine import QuarantineSession, QuarantineTable
from vmerge.mysql.schemas import show_generated_keys
from vmerge.mysql.spooled_changes import SpooledChanges

READ_TIMEOUT_SECONDS = 60
"""Longer than any statement waits for locks; a target that hangs for longer is taken for lost."""

SESSION: dict[str, str | int] = {
    "autocommit": 0,  # the first statement begins a transaction: a round trip less than BEGIN
    "time_zone": "+00:00",
    "transaction_isolation": "READ-COMMITTED",  # no gap locks: siblings write the same tables
    "innodb_lock_wait_timeout": 1,  # whoever waits in the process gives up its locks first
    "lock_wait_timeout": 5,  # the default is a year
    "unique_checks": 1,  # a merge lives on them
    "sql_mode": SQL_MODE,  # a value that a column does not take is an error, for statements; events do not mind
    "wait_timeout": 30,  # a session whose client vanished without a word holds its locks until then, by default 8 h
}


class TargetPlan(MemberRules, Protocol):
    """What is known of the target's tables."""

    def still_carries(self, table_map: TableMap) -> bool:
        """Whether rows that were kept from earlier are carried; raises ``SchemaMismatch`` when they do not fit."""


class MySqlTarget:
    """Applies one stream's batches, each with its checkpoint in one target transaction.

    Promise: what ``commit`` stored is on the target together with its rows, or neither is. Owner: the stream's
    thread; ``interrupt`` may be called by another.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        claim: Claim,
        tables: ControlTables,
        quarantine: QuarantineTable,
        *,
        plan: TargetPlan,
        definitions: Definitions,
        server_id: int,
        spool_folder: Path | None = None,
        spool_use: SpoolUse | None = None,
    ) -> None:
        self._breaker = Breaker()
        self._aside = endpoint
        """For what is asked while calls of the stream hang."""
        self._endpoint = endpoint.breakable(self._breaker)
        self._spool_folder = spool_folder
        self._spool_use = spool_use or SpoolUse()
        self._claim = claim
        self._tables = tables
        self._plan = plan
        self._definitions = definitions
        self._server_id = server_id
        self._connection: Connection[Any] | None = None
        self._applier: Applier | None = None
        self._epoch = 0
        self._is_open = False
        self._groups = True
        """Whether batches are tried in the cheaper order."""
        self._kept = QuarantineSession(quarantine, tables, claim.stream)
        self._joint = JointCommit()
        """The one that is open, if any."""

    def open(self) -> GtidSet:
        """Connect and take the stream over; return its position.

        Raises:
            TargetError: as ``mysql/faults.py`` classes it.
            Fenced: another daemon took the stream over after the claim was made.
        """
        self.close()
        try:
            self._connection = connect(self._endpoint, read_timeout_seconds=READ_TIMEOUT_SECONDS, session=SESSION)
            show_generated_keys(self._connection)  # as the session did that read the definitions
            self._tables.displace(self._connection, self._claim)
            position, self._epoch = self._tables.take_over(self._connection, self._claim)
            self._load_quarantine(self._connection)  # nobody else changes it by now, but for operators
            self._applier = open_applier(self._connection, self._plan, self._definitions, self._server_id)
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"opening {self._endpoint}") from error
        return position

    def apply(self, batch: Sequence[Transaction]) -> None:
        """Apply whole transactions in a target transaction that stays open."""
        diversion = self._kept.divert(self._plan)
        if diversion is not None and self._apply_diverted(batch, diversion):
            return
        if not self._groups or len(batch) == 1 or not self._apply_grouped(batch):
            self._apply(batch, _rows_of(batch))

    def _apply_diverted(self, batch: Sequence[Transaction], diversion: Diversion) -> bool:
        """Apply a batch past the quarantine; return False, with nothing done, when no row of it is concerned."""
        rows: Iterable[RowsEvent] = diversion.rows(batch)
        if len(batch) > 1:  # one transaction may be larger than memory
            rows = list(rows)
            if not diversion.has_diverted:
                return False
        self._apply(batch, rows)
        self._write_quarantine(diversion)
        return True

    def _write_quarantine(self, diversion: Diversion) -> None:
        connection, _ = self._opened()
        try:
            self._kept.write(connection, diversion)
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"writing the quarantine on {self._endpoint}") from error

    def _apply_grouped(self, batch: Sequence[Transaction]) -> bool:
        """Apply a batch in the cheaper order of ``core/grouping.py``; return False when that order does not do.

        Rows that do not fit in it hardly ever stand alone, so after one failure this session keeps the source's order.
        """
        rows = group_by_kind(_rows_of(batch), self._plan.has_foreign_keys)
        if rows is None:
            return False
        try:
            self._apply(batch, rows)
        except (KeyConflict, RowMissing):
            self._groups = False
            self.rollback()
            return False
        return True

    def apply_net_effect(self, run: Sequence[Transaction]) -> None:
        """Apply what a run of transactions does in the end, in a target transaction that stays open.

        Raises:
            UnsupportedEvent: that cannot be told from the images.
        """
        diversion = self._kept.divert(self._plan)
        rows = _rows_of(run) if diversion is None else diversion.rows(run)
        self._apply(run, self._in_order(fold(rows, self._plan)))
        if diversion is not None:
            self._write_quarantine(diversion)

    def begin_fold(self) -> Fold:
        """Return an empty fold for a run of any length, kept on disk."""
        place, use = self._spool_folder, self._spool_use
        if self.quarantine.is_empty:
            return Fold(self._plan, lambda: SpooledChanges(place, use))
        return DivertedFold(self._plan, lambda: SpooledChanges(place, use), Diversion(self.quarantine, self._plan))

    def apply_effect(self, effect: Fold, first: Transaction) -> None:
        """Apply the net effect of a run that begins with ``first``, in a target transaction that stays open."""
        self._apply([first], self._in_order(effect))
        if isinstance(effect, DivertedFold):
            self._write_quarantine(effect.diversion)

    def _in_order(self, effect: Effect) -> Iterator[RowsEvent]:
        return (row for _, row in in_order([Share(None, effect, self._plan)]))

    def _apply(self, batch: Sequence[Transaction], rows: Iterable[RowsEvent]) -> None:
        _, applier = self._opened()
        self._apply_by(applier, batch, rows)

    def _apply_by(self, applier: Applier, batch: Sequence[Transaction], rows: Iterable[RowsEvent]) -> None:
        self._is_open = True
        try:
            applier.apply(batch, rows)
        except (MySQLError, OSError) as error:
            # Not by way of a name here: the fault would hold this frame, and with it all rows, in a cycle.
            raise self._applying_fault(error) from error

    def _applying_fault(self, error: MySQLError | OSError) -> TargetError:
        fault = target_fault(error, f"applying on {self._endpoint}")
        if not isinstance(fault, TargetLost):
            self._require_newest()
        return fault

    def _require_newest(self) -> None:
        """Raise ``Fenced`` if a newer owner has the stream: the rows that do not fit may be those that it has applied.

        Else the stream would wait for a sibling, and no sibling can release them.
        """
        connection, _ = self._opened()
        try:
            self._tables.require_newest(connection, self._claim.stream, self._epoch)
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"reading the owner on {self._endpoint}") from error

    # Quarantine

    @property
    def quarantine(self) -> Quarantine:
        """The rows that the stream keeps off the target, as of the last commit."""
        return self._kept.quarantine

    def reload_quarantine(self) -> None:
        """Read the quarantine anew, with no target transaction open: somebody else has changed it."""
        connection, _ = self._opened()
        try:
            self._load_quarantine(connection)
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"reading the quarantine on {self._endpoint}") from error

    def _load_quarantine(self, connection: Connection[Any]) -> None:
        self._kept.load(connection)
        connection.rollback()  # reading has begun a transaction

    def visible(self, run: Sequence[Transaction]) -> Sequence[Transaction]:
        """Return a run without what only concerns rows in quarantine. Raises ``UnsupportedEvent``."""
        return visible(run, self.quarantine, self._plan)

    def mark(self, run: Sequence[Transaction], name: RowName, grounds: Grounds, until: Gtid) -> None:
        """Set a row aside as it comes, under whatever key, in a run up to a transaction that begins with these."""
        self._kept.mark(names_in(run, name, self._plan), grounds, until)

    def bring_back(self, name: RowName, at_microseconds: int) -> None:
        """Begin a target transaction and move a row from the quarantine to its table.

        ``at_microseconds`` is the time that is stamped on it, since 1970. On an error the caller rolls back.

        Raises:
            KeyConflict: a key is still held.
            SchemaMismatch: the table is not the one that the row was read for.
            QuarantineSettled: an operator was there before.
        """
        connection, applier = self._opened()
        self._plan.still_carries(self.quarantine.entries[name].table)
        self._is_open = True
        try:
            entry = self._kept.take(connection, name)
            row = entry.insert()
            applier.apply([Transaction(entry.gtid, at_microseconds, (row,), len(row.images))], [row])
            self._kept.tell_returned(connection, name, entry)
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"bringing a row back on {self._endpoint}") from error

    # Joint commits

    def membership(self) -> Membership:
        """Return what a leader's target must know of this stream."""
        return Membership(self._plan, self._definitions, self._epoch, self._kept.quarantine)

    def apply_joint(self, parts: Sequence[Part]) -> str | None:
        """Apply the net effects of several streams in a target transaction that stays open.

        Returns None, or the stream whose rows a key keeps out or cannot be followed.
        """
        _, applier = self._opened()
        self._joint = JointCommit()
        return self._joint.apply(parts, applier, self._apply_by)

    def commit_joint(self, parts: Sequence[Part]) -> None:
        """Write every member's checkpoint and commit; see ``commit``."""
        connection, _ = self._opened()
        try:
            self._joint.write(connection, parts, self._kept, self._tables)
        except QuarantineSettled as error:
            raise JointRefused(error.message) from error
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"writing checkpoints on {self._endpoint}") from error
        self._commit(connection)

    def commit(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Write the checkpoint and commit. Raises ``CommitUnknown`` if COMMIT itself fails with an open outcome."""
        connection, _ = self._opened()
        self._is_open = True
        try:
            self._tables.write_checkpoint(
                connection, self._claim.stream, position, applied_at_microseconds, self._epoch
            )
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"writing the checkpoint on {self._endpoint}") from error
        self._commit(connection)
        self._kept.committed(position)

    def _commit(self, connection: Connection[Any]) -> None:
        try:
            connection.commit()
        except (MySQLError, OSError) as error:
            raise commit_fault(error, f"committing on {self._endpoint}") from error
        self._is_open = False

    def rollback(self) -> None:
        """Undo the open target transaction."""
        self._kept.rolled_back()
        if not self._is_open:
            return
        connection, _ = self._opened()
        try:
            connection.rollback()
        except (MySQLError, OSError) as error:
            raise target_fault(error, f"rolling back on {self._endpoint}") from error
        self._is_open = False

    def kill_query(self) -> None:
        """Ask the server, over a side connection, to end the running statement; from another thread.

        Best effort: when the server cannot be reached, shutting the socket is the next step anyway.
        """
        connection = self._connection
        if connection is None:
            return
        with (
            contextlib.suppress(TargetError),
            short_connection(self._aside, "killing a query", target_fault) as side,
        ):
            side.query(sql.KILL_QUERY.format(id=connection.thread_id()))  # type: ignore[no-untyped-call]

    def interrupt(self) -> None:
        """Break a call that hangs, from another thread; it raises ``TargetLost`` or ``CommitUnknown``."""
        self._breaker.break_off()

    def close(self) -> None:
        """Close the connection, if there is one; the server rolls back what was open."""
        connection, self._connection, self._applier = self._connection, None, None
        self._is_open = False
        if connection is not None:
            drop(connection)

    def _opened(self) -> tuple[Connection[Any], Applier]:
        if self._connection is None or self._applier is None:
            raise TargetLost(f"{self._endpoint} is not connected")
        return self._connection, self._applier


def _rows_of(batch: Sequence[Transaction]) -> Iterator[RowsEvent]:
    for transaction in batch:
        yield from transaction.rows
