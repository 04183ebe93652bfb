"""A stop ends within its bound, whatever holds vmerge up and whoever asks.

Each predicament (``predicaments.py``) leaves vmerge in one of the states that a stop may meet. The bound is asserted,
not more; how long each stop took is printed at the end of the session.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator

import pytest
from tests.faults.conftest import NewSite, Report, Servers
from tests.faults.hot_site import HotSite
from tests.faults.predicaments import (
    LIMITS,
    PREDICAMENTS,
    Predicament,
    has_unread_bytes,
    idle,
    prepare,
    remedy_of,
    target_hangs,
    update_all,
)
from tests.operating import Site, insert_customers, running, wait_until

from vmerge.errors import VmergeError
from vmerge.lab.processes import Program
from vmerge.lab.servers import Lab
from vmerge.lab.workload_process import HotKeysProcess
from vmerge.stopping import SystemClock

pytestmark = [pytest.mark.server, pytest.mark.faults]

BOUND_SECONDS = LIMITS["stop_timeout_seconds"]
START_SECONDS = 2.0
"""For the process to end, and for a busy machine."""
EXIT_TARGET_FAILED = 8

# Who asks


def by_sigterm(site: Site) -> int:
    """The daemon gets SIGTERM, as from systemd or Kubernetes."""
    assert site.daemon is not None
    os.kill(site.daemon.pid, signal.SIGTERM)
    return site.daemon.wait(BOUND_SECONDS + START_SECONDS)


def by_daemon_stop(site: Site) -> int:
    """An operator stops the daemon."""
    exit_code = asked(site.client.shut_down)
    assert site.daemon is not None
    assert site.daemon.wait(START_SECONDS) == exit_code
    return exit_code


def by_stop(site: Site) -> int:
    """An operator stops the workflow; the daemon goes on."""
    exit_code = asked(lambda: site.client.stop(site.workflow, None))
    assert site.answers()
    assert all(stream["phase"] == "idle" for stream in site.streams().values())
    return exit_code


def asked(order: Callable[[], object]) -> int:
    """Give the daemon an order as the command line does; return the exit code."""
    try:
        order()
    except VmergeError as error:
        return error.exit_code
    return 0


WAYS = {"SIGTERM": by_sigterm, "vmerge daemon stop": by_daemon_stop, "vmerge stop": by_stop}


def stop_and_measure(site: Site, report: Report, predicament: Predicament, way: str) -> None:
    """Stop, within the bound and with the exit code that fits."""
    clock = SystemClock()
    began_at = clock.monotonic()
    exit_code = WAYS[way](site)
    seconds = clock.monotonic() - began_at
    what = f"by {way}, while {predicament.words}"
    report.stops[what] = seconds
    assert seconds < BOUND_SECONDS + START_SECONDS, what
    stores = way != "vmerge stop" or predicament.stores
    assert exit_code in ({0} if stores else {0, EXIT_TARGET_FAILED}), f"{what}: exit code {exit_code}"


def suffer(site: Site, servers: Servers, report: Report, predicament: Predicament, way: str) -> None:
    """Bring the streams into a predicament and stop them; what is stored is what was asked. Then all is mended."""
    for name in site.shards:
        site.wait_for(name, is_at_head=True)
    with predicament.arrange(site, servers):
        stop_and_measure(site, report, predicament, way)
        servers.recover()
    possible: set[str | None] = {"stopped"} if way == "vmerge stop" else {"running"}
    if not predicament.stores:
        possible.add("running")  # what could not be stored within the bound may be stored a little later
    if not predicament.is_entered:
        possible.add(None)
    assert site.stored("state").get("a") in possible
    if not site.goes_on():
        site.start_daemon()
    site.client.reload()
    wait_until(lambda: starts(site), f"streams start behind: {predicament.words}")


def starts(site: Site) -> bool:
    """Start all streams, unless a state that an earlier stop left behind is still being stored."""
    return asked(lambda: site.client.start(site.workflow, None, None)) == 0


def each_with_a_way() -> Iterator[tuple[Predicament, str]]:
    """Yield what CI has time for: the ways to stop in turn."""
    quick = [one for one in PREDICAMENTS if one.is_quick]
    return zip(quick, itertools.cycle(WAYS), strict=False)


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(tuple(each_with_a_way()), id="quick"),
        *(pytest.param(tuple((one, way) for one in PREDICAMENTS), id=way, marks=pytest.mark.long) for way in WAYS),
    ],
)
@pytest.mark.timeout(900)
def test_every_stop_ends_within_the_bound(
    new_site: NewSite, servers: Servers, report: Report, chosen: tuple[tuple[Predicament, str], ...]
) -> None:
    """In every state a stop ends within the bound; the durable state tells what was asked; what follows is exact."""
    site = new_site()
    prepare(site)
    site.start_daemon()
    for predicament, way in chosen:
        suffer(site, servers, report, predicament, way)
    site.require_exact()


@pytest.mark.long
@pytest.mark.parametrize("remedy", ["waiting", "looking up", "jumping", "joining"])
def test_stops_amid_a_conflict(lab: Lab, servers: Servers, report: Report, remedy: str) -> None:
    """The same in every stage of a conflict, caught under a workload that has conflicts all the time."""
    site = HotSite(lab, f"stops_{remedy[:4]}", servers.shards(), servers.target, limits=LIMITS)
    with running(site), HotKeysProcess(lab, tuple(site.shards.values()), seconds=900, rate=100) as workload:
        wait_until(lambda: any(remedy_of(site, one) == remedy for one in site.shards), f"{remedy} is seen", 120)
        stop_and_measure(site, report, Predicament(f"{remedy} in a conflict", idle), "vmerge stop")
        workload.finish()
        site.client.start(site.workflow, None, None)
        site.require_exact(120)


@pytest.mark.parametrize("predicament", ["waiting on nothing", "the target hangs"])
def test_run_stops_on_ctrl_c(new_site: NewSite, servers: Servers, report: Report, predicament: str) -> None:
    """``vmerge run`` ends within the bound on SIGINT, also when the target hangs."""
    site = new_site(limits=LIMITS)
    with site.spawn("run", str(site.file)) as program:
        wait_until(lambda: set(site.stored("state")) == set(site.shards), "both streams are entered")
        insert_customers(site.shards["a"], 10**9, 10)
        wait_until(site.is_at_heads, "both streams run")
        if predicament == "the target hangs":
            servers.target.pause()
            update_all(site)
            wait_until(lambda: has_unread_bytes(servers.target), "vmerge has asked the target")
        seconds = end_by(program, signal.SIGINT)
        report.stops[f"`vmerge run` by SIGINT, while {predicament}"] = seconds
        assert program.wait(0) == 0, program.errors
        assert "Traceback" not in program.errors


def test_the_shortest_bound_is_kept_too(new_site: NewSite, servers: Servers, report: Report) -> None:
    """A bound of a second is kept by streams that have only just begun to ask a target that hangs."""
    site = new_site(limits={"stop_timeout_seconds": 1})
    servers.target.pause()
    site.start_daemon()
    wait_until(lambda: has_unread_bytes(servers.target), "vmerge has asked the target")
    stop_and_measure(site, report, Predicament("the target hangs from the start", target_hangs), "SIGTERM")


def test_second_signal_ends_at_once(new_site: NewSite, servers: Servers, report: Report) -> None:
    """Whoever asks twice does not wait for anything: the process is gone, and the data is exact all the same."""
    site = new_site(limits={"stop_timeout_seconds": 600})
    daemon = site.start_daemon()
    for name in site.shards:
        site.wait_for(name, is_at_head=True)
    with target_hangs(site, servers):
        os.kill(daemon.pid, signal.SIGTERM)
        wait_until(lambda: "stopping" in daemon.errors, "the first signal is heard")
        report.stops["by a second signal, while the target hangs"] = end_by(daemon, signal.SIGTERM)
        assert report.stops["by a second signal, while the target hangs"] < START_SECONDS
        servers.recover()
    site.start_daemon()
    site.require_exact()


def end_by(program: Program, number: signal.Signals) -> float:
    """Send a signal and return how long the program took to end."""
    clock = SystemClock()
    began_at = clock.monotonic()
    os.kill(program.pid, number)
    assert program.ends_within(BOUND_SECONDS + START_SECONDS)
    return clock.monotonic() - began_at
