"""Evidence about conflicts, from real servers and accounts with the least privileges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.integration.reading import endpoint, executed
from tests.integration.witnessing import OWN, Stage
from tests.operating import wait_until

from vmerge.core.evidence import Presence
from vmerge.core.position import GtidSet
from vmerge.core.rules import StreamRules
from vmerge.errors import LockConflict, RowMissing, SourceLost, TargetAltered, TargetLost, UnsupportedEvent
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

ALIVE, CHANGED, GONE = Presence.ALIVE, Presence.CHANGED, Presence.GONE

USERS = "CREATE TABLE t (id INT PRIMARY KEY, email VARCHAR(50), n INT, UNIQUE KEY taken (email))"


@pytest.fixture
def stage(shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Stage]:
    """Two shards, a target, and accounts."""
    stage = Stage(shard_a, shard_b, target, database)
    yield stage
    stage.close()


SOFT_HYPHEN = "\u00ad"
"""Collations ignore it."""

CLASHES = {
    "case and accents": ("k VARCHAR(50), UNIQUE KEY taken (k)", "'Zoë@x.org'", "'zoe@X.ORG'"),
    "trailing spaces": ("k VARCHAR(50) COLLATE utf8mb4_general_ci, UNIQUE KEY taken (k)", "'a'", "'a  '"),
    "char": ("k CHAR(10), UNIQUE KEY taken (k)", "'a '", "'A'"),
    "latin1": ("k VARCHAR(50) CHARACTER SET latin1, UNIQUE KEY taken (k)", "'É€'", "'é€'"),
    "utf16": ("k VARCHAR(50) CHARACTER SET utf16, UNIQUE KEY taken (k)", "'Ä😀'", "'ä😀'"),
    "bin": ("k VARCHAR(50) COLLATE utf8mb4_bin, UNIQUE KEY taken (k)", "'a''\\\\b'", "'a''\\\\b'"),
    "prefix": ("k VARCHAR(100), UNIQUE KEY taken (k(4))", "'abcdef'", "'ABCDxyz'"),
    "prefix with wildcards": ("k TEXT, UNIQUE KEY taken (k(5))", "'5%_!x and so on'", "'5%_!X or else'"),
    "shorter than its prefix": ("k VARCHAR(100) COLLATE utf8mb4_general_ci, UNIQUE KEY taken (k(9))", "'a '", "'A'"),
    "sharp s": ("k VARCHAR(100), UNIQUE KEY taken (k(20))", "'straße'", "'STRASSE'"),
    "prefix that no LIKE finds": (
        "k VARCHAR(100), UNIQUE KEY taken (k(3))",
        f"'a{SOFT_HYPHEN}bc'",
        f"'ab{SOFT_HYPHEN}d'",
    ),
    "prefix behind a column": ("k TEXT, e ENUM('x','y') DEFAULT 'y', UNIQUE KEY taken (e, k(2))", "'abc'", "'ABD'"),
    "expression behind a column": ("k INT, e ENUM('x','y') DEFAULT 'y', UNIQUE KEY taken (e, (k DIV 2))", "4", "5"),
    "prefix in utf16": ("k TEXT CHARACTER SET utf16, UNIQUE KEY taken (k(3))", "'5%_1'", "'5%_2'"),
    "prefix of bytes": ("k BLOB, UNIQUE KEY taken (k(3))", "X'FF255F01'", "X'FF255F02'"),
    "binary": ("k BINARY(16), UNIQUE KEY taken (k)", "X'00FF00'", "X'00FF0000'"),
    "varbinary": ("k VARBINARY(16), UNIQUE KEY taken (k)", "X'00FF27'", "X'00FF27'"),
    "enum": ("k ENUM('s','m','it''s'), UNIQUE KEY taken (k)", "'it''s'", "3"),
    "set": ("k SET('x','y'), UNIQUE KEY taken (k)", "'x,y'", "3"),
    "decimal": ("k DECIMAL(65,30), UNIQUE KEY taken (k)", "-1.1", "'-1.10000000000000000000'"),
    "double": ("k DOUBLE, UNIQUE KEY taken (k)", "0.1e0 + 0.2e0", "0.30000000000000004e0"),
    "float": ("k FLOAT, UNIQUE KEY taken (k)", "16777216", "16777217"),
    "datetime": ("k DATETIME(6), UNIQUE KEY taken (k)", "'2024-02-29 01:02:03.000001'", "20240229010203.000001"),
    "time": ("k TIME(6), UNIQUE KEY taken (k)", "'-12:34:56.5'", "'-12:34:56.500000'"),
    "bit": ("k BIT(13), UNIQUE KEY taken (k)", "b'1000000000001'", "4097"),
    "bigint": ("k BIGINT UNSIGNED, UNIQUE KEY taken (k)", "18446744073709551615", "~0"),
    "generated": (
        "k VARCHAR(50), g VARCHAR(60) AS (CONCAT('<', LOWER(TRIM(k)), '>')), UNIQUE KEY taken (g)",
        "' Zoe'",
        "'ZOE '",
    ),
    "stored": ("k INT, g INT AS (k DIV 10) STORED, UNIQUE KEY taken (g)", "17", "19"),
    "expression": ("k VARCHAR(50), UNIQUE KEY taken ((CONCAT('it''s ', TRIM(k), '\\\\%')))", "' x'", "'X '"),
    "expression over JSON": (
        """k JSON, UNIQUE KEY taken ((CAST(k->>'$."a b"' AS CHAR(20)) COLLATE utf8mb4_bin))""",
        """'{"a b": "x", "c": 1}'""",
        """'{"a b": "x", "c": 2}'""",
    ),
    "expression that is a number": ("k DECIMAL(10,4), UNIQUE KEY taken ((ROUND(k, 1)))", "1.51", "1.49"),
    "expression that is a time": ("k DATETIME(6), UNIQUE KEY taken ((DATE(k)))", "20240101", "20240101235959"),
    "invisible": ("k INT INVISIBLE, UNIQUE KEY taken (k) INVISIBLE", "7", "7"),
}
"""Of each: the columns and a key, what our row has in column k, and what the holder has."""


@pytest.mark.parametrize("name", list(CLASHES))
def test_a_unique_key_that_another_row_holds(stage: Stage, name: str) -> None:
    """The holder is found as the key itself compares, and both rows are recognised at their sources."""
    columns, ours, theirs = CLASHES[name]
    stage.create(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    stage.merge("b", f"INSERT INTO t (id, k) VALUES (2, {theirs})")
    (held,) = stage.held(f"INSERT INTO t (id, k) VALUES (1, {ours})")
    assert (held.table, held.key) == ((stage.merged, "t"), "taken")
    assert (held.own, held.holder) == ("id=1", "id=2")
    assert (held.own_presence, held.holder_presences) == (ALIVE, {OWN: GONE, "b": ALIVE})


NO_CLASHES = {
    "NULL": ("k VARCHAR(50), UNIQUE KEY taken (k)", "NULL", "NULL"),
    "NULL in a part": ("k INT, n INT DEFAULT 1, UNIQUE KEY taken (n, k)", "NULL", "NULL"),
    "spaces that count": ("k VARCHAR(50), UNIQUE KEY taken (k)", "'a'", "'a '"),
    "case that counts": ("k VARCHAR(50) COLLATE utf8mb4_bin, UNIQUE KEY taken (k)", "'a'", "'A'"),
    "behind the prefix": ("k VARCHAR(50), UNIQUE KEY taken (k(3))", "'abc'", "'ab'"),
    "neighbours": ("k DOUBLE, UNIQUE KEY taken (k)", "0.3e0", "0.1e0 + 0.2e0"),
    "NULL of an expression": ("k INT, UNIQUE KEY taken ((NULLIF(k, k)))", "1", "1"),
}


@pytest.mark.parametrize("name", list(NO_CLASHES))
def test_a_unique_key_that_nothing_holds(stage: Stage, name: str) -> None:
    """Rows that the target takes are not called kept out, and the heads are told nevertheless."""
    columns, ours, theirs = NO_CLASHES[name]
    stage.create(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})")
    stage.merge("b", f"INSERT INTO t (id, k) VALUES (2, {theirs})")
    assert stage.held(f"INSERT INTO t (id, k) VALUES (1, {ours})") == []


MEMBERS = ", ".join(f"'m{number}'" for number in range(64))
PRIMARY_KEYS = {
    "text": ("k VARCHAR(50) CHARACTER SET latin1 PRIMARY KEY", "'é''\\\\'", "'€'", "k='é''\\'"),
    "char": ("k CHAR(5) CHARACTER SET utf16 PRIMARY KEY", "'😀 '", "'b'", "k='😀'"),
    "bytes": ("k BINARY(4) PRIMARY KEY", "X'27'", "X'00'", "k=0x27000000"),
    "no bytes": ("k VARBINARY(4) PRIMARY KEY", "X''", "X'00'", "k=0x"),
    "bit": ("k BIT(64) PRIMARY KEY", "~0", "0", "k=18446744073709551615"),
    "enum": ("k ENUM('1','2','x') CHARACTER SET utf16 PRIMARY KEY", "'x'", "'2'", "k='x'"),
    "set": ("k SET('é','2') PRIMARY KEY", "'é,2'", "''", "k='é,2'"),
    "set of 64": (f"k SET({MEMBERS}) PRIMARY KEY", "1 << 63", "~0", "k='m63'"),
    "decimal": ("k DECIMAL(65,30) PRIMARY KEY", f"-{'9' * 35}.{'9' * 30}", "0", f"k=-{'9' * 35}.{'9' * 30}"),
    "double": ("k DOUBLE PRIMARY KEY", "1.7976931348623157e308", "5e-324", "k=1.7976931348623157e308"),
    "float": ("k FLOAT PRIMARY KEY", "0.1", "3.4028234e38", "k=0.10000000149011612"),
    "year": ("k YEAR PRIMARY KEY", "2155", "2000", "k='2155'"),
    "date": ("k DATE PRIMARY KEY", "'9999-12-31'", "'1000-01-01'", "k='9999-12-31'"),
    "time": ("k TIME(6) PRIMARY KEY", "'-838:59:58.999999'", "0", "k='-838:59:58.999999'"),
    "timestamp": ("k TIMESTAMP(6) PRIMARY KEY", "'2024-01-01 00:00:00.5'", "'2030-01-01'", None),
    "several": ("k INT, l VARCHAR(9) DEFAULT 'x', PRIMARY KEY (l, k)", "1", "2", "l='x', k=1"),
    "prefix": ("k VARCHAR(99), PRIMARY KEY (k(3))", "'%_abc'", "'xyz'", "k(3)='%_a'"),
    "generated": ("i INT AS (k * 2) STORED INVISIBLE PRIMARY KEY, k INT", "1", "2", "i=2"),
}
"""Of each: the columns, two values for column k, and how the first is shown."""


@pytest.mark.parametrize("name", list(PRIMARY_KEYS))
def test_a_primary_key_of_any_type(stage: Stage, name: str) -> None:
    """Rows are found at the sources whatever their primary key is of."""
    columns, ours, theirs, shown = PRIMARY_KEYS[name]
    stage.create(f"CREATE TABLE t ({columns}, taken INT UNIQUE)")
    stage.merge("b", f"INSERT INTO t (k, taken) VALUES ({theirs}, 7)")
    (held,) = stage.held(f"INSERT INTO t (k, taken) VALUES ({ours}, 7)")
    assert (held.key, held.key_columns, held.key_values) == ("taken", ("taken",), ("7",))
    assert shown is None or held.own == shown
    assert (held.own_presence, held.holder_presences) == (ALIVE, {OWN: GONE, "b": ALIVE})


def test_digits_that_only_one_side_fills_up(stage: Stage) -> None:
    """A number is recognised at a source that shows it with zeros in front."""
    stage.create("CREATE TABLE t (id INT ZEROFILL PRIMARY KEY, k DECIMAL(9,2) ZEROFILL UNIQUE KEY)")
    stage.only_merged("ALTER TABLE t MODIFY id INT UNSIGNED NOT NULL, MODIFY k DECIMAL(9,2) UNSIGNED")
    stage.merge("b", "INSERT INTO t VALUES (2, 7.5)")
    (held,) = stage.held("INSERT INTO t VALUES (1, 7.5)")
    assert (held.own, held.key_values) == ("id=1", ("7.50",))
    assert (held.own_presence, held.holder_presences) == (ALIVE, {OWN: GONE, "b": ALIVE})


def test_a_primary_key_that_another_row_holds(stage: Stage) -> None:
    """A row that has our primary key is the sibling's: what the own source has under this key is our row."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (5, 'x', 1)")
    taken, primary = sorted(stage.held("INSERT INTO t VALUES (5, 'x', 1)"), key=lambda held: held.key, reverse=True)
    for held, key, value in ((primary, "PRIMARY", "5"), (taken, "taken", "'x'")):
        assert (held.key, held.key_values, held.own, held.holder) == (key, (value,), "id=5", "id=5")
        assert (held.own_presence, held.holder_presences) == (ALIVE, {OWN: GONE, "b": ALIVE})


