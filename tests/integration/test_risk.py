"""The risk of conflicts on real servers: what collides by MySQL's own rules is found, and nothing else."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.operating import VMERGE, wait_until

from vmerge.check import collision_search
from vmerge.check.checking import CheckResult, check_workflow
from vmerge.core.collisions import CollisionMode, CollisionReport, plan
from vmerge.core.risk import assess
from vmerge.core.rules import StartAt, StreamRules, TableName, TableRule
from vmerge.lab.processes import Program
from vmerge.lab.servers import Lab, Server
from vmerge.mysql.collisions import Shard
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.preflight import StreamFacts, WorkflowFacts, survey
from vmerge.stopping import Clock, StopToken, SystemClock

pytestmark = pytest.mark.server

PASSWORD = "right-password"
STREAMS = ("-80", "80-")


class Shards:
    """Two shards and a target with the same tables, and accounts that may read the shards and merge."""

    def __init__(self, database: str, shard_a: Server, shard_b: Server, target: Server) -> None:
        self.database = database
        self.account = database
        self.sources = dict(zip(STREAMS, (shard_a, shard_b), strict=True))
        self.target = target
        self.rules: dict[str, dict[TableName, TableRule]] = {name: {} for name in STREAMS}
        for server in (*self.sources.values(), target):
            self.run(
                server,
                "CREATE DATABASE {db}",
                f"CREATE USER '{self.account}'@'%' IDENTIFIED BY '{PASSWORD}'",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON {{db}}.* TO '{self.account}'@'%'",
                f"GRANT REPLICATION SLAVE, REPLICATION_APPLIER ON *.* TO '{self.account}'@'%'",
            )
        control = f"GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON {{db}}_control.* TO '{self.account}'@'%'"
        self.run(target, control)

    def run(self, server: Server, *statements: str) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement.replace("{db}", self.database))

    def create(self, *statements: str) -> None:
        """Run the same on all servers."""
        for server in (*self.sources.values(), self.target):
            self.run(server, *statements)

    def at(self, stream: str, *statements: str) -> None:
        self.run(self.sources[stream], *statements)

    def facts(self) -> WorkflowFacts:
        rules = {
            name: StreamRules.build({self.database: self.database}, table_rules=one) for name, one in self.rules.items()
        }
        streams = tuple(
            StreamFacts(name, self._endpoint(f"stream {name}", server), rules[name], StartAt.CURRENT)
            for name, server in self.sources.items()
        )
        target = self._endpoint("target", self.target)
        return WorkflowFacts("customers", target, f"{self.database}_control", streams)

    def _endpoint(self, role: str, server: Server) -> Endpoint:
        return Endpoint(role, server.host, server.port, self.account, PASSWORD)

    def check(self, mode: CollisionMode = CollisionMode.COMPLETE, clock: Clock | None = None) -> CheckResult:
        """Check, and see that no server was changed by it."""
        servers = [server for server in (*self.sources.values(), self.target) if server.is_running]
        before = [server.query("SELECT @@GLOBAL.gtid_executed") for server in servers]
        result = check_workflow(self.facts(), mode, clock=clock or SystemClock(), show=lambda _: None)
        assert [server.query("SELECT @@GLOBAL.gtid_executed") for server in servers] == before
        return result

    def close(self) -> None:
        for server in (*self.sources.values(), self.target):
            if server.is_running:
                server.query(f"DROP USER IF EXISTS '{self.account}'@'%'")


@pytest.fixture
def shards(database: str, shard_a: Server, shard_b: Server, target: Server) -> Iterator[Shards]:
    """A workflow over the shared servers."""
    made = Shards(database, shard_a, shard_b, target)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def seen_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves here unless a test moves it, so that nobody needs to wait."""
    monkeypatch.setattr(collision_search, "SEEN_AGAIN_AFTER_SECONDS", 0.0)


def pairs(report: CollisionReport) -> dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """The primary keys of the rows that collide, by key."""
    assert report.uncompared == []
    return {
        outcome.comparison.key.name: [
            (dict(pair.primary_keys[0]), dict(pair.primary_keys[1]))
            for meeting in outcome.found
            for pair in meeting.pairs
        ]
        for outcome in report.outcomes
    }


