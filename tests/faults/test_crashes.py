"""Daemons and servers die under a live workload; afterwards the target is the union of the shards, byte for byte."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial

import pytest
from tests.faults.conftest import NewSite, Report, Servers
from tests.operating import Site, wait_until

from vmerge.core.appliers import ApplierSetting
from vmerge.lab.servers import Lab, Server
from vmerge.lab.workload_process import WorkloadProcess
from vmerge.stopping import StopToken

pytestmark = [pytest.mark.server, pytest.mark.faults]

LONGEST_SECONDS = 600.0
RATE = 150.0


def workload_on(lab: Lab, site: Site, seed: int = 1) -> WorkloadProcess:
    """Start a workload; the test ends it long before its time is over."""
    return WorkloadProcess(lab, tuple(site.shards.values()), seconds=LONGEST_SECONDS, rate=RATE, seed=seed)


def wait_for_progress(site: Site) -> None:
    """Wait until every stream has stored a further position."""
    before = site.stored("position")

    def have_moved() -> bool:
        after = site.stored("position")
        return all(after.get(name) not in (None, before.get(name)) for name in site.shards)

    wait_until(have_moved, "both streams move")


def has_moved(site: Site, before: dict[str, object]) -> bool:
    """Whether any stream has stored another position than before."""
    return site.stored("position") != before


def kill_often(site: Site, report: Report, kills: int, seed: int) -> None:
    """Start the daemon and kill it after a random while, again and again: amid its start, and amid full speed."""
    chance, never = random.Random(seed), StopToken()
    for number in range(kills):
        before = site.stored("position")
        daemon = site.start_daemon(waits=False)
        if number % 2:
            wait_until(partial(has_moved, site, before), "a stream moves")
            never.wait(chance.uniform(0, 0.5))
        else:
            never.wait(chance.uniform(0.1, 1.5))
        daemon.kill()
        report.done["kill -9 of the daemon"] += 1


def test_killed_daemon(lab: Lab, new_site: NewSite, report: Report) -> None:
    """A daemon that is killed at random moments of one run loses nothing and applies nothing twice."""
    site = new_site(customers=1000)
    with workload_on(lab, site) as workload:
        kill_often(site, report, kills=10, seed=1)
        site.start_daemon()
        workload.finish()
        site.require_exact()


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.long)])
def test_killed_daemon_of_statements(lab: Lab, new_site: NewSite, report: Report, kills: int) -> None:
    """The same holds where rows go as statements, by an account that may not use BINLOG."""
    site = new_site(customers=300, applier=ApplierSetting.STATEMENTS)
    with workload_on(lab, site) as workload:
        kill_often(site, report, kills=kills, seed=1)
        site.start_daemon()
        workload.finish()
        site.require_exact()
    shown = json.loads(site.vmerge("show", "shop", "--json").stdout)
    for stream in shown["streams"]:
        assert {one["applier"] for one in stream["appliers"]} == {"statements"}
        assert "lacks REPLICATION_APPLIER" in stream["appliers"][0]["reason"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_killed_daemon_long(lab: Lab, new_site: NewSite, report: Report, seed: int) -> None:
    """The same, with other moments and other workloads."""
    site = new_site(customers=2000)
    with workload_on(lab, site, seed) as workload:
        kill_often(site, report, kills=60, seed=seed)
        site.start_daemon()
        workload.finish()
        site.require_exact()


def crash(server: Server) -> None:
    """End a server as a crash does, and start it again."""
    server.kill()
    server.restart()


def restart(server: Server) -> None:
    """Stop a server cleanly, and start it again."""
    server.restart()


@pytest.mark.parametrize("end", [crash, restart])
@pytest.mark.parametrize("name", ["target", "a"])
def test_server_comes_back(
    lab: Lab, new_site: NewSite, servers: Servers, report: Report, name: str, end: Callable[[Server], None]
) -> None:
    """Streams outlive the crash and the restart of any server without a word from an operator."""
    site = new_site()
    with workload_on(lab, site) as workload:
        site.start_daemon()
        wait_for_progress(site)
        end(getattr(servers, name))
        report.done[f"{end.__name__} of {'the target' if name == 'target' else 'a source'}"] += 1
        wait_for_progress(site)
        workload.finish()
        site.require_exact()
        assert all(stream["state"] == "running" for stream in site.streams().values())
