"""A few values and rows that the shards hand to each other all the time, while one stream after the other is paused.

The workload (``vmerge/lab/hot_keys.py``) needs every remedy, and no verdict. How often each helped is printed at the
end of the session.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
from tests.conftest import StartServer
from tests.faults.conftest import Report, Servers
from tests.faults.hot_site import HotSite, MixedHotSite, count_remedies
from tests.operating import Site, wait_until

from vmerge.lab.proxy import Proxy
from vmerge.lab.servers import Lab, Server
from vmerge.lab.workload_process import HotKeysProcess
from vmerge.stopping import StopToken, SystemClock

pytestmark = [pytest.mark.server, pytest.mark.faults]

RATE = 120.0
"""Pieces of business a second, of about two transactions each."""
LOOK_SECONDS = 0.1
CATCH_UP_SECONDS = 60.0
REMEDIES = ("flushes", "splits", "waits", "jumps", "joints", "testimonies")


@dataclass
class Watch:
    """Looks at the streams all the time; fails as soon as one of them has failed, or the workload."""

    site: Site
    workload: HotKeysProcess
    clock: SystemClock = field(default_factory=SystemClock)
    longest_blocked_seconds: float = 0.0
    longest_lag_seconds: float = 0.0

    def look(self) -> None:
        """Look once."""
        for name, stream in self.site.streams().items():
            assert stream["state"] != "error", f"{name}: {stream['message']}"
            self.longest_lag_seconds = max(self.longest_lag_seconds, stream["lag_seconds"] or 0.0)
            if stream["blocked"] is not None:
                self.longest_blocked_seconds = max(self.longest_blocked_seconds, stream["blocked"]["seconds"])

    def keep_looking(self, seconds: float) -> None:
        """Look for so long."""
        never, until = StopToken(), self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            self.workload.require_running()
            self.look()
            never.wait(LOOK_SECONDS)

    def look_until_at_heads(self) -> float:
        """Look until all is applied, within a bound; return how long that took."""
        began_at = self.clock.monotonic()

        def is_done() -> bool:
            self.look()
            return self.site.is_at_heads()

        wait_until(is_done, lambda: f"all streams are at their heads: {self.site.streams()}", CATCH_UP_SECONDS)
        return self.clock.monotonic() - began_at


# Pauses

Pause = Callable[[Site, Mapping[str, Proxy], str], AbstractContextManager[None]]


@contextmanager
def stopped(site: Site, sources: Mapping[str, Proxy], name: str) -> Iterator[None]:
    """An operator stops the stream, and starts it again."""
    site.client.stop(site.workflow, [name])
    yield
    site.client.start(site.workflow, [name], None)


@contextmanager
def stalled(site: Site, sources: Mapping[str, Proxy], name: str) -> Iterator[None]:
    """Nothing arrives from the stream's source, and nobody says why."""
    sources[name].freeze()
    yield
    sources[name].thaw()


def disturb(watch: Watch, sources: Mapping[str, Proxy], seconds: float, seed: int) -> Counter[str]:
    """Pause streams at random for so long; return how often it was done."""
    pauses: tuple[Pause, ...] = (stopped, stalled)
    done: Counter[str] = Counter()
    chance, until = random.Random(seed), watch.clock.monotonic() + seconds
    while watch.clock.monotonic() < until:
        pause, name = chance.choice(pauses), chance.choice(sorted(sources))
        with pause(watch.site, sources, name):
            watch.keep_looking(chance.uniform(0.2, 4.0))
        done[f"streams {pause.__name__}"] += 1
        watch.keep_looking(chance.uniform(0.1, 2.0))
    return done


def shards_of(count: int, servers: Servers, start_server: StartServer) -> dict[str, Server]:
    """Return the servers of this folder, and more of this test alone."""
    shards = {"a": servers.a, "b": servers.b}
    return shards | {name: start_server() for name in "cdef"[: count - len(shards)]}


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.long), 4])
def test_hot_keys(
    lab: Lab,
    servers: Servers,
    start_server: StartServer,
    report: Report,
    count: int,
    seconds: float = 30.0,
    kind: type[HotSite] = HotSite,
) -> None:
    """However unequally the streams run, none is left behind and none fails, and the target is the union."""
    shards = shards_of(count, servers, start_server)
    with ExitStack() as stack:
        sources = {name: stack.enter_context(Proxy(server.host, server.port)) for name, server in shards.items()}
        site = kind(lab, f"{kind.__name__.lower()}_{count}_{seconds:.0f}", shards, servers.target, places=sources)
        stack.callback(site.end)
        daemon = site.start_daemon()
        shop_shards = tuple(site.shards.values())
        workload = stack.enter_context(HotKeysProcess(lab, shop_shards, seconds=10 * seconds, rate=RATE))
        watch = Watch(site, workload)
        paused = disturb(watch, sources, seconds, seed=count)
        done = workload.finish()
        catch_up_seconds = watch.look_until_at_heads()
        site.require_exact()
        remedies = count_remedies(site)
        for what, number in (done + paused + remedies).items():
            report.done[f"{count} shards, {seconds:.0f} s: {what}"] = number
        report.done[f"{count} shards, {seconds:.0f} s: lines in the daemon's log"] = daemon.errors.count("\n")
        report.took[f"of CPU time of the daemon, {count} shards, {seconds:.0f} s"] = daemon.cpu_seconds
        report.took[f"longest wait, {count} shards, {seconds:.0f} s"] = watch.longest_blocked_seconds
        report.took[f"longest lag, {count} shards, {seconds:.0f} s"] = watch.longest_lag_seconds
        report.took[f"to catch up, {count} shards, {seconds:.0f} s"] = catch_up_seconds
        assert all(remedies[f"conflicts: {remedy}"] for remedy in REMEDIES), remedies
        assert not remedies["conflicts: verdicts"]


@pytest.mark.long
def test_hot_keys_of_both_appliers(lab: Lab, servers: Servers, start_server: StartServer, report: Report) -> None:
    """One stream whose rows go as events and one whose rows go as statements end in the union, by the same remedies."""
    test_hot_keys(lab, servers, start_server, report, 2, kind=MixedHotSite)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [2, 4])
def test_hot_keys_long(lab: Lab, servers: Servers, start_server: StartServer, report: Report, count: int) -> None:
    """The same, for ten minutes."""
    test_hot_keys(lab, servers, start_server, report, count, seconds=600.0)