def test_several_keys_at_once(stage: Stage) -> None:
    """Each key of a row that somebody holds is told with its own holder."""
    stage.create(
        """CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c VARCHAR(20), UNIQUE KEY one (a), UNIQUE KEY two (b, a),
           UNIQUE KEY three (b, c(2)), UNIQUE KEY four ((UPPER(c))))"""
    )
    stage.merge("b", "INSERT INTO t VALUES (2, 1, 0, 'm'), (3, 9, 5, 'xy..'), (4, 8, 4, 'xyz')")
    held = stage.held("INSERT INTO t VALUES (1, 1, 5, 'xYZ')")
    told = {(each.key, each.key_columns, each.key_values, each.holder) for each in held}
    assert told == {
        ("one", ("a",), ("1",), "id=2"),
        ("three", ("b", "c(2)"), ("5", "'xY'"), "id=3"),
        ("four", ("(upper(`c`))",), ("'XYZ'",), "id=4"),
    }


def test_several_rows_and_tables(stage: Stage) -> None:
    """Of many rows that are kept out some are told, and of every table."""
    stage.create(USERS, USERS.replace("TABLE t", "TABLE u"))
    rows = ", ".join(f"({number}, 'x{number}', 0)" for number in range(100))
    stage.merge("b", f"INSERT INTO t VALUES {rows}", f"INSERT INTO u VALUES {rows}")
    ours = ", ".join(f"({number}, 'x{number}', 0)" for number in range(90, 200))
    held = stage.held("BEGIN", f"INSERT INTO t VALUES {ours}", f"INSERT INTO u VALUES {ours}", "COMMIT")
    assert {each.table[1] for each in held} == {"t", "u"}
    assert {each.key for each in held} == {"PRIMARY", "taken"}
    assert len(held) <= 10


