"""A source's table, read under a rule, has the target's shape, and is still read by its own indexes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymysql.connections import Connection
from pymysql.err import OperationalError
from tests.integration.reading import run

from vmerge.config.predicates import parse
from vmerge.core.rules import TableRule
from vmerge.core.schema import TableSchema, UniqueKey
from vmerge.lab.comparison import Shard, compare
from vmerge.lab.servers import Server
from vmerge.mysql.key_queries import KeyQuery
from vmerge.mysql.schemas import read_schemas
from vmerge.mysql.source_views import quoted_name, source_rows

pytestmark = pytest.mark.server

SOURCE = """
CREATE TABLE people (
  id INT, mail VARCHAR(40) CHARACTER SET latin1, note TEXT, region INT, at TIMESTAMP NULL, PRIMARY KEY (id),
  UNIQUE KEY by_mail (mail), KEY (region)
)
"""
TARGET = """
CREATE TABLE customer (
  origin TINYINT UNSIGNED, id INT, e_mail VARCHAR(40) CHARACTER SET latin1, shard CHAR(3) CHARACTER SET latin1,
  kind ENUM('old', 'new'), code BINARY(4), gone INT NULL, PRIMARY KEY (origin, id), UNIQUE KEY by_mail (e_mail),
  UNIQUE KEY by_text ((LOWER(e_mail)))
)
"""
RULE = TableRule(
    source_table="people",
    renamed={"E_mail": "mail"},
    dropped=("note", "region", "at"),
    constants={"Origin": 7, "shard": "ä", "kind": "new", "code": "ab", "gone": None},
    where=parse("region % 2 = 0 AND `at` IS NOT NULL"),
)


class Places:
    """The table at a shard, and what it comes to on the target."""

    def __init__(self, shard: Server, target: Server, database: str) -> None:
        self.shard, self.target, self.database = shard, target, database
        for server, statement in ((shard, SOURCE), (target, TARGET)):
            run(server, f"CREATE DATABASE `{database}`")
            run(server, statement, database=database)
        run(
            shard,
            "INSERT INTO people VALUES (1, 'A@x', NULL, 2, '2024-01-01'), (2, 'ö@x', 'n', 3, '2024-01-01'), "
            "(3, 'c@x', NULL, 4, NULL), (4, 'ü', NULL, -2, '2024-01-01'), (5, NULL, NULL, 0, '2024-01-01')",
            database=database,
        )
        self.connection: Connection[Any] = shard.connect(database)
        with target.connect() as connection:
            self.schema: TableSchema = read_schemas(connection, [database])[database, "customer"]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    @property
    def view(self) -> str:
        return source_rows((self.database, "people"), self.schema, RULE)

    def plan(self, statement: str) -> tuple[str | None, str | None, str | None]:
        """How the server reads a statement: table, index, and remark; a view that was not merged would be one more."""
        ((_, _, table, _, _, _, index, _, _, _, _, remark),) = self.rows(f"EXPLAIN FORMAT=TRADITIONAL {statement}")
        return table, index, remark


@pytest.fixture
def places(shard_a: Server, target: Server, database: str) -> Iterator[Places]:
    places = Places(shard_a, target, database)
    yield places
    places.connection.close()


def merge(places: Places) -> None:
    """Bring to the target what the rule says, by hand."""
    run(
        places.target,
        "INSERT INTO customer VALUES (7, 1, 'A@x', 'ä', 'new', 'ab', NULL), (7, 4, 'ü', 'ä', 'new', 'ab', NULL), "
        "(7, 5, NULL, 'ä', 'new', 'ab', NULL)",
        database=places.database,
    )


def test_comparison(places: Places) -> None:
    """The target is the union of the shards under rules exactly if it has their rows in its own shape."""
    shard = Shard(places.shard, {places.database: places.database}, {(places.database, "customer"): RULE})
    assert [one.found for one in compare([shard], places.target).tables[0].differences] == ["only on shard_a"] * 3
    merge(places)
    comparison = compare([shard], places.target)
    assert comparison.is_equal
    assert comparison.rows == 3
    run(places.target, "UPDATE customer SET shard = 'a' WHERE id = 1", database=places.database)
    assert not compare([shard], places.target).is_equal


def test_sightings(places: Places) -> None:
    """A row is found by the target's primary key if it passes the filter and has the stream's constants, as it is."""
    merge(places)
    schema = places.schema
    target_rows = quoted_name((places.database, "customer"))
    for key in (schema.primary_key, *schema.unique_keys):
        assert isinstance(key, UniqueKey)
        query = KeyQuery(schema, key)
        for number in (1, 4, 5):
            identity = ("7", str(number))
            seen = places.rows(query.sightings(places.view, identity))
            assert seen == places.target.query(query.sightings(target_rows, identity))
            assert len(seen) == 1
        for identity in (("7", "2"), ("7", "3"), ("8", "1"), ("7", "9")):
            assert places.rows(query.sightings(places.view, identity)) == []


def test_indexes(places: Places) -> None:
    """The server merges the view: a primary key is read by its index, and another constant reads nothing."""
    assert places.schema.primary_key is not None
    query = KeyQuery(places.schema, places.schema.primary_key)
    assert places.plan(query.sightings(places.view, ("7", "1")))[:2] == ("people", "PRIMARY")
    assert places.plan(query.sightings(places.view, ("8", "1"))) == (None, None, "Impossible WHERE")
    forced = source_rows((places.database, "people"), places.schema, RULE, index="by_mail")
    assert places.plan(f"SELECT e_mail FROM {forced} WHERE e_mail IN ('a', 'b')")[:2] == ("people", "by_mail")


def test_missing_column(places: Places) -> None:
    """A source without a column of the rule's gives an error, not other rows."""
    run(places.shard, "ALTER TABLE people DROP COLUMN mail", database=places.database)
    with pytest.raises(OperationalError, match="Unknown column"):
        places.rows(f"SELECT * FROM {places.view}")
