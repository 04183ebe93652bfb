"""Evidence about a conflict under rules: rows at the sources count as they would come to the target, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.integration.applying import transactions
from tests.integration.reading import executed, read_behind, run
from tests.integration.witnessing import OWN, Stage

from vmerge.config.predicates import parse
from vmerge.core.events import Transaction
from vmerge.core.evidence import Held, Presence
from vmerge.core.rules import StreamRules, TableRule
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

SOURCE = "CREATE TABLE people (id INT PRIMARY KEY, mail VARCHAR(20), region INT, UNIQUE KEY by_mail (mail))"
TARGET = (
    "CREATE TABLE customer (origin TINYINT, email VARCHAR(20), id INT, PRIMARY KEY (origin, id), "
    "UNIQUE KEY by_email (email))"
)
ORIGINS = {OWN: 1, "b": 2}


class RuledStage(Stage):
    """Shards whose people become the target's customers; only those of regions with even numbers are carried."""

    def rules(self, stream: str) -> StreamRules:
        rule = TableRule(
            source_table="people",
            renamed={"email": "mail"},
            dropped=("region",),
            constants={"origin": ORIGINS[stream]},
            where=parse("region % 2 = 0"),
        )
        return StreamRules.build({self.database: self.merged}, table_rules={(self.merged, "customer"): rule})

    def ahead(self, stream: str, *statements: str) -> list[Transaction]:
        start = executed(self.shards[stream])
        run(self.shards[stream], *statements, database=self.database)
        return transactions(read_behind(self.shards[stream], start, carriage=self.plan(stream).carriage))

    def at(self, stream: str, *statements: str) -> None:
        run(self.shards[stream], *statements, database=self.database)


@pytest.fixture
def stage(shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[RuledStage]:
    stage = RuledStage(shard_a, shard_b, target, database)
    for shard in stage.shards:
        stage.at(shard, SOURCE)
    stage.only_merged(TARGET)
    yield stage
    stage.close()


def presences(held: Sequence[Held]) -> tuple[str, str, Presence, dict[str, Presence]]:
    (one,) = held
    return one.own, one.holder, one.own_presence, dict(one.holder_presences)


def test_true_duplicate(stage: RuledStage) -> None:
    """Two rows that pass, with one value in a renamed column, are alive, each at the shard that has its constant."""
    stage.at("b", "INSERT INTO people VALUES (1, 'x', 2)")
    stage.only_merged("INSERT INTO customer VALUES (2, 'x', 1)")
    found = presences(stage.held("INSERT INTO people VALUES (1, 'X', 4)"))
    holders = {OWN: Presence.GONE, "b": Presence.ALIVE}  # the own shard's row 1 has another constant
    assert found == ("origin=1, id=1", "origin=2, id=1", Presence.ALIVE, holders)


def test_row_that_left_the_filter(stage: RuledStage) -> None:
    """A holder that stands at its shard unchanged but for the filter is gone, and so is our own row."""
    stage.at("b", "INSERT INTO people VALUES (1, 'x', 3)")
    stage.only_merged("INSERT INTO customer VALUES (2, 'x', 1)")
    run_of = stage.ahead(OWN, "INSERT INTO people VALUES (7, 'x', 4)")
    assert presences(stage.testify(run_of).held)[2:] == (Presence.ALIVE, {OWN: Presence.GONE, "b": Presence.GONE})
    stage.at(OWN, "UPDATE people SET region = NULL")
    assert presences(stage.testify(run_of).held)[2:] == (Presence.GONE, {OWN: Presence.GONE, "b": Presence.GONE})


def test_row_of_no_stream(stage: RuledStage) -> None:
    """A holder with a constant that no stream has is nobody's, though all shards have its number and its value."""
    stage.at("b", "INSERT INTO people VALUES (1, 'x', 2)")
    stage.only_merged("INSERT INTO customer VALUES (3, 'x', 1)")
    found = presences(stage.held("INSERT INTO people VALUES (1, 'x', 4)"))
    assert found[1:] == ("origin=3, id=1", Presence.ALIVE, {OWN: Presence.GONE, "b": Presence.GONE})


def test_wider_columns(stage: RuledStage) -> None:
    """A row stands at its shard as on the target though its columns have more digits and other characters there."""
    wide = "cost DECIMAL({}), at DATETIME({}), mail VARCHAR(9) CHARACTER SET {}, UNIQUE KEY k (cost, at, mail)"
    narrow = f"CREATE TABLE t (id INT PRIMARY KEY, {wide.format('6, 1', 0, 'latin1')})"
    for shard in stage.shards:
        stage.at(shard, narrow)
    stage.only_merged(f"CREATE TABLE t (id BIGINT PRIMARY KEY, {wide.format('12, 4', 6, 'utf8mb4')})")
    stage.merge("b", "INSERT INTO t VALUES (1, 1.5, '2024-01-01', 'ä')")
    found = presences(stage.held("INSERT INTO t VALUES (2, 1.5, '2024-01-01', 'Ä')"))
    assert found == ("id=2", "id=1", Presence.ALIVE, {OWN: Presence.GONE, "b": Presence.ALIVE})
