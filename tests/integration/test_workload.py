"""The workload writes legal histories, moves values so that waiting suffices, and survives what tests do to servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from vmerge.lab.comparison import Shard, compare
from vmerge.lab.servers import Lab, Server
from vmerge.lab.shop import ShopShard, create_shop, seed_shop
from vmerge.lab.workload_process import WorkloadProcess

pytestmark = pytest.mark.server

# What each shard took since the workload began, whoever has it now.
TRIGGERS = """
CREATE TABLE taken (kind VARCHAR(10), value VARCHAR(120), KEY (kind, value));
CREATE TRIGGER customer_inserted AFTER INSERT ON customer FOR EACH ROW
  INSERT INTO taken VALUES ('email', NEW.email), ('customer', NEW.id);
CREATE TRIGGER purchase_inserted AFTER INSERT ON purchase FOR EACH ROW
  INSERT INTO taken VALUES ('reference', NEW.reference), ('purchase', NEW.id);
CREATE TRIGGER customer_updated AFTER UPDATE ON customer FOR EACH ROW
  INSERT INTO taken SELECT 'email', NEW.email FROM DUAL WHERE NEW.email <> OLD.email;
"""


@pytest.fixture
def shards(shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[list[ShopShard]]:
    """Two seeded shards; the target has the union."""
    shards = [ShopShard(shard_a, f"{database}_0"), ShopShard(shard_b, f"{database}_1")]
    merged = ShopShard(target, database)
    for place in (*shards, merged):
        create_shop(place.server, place.database)
    seed_shop(shards, merged, customers=100)
    yield shards


def test_seeded_target_is_the_union(shards: list[ShopShard], target: Server, database: str) -> None:
    """Before the workload the target has every row of the shards, to the byte."""
    comparison = compare([Shard(shard.server, {shard.database: database}) for shard in shards], target)
    assert comparison.is_equal
    assert comparison.rows == 2 * 100 * 2


def test_moves_need_no_more_than_waiting(lab: Lab, shards: list[ShopShard]) -> None:
    """What one shard took is never taken by another, so no stream can meet a sibling's final row too early."""
    for shard in shards:
        shard.server.execute_script(TRIGGERS, shard.database)
    with WorkloadProcess(lab, shards, seconds=3, rate=200) as workload:
        assert workload.wait(30) == 0
        tally = workload.finish()
    taken = [set(shard.server.query(f"SELECT kind, value FROM {shard.database}.taken")) for shard in shards]
    assert taken[0].isdisjoint(taken[1])
    assert min(len(one) for one in taken) > 50
    assert min(tally.moved_emails, tally.moved_customers, tally.inserted, tally.updated, tally.deleted) > 5


@pytest.mark.parametrize("moves_again", [False, True])
def test_nothing_exists_twice(lab: Lab, shards: list[ShopShard], moves_again: bool) -> None:
    """At the end no primary key and no unique value is on two shards."""
    with WorkloadProcess(lab, shards, seconds=2, moves_again=moves_again) as workload:
        workload.wait(30)
        workload.finish()
    for table, column in (("customer", "id"), ("customer", "email"), ("purchase", "id"), ("purchase", "reference")):
        values = [set(shard.server.query(f"SELECT {column} FROM {shard.database}.{table}")) for shard in shards]
        assert values[0].isdisjoint(values[1]), column


def test_ends_cleanly_when_told(lab: Lab, shards: list[ShopShard]) -> None:
    """A workload that is told to end does so at once, leaves no transaction half done and reports the whole."""
    with WorkloadProcess(lab, shards, seconds=600) as workload:
        _wait_for_rows(shards[0], 120)
        began_at = time.monotonic()
        tally = workload.finish()
        assert time.monotonic() - began_at < 5
    assert tally.transactions > 20
    assert all(not shard.server.open_transactions() for shard in shards)


def test_goes_on_after_a_crash_of_a_shard(lab: Lab, start_server: Callable[..., Server]) -> None:
    """A shard that is killed and comes back is written again, and nothing exists twice."""
    first, second, merged = (ShopShard(start_server(), name) for name in ("shop_0", "shop_1", "shop"))
    for place in (first, second, merged):
        create_shop(place.server, place.database)
    seed_shop([first, second], merged, customers=100)
    with WorkloadProcess(lab, [first, second], seconds=600) as workload:
        _wait_for_rows(first, 120)
        first.server.kill()
        first.server.restart()
        _wait_for_rows(first, 40, above=int(first.server.query("SELECT MAX(id) FROM shop_0.customer")[0][0]))
        workload.finish()
    emails = [set(shard.server.query(f"SELECT email FROM {shard.database}.customer")) for shard in (first, second)]
    assert emails[0].isdisjoint(emails[1])


def _wait_for_rows(shard: ShopShard, count: int, above: int = 0) -> None:
    give_up_at = time.monotonic() + 30
    while shard.server.query(f"SELECT COUNT(*) FROM {shard.database}.customer WHERE id > %s", above)[0][0] < count:
        assert time.monotonic() < give_up_at, "the workload does not write"
        time.sleep(0.02)
