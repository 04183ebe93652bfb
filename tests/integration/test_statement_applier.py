"""Rows carried from one real server to another as statements. The oracle is the target's own binlog."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.applying import Carrier
from tests.integration.reading import executed
from tests.integration.test_events_applier import EXTREMES, PERMISSIVE

from vmerge.core.appliers import ApplierSetting
from vmerge.errors import (
    ForeignKeyConflict,
    KeyConflict,
    RowMissing,
    TargetAltered,
    TargetRejected,
    UnsupportedEvent,
)
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

MakeCarrier = Callable[[str], Carrier]
MakeWidening = Callable[[str, str], Carrier]


@pytest.fixture
def make_widening(shard_a: Server, target: Server, database: str) -> Iterator[MakeWidening]:
    """Makes tables on both sides and a carrier between them; it carries by statements."""
    made: list[Carrier] = []

    def make(source_tables: str, target_tables: str) -> Carrier:
        sides = (shard_a, database, source_tables), (target, f"{database}_merged", target_tables)
        for server, name, tables in sides:
            server.execute_script(f"CREATE DATABASE {name}; USE {name}; {tables}")
        made.append(Carrier(shard_a, target, database, setting=ApplierSetting.STATEMENTS))
        return made[-1]

    yield make
    for carrier in made:
        carrier.close()


@pytest.fixture
def make_carrier(make_widening: MakeWidening) -> MakeCarrier:
    """Makes the same tables on both sides."""
    return lambda tables: make_widening(tables, tables)


@pytest.mark.parametrize("name", list(EXTREMES))
def test_every_type_is_carried_exactly(make_carrier: MakeCarrier, name: str) -> None:
    """INSERT, UPDATE and DELETE of the extremes of each type leave the very same bytes on the target."""
    columns, values, assignments = EXTREMES[name]
    carrier = make_carrier(f"CREATE TABLE {name} ({columns})")
    inserts = [f"INSERT IGNORE INTO {name} VALUES ({each})" for each in values]
    sent, arrived = carrier.carry(PERMISSIVE, *inserts)
    assert arrived == sent
    for kind, statement in (("UPDATE", f"UPDATE IGNORE {name} SET {assignments}"), ("DELETE", f"DELETE FROM {name}")):
        sent, arrived = carrier.carry(PERMISSIVE, statement)
        assert arrived == sent
        assert [change.kind for change in sent] == [kind]
    assert carrier.target.query(f"SELECT * FROM {carrier.target_database}.{name}") == []


KEYS = {
    "BIGINT": "n",
    "DECIMAL(10,4)": "n / 4",
    "VARCHAR(20) CHARACTER SET latin1": "CONCAT('É', n)",
    "VARCHAR(20) CHARACTER SET utf8mb3": "CONCAT('€', n)",
    "CHAR(20) COLLATE utf8mb4_bin": "CONCAT('k', n)",
    "BINARY(8)": "CONCAT(n, 'x')",
    "VARBINARY(8)": "CONCAT(n, X'00')",
    "DATE": "DATE('2020-01-01') + INTERVAL n DAY",
    "DATETIME(3)": "TIMESTAMP('2020-01-01') + INTERVAL n * 1001 MICROSECOND",
    "TIMESTAMP(6)": "TIMESTAMP('2020-01-01') + INTERVAL n MICROSECOND",
    "TIME(2)": "SEC_TO_TIME(-n)",
    "YEAR": "2000 + n",
    "DOUBLE": "n / 3",
    "BIT(20)": "n",
    "ENUM('a','b','c','d','e')": "n % 5 + 1",
    "SET('a','b','c')": "n % 8",
}


@pytest.mark.parametrize("key", list(KEYS))
def test_rows_are_found_by_keys_of_every_type(make_carrier: MakeCarrier, key: str) -> None:
    """Many rows that one statement changes or deletes are found by their primary key, whatever its type is."""
    carrier = make_carrier(f"CREATE TABLE t (k {key}, n INT, a VARCHAR(20), PRIMARY KEY (k, n))")
    numbers = "WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 30) SELECT"
    statements = [
        f"INSERT INTO t {numbers} {KEYS[key]}, n, NULL FROM r",
        "UPDATE t SET a = n WHERE n < 20",
        "UPDATE t SET n = n + 100 WHERE n < 5",
        "DELETE FROM t WHERE n > 8",
    ]
    for statement in statements:
        sent, arrived = carrier.carry("SET time_zone = '+00:00'", statement)
        assert arrived == sent


def test_a_row_that_changes_often_in_one_batch(make_carrier: MakeCarrier) -> None:
    """Changes of one row in a batch follow each other, also where its key moves and comes back."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT, u INT UNIQUE)")
    statements = [
        "INSERT INTO t VALUES (1, 1, 1), (2, 1, 2)",
        "UPDATE t SET a = a + 1",
        "UPDATE t SET a = a + 1",
        "UPDATE t SET u = u + 10 ORDER BY u DESC",
        "UPDATE t SET id = id + 1 ORDER BY id DESC",
        "UPDATE t SET a = a + 1, u = NULL WHERE id = 2",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (2, 7, 11)",
        "UPDATE t SET id = 1 WHERE id = 2",
    ]
    sent, arrived = carrier.carry(*statements)
    assert arrived == sent
    assert carrier.target.query(f"SELECT * FROM {carrier.target_database}.t") == [(1, 7, 11), (3, 3, 12)]