# Each: the columns beside id, rows of the first shard, rows of the second one, and the ids that collide in key k.
# The first shard's ids count from 1, the second's from 101.
CASES: dict[str, tuple[str, list[str], list[str], set[tuple[int, int]]]] = {
    "case": ("v VARCHAR(20), UNIQUE k (v)", ["'Bob'", "'eve'"], ["'bob'", "'Eva'"], {(1, 101)}),
    "accent": ("v VARCHAR(20), UNIQUE k (v)", ["'Renée'", "'ß'"], ["'RENEE'", "'SS'"], {(1, 101), (2, 102)}),
    "binary": (
        "v VARCHAR(20) COLLATE utf8mb4_bin, UNIQUE k (v)",
        ["'Bob'", "'eve'"],
        ["'bob'", "'eve'"],
        {(2, 102)},
    ),
    "pad space": (
        "v VARCHAR(20) COLLATE utf8mb4_general_ci, UNIQUE k (v)",
        ["'a'", "'b '", "'c\\t'"],
        ["'A  '", "'b'", "'c'"],
        {(1, 101), (2, 102)},
    ),
    "no pad": ("v VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, UNIQUE k (v)", ["'a'", "'b '"], ["'a '", "'B '"], {(2, 102)}),
    "ignorable": (
        "v VARCHAR(20) COLLATE utf8mb4_unicode_ci, UNIQUE k (v)",
        ["CONCAT('a', _utf8mb4 X'01')"],
        ["'A '"],
        {(1, 101)},
    ),
    "prefix": ("v TEXT, UNIQUE k (v(3))", ["'abcdef'", "'ab'"], ["'ABCxyz'", "'abx'"], {(1, 101)}),
    "prefix pad": (
        "v TEXT COLLATE utf8mb4_general_ci, UNIQUE k (v(3))",
        ["'a'", "'b \\tx'"],
        ["'a  zzz'", "'b'"],
        {(1, 101)},
    ),
    "binary prefix": ("v BLOB, UNIQUE k (v(2))", ["X'0000FF'", "X'FF00'"], ["X'0000'", "X'FF01'"], {(1, 101)}),
    "nullable": ("v INT, UNIQUE k (v)", ["NULL", "NULL", "7"], ["NULL", "7"], {(3, 102)}),
    "nullable part": (
        "v INT, w INT, UNIQUE k (v, w)",
        ["1, NULL", "1, 2", "NULL, 2"],
        ["1, NULL", "1, 2", "NULL, 2"],
        {(2, 102)},
    ),
    "many parts": (
        "v INT, w VARCHAR(10), x DATETIME(6), UNIQUE k (v, w, x)",
        ["1, 'a', '2020-01-01'", "1, 'b', '2020-01-01 00:00:00.000001'"],
        ["1, 'a', '2020-01-02'", "1, 'B', '2020-01-01 00:00:00.000001'"],
        {(2, 102)},
    ),
    "part with prefix": (
        "v INT, w VARCHAR(10), UNIQUE k (v, w(2))",
        ["1, 'abc'", "2, 'abc'"],
        ["1, 'ABx'", "3, 'abc'"],
        {(1, 101)},
    ),
    "expression": ("v VARCHAR(20) COLLATE utf8mb4_bin, UNIQUE k ((LOWER(v)))", ["'Bob'"], ["'bOB'"], {(1, 101)}),
    "expression with quotes": (
        "v VARCHAR(20), UNIQUE k ((CONCAT(v, '\\'%s\\n\\\\')))",
        ["'a'", "'b'"],
        ["'c'", "'B'"],
        {(2, 102)},
    ),
    "number expression": ("v INT, w INT, UNIQUE k ((v + w), v)", ["1, 2", "2, 2"], ["1, 2", "3, 1"], {(1, 101)}),
    "json expression": (
        "v JSON, UNIQUE k ((CAST(v->>'$.id' AS UNSIGNED)))",
        ["'{\"id\": 5}'", "'{}'"],
        ['\'{"id": "5"}\'', "'{}'"],
        {(1, 101)},
    ),
    "generated": (
        "v VARCHAR(20), g VARCHAR(20) AS (REVERSE(v)) VIRTUAL, UNIQUE k (g)",
        ["'ab', DEFAULT", "'cd', DEFAULT"],
        ["'AB', DEFAULT", "'ce', DEFAULT"],
        {(1, 101)},
    ),
    "binary column": ("v BINARY(4), UNIQUE k (v)", ["X'61620000'", "X'00'"], ["X'6162'", "X'0001'"], {(1, 101)}),
    "varbinary": ("v VARBINARY(4), UNIQUE k (v)", ["X'6100'", "X'80FF'"], ["X'61'", "X'80FF'"], {(2, 102)}),
    "charset": (
        "v VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci, w CHAR(3) CHARACTER SET utf16, UNIQUE k (v, w)",
        ["'é', 'ö'", "_latin1 X'80', ''"],
        ["'E', 'O'", "'€', ''"],
        {(1, 101), (2, 102)},
    ),
    "enum and set": (
        "v ENUM('a','b','é') CHARACTER SET latin1, w SET('x','y','z'), UNIQUE k (v, w)",
        ["'a', 'x,y'", "3, ''"],
        ["'a', 'x'", "'é', ''"],
        {(2, 102)},
    ),
    "bit and unsigned": (
        "v BIT(64), w BIGINT UNSIGNED, UNIQUE k (v, w)",
        ["18446744073709551615, 18446744073709551615", "1, 0"],
        ["18446744073709551615, 18446744073709551615", "1, 1"],
        {(1, 101)},
    ),
    "float and double": (
        "v FLOAT, w DOUBLE, UNIQUE k (v, w)",
        ["0.1, 0.1", "16777216, 1e300", "-0.0, 0"],
        ["0.1, 0.1", "16777216, 1.0000000000000002e300", "0, -0.0"],
        {(1, 101), (3, 103)},
    ),
    "decimal": ("v DECIMAL(30,10), UNIQUE k (v)", ["-1.5", "12345678901234567890.1"], ["-1.50", "0"], {(1, 101)}),
    "times": (
        "v TIMESTAMP(3) NULL, w TIME(2), x YEAR, y DATE, UNIQUE k (v, w, x, y)",
        ["'2024-10-27 00:30:00.5', '-838:59:59', 0, '0000-00-00'", "'2024-01-01', '1:0:0', 2155, '2020-00-00'"],
        ["'2024-10-27 00:30:00.5', '-838:59:59', 0, '0000-00-00'", "'2024-01-01', '1:0:0', 2154, '2020-00-00'"],
        {(1, 101)},
    ),
    "descending": ("v INT, w INT, UNIQUE k (v DESC, w)", ["1, 2", "2, 3"], ["2, 3", "1, 1"], {(2, 101)}),
    "invisible": ("v INT INVISIBLE, UNIQUE k (v)", ["1", "2"], ["2", "3"], {(2, 101)}),
}


