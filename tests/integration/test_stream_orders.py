"""Stop at a position and skip, as an operator orders them, on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.operating import Site, insert_customers, running, wait_until

from vmerge.core.position import Gtid, GtidSet
from vmerge.lab.servers import Lab, Server
from vmerge.lab.shop import ShopShard

pytestmark = pytest.mark.server

CONFIG, REFUSED, FENCED = 2, 6, 8
FIRST = 10**9
"""A customer that no shard begins with."""


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Site]:
    """A workflow on the shared servers."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    yield site
    site.end()


def next_gtids(shard: ShopShard, count: int) -> list[Gtid]:
    """Return the names that a shard's next transactions will have, if nobody else writes there."""
    ((uuid, executed),) = shard.server.query("SELECT @@GLOBAL.server_uuid, @@GLOBAL.gtid_executed")
    last = GtidSet.parse(executed).intersection(GtidSet.parse(f"{uuid}:1-{10**9}")).count()
    return [Gtid.parse(f"{uuid}:{last + number}") for number in range(1, count + 1)]


def added(site: Site) -> list[int]:
    """Return the customers on the target that the test has made."""
    return [
        row[0] for row in site.target.query(f"SELECT id FROM {site.database}.customer WHERE id >= {FIRST} ORDER BY 1")
    ]


