"""A campaign of faults: a live workload full of conflicts, one fault after the other, and the target exact after each.

Knows: how a fault begins and ends, and what must hold behind it. Never knows: what the faults do (``disasters.py``,
``predicaments`` of sources and data in ``losses.py``). Used by ``test_campaign.py``.
"""

from __future__ import annotations

import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.faults.conftest import Servers
from tests.faults.hot_site import CampaignSite, count_remedies
from tests.operating import wait_until

from vmerge.errors import DaemonError
from vmerge.lab.proxy import Proxy
from vmerge.lab.workload_process import HotKeysProcess
from vmerge.stopping import StopToken, SystemClock

logger = logging.getLogger(__name__)

EQUAL_SECONDS = 180.0
"""How long a recovery may take, on a machine that has other work."""
LOOK_SECONDS = 0.1
STARTS = 5
"""So often an operator starts streams that a fault has stopped."""


@dataclass
class Scene:
    """Everything a fault may reach."""

    site: CampaignSite
    servers: Servers
    sources: Mapping[str, Proxy]
    target: Proxy
    workload: HotKeysProcess
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    clock: SystemClock = field(default_factory=SystemClock)
    number: int = 0
    """Of the fault, from 1."""
    _latest: Counter[str] = field(default_factory=Counter)
    """What the present daemon has counted."""

    def any_stream(self) -> str:
        """Return a stream by chance."""
        return self.chance.choice(sorted(self.sources))

    def hold(self, shortest: float, longest: float) -> None:
        """Let a fault last for a while."""
        never, until = StopToken(), self.clock.monotonic() + self.chance.uniform(shortest, longest)
        while self.clock.monotonic() < until:
            self.look()
            never.wait(LOOK_SECONDS)

    def look(self) -> dict[str, dict[str, Any]]:
        """Return each stream's status, and remember the counts; nothing while no daemon answers."""
        self.workload.require_running()
        try:
            streams = self.site.streams()
            self._latest = count_remedies(self.site)
        except DaemonError:
            return {}
        return streams

    def start_daemon(self) -> None:
        """Start a daemon where the one before has ended."""
        self.counts.update(self._latest)
        self._latest = Counter()
        self.site.start_daemon()

    def kill_daemon(self) -> None:
        """Kill the daemon."""
        self.look()
        self.site.end()

    def totals(self) -> Counter[str]:
        """Return all counts, of all daemons."""
        return self.counts + self._latest

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Let nobody write; the shards stand where every transaction of theirs is whole."""
        self.workload.pause()
        wait_until(self._is_quiet, "the workload stands still", EQUAL_SECONDS)
        yield
        self.workload.resume()
        wait_until(lambda: not self._is_quiet(), "the workload goes on", EQUAL_SECONDS)

    def _is_quiet(self) -> bool:
        self.workload.require_running()
        return self.workload.is_paused


@dataclass(frozen=True)
class Fault:
    """One kind of fault. ``do`` breaks something, and mends it when its context ends."""

    words: str
    do: Callable[[Scene], AbstractContextManager[None]]
    weight: int = 2
    is_quick: bool = True
    """Whether it takes seconds at most, so that CI has time for it."""
    is_usual: bool = False
    """Whether every run has it, and first."""
    stops: str = ""
    """A pattern of the messages with which streams may stop; for others it must not stop any."""


@dataclass
class Campaign:
    """One run: which faults, in which order, and what came of each."""

    scene: Scene
    recoveries: list[tuple[str, float]] = field(default_factory=list)

    def run(self, chosen: Iterable[Fault], seconds: float, at_least: int = 0) -> None:
        """Do the chosen faults until they or the time are over, though not before so many are done."""
        clock = self.scene.clock
        until = clock.monotonic() + seconds
        for fault in chosen:
            if clock.monotonic() >= until and self.scene.number >= at_least:
                return
            self.scene.number += 1
            self._suffer(fault)

    def _suffer(self, fault: Fault) -> None:
        scene = self.scene
        logger.info("fault %d: %s", scene.number, fault.words)
        with fault.do(scene):
            pass
        scene.counts[f"faults: {fault.words}"] += 1
        began_at = scene.clock.monotonic()
        self._recover(fault)
        seconds = scene.clock.monotonic() - began_at
        logger.info("fault %d: equal after %.2f s", scene.number, seconds)
        self.recoveries.append((fault.words, seconds))

    def _recover(self, fault: Fault) -> None:
        """Mend what is left, and compare: all of it is equal, or a stream has stopped clearly and goes on."""
        scene = self.scene
        scene.servers.recover()
        for proxy in (scene.target, *scene.sources.values()):
            proxy.heal()
        if scene.site.daemon is None or not scene.site.daemon.is_running:
            scene.start_daemon()
        starts = 0

        def is_there() -> bool:
            nonlocal starts
            stopped = {name: one["message"] for name, one in scene.look().items() if one["state"] == "error"}
            for name, message in stopped.items():
                assert fault.stops and re.search(fault.stops, message), f"{fault.words}: {name} stopped: {message}"
                assert starts < STARTS, f"{fault.words}: {name} stopped again: {message}"
                starts += 1
                scene.counts["clear stops that a start resumed"] += 1
                scene.site.client.start(scene.site.workflow, [name], None)
            return not stopped and scene.site.is_at_heads()

        with scene.quiet():
            wait_until(is_there, lambda: f"after {fault.words}: heads; {scene.look()}", EQUAL_SECONDS)
            scene.site.require_exact()
        scene.counts["comparisons that were equal"] += 1


def report_lines(campaign: Campaign, seed: int) -> list[str]:
    """Return what is printed at the end: the counts, and the seconds of each recovery, the longest of each kind."""
    longest: dict[str, list[float]] = {}
    for words, seconds in campaign.recoveries:
        longest.setdefault(words, []).append(seconds)
    lines = [f"campaign with seed {seed}: {len(campaign.recoveries)} faults"]
    lines += [f"{count:6}  {what}" for what, count in sorted(campaign.scene.totals().items())]
    lines += [
        f"{max(times):6.2f}  s until equal at most, {sum(times) / len(times):.2f} s on average, after {words}"
        for words, times in sorted(longest.items())
    ]
    return lines
