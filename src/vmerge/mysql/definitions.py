"""The target's table definitions, kept under watch while rows are applied.

Knows: SHOW CREATE TABLE. Never knows: what a definition means; that was proven when the stream started. Used by
``mysql/target.py`` and at each start of a stream.

Why it is needed
----------------
A server that applies row events by position is silent when its table has lost or gained a column. The proof made at
the start says nothing about an ALTER TABLE on the target a minute later. But a transaction that has touched a table
holds its metadata lock, so what SHOW CREATE TABLE says inside that transaction is exactly what the rows met. It is
compared with the text read at the start, after the rows and before COMMIT, once a batch and table. So it is with
triggers, which fire for statements: who makes or drops one needs the same lock, and waits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pymysql.connections import Connection

from vmerge.core.rules import TableName
from vmerge.errors import TargetAltered
from vmerge.mysql import sql

Definitions = Mapping[TableName, str]

_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
"""The table's next number, which rows move."""


_CONSTRAINT = "  CONSTRAINT "
_GIVEN_NAME = re.compile(r"(?<=^  CONSTRAINT )`(?:[^`]|``)*_(?:ibfk|chk)_\d+`")
"""A name of a foreign key or a check that the server gives: the table's, and a number."""


def read_definitions(connection: Connection[Any], names: Iterable[TableName]) -> dict[TableName, str]:
    """Return the definition of each of these tables, which must exist. One round trip each.

    Raises what PyMySQL raises.
    """
    definitions = {}
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(sql.SHOW_TABLE.format(table=f"{sql.quoted(name[0])}.{sql.quoted(name[1])}"))
            row = cursor.fetchone()
            assert row is not None
            definitions[name] = _COUNTER.sub("", row[1])
    return definitions


def comparable(definition: str, table: TableName) -> str:
    """Return a definition such that those of a table and of its copy in another database are equal if the tables are.

    The names that the server gives to constraints count up, and constraints stand in the order of their names. A table
    of the same database has its name alone. The copy's own name is replaced by the table's before.
    """
    text = definition.replace(f"REFERENCES {sql.quoted(table[0])}.", "REFERENCES ")
    lines = [line.removesuffix(",") for line in text.split("\n")]
    constraints = sorted(_GIVEN_NAME.sub("", line) for line in lines if line.startswith(_CONSTRAINT))
    return "\n".join([line for line in lines if not line.startswith(_CONSTRAINT)] + constraints)


def require_unchanged(connection: Connection[Any], names: Iterable[TableName], known: Definitions) -> None:
    """Pass when these tables are still what they were at the start; call it in the transaction that touched them.

    Raises:
        TargetAltered: one is not; the caller rolls back.
    """
    for name, definition in read_definitions(connection, names).items():
        if definition != known.get(name):
            raise TargetAltered(f"table {'.'.join(name)} on the target was altered while the stream ran")


def require_no_triggers(connection: Connection[Any], names: Collection[TableName]) -> None:
    """Pass when none of these tables has a trigger; call it in the transaction that touched them by statements.

    Raises:
        TargetAltered: one has; the caller rolls back, and the next start refuses the table.
    """
    if not names:
        return
    with connection.cursor() as cursor:
        if cursor.execute(sql.FIND_TRIGGERS, (tuple(names),)):
            found = ", ".join(".".join(row) for row in cursor.fetchall())
            raise TargetAltered(f"triggers were made on the target while the stream ran: {found}")
