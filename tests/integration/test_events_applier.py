"""Rows carried from one real server to another. The oracle is the target's own binlog: the same raw row images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.applying import Carrier
from tests.integration.reading import Change, executed, row

from vmerge.core.appliers import ApplierSetting
from vmerge.errors import CorruptEvent, KeyConflict, TargetAltered
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

MakeCarrier = Callable[..., Carrier]

EXTREMES = {
    "integers": (
        """id INT PRIMARY KEY, a TINYINT, b TINYINT UNSIGNED, c SMALLINT, d SMALLINT UNSIGNED, e MEDIUMINT,
           f MEDIUMINT UNSIGNED, g INT, h INT UNSIGNED, i BIGINT, j BIGINT UNSIGNED, k INT(9) ZEROFILL, l BOOL,
           m YEAR""",
        [
            "1, -128, 0, -32768, 0, -8388608, 0, -2147483648, 0, -9223372036854775808, 0, 0, 0, 0",
            """2, 127, 255, 32767, 65535, 8388607, 16777215, 2147483647, 4294967295, 9223372036854775807,
               18446744073709551615, 999999999, 1, 2155""",
            "3, -1, 128, -1, 32768, -1, 8388608, -1, 2147483648, -1, 9223372036854775808, 1, 127, 1901",
            "4" + ", NULL" * 13,
        ],
        "a = -a DIV 2, j = COALESCE(j, 7) DIV 2, m = 2000",
    ),
    "numbers": (
        """id INT PRIMARY KEY, a DECIMAL(65,30), b DECIMAL(1,0), c DECIMAL(10,2) UNSIGNED, d FLOAT, e DOUBLE,
           f FLOAT(7,3), g BIT(1), h BIT(9), i BIT(64)""",
        [
            f"1, -{'9' * 35}.{'9' * 30}, -9, 99999999.99, -0.0, -0.0, -9999.999, 0, 0, 0",
            f"2, {'9' * 35}.{'9' * 30}, 9, 0.01, 3.4028234e38, 1.7976931348623157e308, 9999.999, 1, 511, ~0",
            "3, 0.000000000000000000000000000001, 0, 0, 1e-45, 5e-324, 0.001, b'1', b'100000001', b'1'",
            "4" + ", NULL" * 9,
        ],
        "a = -a, d = d / 3, e = e / 3, i = ~i",
    ),
    "times": (
        """id INT PRIMARY KEY, a DATE, b TIME, c TIME(6), d TIME(1), e DATETIME, f DATETIME(6), g TIMESTAMP NULL,
           h TIMESTAMP(6) NULL, i YEAR""",
        [
            "1, '0000-00-00', '-838:59:59', '-00:00:00.100000', '-00:00:00.1', 0, 0, 0, 0, 0",
            """2, '2020-00-00', '838:59:59', '-12:34:56.123456', '12:34:56.9', '0000-05-05',
               '9999-12-31 23:59:59.999999',
               '1970-01-01 00:00:01', '2038-01-19 03:14:07.999999', 1901""",
            "3, '2021-02-31', 0, '-838:59:58.999999', 0, '2020-00-00 10:00:00', '0001-01-01', NULL, NULL, 2155",
            "4" + ", NULL" * 9,
        ],
        "b = '-00:00:01', c = '-00:00:00.000001', h = '2001-01-01 00:00:00.5'",
    ),
    "texts": (
        """id INT PRIMARY KEY, a CHAR(10), b VARCHAR(300), c VARCHAR(20) CHARACTER SET latin1, d BINARY(8),
           e VARBINARY(300), f LONGTEXT CHARACTER SET utf16, g LONGBLOB, h ENUM('', 'x', 'é', 'b,c'),
           i SET('a', 'b', 'd''e'), j ENUM('x', 'ü') CHARACTER SET latin1, k VARCHAR(20) CHARACTER SET gbk,
           l CHAR(255) CHARACTER SET utf32, m TINYTEXT""",
        [
            """1, '', '', _latin1 X'818D8F909DFF', 'a', X'6100', _utf16 X'00E9FEFF', X'00FF80', '', '', 'ü',
               _gbk X'D2BB5C', 'x', ''""",
            "2, '😀 ', REPEAT('é', 300), 'ÿ', X'0000000000000000', REPEAT('\\0', 300), REPEAT('€', 9000), "
            "REPEAT(X'00', 70000), 'b,c', 'a,d''e', 'x', '表', REPEAT('😀', 255), 'x'",
            "3, ' a', 'a ', 'it''s', X'2020202020202020', '', '', '', 0, 0, 0, '', '', ''",
            "4" + ", NULL" * 13,
        ],
        "a = 'new', d = X'61', h = 'é', i = 'b', e = CONCAT(e, X'00')",
    ),
    "documents": (
        "id INT PRIMARY KEY, a JSON, b GEOMETRY, c POINT SRID 4326, d GEOMETRYCOLLECTION, e VECTOR(3)",
        [
            """1, 'null', ST_GeomFromText('POINT(1 -0)'), ST_SRID(POINT(10, 20), 4326),
               ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1), LINESTRING(0 0, 1 1))'), TO_VECTOR('[1, -0.0, 3e38]')""",
            """2, JSON_OBJECT('d', CAST('2020-01-02' AS DATE), 't', CAST('-01:02:03.5' AS TIME(6)), 'n', 1.10, 'u',
               CAST(1 AS UNSIGNED), 'b', X'00FF80', 'g', ST_GeomFromText('POINT(1 2)'), '',
               JSON_ARRAY(NULL, TRUE, 1e308)), NULL, NULL, NULL, NULL""",
            """3, CONCAT('{"big": "', REPEAT('x', 70000), '", "deep": ', REPEAT('[', 90), REPEAT(']', 90), '}'),
               ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))'), NULL, NULL, NULL""",
            "4" + ", NULL" * 5,
        ],
        "a = JSON_SET(COALESCE(a, '{}'), '$.new', X'01'), c = NULL",
    ),
    "calculated": (
        """id INT PRIMARY KEY, a INT NOT NULL, b INT AS (a + 1) VIRTUAL, c INT AS (a * 2) STORED,
           d INT INVISIBLE DEFAULT 7, e INT DEFAULT (a + 5), UNIQUE (c), KEY ((a DIV 2)), KEY (b)""",
        ["1, 10, DEFAULT, DEFAULT, 5", "2, 20, DEFAULT, DEFAULT, DEFAULT", "3, -5, DEFAULT, DEFAULT, NULL"],
        "a = a + 100, d = NULL",
    ),
}
"""Of each table: its columns, rows with the extremes of its types, and what an UPDATE of all rows sets."""


