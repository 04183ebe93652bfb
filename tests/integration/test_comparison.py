"""The comparison sees every difference, however small, and no difference where there is none."""

from __future__ import annotations

import pytest

from vmerge.lab.comparison import SHOWN_DIFFERENCES, Comparison, Shard, compare
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

HARD_TYPES = """
id BIGINT UNSIGNED, part VARCHAR(20) CHARACTER SET latin1, f FLOAT, d DOUBLE, n DECIMAL(20, 5), e ENUM('', 'a', 'b'),
s SET('x', 'y'), j SJIS_TEXT, b BIT(9), t TIME(6), y YEAR, at DATETIME(6), z TIMESTAMP NULL, r VARBINARY(9), g POINT,
doc JSON, PRIMARY KEY (part, id)
""".replace("SJIS_TEXT", "VARCHAR(20) CHARACTER SET sjis")
HARD_ROW = (
    "18446744073709551615, 'Ä', 16777217, -0.1, 1.10000, 'b', 'x,y', _sjis 0x835C5C, b'100000001', '-838:59:59', 1901, "
    "'0000-00-00', '2024-03-31 01:30:00', 0x00FF20, ST_GeomFromText('POINT(1 2)'), '{\"a\": 1}'"
)


class Shop:
    """Two shards with databases of a test's own, and a target."""

    def __init__(self, shard_a: Server, shard_b: Server, target: Server, database: str) -> None:
        self.servers = {"a": shard_a, "b": shard_b, "target": target}
        self.database = database
        self._shards = [Shard(shard_a, {f"{database}_0": database}), Shard(shard_b, {f"{database}_1": database})]
        self._names = {"a": f"{database}_0", "b": f"{database}_1", "target": database}
        for side in self.servers:
            self.execute(side, f"CREATE DATABASE {self._names[side]}", use=False)

    def execute(self, side: str, statement: str, *, use: bool = True) -> None:
        self.servers[side].execute_script(
            f"SET sql_mode = 'ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'; {statement}",
            self._names[side] if use else None,
        )

    def create(self, columns: str) -> None:
        for side in self.servers:
            self.execute(side, f"CREATE TABLE t ({columns})")

    def compare(self) -> Comparison:
        return compare(self._shards, self.servers["target"])

    def differences(self) -> list[tuple[tuple[object, ...], str]]:
        (table,) = self.compare().tables
        return [(one.key, one.found) for one in table.differences]


@pytest.fixture
def shop(shard_a: Server, shard_b: Server, target: Server, database: str) -> Shop:
    return Shop(shard_a, shard_b, target, database)


def test_union_of_shards_is_equal(shop: Shop) -> None:
    """A target that holds the rows of both shards and nothing else is equal, and its rows are counted."""
    shop.create("id INT PRIMARY KEY, v TEXT")
    shop.execute("a", "INSERT INTO t VALUES (1, 'a'), (4, NULL), (-5, '')")
    shop.execute("b", "INSERT INTO t VALUES (2, 'b'), (10, 'ä')")
    shop.execute("target", "INSERT INTO t VALUES (10, 'ä'), (2, 'b'), (1, 'a'), (4, NULL), (-5, '')")
    comparison = shop.compare()
    assert comparison.is_equal
    assert comparison.rows == 5
    assert str(comparison) == f"{shop.database}.t: 5 rows, equal"


def test_each_kind_of_difference_is_named(shop: Shop) -> None:
    """A row that is missing, too many, different, or on two shards is named with its key and its sides."""
    shop.create("id INT PRIMARY KEY, v TEXT")
    shop.execute("a", "INSERT INTO t VALUES (1, 'a'), (2, 'a'), (5, 'same')")
    shop.execute("b", "INSERT INTO t VALUES (3, NULL), (5, 'same')")
    shop.execute("target", "INSERT INTO t VALUES (2, 'A'), (3, ''), (4, 'x'), (5, 'same')")
    assert shop.differences() == [
        ((1,), "only on shard_a"),
        ((2,), "differs between shard_a and the target"),
        ((3,), "differs between shard_b and the target"),
        ((4,), "only on the target"),
        ((5,), "2 times on shards (shard_a and shard_b), 1 times on the target"),
    ]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("f", "16777214"),
        ("d", "-0.10000000000000002"),
        ("e", "''"),
        ("s", "'x'"),
        ("j", "_sjis 0x835C"),
        ("b", "b'000000001'"),
        ("t", "'-838:59:58.999999'"),
        ("y", "0"),
        ("at", "'2024-00-00'"),
        ("z", "'2024-03-31 02:30:00'"),
        ("r", "0x00FF"),
        ("g", "ST_GeomFromText('POINT(1 2)', 4326)"),
        ("doc", "'0'; UPDATE t SET doc = '{\"a\": 1.0}'"),  # for the server 1 and 1.0 are equal: no change
        ("part", "'ä'"),
        ("id", "18446744073709551614"),
    ],
)
def test_smallest_change_of_a_hard_type_is_seen(shop: Shop, column: str, value: str) -> None:
    """Values that other comparisons round, convert or fold are told apart; the same value is equal."""
    shop.create(HARD_TYPES)
    shop.execute("b", f"INSERT INTO t VALUES ({HARD_ROW})")
    shop.execute("target", f"INSERT INTO t VALUES ({HARD_ROW})")
    assert shop.compare().is_equal
    shop.execute("target", f"UPDATE t SET {column} = {value}")
    assert not shop.compare().is_equal


def test_table_without_primary_key_is_a_bag_of_rows(shop: Shop) -> None:
    """Equal rows of a table without a primary key are counted, wherever they are stored; NULL is not empty."""
    shop.create("a INT, b TEXT")
    shop.execute("a", "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (NULL, '')")
    shop.execute("b", "INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    shop.execute("target", "INSERT INTO t VALUES (2, NULL), (1, 'x'), (NULL, ''), (1, 'x'), (1, 'x')")
    assert shop.compare().is_equal
    shop.execute("target", "DELETE FROM t WHERE a = 1 LIMIT 1; UPDATE t SET b = '' WHERE a = 2")
    assert sorted(found for _, found in shop.differences()) == [
        "3 times on shards (shard_a and shard_a and shard_b), 2 times on the target",
        "only on shard_b",
        "only on the target",
    ]


def test_table_on_one_side_only(shop: Shop) -> None:
    """Rows of a table that the other side does not have at all are differences."""
    shop.execute("a", "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)")
    assert shop.differences() == [((1,), "only on shard_a")]
    shop.execute("a", "DROP TABLE t")
    shop.execute("target", "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (1)")
    assert shop.differences() == [((1,), "only on the target")]


def test_many_differences_are_counted_not_listed(shop: Shop) -> None:
    """A report stays short however much differs, and says how much that is."""
    shop.create("id INT PRIMARY KEY")
    shop.execute(
        "a",
        "INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) SELECT i FROM n",
    )
    (table,) = shop.compare().tables
    assert (table.differing, len(table.differences)) == (500, SHOWN_DIFFERENCES)
    assert str(shop.compare()).endswith("… and 490 more")