def test_unique_values_that_are_shifted_in_one_statement(make_carrier: MakeCarrier) -> None:
    """Values that one row releases and the next takes arrive in the source's order."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE)")
    carrier.carry("INSERT INTO t VALUES (3, 1), (1, 2), (2, 3)")
    sent, arrived = carrier.carry("UPDATE t SET u = u - 1 ORDER BY u", "UPDATE t SET u = u + 1 ORDER BY u DESC")
    assert arrived == sent


def test_tables_without_a_primary_key(make_carrier: MakeCarrier) -> None:
    """Of equal rows as many are changed and deleted as at the source; rows that only look equal are told apart."""
    carrier = make_carrier(
        "CREATE TABLE t (a INT, b VARCHAR(20), c DOUBLE, d CHAR(5)) COLLATE utf8mb4_general_ci; "
        "CREATE TABLE k (a INT, b VARCHAR(20), UNIQUE (b))"
    )
    rows = "(1, 'x', 0, 'p'), (1, 'X', 0, 'p'), (1, 'x ', -0.0, 'p'), (1, 'x', -0.0e0, 'P'), (NULL, NULL, NULL, NULL)"
    statements = [
        f"INSERT INTO t VALUES {rows}",
        f"INSERT INTO t VALUES {rows}",
        "INSERT INTO k VALUES (1, 'q'), (1, NULL), (1, NULL)",
        "UPDATE t SET a = 2 WHERE BINARY b = 'x' AND c = 0 LIMIT 3",
        "DELETE FROM t WHERE a IS NULL LIMIT 1",
        "DELETE FROM t WHERE BINARY b = 'X' LIMIT 1",
        "UPDATE k SET a = 3 LIMIT 2",
        "DELETE FROM k WHERE b IS NULL LIMIT 1",
    ]
    sent, arrived = carrier.carry(*statements)
    assert arrived == sent


def test_columns_that_change_by_themselves(make_carrier: MakeCarrier) -> None:
    """Defaults, ON UPDATE and counters of the target never count; invisible and generated columns are right."""
    carrier = make_carrier(
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT INVISIBLE DEFAULT 3, "
        "at TIMESTAMP(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), b INT AS (a + 1) STORED, "
        "d INT DEFAULT (a * 2), UNIQUE ((a DIV 1)))"
    )
    sent, arrived = carrier.carry(
        "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO', timestamp = 1000000000",
        "INSERT INTO t (id, a) VALUES (0, 1), (7, 2), (8, NULL)",
        "UPDATE t SET a = 10 WHERE id = 0",
        "UPDATE t SET d = 10 WHERE id = 7",
        "UPDATE t SET at = at, d = 11",
    )
    assert arrived == sent


def test_names_that_need_quotes(make_carrier: MakeCarrier) -> None:
    """Any name of a table or column is quoted."""
    carrier = make_carrier("CREATE TABLE `a``b %s` (`select` INT PRIMARY KEY, `ü``\\'\"` INT, `v.b0` INT)")
    sent, arrived = carrier.carry(
        "INSERT INTO `a``b %s` VALUES (1, 2, 3), (2, 3, 4)", "UPDATE `a``b %s` SET `v.b0` = 9", "DELETE FROM `a``b %s`"
    )
    assert arrived == sent


def test_many_columns_and_long_rows(make_carrier: MakeCarrier) -> None:
    """The widest table, and rows of some megabytes, go as whole statements."""
    names = [f"c{number}" for number in range(1016)]
    carrier = make_carrier(
        f"CREATE TABLE w (id INT PRIMARY KEY, {', '.join(f'{name} TINYINT' for name in names)}); "
        "CREATE TABLE b (id INT PRIMARY KEY, b MEDIUMBLOB)"
    )
    values = [", ".join("NULL" if number % divisor == 0 else "1" for number in range(1016)) for divisor in (2, 7)]
    blobs = ", ".join(f"({number}, REPEAT('x', 1500000))" for number in range(3))
    sent, arrived = carrier.carry(
        *[f"INSERT INTO w VALUES ({number}, {row})" for number, row in enumerate(values)],
        "UPDATE w SET c1015 = 5, c0 = NULL",
        f"INSERT INTO b VALUES {blobs}",
        "UPDATE b SET b = CONCAT(b, 'y') WHERE id < 2",
        "DELETE FROM b",
    )
    assert arrived == sent


# What must not pass


@pytest.mark.parametrize("foreign", ["a = 5", "a = NULL", "b = 'X'", "b = 'x '", "c = '2020-01-01'", "e = '1.50'"])
@pytest.mark.parametrize("condition", ["id = 1", "id < 9"])
def test_a_row_that_somebody_else_changed(make_carrier: MakeCarrier, foreign: str, condition: str) -> None:
    """An UPDATE or DELETE of a row that is not as the source had it stops, and nothing of the batch stays."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9), c DATETIME(3), e DECIMAL(5,2))")
    carrier.carry("INSERT INTO t VALUES (1, 1, 'x', NULL, 1), (2, 2, 'y', NULL, 1), (3, 3, NULL, '2020-01-01', 1)")
    place = f"{carrier.target_database}.t"
    carrier.target.query(f"UPDATE {place} SET {foreign} WHERE id = 1")
    before = carrier.target.query(f"SELECT * FROM {place}")
    for change in (f"UPDATE t SET a = a + 1 WHERE {condition}", f"DELETE FROM t WHERE {condition}"):
        with pytest.raises(RowMissing):
            carrier.apply(carrier.change_source("INSERT INTO t (id) VALUES (10), (11)", change))
        carrier.source.query(f"DELETE FROM {carrier.source_database}.t WHERE id > 9")
        assert carrier.target.query(f"SELECT * FROM {place}") == before