@pytest.fixture
def make_carrier(shard_a: Server, target: Server, database: str) -> Iterator[MakeCarrier]:
    """Makes the same tables on both sides and a carrier between them."""
    made: list[Carrier] = []

    def make(tables: str, setting: ApplierSetting = ApplierSetting.AUTO) -> Carrier:
        for server, name in ((shard_a, database), (target, f"{database}_merged")):
            server.execute_script(f"CREATE DATABASE {name}; USE {name}; {tables}")
        made.append(Carrier(shard_a, target, database, setting=setting))
        return made[-1]

    yield make
    for carrier in made:
        carrier.close()


PERMISSIVE = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"


@pytest.mark.parametrize("name", list(EXTREMES))
def test_every_type_is_carried_exactly(make_carrier: MakeCarrier, name: str) -> None:
    """INSERT, UPDATE and DELETE of the extremes of each type leave the very same bytes on the target."""
    columns, values, assignments = EXTREMES[name]
    carrier = make_carrier(f"CREATE TABLE {name} ({columns})")
    inserts = [f"INSERT IGNORE INTO {name} VALUES ({each})" for each in values]
    sent, arrived = carrier.carry(PERMISSIVE, *inserts)
    assert arrived == sent
    assert [change.kind for change in sent] == ["WRITE"]
    for kind, statement in (("UPDATE", f"UPDATE IGNORE {name} SET {assignments}"), ("DELETE", f"DELETE FROM {name}")):
        sent, arrived = carrier.carry(PERMISSIVE, statement)
        assert arrived == sent
        assert [change.kind for change in sent] == [kind]
    assert carrier.target.query(f"SELECT * FROM {carrier.target_database}.{name}") == []


