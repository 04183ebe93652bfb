"""Connections break at chosen moments under a live workload; nothing is lost and nothing is applied twice."""

from __future__ import annotations

import pytest
from tests.faults.conftest import CHECKPOINT, NewSite, Report, Servers
from tests.faults.test_crashes import wait_for_progress, workload_on
from tests.operating import Site, insert_customers, wait_until

from vmerge.core.appliers import ApplierSetting
from vmerge.lab.proxy import COMMIT, Moment, Proxy
from vmerge.lab.servers import Lab

pytestmark = [pytest.mark.server, pytest.mark.faults]

LOSSES = 6
LARGE_ROWS = 60
LARGE_BYTES = 1024 * 1024


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_lost_in_commit(lab: Lab, new_site: NewSite, servers: Servers, report: Report, moment: Moment) -> None:
    """A connection lost in COMMIT, whether the server carried it out or never got it, costs and doubles no row."""
    with Proxy(servers.target.host, servers.target.port) as proxy:
        site = new_site(places={"target": proxy})
        with workload_on(lab, site) as workload:
            site.start_daemon()
            for count in range(1, LOSSES + 1):
                wait_for_progress(site)
                proxy.cut_when(COMMIT, moment, behind=CHECKPOINT)
                assert proxy.wait_for_sprung(count, 30)
                report.done[f"connection lost in COMMIT, {moment.value}"] += 1
            workload.finish()
            site.require_exact()
            assert sum(stream["restarts"] for stream in site.streams().values()) >= LOSSES
        site.end()


@pytest.mark.parametrize("moment", [pytest.param(Moment.BEFORE, marks=pytest.mark.long), Moment.AFTER])
def test_lost_in_commit_of_statements(
    lab: Lab, new_site: NewSite, servers: Servers, report: Report, moment: Moment
) -> None:
    """The same holds where rows go as statements, by an account that may not use BINLOG."""
    with Proxy(servers.target.host, servers.target.port) as proxy:
        site = new_site(places={"target": proxy}, applier=ApplierSetting.STATEMENTS)
        with workload_on(lab, site) as workload:
            site.start_daemon()
            for count in range(1, 4):
                wait_for_progress(site)
                proxy.cut_when(COMMIT, moment, behind=CHECKPOINT)
                assert proxy.wait_for_sprung(count, 30)
                report.done[f"connection lost in COMMIT of statements, {moment.value}"] += 1
            workload.finish()
            site.require_exact()
        site.end()


@pytest.mark.long
def test_lost_in_commit_unheard(lab: Lab, new_site: NewSite, servers: Servers, report: Report) -> None:
    """A session whose client vanished in COMMIT holds its locks for half a minute at most, and then all goes on."""
    with Proxy(servers.target.host, servers.target.port) as proxy:
        site = new_site(places={"target": proxy})
        with workload_on(lab, site) as workload:
            site.start_daemon()
            wait_for_progress(site)
            for count in range(1, 4):
                proxy.cut_when(COMMIT, Moment.UNHEARD, behind=CHECKPOINT)
                assert proxy.wait_for_sprung(count, 90)
                report.done[f"connection lost in COMMIT, {Moment.UNHEARD.value}"] += 1
            wait_until(lambda: all(one["phase"] != "backing off" for one in site.streams().values()), "all go on", 90)
            workload.finish()
            site.require_exact(90)
        site.end()


def test_blocked_for_longer_than_the_source_waits(new_site: NewSite, servers: Servers, report: Report) -> None:
    """A stream that is locked out until its source gives it up says so for all that time, and resumes without loss."""
    servers.a.query("SET GLOBAL net_write_timeout = 1")
    site = new_site()
    shard = site.shards["a"]
    for server, database in ((shard.server, shard.database), (servers.target, site.database)):
        server.query(f"CREATE TABLE {database}.bulk (id INT PRIMARY KEY, content LONGTEXT)")
    site.start_daemon()
    site.wait_for("a", phase="streaming")
    with servers.target.connect(site.database) as holder, holder.cursor() as cursor:
        holder.begin()
        cursor.execute("SELECT id FROM customer WHERE id = 1 FOR UPDATE")
        shard.server.query(f"UPDATE {shard.database}.customer SET note = 'blocked' WHERE id = 1")
        locked_out = site.wait_for("a", phase="waiting for a lock")["locked"]
        assert locked_out["seconds"] >= 2
        assert "waits for a lock on the target since" in site.vmerge("status").stdout
        _write_more_than_buffers_hold(site)
        wait_until(lambda: not shard.server.sessions(site.user, command="Binlog Dump%"), "the source gives the dump up")
        report.done["dumps given up by the source"] += 1
        assert site.streams()["a"]["locked"]["seconds"] > locked_out["seconds"]
        holder.rollback()
    insert_customers(shard, 10**9, 20)
    site.require_exact()
    assert site.streams()["a"]["locked"] is None
    assert site.streams()["a"]["restarts"] >= 1


def _write_more_than_buffers_hold(site: Site) -> None:
    shard = site.shards["a"]
    for number in range(LARGE_ROWS):
        shard.server.query(f"INSERT INTO {shard.database}.bulk VALUES (%s, REPEAT('x', {LARGE_BYTES}))", number)
