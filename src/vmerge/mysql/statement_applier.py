"""Applies rows on the target as INSERT, UPDATE and DELETE.

Knows: how statements are sent and their results held against what they must be. Never knows: how rows become
statements (``core/row_statements.py``), checkpoints, or what to do about an error. Used by ``mysql/applier.py``.

A statement that finds another number of rows than it must is an error like the one that BINLOG gives for a row that is
not there. A warning is one, too: the server tells with no more than a note that it has rounded a DECIMAL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError, OperationalError

from vmerge.core.appliers import ApplierRules
from vmerge.core.events import RowsEvent, RowsKind, Transaction
from vmerge.core.row_statements import RowStatement, RowStatements
from vmerge.core.schema import normal_charset
from vmerge.errors import RowMissing, TargetRejected
from vmerge.mysql import sql
from vmerge.mysql.definitions import Definitions, require_no_triggers, require_unchanged
from vmerge.mysql.faults import ROW_NOT_FOUND, target_fault

STATEMENT_BYTES = 1024 * 1024
"""Rows in one statement: more gain nothing."""

_PACKET_HEAD_BYTES = 64

_HARMLESS = frozenset({1287, 1300})
"""See ``core/literals.py``."""

_VERBS = {RowsKind.WRITE: "insert", RowsKind.UPDATE: "update", RowsKind.DELETE: "delete"}


class StatementApplier:
    """Applies batches over one connection, whose session is ``mysql/target.py``'s: strict, in UTC, counting matches.

    Promise: see ``Applier``. Owner: the stream's thread.
    """

    def __init__(self, connection: Connection[Any], rules: ApplierRules, definitions: Definitions) -> None:
        self._connection = connection
        self._definitions = definitions
        with connection.cursor() as cursor:
            cursor.execute(sql.USE_ANY_DATABASE)
            cursor.execute(sql.READ_PACKET_BYTES)
            ((packet_bytes,),) = cursor.fetchall()
            cursor.execute(sql.READ_CHARSETS)
            charsets = {int(id): normal_charset(name) or name for id, name in cursor.fetchall()}
        connection.rollback()  # reading has begun a transaction
        self._charsets: Mapping[int, str] = charsets
        self._packet_bytes = int(packet_bytes) - _PACKET_HEAD_BYTES
        self._limit = min(STATEMENT_BYTES, self._packet_bytes // 2)
        self._statements = RowStatements(rules, self._charsets, self._limit)

    def twin(self, rules: ApplierRules, definitions: Definitions) -> StatementApplier:
        """See ``Applier``."""
        twin = copy(self)
        twin._definitions = definitions
        twin._statements = RowStatements(rules, self._charsets, self._limit)
        return twin

    def apply(self, batch: Sequence[Transaction], rows: Iterable[RowsEvent]) -> None:
        """See ``Applier``."""
        try:
            self._apply(batch, rows)
        except MySQLError as error:
            # Perhaps for a column that is no longer there, or a row that a trigger has changed.
            if isinstance(target_fault(error, ""), TargetRejected | RowMissing):
                self._require_unchanged()
            raise
        self._require_unchanged()

    def _require_unchanged(self) -> None:
        require_unchanged(self._connection, self._statements.touched, self._definitions)
        require_no_triggers(self._connection, self._statements.touched)

    def _apply(self, batch: Sequence[Transaction], rows: Iterable[RowsEvent]) -> None:
        with self._connection.cursor() as cursor:
            for statement in self._statements.write(rows):
                if len(statement.text) > self._packet_bytes:
                    raise TargetRejected(
                        f"transaction {batch[0].gtid} holds a row of {'.'.join(statement.table)} that takes "
                        f"{len(statement.text)} bytes as a statement, too large for the target",
                        hint="Raise max_allowed_packet on the target.",
                    )
                self._execute(cursor, statement)

    def _execute(self, cursor: Cursor, statement: RowStatement) -> None:
        found = cursor.execute(statement.text)  # type: ignore[call-overload]  # bytes are sent as they are
        if found != statement.rows:
            raise OperationalError(ROW_NOT_FOUND, _not_found(statement, found))
        if statement.documents and _changed(cursor) < statement.documents:
            raise TargetRejected(
                f"a document in {'.'.join(statement.table)} changes into one that MySQL takes for equal, such as 1 "
                "into 1.0, so an UPDATE leaves it as it is",
                hint="Only the events applier carries it.",
            )
        if cursor.warning_count != statement.warnings:
            self._require_harmless(cursor, statement)

    def _require_harmless(self, cursor: Cursor, statement: RowStatement) -> None:
        """Raise a statement's last warning, but for those about names and codes of character sets in its conditions."""
        told = cursor.warning_count
        cursor.execute(sql.SHOW_WARNINGS)
        found = cursor.fetchall()
        harmful = [(errno, text) for _, errno, text in found if errno not in _HARMLESS]
        if len(harmful) != statement.warnings or len(found) != told:
            raise OperationalError(*(harmful[-1] if harmful else found[-1][1:]))


def _changed(cursor: Cursor) -> int:
    """Return how many rows an UPDATE changed: the second number of what the server says of it, in any language."""
    message: bytes = cursor._result.message  # type: ignore[attr-defined]  # no public way
    return int(re.findall(rb"\d+", message)[1])


def _not_found(statement: RowStatement, found: int) -> str:
    rows = f"{statement.rows} rows" if statement.rows > 1 else "one row"
    verb = _VERBS[statement.kind]
    return f"{rows} of {'.'.join(statement.table)} to {verb}, and {found} found that are as their source had them"