def test_partial_json_updates(make_carrier: MakeCarrier) -> None:
    """Updates written as differences of a document give the document of the source, byte for byte."""
    carrier = make_carrier("CREATE TABLE j (id INT PRIMARY KEY, a JSON, b JSON, c INT)")
    carrier.carry("""INSERT INTO j VALUES (1, '{"x": 1, "y": {"z": [1, 2]}, "s": "text"}', '[1, 2, 3]', 1)""")
    paths = "'$.x', X'00FF', '$.y.z[1]', CAST('-01:00:00' AS TIME)"
    sets = f"a = JSON_REMOVE(JSON_SET(a, {paths}), '$.s'), b = JSON_REPLACE(b, '$[0]', 9)"
    start = executed(carrier.target)
    batch = carrier.change_source("SET SESSION binlog_row_value_options = PARTIAL_JSON", f"UPDATE j SET {sets}, c = 2")
    assert [shape.kind.name for shape, _ in batch[0].rows] == ["PARTIAL_UPDATE"]
    carrier.apply(batch)
    assert len(carrier.applied_behind(start)) == 1
    # Both documents, told by the images of a statement that deletes them.
    sent, arrived = carrier.carry("DELETE FROM j")
    assert arrived == sent


def test_many_columns(make_carrier: MakeCarrier) -> None:
    """A table of 1,017 columns, as many as InnoDB takes, is carried with NULLs anywhere."""
    names = [f"c{number}" for number in range(1016)]
    carrier = make_carrier(f"CREATE TABLE w (id INT PRIMARY KEY, {', '.join(f'{name} TINYINT' for name in names)})")
    values = [", ".join("NULL" if number % divisor == 0 else "1" for number in range(1016)) for divisor in (2, 7, 1017)]
    inserts = [f"INSERT INTO w VALUES ({number}, {row})" for number, row in enumerate(values)]
    sent, arrived = carrier.carry(*inserts, "UPDATE w SET c1015 = 5, c0 = NULL")
    assert arrived == sent
    assert [change.kind for change in arrived] == ["WRITE", "UPDATE"]


def test_compressed_and_xa_transactions(make_carrier: MakeCarrier) -> None:
    """What the source compressed or prepared arrives like everything else."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
    xa = ["XA START 'x'", "INSERT INTO t VALUES (2, 2)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"]
    compression = "SET SESSION binlog_transaction_compression = ON"
    sent, arrived = carrier.carry(compression, "INSERT INTO t VALUES (1, 1)", *xa)
    assert arrived == sent == [Change("WRITE", "t", row(1, 1) + row(2, 2))]


def test_several_tables_in_one_batch(make_carrier: MakeCarrier) -> None:
    """Many transactions of several tables in one target transaction keep their order."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE u (id INT PRIMARY KEY)")
    statements = [f"INSERT INTO {'tu'[number % 3 == 0]} VALUES ({number})" for number in range(50)]
    moved = [
        "BEGIN",
        "DELETE FROM t WHERE id = 1",
        "INSERT INTO u VALUES (1)",
        "UPDATE t SET id = 1 WHERE id = 2",
        "COMMIT",
    ]
    sent, arrived = carrier.carry(*statements, *moved)
    assert arrived == sent
    for table in "tu":
        ids = f"SELECT id FROM {{}}.{table} ORDER BY id"
        assert carrier.target.query(ids.format(carrier.target_database)) == carrier.source.query(
            ids.format(carrier.source_database)
        )


