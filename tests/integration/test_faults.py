"""Errors provoked for real: each is classed as the streams need it, and no message holds a row's value."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pymysql
import pytest
from pymysql.err import MySQLError
from tests.integration.applying import Carrier, rows_of
from tests.integration.reading import endpoint

from vmerge.errors import (
    CommitUnknown,
    KeyConflict,
    LockConflict,
    RowMissing,
    SourceLost,
    TargetError,
    TargetLost,
    TargetRejected,
)
from vmerge.lab.servers import Server
from vmerge.mysql import faults
from vmerge.mysql.connect import connect, drop
from vmerge.mysql.faults import commit_fault, source_fault, target_fault
from vmerge.mysql.tls import Tls, TlsMode

pytestmark = pytest.mark.server

SECRET = "s3cr3t"

TABLES = """
CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(100), b INT, UNIQUE KEY `it's` (a));
CREATE TABLE parent (id INT PRIMARY KEY);
CREATE TABLE child (id INT PRIMARY KEY, parent INT, CONSTRAINT `be``longs` FOREIGN KEY (parent) REFERENCES parent (id));
"""


@pytest.fixture
def carrier(shard_a: Server, target: Server, database: str) -> Iterator[Carrier]:
    """The same tables on both sides."""
    for server, name in ((shard_a, database), (target, f"{database}_merged")):
        server.execute_script(f"CREATE DATABASE {name}; USE {name}; {TABLES}")
    carrier = Carrier(shard_a, target, database)
    yield carrier
    carrier.close()


def on_target(carrier: Carrier, *statements: str) -> None:
    with carrier.target.connect(carrier.target_database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def fault_of(carrier: Carrier, *statements: str) -> TargetError:
    """Apply what statements did on the source; return the error, whose message must be clean."""
    batch = carrier.change_source(*statements)
    with pytest.raises(TargetError) as caught:
        carrier.apply(batch)
    assert SECRET not in caught.value.message + caught.value.hint
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize("value", [SECRET, f"it''s {SECRET} for key ''t.x''", f"{SECRET}\\'\\n", f"''{SECRET}"])
def test_duplicate_entries(carrier: Carrier, value: str) -> None:
    """1062 is a key conflict that names the key, whatever the value looks like, and not the value."""
    on_target(carrier, f"INSERT INTO t VALUES (100, '{value}', 0)")
    fault = fault_of(carrier, f"INSERT INTO t VALUES (1, '{value}', 0)")
    assert isinstance(fault, KeyConflict)
    assert fault.key == "t.it's"
    assert fault.message == "applying: error 1062: duplicate entry for key t.it's"


def test_duplicate_primary_keys(carrier: Carrier) -> None:
    """A primary key conflict is one like any other; also when an UPDATE moves a row onto the key."""
    on_target(carrier, "INSERT INTO t VALUES (1, 'x', 0)")
    fault = fault_of(carrier, f"INSERT INTO t VALUES (1, '{SECRET}', 0)")
    assert isinstance(fault, KeyConflict)
    assert fault.key == "t.PRIMARY"
    carrier.carry("INSERT INTO t VALUES (2, 'y', 0)")
    on_target(carrier, "INSERT INTO t VALUES (3, 'z', 0)")
    assert isinstance(fault_of(carrier, "UPDATE t SET id = 3 WHERE id = 2"), KeyConflict)


@pytest.mark.parametrize("statement", ["UPDATE t SET b = 1", "DELETE FROM t"])
def test_missing_rows(carrier: Carrier, statement: str) -> None:
    """1032: a row to change that is not there."""
    carrier.change_source(f"INSERT INTO t VALUES (1, '{SECRET}', 0)")
    assert isinstance(fault_of(carrier, statement), RowMissing)


def test_parents_and_children(carrier: Carrier) -> None:
    """1452 and 1451 are key conflicts that name the constraint."""
    carrier.change_source("INSERT INTO parent VALUES (1), (2)")
    missing = fault_of(carrier, "INSERT INTO child VALUES (1, 1)")
    on_target(carrier, "INSERT INTO parent VALUES (2)", "INSERT INTO child VALUES (100, 2)")
    referenced = fault_of(carrier, "DELETE FROM parent WHERE id = 2")
    for fault, number in ((missing, 1452), (referenced, 1451)):
        assert isinstance(fault, KeyConflict)
        assert fault.key == "be`longs"
        assert f"error {number}" in fault.message


def test_foreign_keys_for_an_account_that_sees_little(carrier: Carrier) -> None:
    """An account without rights on the other table may get another number (1216): the class is the same."""
    on_target(
        carrier,
        "DROP USER IF EXISTS little",
        "CREATE USER little IDENTIFIED BY 'x'",
        f"GRANT INSERT, DELETE ON {carrier.target_database}.child TO little",
    )
    with (
        carrier.target.connect(carrier.target_database, user="little", password="x") as connection,
        pytest.raises(MySQLError) as caught,
    ):
        connection.cursor().execute("INSERT INTO child VALUES (1, 1)")
    assert isinstance(target_fault(caught.value, "applying"), KeyConflict)


def test_lock_waits(carrier: Carrier) -> None:
    """1205: a row that another session has locked."""
    carrier.carry("INSERT INTO t VALUES (1, 'x', 0)")
    with carrier.target.connect(carrier.target_database, autocommit=False) as other:
        other.cursor().execute("UPDATE t SET b = 5")
        fault = fault_of(carrier, "UPDATE t SET b = 1")
    assert isinstance(fault, LockConflict)
    assert "1205" in fault.message


def test_deadlocks(carrier: Carrier) -> None:
    """1213: InnoDB chooses this session as the victim, and replaying it succeeds."""
    carrier.carry("INSERT INTO t VALUES (1, 'x', 0), (2, 'y', 0), (3, 'z', 0)")
    batch = carrier.change_source("UPDATE t SET b = 1 WHERE id = 1", "UPDATE t SET b = 1 WHERE id = 2")
    with carrier.target.connect(carrier.target_database, autocommit=False) as other:
        cursor = other.cursor()
        cursor.execute("UPDATE t SET b = 7 WHERE id IN (2, 3)")  # heavier than ours, so that we are the victim
        cursor.execute("INSERT INTO t SELECT id + 100, NULL, 0 FROM t AS source WHERE id > 1")
        carrier.connection.begin()
        carrier.applier.apply(batch[:1], rows_of(batch[:1]))
        waiting = threading.Thread(target=cursor.execute, args=("UPDATE t SET b = 7 WHERE id = 1",))
        waiting.start()
        wait_for_lock_wait(carrier)
        with pytest.raises(MySQLError) as caught:
            carrier.applier.apply(batch[1:], rows_of(batch[1:]))
        waiting.join()
        other.rollback()
    fault = carrier.rolled_back(caught.value)
    assert isinstance(fault, LockConflict)
    assert "1213" in fault.message
    carrier.apply(batch)


def wait_for_lock_wait(carrier: Carrier) -> None:
    """Return when some session of the target waits for a row."""
    for _ in range(10_000):
        if carrier.target.query("SELECT COUNT(*) FROM performance_schema.data_lock_waits") != [(0,)]:
            return
    raise AssertionError("nobody waits")


def test_tables_that_do_not_fit(carrier: Carrier) -> None:
    """1105 and 1146: a column of another type, and a table that is not there, are refused with a hint."""
    on_target(carrier, "ALTER TABLE t MODIFY b BIGINT")
    fault = fault_of(carrier, f"INSERT INTO t VALUES (1, '{SECRET}', 0)")
    assert isinstance(fault, TargetRejected)
    assert "1105" in fault.message
    assert "SHOW CREATE TABLE" in fault.hint
    on_target(carrier, "DROP TABLE t")
    fault = fault_of(carrier, f"INSERT INTO t VALUES (2, '{SECRET}2', 0)")
    assert isinstance(fault, TargetRejected)
    assert "1146" in fault.message


def test_damaged_rows(carrier: Carrier) -> None:
    """1610: images that do not fit the columns are refused, and the server lives on."""
    (transaction,) = carrier.change_source("INSERT INTO t VALUES (1, 'x', 0)")
    cut = transaction._replace(rows=[event._replace(images=event.images[:4]) for event in transaction.rows])
    with pytest.raises(TargetRejected, match="1610"):
        carrier.apply([cut])
    carrier.apply([transaction])


def test_values_that_a_server_quotes_are_left_out(target: Server) -> None:
    """Texts of errors that are not known to hold names only lose whatever stands in quotes."""
    for statement in (f"SELECT '{SECRET}' oops '", f"SET sql_mode = '{SECRET}'", f"SELECT ST_GeomFromText('{SECRET}')"):
        with pytest.raises(MySQLError) as caught:
            target.query(statement)
        fault = target_fault(caught.value, "applying")
        assert isinstance(fault, TargetRejected)
        assert SECRET not in fault.message


# Connections


def test_killed_connections_and_queries(carrier: Carrier) -> None:
    """A killed connection is lost; a killed statement can be replayed."""
    with carrier.target.connect(carrier.target_database, autocommit=False) as other:
        other.cursor().execute("LOCK TABLES t WRITE")
        batch = carrier.change_source("INSERT INTO t VALUES (1, 'x', 0)")
        number = carrier.connection.thread_id()  # type: ignore[no-untyped-call]
        outcomes = []
        for command in ("KILL QUERY", "KILL"):
            killer = threading.Thread(target=kill_when_waiting, args=(carrier.target, command, number))
            killer.start()
            with pytest.raises(TargetError) as caught:
                carrier.apply(batch)
            killer.join()
            outcomes.append(type(caught.value))
    assert outcomes == [LockConflict, TargetLost]


def kill_when_waiting(server: Server, command: str, number: int) -> None:
    waits = "SELECT COUNT(*) FROM performance_schema.processlist WHERE id = %s AND state LIKE 'Waiting for table%%'"
    for _ in range(10_000):
        if server.query(waits, number) != [(0,)]:
            server.query(f"{command} {number}")
            return


def test_a_server_that_is_not_there(target: Server) -> None:
    """A connection that is refused is lost on either side: the server may come."""
    nobody = endpoint(target, tls=Tls(TlsMode.DISABLED))
    nobody = type(nobody)(nobody.role, nobody.host, 1, nobody.user, nobody.password)
    with pytest.raises(MySQLError) as caught:
        connect(nobody, read_timeout_seconds=5, session={})
    assert isinstance(target_fault(caught.value, "opening"), TargetLost)
    assert isinstance(source_fault(caught.value, "opening"), SourceLost)


def test_a_target_that_became_read_only(start_server: Callable[..., Server]) -> None:
    """1290: a fail-over under way is waited out."""
    server = start_server()
    server.query("SET GLOBAL super_read_only = ON")
    with pytest.raises(MySQLError) as caught:
        server.query("CREATE DATABASE x")
    assert isinstance(target_fault(caught.value, "applying"), TargetLost)


@pytest.mark.parametrize("resource", ["MAX_USER_CONNECTIONS", "MAX_CONNECTIONS_PER_HOUR"])
def test_an_account_at_its_limit(target: Server, database: str, resource: str) -> None:
    """1226: connections that an account may not have for now are waited for, on either side."""
    target.query(f"CREATE USER {database} IDENTIFIED BY '{SECRET}' WITH {resource} 1")
    limited = replace(endpoint(target), user=database, password=SECRET)
    try:
        first = connect(limited, read_timeout_seconds=5, session={})
        with pytest.raises(MySQLError) as caught:
            connect(limited, read_timeout_seconds=5, session={})
        drop(first)
    finally:
        target.query(f"DROP USER {database}")
    assert faults.errno_of(caught.value) == 1226
    assert isinstance(target_fault(caught.value, "opening"), TargetLost)
    assert isinstance(source_fault(caught.value, "opening"), SourceLost)


def test_a_server_at_its_limit_for_each_account(start_server: Callable[..., Server]) -> None:
    """1203: the server's own limit of connections of one account is waited for likewise."""
    server = start_server()
    server.execute_script(f"CREATE USER limited IDENTIFIED BY '{SECRET}'; SET GLOBAL max_user_connections = 1")
    limited = replace(endpoint(server), user="limited", password=SECRET)
    first = connect(limited, read_timeout_seconds=5, session={})
    with pytest.raises(MySQLError) as caught:
        connect(limited, read_timeout_seconds=5, session={})
    drop(first)
    assert faults.errno_of(caught.value) == 1203
    assert isinstance(target_fault(caught.value, "opening"), TargetLost)