def test_odd_names(stage: Stage) -> None:
    """Names of tables, columns and keys may hold anything that a server takes."""
    stage.create(
        """CREATE TABLE `t``%s {0}.ü` (`i``%d {x} é` INT PRIMARY KEY, `p` VARCHAR(9), `'k" %` VARCHAR(9),
           UNIQUE KEY `k``%s 表` (`'k" %`), UNIQUE KEY `e``x` ((CONCAT(`p`, '%s'))))"""
    )
    stage.merge("b", "INSERT INTO `t``%s {0}.ü` VALUES (2, 'p', 'x')")
    held = stage.held("INSERT INTO `t``%s {0}.ü` VALUES (1, 'p', 'X')")
    assert {(each.table[1], each.key, each.own) for each in held} == {
        ("t`%s {0}.ü", "k`%s 表", "i`%d {x} é=1"),
        ("t`%s {0}.ü", "e`x", "i`%d {x} é=1"),
    }
    assert {each.holder_presences["b"] for each in held} == {ALIVE}


@pytest.mark.parametrize(
    ("later", "expected"),
    [("UPDATE t SET n = 9", ALIVE), ("UPDATE t SET email = 'X'", CHANGED), ("DELETE FROM t", GONE)],
)
def test_what_became_of_our_row(stage: Stage, later: str, expected: Presence) -> None:
    """Our row is told alive, changed in the key, or gone, as the own source has it by now."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1)")
    blocked = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    stage.ahead(OWN, later)
    (held,) = stage.testify(blocked).held
    assert (held.own_presence, held.holder_presences) == (expected, {OWN: GONE, "b": ALIVE})


@pytest.mark.parametrize(
    ("later", "expected"),
    [("UPDATE t SET n = 9", ALIVE), ("UPDATE t SET email = 'y'", CHANGED), ("DELETE FROM t", GONE)],
)
def test_what_became_of_the_holder(stage: Stage, later: str, expected: Presence) -> None:
    """The holder is told alive, changed in the key, or gone at its source; the heads have a release that was seen."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1)")
    stage.ahead("b", later)
    (held,) = stage.held("INSERT INTO t VALUES (1, 'x', 1)")
    assert (held.own_presence, held.holder_presences) == (ALIVE, {OWN: GONE, "b": expected})