def test_a_row_that_is_gone(make_carrier: MakeCarrier) -> None:
    """A DELETE that finds one row less than it must is an error, also among many."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    carrier.carry("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    carrier.target.query(f"DELETE FROM {carrier.target_database}.t WHERE id = 2")
    with pytest.raises(RowMissing):
        carrier.apply(carrier.change_source("DELETE FROM t"))
    assert carrier.target.query(f"SELECT id FROM {carrier.target_database}.t") == [(1,), (3,)]


def test_a_duplicate_key(make_carrier: MakeCarrier) -> None:
    """A held key is the same conflict as with events, with the key's name, whatever changes."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, u INT, UNIQUE KEY taken (u))")
    carrier.target.query(f"INSERT INTO {carrier.target_database}.t VALUES (100, 5)")
    with pytest.raises(KeyConflict) as caught:
        carrier.apply(carrier.change_source("INSERT INTO t VALUES (1, 4), (2, 5)"))
    assert caught.value.key == "t.taken"
    assert carrier.target.query(f"SELECT id FROM {carrier.target_database}.t") == [(100,)]


FAMILY = """
CREATE TABLE parent (id INT PRIMARY KEY);
CREATE TABLE child (id INT PRIMARY KEY, parent INT, a INT,
  CONSTRAINT belongs FOREIGN KEY (parent) REFERENCES parent (id));
"""