@pytest.mark.parametrize("case", CASES)
def test_collisions_by_the_rules_of_the_server(shards: Shards, case: str, target: Server) -> None:
    """A key collides exactly where the target refuses the second row: what is found is what it refused."""
    definition, ours, theirs, expected = CASES[case]
    shards.create("SET sql_mode = ''", f"CREATE TABLE {{db}}.t (id INT PRIMARY KEY, {definition})")
    names = ", ".join(["id", *(name for name in "vwxyg" if f" {name} " in f" {definition}".replace(",", " "))])
    for stream, first, rows in (("-80", 1, ours), ("80-", 101, theirs)):
        statements = [f"INSERT INTO {{db}}.t ({names}) VALUES ({id}, {row})" for id, row in enumerate(rows, first)]
        shards.at(stream, "SET sql_mode = '', time_zone = '+00:00'", *statements)
    refused = refused_by(target, shards, names, [*enumerate(ours, 1), *enumerate(theirs, 101)])
    assert refused == {theirs_id for _, theirs_id in expected}
    for mode in (CollisionMode.COMPLETE, CollisionMode.SAMPLE):
        report = shards.check(mode).collisions
        found = pairs(report)
        assert {(int(one["id"]), int(other["id"])) for one, other in found["k"]} == expected
        assert found["PRIMARY"] == []
        assert all(outcome.is_whole for outcome in report.outcomes)