def test_a_row_that_changes_between_the_readings(stage: Stage) -> None:
    """What was seen once is not what stands: a row that goes under way is told changed."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1)")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    witness = stage.witness()
    with stage.shards["b"].connect(stage.database) as other, ThreadPoolExecutor(1) as pool:
        other.query("LOCK TABLES t WRITE")  # our row has been read once when the holder is asked for
        looking = pool.submit(witness.testify, run)
        wait_until(lambda: stage.waits_at(stage.shards["b"]), "the witness waits for the holder")
        stage.ahead(OWN, "DELETE FROM t")
        other.query("UNLOCK TABLES")
        (held,) = looking.result().held
    assert (held.own_presence, held.holder_presences) == (CHANGED, {OWN: GONE, "b": ALIVE})


def test_a_row_that_no_source_has(stage: Stage) -> None:
    """A row that somebody else wrote into the target is gone everywhere."""
    stage.create(USERS)
    stage.only_merged("INSERT INTO t VALUES (66, 'x', 1)")
    (held,) = stage.held("INSERT INTO t VALUES (1, 'x', 1)")
    assert (held.holder, held.holder_presences) == ("id=66", {OWN: GONE, "b": GONE})


def test_a_row_of_our_own(stage: Stage) -> None:
    """Where the target is stricter than the source, the holder is alive at the own source."""
    stage.create("CREATE TABLE t (id INT PRIMARY KEY, k INT)")
    stage.only_merged("ALTER TABLE t ADD UNIQUE KEY stricter (k)")
    stage.merge(OWN, "INSERT INTO t VALUES (1, 7)")
    (held,) = stage.held("INSERT INTO t VALUES (2, 7)")
    assert (held.key, held.own, held.holder) == ("stricter", "id=2", "id=1")
    assert (held.own_presence, held.holder_presences) == (ALIVE, {OWN: ALIVE, "b": GONE})


@pytest.mark.parametrize("key", ["(k)", "(k(2))", "((LOWER(k)))"])
def test_rows_that_keep_out_each_other(stage: Stage, key: str) -> None:
    """Where the target is stricter than the source, the holder may be a row of the same run."""
    stage.create("CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR(9))")
    stage.only_merged(f"ALTER TABLE t ADD UNIQUE KEY stricter {key}")
    rows = ", ".join(f"({number}, '{number}')" for number in range(10, 40))
    (held,) = stage.held(f"INSERT INTO t VALUES {rows}, (1, 'AB'), (2, 'x'), (3, 'ab')")
    assert (held.key, held.own, held.holder) == ("stricter", "id=3", "id=1")
    assert (held.own_presence, held.holder_presences) == (ALIVE, {OWN: ALIVE, "b": GONE})


@pytest.mark.parametrize("key", ["(k(3))", "((LOWER(k)))"])
def test_one_row_of_many_by_a_key_that_cannot_be_joined(stage: Stage, key: str) -> None:
    """The row that is kept out by a prefix or an expression is found among many."""
    stage.create(f"CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR(9), UNIQUE KEY taken {key})")
    stage.merge("b", "INSERT INTO t VALUES (2, 'XYZ')")
    rows = ", ".join(f"({number}, '{number}')" for number in range(100, 140))
    (held,) = stage.held(f"INSERT INTO t VALUES {rows}, (1, 'xyz')", "INSERT INTO t VALUES (9, 'last')")
    assert (held.key, held.own, held.holder) == ("taken", "id=1", "id=2")


def test_a_run_that_releases_the_key(stage: Stage) -> None:
    """Nothing keeps out a run that gives the key up again, and the run without its end is kept out."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1)")
    stage.merge(OWN, "INSERT INTO t VALUES (3, 'y', 1)")
    run = stage.ahead(
        OWN, "INSERT INTO t VALUES (1, 'x', 1)", "UPDATE t SET n = 2", "UPDATE t SET email = 'z' WHERE id = 1"
    )
    assert stage.testify(run).held == ()
    (held,) = stage.testify(run[:2]).held
    assert (held.own, held.holder, held.own_presence) == ("id=1", "id=2", CHANGED)