def test_foreign_keys_are_checked_as_the_source_did(make_carrier: MakeCarrier) -> None:
    """Rows of a session without foreign key checks need no parent; those of its neighbours in the batch do."""
    carrier = make_carrier(FAMILY)
    carrier.source.query(f"INSERT INTO {carrier.source_database}.parent VALUES (1)")
    unchecked = carrier.change_source("SET foreign_key_checks = 0", "INSERT INTO child VALUES (3, 78, 3)")
    checked = carrier.change_source("INSERT INTO child VALUES (2, 1, 2)")
    for batch in (checked + unchecked, unchecked + checked):
        with pytest.raises(ForeignKeyConflict) as caught:
            carrier.apply(batch)
        assert caught.value.key == "belongs"
    carrier.target.query(f"INSERT INTO {carrier.target_database}.parent VALUES (1)")
    carrier.apply(unchecked + checked)
    carrier.apply(carrier.change_source("UPDATE child SET parent = NULL"))
    carrier.apply(carrier.change_source("DELETE FROM child", "DELETE FROM parent"))
    assert carrier.target.query(f"SELECT id FROM {carrier.target_database}.child") == []


def test_a_tree_in_one_table(make_carrier: MakeCarrier) -> None:
    """Rows of a table that refers to itself go and come in the source's order."""
    carrier = make_carrier(
        "CREATE TABLE t (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES t (id) ON DELETE RESTRICT)"
    )
    rows = ", ".join(f"({number}, {number - 1 or 'NULL'})" for number in range(1, 20))
    sent, arrived = carrier.carry(f"INSERT INTO t VALUES {rows}", "DELETE FROM t ORDER BY id DESC")
    assert arrived == sent


def test_partial_documents(make_carrier: MakeCarrier) -> None:
    """Updates written as differences of a document stop the stream, and the hint says what to set."""
    carrier = make_carrier("CREATE TABLE j (id INT PRIMARY KEY, a JSON)")
    carrier.source.query(f"""INSERT INTO {carrier.source_database}.j VALUES (1, '{{"x": 1, "y": "long enough"}}')""")
    update = "UPDATE j SET a = JSON_SET(a, '$.x', 2)"
    batch = carrier.change_source("SET SESSION binlog_row_value_options = PARTIAL_JSON", update)
    assert [shape.kind.name for shape, _ in batch[0].rows] == ["PARTIAL_UPDATE"]
    with pytest.raises(UnsupportedEvent) as caught:
        carrier.apply(batch)
    assert "binlog_row_value_options" in caught.value.hint


def test_a_target_that_is_altered_alone(make_carrier: MakeCarrier) -> None:
    """Rows do not pass into a table that is no longer what was proven: nothing of the batch stays."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
    carrier.target.query(f"ALTER TABLE {carrier.target_database}.t MODIFY a BIGINT NOT NULL")
    with pytest.raises(TargetAltered):
        carrier.apply(carrier.change_source("INSERT INTO t VALUES (1, 1)"))
    assert carrier.target.query(f"SELECT * FROM {carrier.target_database}.t") == []


def test_a_row_larger_than_a_packet(make_carrier: MakeCarrier, target: Server) -> None:
    """A row whose statement is too large for the target is told with the setting to raise; the session lives on."""
    carrier = make_carrier("CREATE TABLE b (id INT PRIMARY KEY, b LONGBLOB)")
    ((packet,),) = target.query("SELECT @@GLOBAL.max_allowed_packet")
    batch = carrier.change_source(f"INSERT INTO b VALUES (1, REPEAT('x', {packet // 2 + 1000}))")
    with pytest.raises(TargetRejected) as caught:
        carrier.apply(batch)
    assert "max_allowed_packet" in caught.value.hint
    carrier.apply(carrier.change_source("INSERT INTO b VALUES (2, NULL)"))


@pytest.mark.parametrize(
    ("definition", "value"), [("TINYINT", "300"), ("VARCHAR(2)", "'abc'"), ("DECIMAL(3,1)", "1.25"), ("DATE", "'x'")]
)
def test_a_value_that_the_target_would_change(make_widening: MakeWidening, definition: str, value: str) -> None:
    """What a narrower column would round, cut or refuse is an error with the column's name, and no row stays."""
    sources = {"TINYINT": "INT", "VARCHAR(2)": "VARCHAR(9)", "DECIMAL(3,1)": "DECIMAL(5,2)", "DATE": "VARCHAR(9)"}
    table = "CREATE TABLE t (id INT PRIMARY KEY, `the column` {})"
    carrier = make_widening(table.format(sources[definition]), table.format(definition))
    start = executed(carrier.target)
    with pytest.raises(TargetRejected, match="the column"):
        carrier.apply(carrier.change_source(f"INSERT INTO t VALUES (1, {value})"))
    assert executed(carrier.target) == start