@pytest.mark.parametrize("errno", [0, 1062, 1180, 1197, 1290, 1317, 2013, 3100, 9999])
def test_errors_in_commit_leave_its_outcome_open(errno: int) -> None:
    """In COMMIT an error says that it failed, not that nothing was stored: only the checkpoint tells."""
    assert isinstance(commit_fault(pymysql.err.OperationalError(errno, "text"), "committing"), CommitUnknown)


@pytest.mark.parametrize("errno", [1205, 1213, 3101])
def test_errors_in_commit_that_tell_its_outcome(errno: int) -> None:
    """These come of a transaction that was rolled back, so the same work is replayed at once."""
    assert isinstance(commit_fault(pymysql.err.OperationalError(errno, "text"), "committing"), LockConflict)


def test_no_number_has_two_meanings() -> None:
    """The classes do not overlap, and a number that is not listed is fatal on both sides."""
    classes = [
        faults.CONNECTION_LOST,
        faults.LOCK_CONFLICTS,
        faults.KEY_CONFLICTS,
        faults.ROW_MISSING,
        faults.PURGED,
    ]
    assert len(frozenset().union(*classes)) == sum(len(each) for each in classes)
    unknown = pymysql.err.OperationalError(9999, f"what is '{SECRET}'?")
    assert type(target_fault(unknown, "applying")) is TargetRejected
    assert SECRET not in target_fault(unknown, "applying").message
