"""What a stream remembers of its source's tables, on the target: rows without names are read by it.

Knows: the control table ``source_table``, and when what it says is out of date. Never knows: how rows are read
(``core/carriage.py``). Used at each start of a stream, and when it passes a schema change.

Why it is needed
----------------
Rows of a source with binlog_row_metadata=MINIMAL do not name their columns. A stream that starts while it lags behind a
schema change finds the table at the source as it is by now; rows from before the change would be read by a description
that is not theirs, and where only the order of columns of one type has changed, or labels, nothing would tell. So the
description under which a stream has read a table is kept until the stream itself passes a change of that table. Only
then the source is asked again. A table that was altered once more by that time has a creation time behind the passed
change; what rows in between look like is not known then, and those without names are refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection
from pymysql.err import IntegrityError

from vmerge.core.rules import TableName
from vmerge.core.schema import TableSchema
from vmerge.core.table_memory import read_table, table_text
from vmerge.mysql import sql

SAME_CHANGE_SECONDS = 1
"""A table's creation time has whole seconds, and may be told a moment behind the commit of the change that made it."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table at the source as it is now."""

    schema: TableSchema
    altered_at: int | None
    """Seconds since 1970; None when the server does not tell."""


def read_altered_at(connection: Connection[Any], databases: Iterable[str]) -> dict[TableName, int | None]:
    """Return when each table of a source was made or last altered. Raises what PyMySQL raises."""
    with connection.cursor() as cursor:
        cursor.execute(sql.READ_ALTERED_AT, (tuple(databases),))
        return {(database, table): None if at is None else int(at) for database, table, at in cursor.fetchall()}


class SourceMemory:
    """The memory of one stream. Any thread may call; what PyMySQL raises is raised.

    Each statement is a transaction of its own, on one row: streams that start at once must not lock each other out.
    """

    def __init__(self, control_database: str, workflow: str, stream: str) -> None:
        self._control = sql.quoted(control_database).replace("%", "%%")  # values are put in by % formatting
        self._stream = workflow, stream

    def recall(
        self, connection: Connection[Any], tables: Mapping[TableName, SourceTable]
    ) -> dict[TableName, TableSchema | None]:
        """Return what rows without names have, where that is not the source's table of now; None if it is not known.

        ``tables`` and the answer go by the target's names. Tables that are seen for the first time, or for the first
        time behind a change, are remembered as they are now.
        """
        rows = self._run(connection, sql.READ_SOURCE_TABLES, *self._stream)
        known = {(database, table): (text, passed_at) for database, table, text, passed_at in rows}
        found: dict[TableName, TableSchema | None] = {}
        for name, table in tables.items():
            text, passed_at = known.get(name, (None, None))
            if text is not None:
                if text != table_text(table.schema):
                    found[name] = _read(text)
            elif _is_altered_again(table, passed_at):
                found[name] = None
            elif name in known:
                renewed = table_text(table.schema), *self._stream, *name, passed_at
                self._run(connection, sql.RENEW_SOURCE_TABLE, *renewed)
            else:
                self._enter(connection, name, table.schema)
        return found

    def _enter(self, connection: Connection[Any], name: TableName, schema: TableSchema) -> None:
        with contextlib.suppress(IntegrityError):  # somebody else has just entered it
            self._run(connection, sql.ENTER_SOURCE_TABLE, *self._stream, *name, table_text(schema))

    def outdate(self, connection: Connection[Any], names: Iterable[TableName] | None, seconds: int) -> None:
        """The stream comes past a change, made at that time since 1970, of these target tables; None for any table.

        In the caller's transaction. The table must be there.
        """
        if names is None:
            self._run(connection, sql.OUTDATE_SOURCE_TABLES, seconds, *self._stream)
        for name in names or ():
            self._run(connection, sql.OUTDATE_SOURCE_TABLE, seconds, *self._stream, *name)

    def _run(self, connection: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(control=self._control), values)
            return list(cursor.fetchall())


def _is_altered_again(table: SourceTable, passed_at: int | None) -> bool:
    if passed_at is None or table.altered_at is None:
        return False
    return table.altered_at > passed_at + SAME_CHANGE_SECONDS


def _read(text: str) -> TableSchema | None:
    try:
        return read_table(text)
    except ValueError:
        return None