def test_a_run_that_swaps_and_moves(stage: Stage) -> None:
    """Rows that the run itself replaces keep nothing out."""
    stage.create(USERS)
    stage.merge(OWN, "INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 1)")
    stage.merge("b", "INSERT INTO t VALUES (9, 'z', 1)")
    run = stage.ahead(
        OWN,
        "UPDATE t SET email = 'free' WHERE id = 1",
        "UPDATE t SET email = 'x' WHERE id = 2",
        "UPDATE t SET email = 'y', id = 3 WHERE id = 1",
        "UPDATE t SET email = 'Z' WHERE id = 2",
    )
    assert stage.testify(run[:3]).held == ()
    (held,) = stage.testify(run).held
    assert (held.own, held.holder, held.key_values) == ("id=2", "id=9", ("'Z'",))


def test_rows_with_children(stage: Stage) -> None:
    """A parent that goes or moves is no matter of its children, the sibling's neither."""
    stage.create(
        "CREATE TABLE parent (id INT PRIMARY KEY, code INT UNIQUE)",
        "CREATE TABLE child (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parent (id))",
    )
    stage.merge(OWN, "INSERT INTO parent VALUES (1, 10), (2, 20)")
    stage.merge("b", "INSERT INTO parent VALUES (5, 50)")
    stage.only_merged("INSERT INTO child VALUES (100, 1), (101, 2)")
    (held,) = stage.held("DELETE FROM parent WHERE id = 1", "UPDATE parent SET code = 50 WHERE id = 2")
    assert (held.key, held.own, held.holder) == ("code", "id=2", "id=5")


