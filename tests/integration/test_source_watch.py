"""What real sources say of themselves, and what the status makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests.operating import Site, insert_customers, running, wait_until

from vmerge.core.ownership import Claim
from vmerge.core.position import GtidSet
from vmerge.lab.accounts import create_source_account
from vmerge.lab.servers import Lab, Server
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.source_watch import read_source_facts

pytestmark = pytest.mark.server

THIRTY_DAYS = 2592000.0
SKEW = 1000.0


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Site]:
    """A workflow on the shared servers."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    yield site
    site.end()


def test_a_source_tells_head_clock_and_purge(start_server: Callable[..., Server]) -> None:
    """With the least privileges a source tells what it has, its clock, and for how long it keeps binlogs, if at all."""
    server = start_server()
    create_source_account(server, "watcher", "secret", ())
    endpoint = Endpoint("stream a", server.host, server.port, "watcher", "secret")
    facts = read_source_facts(endpoint, lambda: time.time() - SKEW)
    assert facts.executed == GtidSet.parse(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])
    assert facts.clock_ahead_seconds == pytest.approx(SKEW, abs=30)
    assert facts.kept_seconds == THIRTY_DAYS
    server.query("SET GLOBAL binlog_expire_logs_seconds = 0")
    assert read_source_facts(endpoint, time.time).kept_seconds is None
    server.query("SET GLOBAL binlog_expire_logs_seconds = 7200")
    assert read_source_facts(endpoint, time.time).kept_seconds == 7200
    server.query("SET GLOBAL binlog_expire_logs_auto_purge = OFF")
    assert read_source_facts(endpoint, time.time).kept_seconds is None


def test_how_far_behind(site: Site) -> None:
    """At the head a target is a moment old; a stopped stream's grows older and more transactions behind, told at once.

    So it is after a restart of the daemon, too, when the stream was never started in it.
    """
    with running(site) as daemon:
        at_head = site.wait_for("a", is_at_head=True, transactions_behind=0)
        assert at_head["heartbeat_lag_seconds"] <= 5 and at_head["head"] == at_head["applied"]
        insert_customers(site.shards["a"], 10**9, 3)
        site.wait_for("a", transactions=3, row_events=3)
        site.client.stop(site.workflow, ["a"])
        insert_customers(site.shards["a"], 10**9 + 10, 4)
        daemon.kill()
    with running(site):
        wait_until(lambda: (site.streams()["a"]["transactions_behind"] or 0) >= 4, "the source was asked")
        stream = site.wait_for("a", state="stopped", phase="idle")
        assert stream["heartbeat_lag_seconds"] > 0
        assert stream["purge_in_seconds"] == pytest.approx(THIRTY_DAYS - stream["heartbeat_lag_seconds"], abs=1)
        assert stream["source"]["clock_ahead_seconds"] == pytest.approx(0, abs=5)
        site.client.start(site.workflow, ["a"], None)
        site.require_exact()
        wait_until(lambda: site.streams()["a"]["heartbeat_lag_seconds"] <= 2, "the target is a moment old")


def test_a_position_without_a_time_keeps_the_last_one(target: Server, database: str) -> None:
    """A stream that has applied nothing since it began stores its position, and the last commit time stays."""
    tables = ControlTables(database, "w")
    with target.connect() as connection:
        tables.create(connection)
        claim = Claim("a", "me", "")
        tables.register(connection, claim, GtidSet())
        _, epoch = tables.take_over(connection, claim)
        for applied_at in (5_000_000, 0):
            tables.write_checkpoint(connection, "a", GtidSet(), applied_at, epoch)
        connection.commit()
        assert tables.read_streams(connection)["a"].applied_at == 5.0