def test_partitioned_tables(make_carrier: MakeCarrier) -> None:
    """Rows of any partition arrive, also when the target's table is not partitioned."""
    carrier = make_carrier("CREATE TABLE p (id INT PRIMARY KEY, a INT NOT NULL)")
    carrier.source.query(f"ALTER TABLE {carrier.source_database}.p PARTITION BY HASH (id) PARTITIONS 5")
    values = ", ".join(f"({number}, 0)" for number in range(40))
    sent, arrived = carrier.carry(f"INSERT INTO p VALUES {values}", "UPDATE p SET a = id", "UPDATE p SET id = id + 100")
    assert arrived == sent


def test_a_large_transaction_goes_in_pieces(make_carrier: MakeCarrier) -> None:
    """A transaction of several BINLOG statements arrives whole in one target transaction."""
    carrier = make_carrier("CREATE TABLE b (id INT PRIMARY KEY, b MEDIUMBLOB)")
    values = ", ".join(f"({number}, REPEAT('x', 1000000))" for number in range(12))
    start = executed(carrier.target)
    sent, arrived = carrier.carry("BEGIN", f"INSERT INTO b VALUES {values}", "DELETE FROM b WHERE id = 3", "COMMIT")
    assert arrived == sent
    assert executed(carrier.target).subtract(start).count() == 1


# Flags of the source's session

FAMILY = """
CREATE TABLE parent (id INT PRIMARY KEY);
CREATE TABLE child (id INT PRIMARY KEY, parent INT, a INT, UNIQUE KEY taken (a),
  CONSTRAINT belongs FOREIGN KEY (parent) REFERENCES parent (id));
"""


def test_foreign_keys_are_checked_as_the_source_did(make_carrier: MakeCarrier) -> None:
    """Rows of a session without foreign key checks need no parent; those of its neighbours in the batch do."""
    carrier = make_carrier(FAMILY)
    carrier.source.query(f"INSERT INTO {carrier.source_database}.parent VALUES (1)")
    unchecked = ["SET foreign_key_checks = 0", "INSERT INTO child VALUES (1, 77, 1)"]
    assert carrier.carry(*unchecked)[1] == [Change("WRITE", "child", row(1, 77, 1))]
    checked = carrier.change_source("INSERT INTO child VALUES (2, 1, 2)")
    mixed = carrier.change_source("SET foreign_key_checks = 0", "INSERT INTO child VALUES (3, 78, 3)")
    for batch in (checked + mixed, mixed + checked):
        with pytest.raises(KeyConflict) as caught:
            carrier.apply(batch)
        assert caught.value.key == "belongs"
    carrier.target.query(f"INSERT INTO {carrier.target_database}.parent VALUES (1)")
    carrier.apply(mixed + checked)
    ids = carrier.target.query(f"SELECT id FROM {carrier.target_database}.child ORDER BY id")
    assert ids == [(1,), (2,), (3,)]


@pytest.mark.parametrize("checks", [0, 1])
def test_a_duplicate_is_found_whatever_the_source_checked(make_carrier: MakeCarrier, checks: int) -> None:
    """A sibling's unique key is respected also for rows of a session with unique_checks=0."""
    carrier = make_carrier(FAMILY)
    merged = carrier.target_database
    carrier.target.query(f"INSERT INTO {merged}.child VALUES (100, NULL, 5)")
    batch = carrier.change_source(f"SET unique_checks = {checks}", "INSERT INTO child VALUES (1, NULL, 5)")
    with pytest.raises(KeyConflict) as caught:
        carrier.apply(batch)
    assert caught.value.key == "child.taken"
    assert carrier.target.query(f"SELECT id, a FROM {merged}.child") == [(100, 5)]
    assert carrier.target.query(f"CHECK TABLE {merged}.child")[0][3] == "OK"