def refused_by(target: Server, shards: Shards, names: str, rows: list[tuple[int, str]]) -> set[int]:
    """The ids of the rows that the target refuses as duplicates."""
    refused = set()
    for id, row in rows:
        try:
            statement = f"INSERT INTO {{db}}.t ({names}) VALUES ({id}, {row})"
            shards.run(target, "SET sql_mode = '', time_zone = '+00:00'", statement)
        except Exception as error:
            assert error.args[0] == 1062, error
            refused.add(id)
    return refused


ROWS = "INSERT INTO {db}.t SELECT n + %d, CONCAT('%s', n) FROM {db}.numbers"
NUMBERS = (
    "SET cte_max_recursion_depth = 100000",
    "CREATE TABLE {db}.numbers (n INT PRIMARY KEY)",
    "INSERT INTO {db}.numbers WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5000) "
    "SELECT n FROM r",
)
TABLE = "CREATE TABLE {db}.t (id INT PRIMARY KEY, v VARCHAR(20), UNIQUE k (v))"


def test_odd_names_and_keys(shards: Shards) -> None:
    """Names with backticks, quotes, percent signs and other letters, and keys of several columns, are compared."""
    shards.create(
        "CREATE TABLE {db}.`o``d%s'\"ñ.t` (`i``d%` VARBINARY(8), `ключ '%(x)s` VARCHAR(9), "
        "PRIMARY KEY (`i``d%`, `ключ '%(x)s`), UNIQUE `k``%d` (`ключ '%(x)s`))"
    )
    insert = "INSERT INTO {db}.`o``d%s'\"ñ.t` VALUES "
    shards.at("-80", insert + "(X'00FF', 'a'), (X'01', 'b'), (X'02', '\\n\\'')")
    shards.at("80-", insert + "(X'00FF', 'A'), (X'0100', 'B'), (X'02', '\\n\"')")
    result = shards.check()
    assert pairs(result.collisions) == {
        "PRIMARY": [({"i`d%": "0x00FF", "ключ '%(x)s": "a"}, {"i`d%": "0x00FF", "ключ '%(x)s": "A"})],
        "k`%d": [
            ({"i`d%": "0x00FF", "ключ '%(x)s": "a"}, {"i`d%": "0x00FF", "ключ '%(x)s": "A"}),
            ({"i`d%": "0x01", "ключ '%(x)s": "b"}, {"i`d%": "0x0100", "ключ '%(x)s": "B"}),
        ],
    }
    assert [finding.id for finding in result.findings.warnings].count("collision") == 2


def test_a_primary_key_on_a_prefix(shards: Shards) -> None:
    """A primary key of which only the first characters count is compared by them, in pages of whole values."""
    shards.create("CREATE TABLE {db}.t (v VARCHAR(20), PRIMARY KEY (v(2)))")
    shards.at("-80", "INSERT INTO {db}.t VALUES ('abc'), ('b')")
    shards.at("80-", "INSERT INTO {db}.t VALUES ('ABx'), ('bc')")
    assert pairs(shards.check().collisions) == {"PRIMARY": [({"v": "abc"}, {"v": "ABx"})]}


def test_a_row_that_moves_is_no_collision(shards: Shards) -> None:
    """Rows that were in both shards for a moment only, or that gave the key up, are not reported."""
    shards.create(TABLE)
    rows = "INSERT INTO {db}.t VALUES (%d, 'goes'), (%d, 'changes'), (%d, 'stays'), (%d, 'is replaced')"
    shards.at("-80", rows % (1, 2, 3, 4))
    shards.at("80-", rows % (101, 102, 103, 104))

    def move(progress: collision_search.Progress) -> None:
        if progress.key == "k" and progress.rows:
            shards.at("-80", "DELETE FROM {db}.t WHERE id = 1", "UPDATE {db}.t SET id = 5 WHERE id = 4")
            shards.at("80-", "UPDATE {db}.t SET v = NULL WHERE id = 102")

    result = check_workflow(shards.facts(), CollisionMode.COMPLETE, clock=SystemClock(), show=move)
    assert pairs(result.collisions) == {"PRIMARY": [], "k": [({"id": "3"}, {"id": "103"})]}