def test_rows_of_a_table_whose_changes_cascade(stage: Stage) -> None:
    """A run that cannot be followed is told by the first transaction's rows as they are, or not at all."""
    cascade = "FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE"
    stage.create(
        "CREATE TABLE parent (id INT PRIMARY KEY, code INT UNIQUE)",
        f"CREATE TABLE child (id INT PRIMARY KEY, parent INT, {cascade})",
    )
    stage.merge(OWN, "INSERT INTO parent VALUES (1, 10), (2, 20)", "INSERT INTO child VALUES (1, 1)")
    stage.merge("b", "INSERT INTO parent VALUES (5, 50)")
    run = stage.ahead(OWN, "UPDATE parent SET code = 50 WHERE id = 1", "UPDATE parent SET code = 11 WHERE id = 1")
    (held,) = stage.testify(run).held
    assert (held.own, held.holder, held.own_presence) == ("id=1", "id=5", CHANGED)
    comes_and_goes = ["BEGIN", "INSERT INTO parent VALUES (7, 70)", "DELETE FROM parent WHERE id = 7", "COMMIT"]
    with pytest.raises(UnsupportedEvent):
        stage.testify(stage.ahead(OWN, *comes_and_goes))


def test_partial_images(stage: Stage) -> None:
    """Updates that are written as differences cannot be told apart."""
    stage.create("CREATE TABLE t (id INT PRIMARY KEY, k INT UNIQUE, j JSON)")
    stage.merge(OWN, """INSERT INTO t VALUES (1, 1, '{"a": 1, "b": "xxxxxxxxxxxxxxxxxxxx"}')""")
    run = stage.ahead(
        OWN, "SET binlog_row_value_options = PARTIAL_JSON", "UPDATE t SET k = 2, j = JSON_SET(j, '$.a', 2)"
    )
    with pytest.raises(UnsupportedEvent):
        stage.testify(run)


def test_a_key_of_many_values(stage: Stage) -> None:
    """A key over an array is not compared, and nothing is claimed about it."""
    stage.create("CREATE TABLE t (id INT PRIMARY KEY, k JSON, UNIQUE KEY taken ((CAST(k AS UNSIGNED ARRAY))))")
    stage.merge("b", "INSERT INTO t VALUES (2, '[1, 2]')")
    with pytest.raises(UnsupportedEvent):
        stage.testify(stage.ahead(OWN, "INSERT INTO t VALUES (1, '[2, 3]')"))
    assert stage.testify(stage.ahead(OWN, "INSERT INTO t VALUES (3, '[4]')")).held == ()


def test_no_primary_key(stage: Stage) -> None:
    """Rows that cannot be looked up are not told about."""
    stage.create("CREATE TABLE t (k INT UNIQUE)")
    with pytest.raises(UnsupportedEvent):
        stage.testify(stage.ahead(OWN, "INSERT INTO t VALUES (1)"))


