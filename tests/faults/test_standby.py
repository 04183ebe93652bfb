"""A standby takes over when the daemon that runs the workflow is gone, asleep or cut off, under a live workload.

How long that takes is printed. Afterwards the target is the union of the shards. The first daemon, if it comes back,
has written nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tests.faults.conftest import NewSite, Report, Servers
from tests.faults.test_crashes import wait_for_progress, workload_on
from tests.operating import Site, wait_until

from vmerge.errors import VmergeError
from vmerge.lab.proxy import Proxy
from vmerge.lab.servers import Lab
from vmerge.stopping import SystemClock

pytestmark = [pytest.mark.server, pytest.mark.faults]

DAEMON = 6


@dataclass
class Pair:
    """A daemon that runs the workflow, and one that stands by."""

    first: Site
    second: Site

    def wait_for_standby(self) -> None:
        """Wait until the second daemon waits for the first."""
        pid = self.first.client.status()["pid"]
        wait_until(lambda: f"process {pid}" in str(standby_for(self.second)), "the second stands by for the first")

    def measure_take_over(self, report: Report, what: str) -> None:
        """Wait until both streams move by the second daemon; note how long that takes."""
        clock = SystemClock()
        begun = clock.monotonic()
        wait_until(lambda: standby_for(self.second) is None, "the second has the workflow")
        report.took[f"to the lock, {what}"] = clock.monotonic() - begun
        wait_until(lambda: all(one["transactions"] > 0 for one in self.second.streams().values()), "both streams move")
        report.took[f"to the first rows, {what}"] = clock.monotonic() - begun
        report.done["take-overs by a standby"] += 1


def standby_for(site: Site) -> str | None:
    """Return for whom a site's daemon waits with its workflow."""
    (workflow,) = site.client.status()["workflows"]
    found: str | None = workflow["standby_for"]
    return found


@contextmanager
def pair_of(first: Site, *, both: bool = False) -> Iterator[Pair]:
    """Start a daemon and a standby; the first is one, too, if both shall be."""
    second = first.twin()
    try:
        first.start_daemon(*(["--standby"] if both else []))
        first.wait_for("a", is_at_head=True)
        first.write_workflow()  # from here on without a proxy
        second.start_daemon("--standby")
        pair = Pair(first, second)
        pair.wait_for_standby()
        yield pair
    finally:
        for site in (first, second):
            if site.daemon is not None and site.daemon.is_running:
                os.kill(site.daemon.pid, signal.SIGCONT)
            site.end()


def test_standby_takes_over_from_a_killed_daemon(lab: Lab, new_site: NewSite, report: Report) -> None:
    """It waits, ready and without touching anything, and goes on within a second or two of a kill -9."""
    first = new_site()
    with pair_of(first) as pair, workload_on(lab, first) as workload:
        second = pair.second
        second.wait_for("a", phase="standby", message=f"waits for {standby_for(second)}")
        assert f"is in standby for {standby_for(second)}" in second.vmerge("daemon", "status").stdout
        with pytest.raises(VmergeError, match="only in standby here"):
            second.client.stop(second.workflow, None)
        wait_for_progress(first)
        assert all(one["transactions"] == 0 for one in second.streams().values())
        assert first.daemon is not None
        first.daemon.kill()
        pair.measure_take_over(report, "after kill -9")
        assert set(second.stored("state").values()) == {"running"}
        workload.finish()
        second.require_exact()


def freeze(first: Site, proxy: Proxy) -> None:
    """Let nothing of the first daemon's through to the target any more."""
    proxy.freeze()


def cut(first: Site, proxy: Proxy) -> None:
    """Break the first daemon's connections to the target, and let it make no others."""
    proxy.refuse()


def sleep(first: Site, proxy: Proxy) -> None:
    """Stop the first daemon's process where it stands."""
    assert first.daemon is not None
    os.kill(first.daemon.pid, signal.SIGSTOP)


@pytest.mark.long
@pytest.mark.parametrize("both", [False, True], ids=["first alone", "two standbys"])
@pytest.mark.parametrize("loss", [sleep, freeze, cut])
def test_standby_takes_over_from_a_daemon_that_comes_back(
    lab: Lab,
    new_site: NewSite,
    servers: Servers,
    report: Report,
    loss: Callable[[Site, Proxy], None],
    both: bool,
) -> None:
    """The first finds itself fenced when it wakes or gets through again; if it was started as a standby, it is one."""
    with Proxy(servers.target.host, servers.target.port) as proxy:
        first = new_site(places={"target": proxy})
        with pair_of(first, both=both) as pair, workload_on(lab, first) as workload:
            wait_for_progress(first)
            loss(first, proxy)
            pair.measure_take_over(report, f"after {loss.__name__}")
            proxy.accept()
            proxy.thaw()
            assert first.daemon is not None
            os.kill(first.daemon.pid, signal.SIGCONT)
            pid = pair.second.client.status()["pid"]
            if both:
                wait_until(lambda: f"process {pid}" in str(standby_for(first)), "the first stands by for the second")
            else:
                for name in first.shards:
                    assert f"process {pid}" in first.wait_for(name, state="error")["message"]
                refused = first.vmerge("start", first.workflow)
                assert refused.returncode == 0
                assert f"process {pid}" in first.wait_for("a", state="error")["message"]
            wait_for_progress(pair.second)
            workload.finish()
            pair.second.require_exact()
            assert set(pair.second.stored("state").values()) == {"running"}


@pytest.mark.long
def test_second_daemon_is_refused(new_site: NewSite) -> None:
    """One that is started by mistake ends, names the other, and the other does not notice."""
    first = new_site()
    second = first.twin()
    first.start_daemon()
    first.wait_for("a", is_at_head=True)
    epochs = first.stored("epoch")
    refused = second.vmerge("daemon", "start", str(second.workflows))
    assert refused.returncode == DAEMON
    assert "is run by another daemon" in refused.stderr
    assert f"process {first.client.status()['pid']}" in refused.stderr and "Traceback" not in refused.stderr
    foreground = second.vmerge("run", str(second.file))
    assert foreground.returncode == 8 and "is run by another daemon" in foreground.stderr
    assert first.stored("epoch") == epochs
    assert all(one["restarts"] == 0 for one in first.streams().values())


@pytest.mark.long
def test_target_restarts(lab: Lab, new_site: NewSite, servers: Servers, report: Report) -> None:
    """A target that restarts has forgotten the lock: the daemon that had it gets it again, and the standby waits on."""
    first = new_site()
    with pair_of(first) as pair, workload_on(lab, first) as workload:
        wait_for_progress(first)
        servers.target.restart()
        wait_for_progress(first)
        pair.wait_for_standby()
        workload.finish()
        first.require_exact()
