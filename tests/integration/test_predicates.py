"""A row filter decides about raw row images as the server does about rows: the server is the oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from pymysql.connections import Connection
from tests.integration.filter_rows import predicates, row_values, table_definition
from tests.integration.reading import endpoint, executed, read_behind, run

from vmerge.config.predicates import parse
from vmerge.core.events import Transaction
from vmerge.core.filter_collations import SORTS, charset_of
from vmerge.core.filter_column import FilterColumn, columns_of_map, columns_of_schema
from vmerge.core.predicate import Predicate
from vmerge.core.predicate_binding import bind
from vmerge.core.rowimage import ImageCutter, Slices
from vmerge.errors import FilterRefused
from vmerge.lab.servers import Server
from vmerge.mysql.connect import connect
from vmerge.mysql.schemas import read_schemas

pytestmark = pytest.mark.server

Outcomes = dict[int, bool | None]

FIXED = [
    # Numbers, at the ends of their types.
    "tiny = -128 OR utiny = 255 OR small = -32768 OR umedium = 16777215 OR ui = 4294967295",
    "big = -9223372036854775808 OR ubig = 18446744073709551615 OR big IN (-1, 9223372036854775807)",
    "ubig > -1 AND ubig <> big",
    "bits64 = 18446744073709551615 XOR bits = 5",
    "`y` BETWEEN 1950 AND 2155 OR `y` <=> 1901",
    "`y` % 4 = 0 AND `y` + 1 <> 2000",
    "money = 1.5 OR money IN (-0.01, 0.10, 5) OR money < -99999999.98",
    "huge = -0.000000000000000000000000000001 OR huge > whole",
    "i = 5.0 OR i < 0.5",
    "9007199254740993 = big OR huge = 9007199254740993",
    "ubig = 99999999999999999999",
    # Computations, which cut towards 0 and are NULL by 0.
    "i % 2 = -1",
    "small DIV 2 = -16384 OR i DIV -2 = 3 OR -tiny = 128",
    "big DIV 2 > -4611686018427387904",
    "tiny DIV small IS NULL OR small % i <=> NULL",
    "2 + 3 * utiny - 1 > 4 - small DIV 3",
    "i--1 = 6",
    "ui MOD 7 = 5 AND medium * 2 + 1 < 0",
    # Three values.
    "tiny",
    "NOT tiny",
    "tiny IS TRUE OR utiny IS NOT FALSE",
    "(tiny > 0) IS UNKNOWN",
    "tiny <=> NULL",
    "tiny = NULL",
    "tiny NOT IN (0, NULL)",
    "NOT (tiny > 0 AND utiny > 0) OR small IS NULL",
    "tiny > 0 XOR utiny > 0 XOR i > 0",
    "tiny OR small AND NOT medium && TRUE",
    "NOT tiny = 1",
    "NOT tiny BETWEEN 0 AND 1 AND utiny NOT BETWEEN 2 AND 200",
    "(tiny = 1) = (utiny = 1)",
    "(tiny IS NULL) + (utiny IS NULL) >= 1",
    "tiny IN (utiny, i, 1) OR 5 IN (i, ui)",
    "f IS NULL OR doc IS NOT NULL XOR members IS NULL AND clock IS NOT NULL OR place IS NULL",
    # Text and bytes: padding, order, lengths.
    "padded = 'a'",
    "padded < 'a'",
    "padded BETWEEN 'a' AND 'b' OR padded IN ('', 'ä')",
    "unpadded = 'a' OR unpadded > 'a ' OR unpadded = '\U0001f600'",
    "fixed = 'a ' AND fixed0900 <> 'a '",
    "padded = fixed OR three >= 'ä' OR ascii = 'b'",
    "one = 'a' OR one > 'aaaa'",
    "essay = 'a'",
    "CAST(loose AS BINARY) = 'a' OR BINARY loose = 'ä' OR CAST(wide AS BINARY) = X'0061'",
    "CAST(loose AS BINARY) IN ('a', X'41') AND CAST(loose AS BINARY) <> CAST('b' AS BINARY)",
    "octets = 'a' OR octets = X'6100' OR octets > 0x00",
    "filled = 'a' OR filled = X'6100000000' OR lump <> 'a '",
    "padded = 'it''s' OR padded <> ''",
    "label = 'new' OR label <=> 'übrig'",
    "label <> 'Paid'",
    "label NOT IN ('new', 'Paid')",
    "hollow = ''",
    "hollow <> '' OR hollow IS NULL",
    # Times; those of a TIMESTAMP in UTC.
    "day < '0001-01-01' OR day >= '2024-12-31'",
    "day IN ('2020-02-29', '2024-12-31', NULL)",
    "day BETWEEN '2020-01-01' AND '2020-12-31'",
    "must > '2024-12-31' OR must = day",
    "`at` = '2024-12-31' OR `at` > '2024-12-31 00:00:00'",
    "precise > '2024-12-31 23:59:59' AND precise <> '2024-12-31 23:59:59.999999'",
    "tenth = '2024-12-31 23:59:59.500000' OR tenth <=> precise",
    "stamp >= '2024-03-31 01:30:00' OR stamp3 < '1970-01-02'",
    "stamp6 = '2038-01-19 03:14:07.999999' OR stamp6 BETWEEN '2024-03-31 01:30:00' AND '2024-03-31 01:30:00.000001'",
    "`at` IS NULL OR stamp IS NOT NULL",
    # A realistic one, on lines of its own.
    "(tiny >= 0 AND label IN ('new', 'Paid')\n  OR money > 10.00)\n\tAND NOT (`day` IS NULL)",
]


class Oracle:
    """The table on a server, and the images of its rows."""

    def __init__(self, server: Server, database: str) -> None:
        self.connection: Connection[Any] = connect(
            endpoint(server), read_timeout_seconds=60, session={"time_zone": "+00:00"}
        )
        self._name = f"`{database}`.t"
        start = executed(server)
        run(server, f"CREATE DATABASE `{database}`", f"CREATE TABLE {self._name} ({table_definition()})")
        run(
            server,
            "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
            f"INSERT IGNORE INTO {self._name} VALUES {', '.join(row_values())}",
        )
        events = [
            event
            for item in read_behind(server, start, database)
            if isinstance(item, Transaction)
            for event in item.rows
        ]
        table = events[0].shape.table
        cutter = ImageCutter(table, ())
        self.rows: list[Slices] = [slices for event in events for slices in cutter.slices(event.images)]
        schema = read_schemas(self.connection, [database])[database, "t"]
        self.shapes: list[Sequence[FilterColumn]] = [columns_of_schema(schema), columns_of_map(table)]

    def ask(self, condition: str) -> Outcomes:
        """What the condition gives for each row, and what it chooses in WHERE."""
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT id, ({condition}) IS NOT FALSE, ({condition}) IS UNKNOWN FROM {self._name}")
            outcomes = {number: None if is_null else bool(value) for number, value, is_null in cursor.fetchall()}
            for wanted, state in ((True, "TRUE"), (False, "FALSE"), (None, "UNKNOWN")):
                cursor.execute(f"SELECT id FROM {self._name} WHERE ({condition}) IS {state}")
                assert {number for (number,) in cursor.fetchall()} == _having(outcomes, wanted), condition
            cursor.execute(f"SELECT id FROM {self._name} WHERE {condition}")
            assert {number for (number,) in cursor.fetchall()} == _having(outcomes, True), condition
        return outcomes

    def decide(self, predicate: Predicate, columns: Sequence[FilterColumn]) -> Outcomes:
        """What our evaluation gives for each row's image."""
        bound = bind(predicate, columns)
        outcomes = {}
        for slices in self.rows:
            needed = [value if place in bound.columns else None for place, value in enumerate(slices)]
            outcomes[int.from_bytes(slices[0] or b"", "little")] = bound.decide(tuple(needed))
        return outcomes

    def check(self, text: str) -> None:
        predicate = parse(text)
        found = [self.decide(predicate, columns) for columns in self.shapes]
        expected = self.ask(text)
        assert found == [expected, expected], text
        assert self.ask(predicate.to_sql()) == expected, text