def test_two_databases_of_a_source_in_one_table(stage: Stage) -> None:
    """A source may have a table twice: the holder is looked for in both, and is not our own row."""
    stage.create(USERS)
    other = f"{stage.database}_other"
    shard = stage.shards[OWN]
    shard.execute_script(
        f"CREATE DATABASE {other}; USE {other}; {USERS}; SET sql_log_bin = 0;GRANT SELECT ON {other}.* TO {stage.user}"
    )
    places = stage.places()
    rules = StreamRules.build({stage.database: stage.merged, other: stage.merged})
    places[OWN] = replace(places[OWN], rules=rules)
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    shard.query(f"INSERT INTO {other}.t VALUES (1, 'y', 1)")
    stage.only_merged("INSERT INTO t VALUES (1, 'y', 1)")
    (held,) = stage.testify(run, stage.witness(places=places)).held
    assert (held.key, held.own_presence, held.holder_presences) == ("PRIMARY", ALIVE, {OWN: ALIVE, "b": GONE})
    shard.query(f"DELETE FROM {other}.t")
    (held,) = stage.testify(run, stage.witness(places=places)).held
    assert (held.key, held.own_presence, held.holder_presences) == ("PRIMARY", ALIVE, {OWN: GONE, "b": GONE})


def test_a_source_that_does_not_carry_the_table(stage: Stage) -> None:
    """A stream whose rules leave the table out has no say in it, and its head is told."""
    stage.create(USERS)
    stage.only_merged("INSERT INTO t VALUES (2, 'x', 1)")
    places = stage.places()
    places["b"] = replace(places["b"], rules=StreamRules.build({stage.database: stage.merged}, ["*.others"]))
    testimony = stage.testify(stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)"), stage.witness(places=places))
    assert testimony.held[0].holder_presences == {OWN: GONE}
    assert testimony.heads == stage.heads()


def test_a_source_that_lacks_the_table(stage: Stage) -> None:
    """A table that a source does not have has no rows there."""
    stage.create(USERS)
    stage.shards["b"].query(f"DROP TABLE {stage.database}.t")
    stage.only_merged("INSERT INTO t VALUES (2, 'x', 1)")
    (held,) = stage.held("INSERT INTO t VALUES (1, 'x', 1)")
    assert held.holder_presences == {OWN: GONE, "b": GONE}


def test_a_transaction_in_its_commit(stage: Stage) -> None:
    """A head has the transactions whose GTIDs a source still owns: their rows may have been seen."""
    stage.create(USERS)
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    gtids = [f"aaaaaaaa-0000-0000-0000-{number:012}:{tag}7" for number, tag in ((1, ""), (1, "blue:"), (2, ""))]
    with contextlib.ExitStack() as stack:
        for gtid in gtids:
            owner = stack.enter_context(stage.shards["b"].connect())
            owner.query(f"SET gtid_next = '{gtid}'")
            stack.callback(owner.query, "ROLLBACK")
        heads = stage.witness().testify(run).heads
    assert heads[OWN] == executed(stage.shards[OWN])
    assert heads["b"] == executed(stage.shards["b"]).union(GtidSet.parse(",".join(gtids)))


# What goes wrong


def test_a_sibling_that_cannot_be_asked(stage: Stage) -> None:
    """A sibling's source that does not answer, refuses or has another table is left out."""
    stage.create(USERS)
    stage.only_merged("INSERT INTO t VALUES (2, 'x', 1)")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    shard = stage.shards["b"]
    nobody = replace(endpoint(shard), unix_socket=None, port=1)
    refused = endpoint(shard, user=stage.user, password="wrong")
    for at in (nobody, refused):
        testimony = stage.testify(run, stage.witness(places=stage.places(b=at)))
        assert testimony.held[0].holder_presences == {OWN: GONE}
        assert testimony.heads == {OWN: executed(stage.shards[OWN])}
    shard.query(f"ALTER TABLE {stage.database}.t RENAME COLUMN email TO mail")
    assert stage.testify(run).held[0].holder_presences == {OWN: GONE}


def test_an_own_source_that_cannot_be_asked(stage: Stage) -> None:
    """Without the own source there is no testimony: lost is lost, and a refusal is no reason to stop a stream."""
    stage.create(USERS)
    stage.only_merged("INSERT INTO t VALUES (2, 'x', 1)")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    shard = stage.shards[OWN]
    nobody = replace(endpoint(shard), unix_socket=None, port=1)
    with pytest.raises(SourceLost):
        stage.testify(run, stage.witness(places=stage.places(a=nobody)))
    with pytest.raises(UnsupportedEvent):
        stage.testify(run, stage.witness(places=stage.places(a=endpoint(shard, user=stage.user, password="wrong"))))
    witness = stage.witness()
    shard.query(f"ALTER TABLE {stage.database}.t RENAME COLUMN email TO mail")
    with pytest.raises(UnsupportedEvent):
        stage.testify(run, witness)