def test_cascades_of_the_source_arrive_once(make_carrier: MakeCarrier) -> None:
    """Rows that a foreign key changed at the source are in its binlog (since 9.6) and arrive as they were changed."""
    cascade = FAMILY.replace("REFERENCES parent (id)", "REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE")
    carrier = make_carrier(cascade)
    carrier.carry("INSERT INTO parent VALUES (1), (2)", "INSERT INTO child VALUES (1, 1, 1), (2, 2, 2), (3, 2, 3)")
    sent, arrived = carrier.carry("DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 5 WHERE id = 2")
    assert arrived == sent
    assert carrier.target.query(f"SELECT id, parent FROM {carrier.target_database}.child") == [(2, 5), (3, 5)]


def test_a_cascade_of_the_target_takes_a_siblings_rows_with_it(make_carrier: MakeCarrier) -> None:
    """Why a merge must not have cascading foreign keys on the target: they act on rows that no source changed.

    What they did stands in the target's binlog (9.7.4) without a table map: no replica of the target can read it.
    """
    cascade = FAMILY.replace("REFERENCES parent (id)", "REFERENCES parent (id) ON DELETE CASCADE")
    carrier = make_carrier(cascade)
    carrier.carry("INSERT INTO parent VALUES (1)")
    carrier.target.query(f"INSERT INTO {carrier.target_database}.child VALUES (100, 1, 100)")
    start = executed(carrier.target)
    carrier.apply(carrier.change_source("DELETE FROM parent WHERE id = 1"))
    assert carrier.target.query(f"SELECT id FROM {carrier.target_database}.child") == []
    with pytest.raises(CorruptEvent, match="without a table map"):
        carrier.applied_behind(start)


# Changes of the table


def test_a_table_that_is_altered_on_both_sides(make_carrier: MakeCarrier) -> None:
    """Rows in front of an ALTER and behind it are applied in their own shape, in one session."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
    alter = "ALTER TABLE {}.t ADD b INT NOT NULL DEFAULT 9"
    before = carrier.change_source("INSERT INTO t VALUES (1, 1)", "UPDATE t SET a = 2")
    behind = carrier.change_source(alter.format(carrier.source_database), "INSERT INTO t VALUES (2, 2, 2)")
    carrier.apply(before)
    carrier.target.query(alter.format(carrier.target_database))
    carrier.applier = carrier.make_applier()
    carrier.apply(behind)
    assert carrier.target.query(f"SELECT * FROM {carrier.target_database}.t") == [(1, 2, 9), (2, 2, 2)]


def test_rows_of_two_shapes_in_one_batch(make_carrier: MakeCarrier) -> None:
    """Old and new rows of a table that meet in one batch stand in separate statements, and the server survives them."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)", ApplierSetting.EVENTS)
    alter = "ALTER TABLE {}.t ADD b INT NOT NULL DEFAULT 9"
    carrier.target.query(alter.format(carrier.target_database))
    carrier.applier = carrier.make_applier()
    new = "INSERT INTO t VALUES (2, 2, 2)"
    batch = carrier.change_source("INSERT INTO t VALUES (1, 1)", alter.format(carrier.source_database), new)
    carrier.apply(batch)
    assert carrier.target.query(f"SELECT * FROM {carrier.target_database}.t") == [(1, 1, 9), (2, 2, 2)]


def test_a_target_that_is_altered_alone(make_carrier: MakeCarrier) -> None:
    """Rows do not pass into a table that is no longer what was proven: nothing of the batch stays."""
    carrier = make_carrier("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)")
    carrier.target.query(f"ALTER TABLE {carrier.target_database}.t DROP a")
    with pytest.raises(TargetAltered):
        carrier.apply(carrier.change_source("INSERT INTO t VALUES (1, 1)"))
    assert carrier.target.query(f"SELECT * FROM {carrier.target_database}.t") == []