def test_stop_at_a_position(site: Site) -> None:
    """A stream stops behind exactly the ordered transactions, though its daemon dies in between; then it goes on."""
    shard = site.shards["a"]
    with running(site):
        site.wait_for("a", is_at_head=True)
        before = site.streams()["a"]["applied"]
        third = next_gtids(shard, 3)[-1]
        passed = site.vmerge("stop", site.workflow, "a", "--at", before.rpartition("-")[0].rpartition(":")[0] + ":1")
        assert passed.returncode == REFUSED and "has applied all of that already" in passed.stderr
        foreign = site.vmerge("stop", site.workflow, "a", "--at", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1")
        assert foreign.returncode == REFUSED and "3e11fa47-71ca-11e1-9e33-c80aa9429562" in foreign.stderr
        assert site.vmerge("stop", site.workflow, "--at", str(third)).returncode == CONFIG
        ordered = site.vmerge("stop", site.workflow, "a", "--at", str(third))
        assert (ordered.returncode, ordered.stderr) == (0, "")
        assert site.wait_for("a", is_at_head=True)["stops_at"] == {"position": str(third), "missing": 1}
        assert "stops at a position, 1 transaction to go" in site.vmerge("status").stdout
    insert_customers(shard, FIRST, 8)
    with running(site):
        status = site.wait_for("a", state="stopped", phase="idle")
        assert status["message"] == f"stopped as ordered, with all of {third} applied and nothing behind it"
        assert (added(site), status["stops_at"]) == ([FIRST, FIRST + 1, FIRST + 2], None)
        expected = GtidSet.parse(before).advanced(_up_to(third, 3))
        assert GtidSet.parse(site.stored("position")["a"]) == expected == GtidSet.parse(status["applied"])
        fifth = Gtid(third.source, "", third.number + 2)
        assert site.vmerge("start", site.workflow, "a", "--stop-at", str(fifth)).returncode == 0
        site.wait_for("a", state="stopped", phase="idle", applied=str(expected.advanced(_up_to(fifth, 2))))
        assert site.vmerge("start", site.workflow, "a").returncode == 0
        site.require_exact()
        kinds = [entry["kind"] for entry in site.client.log(site.workflow, ["a"])["entries"]]
        assert kinds == ["entered", "running", "stopped", "running", "stopped", "running"]


def _up_to(last: Gtid, count: int) -> list[Gtid]:
    return [Gtid(last.source, "", number) for number in range(last.number - count + 1, last.number + 1)]


def test_skip(site: Site) -> None:
    """The next transaction of a failed stream is left out, with who and why in the log; no other one ever is."""
    shard = site.shards["a"]
    with running(site):
        site.wait_for("a", is_at_head=True)
        wrong, behind = next_gtids(shard, 2)
        running_still = site.vmerge("skip", site.workflow, "a", str(wrong), "--reason", "why")
        assert running_still.returncode == REFUSED and "stream a runs" in running_still.stderr
        site.target.query(f"DELETE FROM {site.database}.customer WHERE id = 1")
        shard.server.query(f"UPDATE {shard.database}.customer SET name = 'Lost' WHERE id = 1")
        insert_customers(shard, FIRST, 1)
        assert str(wrong) in site.wait_for("a", state="error")["message"]
        not_next = site.vmerge("skip", site.workflow, "a", str(behind), "--reason", "why")
        assert not_next.returncode == REFUSED and f"transaction {wrong} is" in not_next.stderr
        assert site.vmerge("skip", site.workflow, "a", str(wrong), "--reason", "  ").returncode == CONFIG
        epoch = site.stored("epoch")["a"]
        done = site.vmerge("skip", site.workflow, "a", str(wrong), "--reason", "the row was deleted by hand")
        assert (done.returncode, done.stderr) == (0, "")
        assert (site.stored("epoch")["a"], site.streams()["a"]["state"]) == (epoch + 1, "error")
        again = site.vmerge("skip", site.workflow, "a", str(wrong), "--reason", "why")
        assert again.returncode == REFUSED and "already" in again.stderr
        (entry,) = site.client.log(site.workflow, ["a"], 1)["entries"]
        assert entry["kind"] == "transaction skipped"
        pid = site.client.status()["pid"]
        assert f"transaction {wrong} was skipped by " in entry["message"] and f"process {pid}" in entry["message"]
        assert entry["message"].endswith(": the row was deleted by hand")
        site.vmerge("start", site.workflow, "a")
        wait_until(lambda: added(site) == [FIRST], "what is behind it")
        assert not site.target.query(f"SELECT 1 FROM {site.database}.customer WHERE id = 1")


def test_skip_of_what_cannot_be_read(site: Site) -> None:
    """A transaction that no reader can carry, and both halves of an XA transaction, are skipped by their names."""
    shard = site.shards["a"]
    table = f"{shard.database}.customer"
    with running(site):
        site.wait_for("a", is_at_head=True)
        site.client.stop(site.workflow, ["a"])
        prepared, statement, ended, behind = next_gtids(shard, 4)
        shard.server.execute_script(
            f"XA START 'x'; INSERT INTO {table} (id, email, name, balance) VALUES ({FIRST}, 'x', 'X', 0); "
            "XA END 'x'; XA PREPARE 'x'"
        )
        shard.server.execute_script(
            f"SET SESSION binlog_format = 'STATEMENT'; UPDATE {table} SET balance = 7 WHERE id = 1"
        )
        shard.server.execute_script("XA COMMIT 'x'")
        insert_customers(shard, FIRST + 1, 1)
        site.client.start(site.workflow, ["a"])
        assert str(statement) in site.wait_for("a", state="error")["message"]
        refused = site.vmerge("skip", site.workflow, "a", str(prepared), "--reason", "why")
        assert refused.returncode == REFUSED and str(statement) in refused.stderr
        site.client.skip(site.workflow, "a", str(statement), "done by hand")
        site.client.skip(site.workflow, "a", str(ended), "not wanted")
        position = GtidSet.parse(site.stored("position")["a"])
        assert [position.contains(one) for one in (prepared, statement, ended, behind)] == [True, True, True, False]
        site.client.start(site.workflow, ["a"])
        wait_until(lambda: added(site) == [FIRST + 1], "what is behind them")


def test_no_skip_in_a_stream_that_another_daemon_has(site: Site) -> None:
    """Once another daemon has taken a stream over, the first one can neither skip in it nor tell it where to stop."""
    with running(site):
        site.wait_for("a", is_at_head=True)
        (following,) = next_gtids(site.shards["a"], 1)
        with running(site.twin(), "--take-over"):
            site.wait_for("a", state="error")
        insert_customers(site.shards["a"], FIRST, 1)
        position = site.stored("position")["a"]
        done = site.vmerge("skip", site.workflow, "a", str(following), "--reason", "why")
        assert done.returncode == FENCED and "taken over by another daemon" in done.stderr
        assert site.stored("position")["a"] == position