def test_a_row_that_is_locked(stage: Stage) -> None:
    """A row that another transaction holds is a lock conflict, and nothing is left of the look."""
    stage.create(USERS)
    stage.merge(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    run = stage.ahead(OWN, "UPDATE t SET email = 'y'")
    witness, before = stage.witness(), stage.rows()
    with stage.target.connect(stage.merged, autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("SELECT * FROM t FOR UPDATE")
        with pytest.raises(LockConflict):
            witness.testify(run)
        assert stage.open_transactions() == []
    assert stage.rows() == before


def test_a_row_that_is_missing(stage: Stage) -> None:
    """A row to change that is not on the target is told as such."""
    stage.create(USERS)
    stage.merge(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    stage.only_merged("DELETE FROM t")
    with pytest.raises(RowMissing):
        stage.testify(stage.ahead(OWN, "UPDATE t SET email = 'y'"))


def test_a_target_that_was_altered(stage: Stage) -> None:
    """Rows are not held against a table that is not what was proven; a new start gets a new probe table."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1)")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    witness = stage.witness()
    assert len(stage.testify(run, witness).held) == 1
    stage.only_merged("ALTER TABLE t ADD UNIQUE KEY numbers (n)")
    with pytest.raises(TargetAltered):
        witness.testify(run)
    assert stage.open_transactions() == []
    assert {held.key for held in stage.testify(run).held} == {"taken", "numbers"}
    assert len(stage.probe_tables()) == 2


def test_the_target_s_binlog(stage: Stage) -> None:
    """Evidence leaves nothing in the target's binlog but the making of probe tables, once for each stream and table."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1)")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)", "INSERT INTO t VALUES (3, 'y', 1)")
    start = executed(stage.target)
    for times in range(2):
        assert len(stage.testify(run).held) == 1
        assert stage.testify(run[1:]).held == ()
        assert executed(stage.target).subtract(start).count() == 1, times
    theirs = stage.ahead("b", "INSERT INTO t VALUES (4, 'z', 1)")
    stage.testify(theirs, stage.witness("b"))
    assert executed(stage.target).subtract(start).count() == 2
    assert len(stage.probe_tables()) == 2


def test_rows_left_in_a_probe_table(stage: Stage) -> None:
    """Rows that somebody put into a probe table are no evidence."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1), (3, 'y', 1)")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    stage.testify(run)
    (probe,) = stage.probe_tables()
    stage.target.query(f"INSERT INTO {stage.control}.{probe} VALUES (1, 'y', 1)")
    (held,) = stage.witness().testify(run).held
    assert (held.own, held.holder) == ("id=1", "id=2")


def test_a_probe_table_of_another_shape(stage: Stage) -> None:
    """A probe table that is not like its table is not used."""
    stage.create(f"{USERS[:-1]}, KEY (n), CONSTRAINT others FOREIGN KEY (n) REFERENCES t (id), CHECK (n <> 13))")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', NULL)")
    stage.testify(run)
    (probe,) = stage.probe_tables()
    stage.target.query(f"ALTER TABLE {stage.control}.{probe} DROP KEY taken")
    with pytest.raises(UnsupportedEvent, match=probe):
        stage.testify(run)


@pytest.mark.parametrize("at", ["target", "source"])
def test_interrupting_a_look_that_hangs(stage: Stage, at: str) -> None:
    """A look that hangs ends when it is interrupted, and so does each later one."""
    stage.create(USERS)
    stage.merge("b", "INSERT INTO t VALUES (2, 'x', 1)")
    run = stage.ahead(OWN, "INSERT INTO t VALUES (1, 'x', 1)")
    witness = stage.witness()
    server, database = (stage.target, stage.merged) if at == "target" else (stage.shards[OWN], stage.database)

    with server.connect(database) as other, other.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute("LOCK TABLES t WRITE")
        looking = pool.submit(witness.testify, run)
        wait_until(lambda: stage.waits_at(server), "the witness hangs")
        witness.interrupt()
        with pytest.raises(TargetLost if at == "target" else SourceLost):
            looking.result()
    with pytest.raises(TargetLost):
        witness.testify(run)