def test_a_sample_is_bounded(shards: Shards) -> None:
    """A sample looks at both ends of a large key and says that this is not all; a complete search finds the rest."""
    shards.create(*NUMBERS, TABLE)
    shards.at("-80", ROWS % (0, "a"), "UPDATE {db}.t SET v = CONCAT('m', LPAD(id, 5, 0))")
    shards.at("80-", "INSERT INTO {db}.t VALUES (6001, 'M00003'), (6002, 'M02500'), (6003, 'M04999')")
    sampled = shards.check(CollisionMode.SAMPLE).collisions
    assert pairs(sampled)["k"] == [({"id": "3"}, {"id": "6001"}), ({"id": "4999"}, {"id": "6003"})]
    outcome = next(one for one in sampled.outcomes if one.comparison.key.name == "k")
    assert (outcome.rows, outcome.is_whole) == ({"-80": 2 * collision_search.SAMPLE_ROWS}, False)
    assert "(a sample)" in "\n".join(sampled.lines())
    complete = shards.check().collisions
    assert [ours["id"] for ours, _ in pairs(complete)["k"]] == ["3", "2500", "4999"]
    outcome = next(one for one in complete.outcomes if one.comparison.key.name == "k")
    assert (outcome.rows, outcome.is_whole) == ({"-80": 5000}, True)


def test_keys_that_collide_everywhere_are_counted_up_to_a_bound(shards: Shards) -> None:
    """Generated primary keys collide by construction: they are warned of, counted to a bound, and no more is read."""
    shards.create(*NUMBERS, "SET sql_generate_invisible_primary_key = ON", "CREATE TABLE {db}.c (a INT)")
    for stream in STREAMS:
        shards.at(stream, "INSERT INTO {db}.c (a) SELECT n FROM {db}.numbers", "DELETE FROM {db}.numbers")
    result = shards.check()
    outcome = next(one for one in result.collisions.outcomes if one.comparison.table[1] == "c")
    (meeting,) = outcome.found
    assert meeting.count == 1000
    assert len(meeting.pairs) == 10
    assert (meeting.is_counted, outcome.is_whole) == (False, False)
    assert "1000 or more pairs" in "\n".join(result.lines())
    ids = [finding.id for finding in result.findings.findings]
    assert ids.count("generated-primary-key") == 2
    assert "auto-increment" not in ids