def _having(outcomes: Outcomes, wanted: bool | None) -> set[int]:
    return {number for number, outcome in outcomes.items() if outcome is wanted}


@pytest.fixture(scope="module")
def oracle(shard_a: Server) -> Iterator[Oracle]:
    database = "filter_oracle"
    run(shard_a, f"DROP DATABASE IF EXISTS `{database}`", "SET GLOBAL binlog_row_metadata = FULL")
    oracle = Oracle(shard_a, database)
    yield oracle
    oracle.connection.close()
    run(shard_a, f"DROP DATABASE `{database}`", "SET GLOBAL binlog_row_metadata = DEFAULT")


@pytest.mark.parametrize("text", FIXED)
def test_fixed(oracle: Oracle, text: str) -> None:
    """Each of these predicates gives for every row what the server says, by the image, by the text and by our SQL."""
    oracle.check(text)


def test_collations(shard_a: Server) -> None:
    """The collations that filters know are the server's of that number, with its character sets and its padding."""
    known = {
        number: (name, charset, padding == "PAD SPACE")
        for number, name, charset, padding in shard_a.query(
            "SELECT id, collation_name, character_set_name, pad_attribute FROM information_schema.collations"
        )
    }
    for number, (_, charset, _) in known.items():
        expected = charset if charset in ("utf8mb4", "utf8mb3", "latin1", "ascii", "binary") else None
        assert charset_of(number) == expected, number
    for number, sort in SORTS.items():
        assert (sort.name, sort.pads) == (known[number][0], known[number][2])


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(predicates)
def test_random(oracle: Oracle, text: str) -> None:
    """Whatever predicate is taken gives for every row what the server says: by image, by its text and by our SQL."""
    try:
        bind(parse(text), oracle.shapes[0])
    except FilterRefused:
        assume(False)
    oracle.check(text)
