"""What a schema change is found to have done: the rehearsed definition against the one that the table then has."""

from __future__ import annotations

import pytest

from vmerge.core.barrier import Arrival
from vmerge.core.ownership import Claim
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.rules import TableName
from vmerge.core.target_statement import target_statement
from vmerge.lab.servers import Server
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.definitions import comparable
from vmerge.mysql.schema_changes import MySqlLedger

pytestmark = pytest.mark.server

TABLES = """
DROP TABLE IF EXISTS child;
CREATE TABLE IF NOT EXISTS parent (id INT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS other.parent (id INT PRIMARY KEY);
CREATE TABLE child (id INT PRIMARY KEY, a INT, b INT, CHECK (a < 9), FOREIGN KEY (b) REFERENCES parent (id));
"""

CHANGES = (
    "ALTER TABLE child ADD CONSTRAINT named FOREIGN KEY (a) REFERENCES parent (id)",
    "ALTER TABLE child ADD FOREIGN KEY (a) REFERENCES other.parent (id), ADD c INT",
    "ALTER TABLE child ADD FOREIGN KEY (a) REFERENCES child (id) ON DELETE CASCADE",
    "ALTER TABLE child ADD CHECK (b > 0), ADD CHECK (b > 1)",
    "ALTER TABLE child DROP FOREIGN KEY child_ibfk_1",
    "ALTER TABLE child ENGINE=InnoDB, ADD INDEX by_a (a)",
)


def test_what_was_rehearsed_is_recognised(target: Server, database: str) -> None:
    """Foreign keys and checks, named by the server or not, in whatever order: the table is as it was rehearsed."""
    ledger = MySqlLedger(
        Endpoint("target", target.host, target.port, "root", ""),
        database,
        ControlTables(database, "w"),
        Claim("a", "us", "us"),
    )
    merged, other = f"{database}_merged", f"{database}_other"
    target.execute_script(f"CREATE DATABASE {database}; CREATE DATABASE {merged}; CREATE DATABASE {other}")
    for change in CHANGES:
        target.execute_script(TABLES.replace("other.", f"{other}."), merged)
        require_recognised(ledger, target, merged, change.replace("other.", f"{other}."))


def require_recognised(ledger: MySqlLedger, target: Server, merged: str, change: str) -> None:
    """Rehearse a change and run it, and compare."""
    table: TableName = (merged, "child")
    statement = target_statement(change, merged, lambda name: name)
    gtid = Gtid(b"\1" * 16, "", 1)
    arrival = Arrival("a", gtid, 0, statement, (), frozenset("a"), GtidSet(), None)
    with ledger._session() as connection:
        before = ledger._definition(connection, table)
        rehearsed = [comparable(one, table) for one in ledger._rehearse(connection, arrival, before)]
        target.query(statement.text)
        assert comparable(ledger._definition(connection, table), table) == rehearsed[-1]
        assert rehearsed[0] != rehearsed[-1]