class LateClock(SystemClock):
    """A clock on which every look costs a minute."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 61.0
        return self._now


def test_a_sample_ends_in_time(shards: Shards) -> None:
    """What a sample has no time for is named, with the reason, and is not called compared."""
    shards.create(TABLE)
    report = shards.check(CollisionMode.SAMPLE, LateClock()).collisions
    assert [(one.key, one.reason) for one in report.uncompared] == [
        ("PRIMARY", "the sample's 60 s were over"),
        ("k", "the sample's 60 s were over"),
    ]
    assert report.outcomes == []


def test_no_search_on_request(shards: Shards) -> None:
    """Without a search the keys that can meet are still told."""
    shards.create(TABLE)
    for stream in STREAMS:
        shards.at(stream, "INSERT INTO {db}.t VALUES (1, 'a')")
    result = shards.check(CollisionMode.NONE)
    assert result.collisions.as_data() == {
        "mode": "none",
        "interrupted": False,
        "count": 0,
        "unconfirmed": 0,
        "keys": [],
        "not_compared": [],
    }
    assert [key.key.name for table in result.tables for key in table.keys] == ["PRIMARY", "k"]


def test_tables_of_one_stream_cannot_meet(shards: Shards) -> None:
    """A table that one shard alone has is told as one that cannot collide, and is not searched."""
    shards.run(shards.target, TABLE)
    shards.at("-80", TABLE)
    result = shards.check()
    assert result.collisions.outcomes == []
    assert [(table.can_meet, table.streams) for table in result.tables] == [(False, ("-80",))]
    assert any("Filled by one stream alone" in line and ".t (-80)" in line for line in result.lines())


def test_counters_that_overlap(shards: Shards) -> None:
    """Shards that count one column through the same numbers are warned of, with the ranges; others are not."""
    shards.create(
        "CREATE TABLE {db}.t (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY)",
        "CREATE TABLE {db}.apart (id INT AUTO_INCREMENT PRIMARY KEY)",
        "CREATE TABLE {db}.empty (id INT AUTO_INCREMENT PRIMARY KEY)",
    )
    shards.at("-80", "INSERT INTO {db}.t VALUES (5), (20)", "INSERT INTO {db}.apart VALUES (5), (20)")
    shards.at("80-", "INSERT INTO {db}.t VALUES (7), (18446744073709551614)", "INSERT INTO {db}.apart VALUES (21)")
    result = shards.check()
    (finding,) = [one for one in result.findings.warnings if one.id == "auto-increment"]
    assert finding.where == f"{shards.database}.t"
    assert "-80: 5 to 20" in finding.text
    assert "80-: 7 to 18446744073709551614" in finding.text
    counters = {name[1]: (counter.overlaps, counter.is_kept_apart) for name, counter in result.counters.items()}
    assert counters == {"t": (True, False), "apart": (False, False), "empty": (False, False)}


def test_a_looser_collation_on_the_target_is_refused(shards: Shards) -> None:
    """A target that takes for equal what the shards tell apart is an error already, and is not searched."""
    shards.create("CREATE TABLE {db}.t (id INT PRIMARY KEY, v VARCHAR(20) COLLATE utf8mb4_bin, UNIQUE k (v))")
    shards.run(shards.target, "ALTER TABLE {db}.t MODIFY v VARCHAR(20) COLLATE utf8mb4_0900_ai_ci")
    result = shards.check()
    assert {finding.id for finding in result.findings.errors} == {"columns-differ"}
    assert "collation utf8mb4_bin at the source" in result.findings.errors[0].text
    assert result.collisions.outcomes == []
    assert {one.reason for one in result.collisions.uncompared} == {
        "stream -80 has other columns than the target",
        "stream 80- has other columns than the target",
    }


def test_a_key_on_the_target_only_is_not_compared(shards: Shards) -> None:
    """A key that the shards do not have is named as not compared, with what to do."""
    shards.create(TABLE)
    shards.run(shards.target, "ALTER TABLE {db}.t ADD UNIQUE narrow (v(2))")
    report = shards.check().collisions
    assert {(one.key, one.streams) for one in report.uncompared} == {("narrow", ("-80",)), ("narrow", ("80-",))}
    assert "GROUP BY" in report.uncompared[0].reason
    assert [outcome.comparison.key.name for outcome in report.outcomes] == ["PRIMARY", "k"]


def test_a_table_that_may_not_be_read_is_one_reason(shards: Shards) -> None:
    """A missing privilege is told once for all keys of a table, and the rest is compared."""
    shards.create(TABLE, "CREATE TABLE {db}.u (id INT PRIMARY KEY)")
    facts = shards.facts()
    seen = survey(facts)
    comparisons, _ = plan(assess(seen.streams, seen.targets), seen.streams, seen.targets)
    shards.at("80-", f"REVOKE ALL ON {{db}}.* FROM '{shards.account}'@'%'")
    shards.at("80-", f"GRANT SELECT ON {{db}}.u TO '{shards.account}'@'%'")
    shards.at("-80", "INSERT INTO {db}.t VALUES (1, 'a')", "INSERT INTO {db}.u VALUES (1)")
    shards.at("80-", "INSERT INTO {db}.u VALUES (1)")
    connections = {stream.name: Shard(stream.source, statement_seconds=10) for stream in facts.streams}
    search = collision_search.CollisionSearch(
        comparisons, (), connections, mode=CollisionMode.COMPLETE, clock=SystemClock(), stop=StopToken()
    )
    assert list(search.run())
    for connection in connections.values():
        connection.close()
    lines = [line for line in search.report.lines() if "not compared" in line]
    assert len(lines) == 1
    assert "1142" in lines[0]
    assert search.report.count == 1


def test_a_shard_that_is_lost_is_one_reason(shards: Shards, start_server: Callable[..., Server]) -> None:
    """A shard that goes away in the middle ends nothing but its own part, and is told once."""
    own = start_server()
    shards.sources["80-"] = own
    for statement in (
        "CREATE DATABASE {db}",
        f"CREATE USER '{shards.account}'@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT SELECT, REPLICATION SLAVE ON *.* TO '{shards.account}'@'%'",
    ):
        shards.run(own, statement)
    shards.create(TABLE, "CREATE TABLE {db}.u (id INT PRIMARY KEY, v INT UNIQUE)")
    shards.at("-80", "INSERT INTO {db}.t VALUES (1, 'a')", "INSERT INTO {db}.u VALUES (1, 1)")
    result = check_workflow(shards.facts(), CollisionMode.SAMPLE, clock=SystemClock(), show=lambda _: own.kill())
    lines = [line for line in result.lines() if "not compared" in line]
    assert len(lines) == 1
    assert "stream 80-" in lines[0]
    assert all(not outcome.is_whole for outcome in result.collisions.outcomes)


class Command:
    """``vmerge check`` as a process, over a workflow file."""

    def __init__(self, lab: Lab, shards: Shards, folder: Path) -> None:
        self._lab = lab
        self._file = folder / "w.yaml"
        self._shards = shards
        access = {"user": shards.account, "password_env": "RISK_PASSWORD", "tls": {"mode": "disabled"}}
        target = {"host": "127.0.0.1", "port": shards.target.port, **access}
        streams = {
            name: {
                "host": "127.0.0.1",
                "port": server.port,
                **access,
                "databases": {shards.database: shards.database},
            }
            for name, server in shards.sources.items()
        }
        control = f"{shards.database}_control"
        document = {"workflow": "w", "target": {**target, "control_database": control}, "streams": streams}
        self._file.write_text(yaml.safe_dump(document))

    def start(self, *words: str) -> Program:
        command = (*VMERGE, "check", str(self._file), *words)
        return Program(self._lab, f"check_{self._shards.database}", command, {"RISK_PASSWORD": PASSWORD})


@pytest.fixture
def command(lab: Lab, shards: Shards, tmp_path: Path) -> Command:
    """The command over the test's workflow."""
    return Command(lab, shards, tmp_path)


def test_everything_as_json(shards: Shards, command: Command) -> None:
    """``check --json`` prints one document of a stable shape; collisions do not block, and a quick check is quiet."""
    shards.create(TABLE, "CREATE TABLE {db}.u (id INT AUTO_INCREMENT PRIMARY KEY, e ENUM('x', 'y'), UNIQUE (e))")
    shards.at("-80", "INSERT INTO {db}.t VALUES (1, 'Bob')", "INSERT INTO {db}.u VALUES (1, 'x'), (2, NULL)")
    shards.at("80-", "INSERT INTO {db}.t VALUES (2, 'bob')", "INSERT INTO {db}.u VALUES (3, 'x')")
    with command.start("--json", "--collisions", "complete") as program:
        assert program.wait(60) == 0
    assert program.errors == ""
    document = json.loads(program.output)
    name = shards.database
    assert document["can_run"] is True
    collisions = [finding for finding in document["findings"] if finding["id"] == "collision"]
    assert [finding["severity"] for finding in collisions] == ["warning", "warning"]
    assert "Bob" not in str(document["findings"])
    key = {"can_meet": True, "collations": []}
    primary = {**key, "key": "PRIMARY", "parts": ["id"]}
    ranges = [
        {"stream": "-80", "least": 1, "greatest": 2, "increment": 1, "offset": 1},
        {"stream": "80-", "least": 3, "greatest": 3, "increment": 1, "offset": 1},
    ]
    counter = {"column": "id", "kept_apart": False, "overlaps": False, "ranges": ranges}
    collation = "utf8mb4_0900_ai_ci"
    table = {"streams": list(STREAMS), "can_meet": True, "cascades_to": []}
    assert document["risk"]["tables"] == [
        {
            **table,
            "table": f"{name}.t",
            "keys": [
                {**primary, "traits": ["primary"]},
                {**key, "key": "k", "parts": ["v"], "traits": ["nullable", "ignores-case"], "collations": [collation]},
            ],
            "auto_increment": None,
        },
        {
            **table,
            "table": f"{name}.u",
            "keys": [
                {**primary, "traits": ["primary", "auto-increment"]},
                {**key, "key": "e", "parts": ["e"], "traits": ["nullable", "ignores-case"], "collations": [collation]},
            ],
            "auto_increment": counter,
        },
    ]
    found = document["risk"]["collisions"]
    outcomes = {(one["table"], one["key"]): one for one in found.pop("keys")}
    assert found == {"mode": "complete", "interrupted": False, "count": 2, "unconfirmed": 0, "not_compared": []}
    assert outcomes[f"{name}.t", "PRIMARY"] == {
        "table": f"{name}.t",
        "key": "PRIMARY",
        "streams": list(STREAMS),
        "rows": {"-80": 1},
        "is_whole": True,
        "collisions": [],
    }
    assert outcomes[f"{name}.t", "k"]["collisions"] == [
        {
            "streams": list(STREAMS),
            "count": 1,
            "is_count_whole": True,
            "pairs": [{"primary_keys": [{"id": "1"}, {"id": "2"}], "values": [{"v": "Bob"}, {"v": "bob"}]}],
        }
    ]
    assert outcomes[f"{name}.u", "e"]["collisions"][0]["pairs"] == [
        {"primary_keys": [{"id": "1"}, {"id": "3"}], "values": [{"e": "x"}, {"e": "x"}]}
    ]


def test_what_an_operator_reads(shards: Shards, command: Command) -> None:
    """Without options a check samples, and names both rows; a value cannot disturb the terminal."""
    shards.create(TABLE)
    shards.at("-80", "INSERT INTO {db}.t VALUES (1, CONCAT('a', _utf8mb4 X'1B5B324A'))")
    shards.at("80-", "INSERT INTO {db}.t VALUES (-2, CONCAT('A', _utf8mb4 X'1B5B324A'))")
    with command.start() as program:
        assert program.wait(60) == 0
    text = program.output
    assert "\x1b" not in text
    assert "k (v): may be NULL, which never collides; ignores case; compares by utf8mb4_0900_ai_ci" in text
    assert "Rows that collide across shards now: 1 found, 2 values of 2 keys looked up" in text
    assert '-80 (id=1) and 80- (id=-2): v="a\\u001b[2J" and v="A\\u001b[2J"' in text
    assert text.endswith("Workflow w can run.\n")


def test_ctrl_c_keeps_what_was_found(shards: Shards, command: Command) -> None:
    """Ctrl-C in the middle of a search ends it at once, ends its statement on the server, and prints what there is."""
    shards.create("CREATE TABLE {db}.a (id INT PRIMARY KEY)", TABLE)
    for stream in STREAMS:
        shards.at(stream, "INSERT INTO {db}.a VALUES (7)", "INSERT INTO {db}.t VALUES (1, 'a')")
    shard = shards.sources["80-"]
    waiting = (
        "SELECT id FROM performance_schema.processlist "
        "WHERE user = %s AND state = 'Waiting for table metadata lock' AND info LIKE 'SELECT%%'"
    )
    with shard.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {shards.database}.t WRITE")
        with command.start("--collisions", "complete") as program:
            wait_until(lambda: bool(shard.query(waiting, shards.account)), "the search waits for the locked table")
            os.kill(program.pid, signal.SIGINT)
            assert program.wait(10) == 130
        wait_until(lambda: not shard.query(waiting, shards.account), "its statement has ended", 1.0)
    assert "interrupted; 1 match was seen once only and is not counted" in program.output
    assert program.output.endswith("Workflow w can run.\n")
    assert "Traceback" not in program.errors
