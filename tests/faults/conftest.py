"""Servers that may be killed, sites on them, and the count of what was done to them.

The three servers of this folder are its own: its tests kill, stop and freeze them, and leave them running. Each
test has databases, accounts and a daemon of its own on them. What was done, and how long each stop took, is printed at
the end of the session: a test of faults in which nothing broke shall not go unnoticed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.operating import Site

from vmerge.lab.servers import Lab, Server

NewSite = Callable[..., Site]
CHECKPOINT = b"SET position = "
"""What stands in the statement that writes a checkpoint, and in no other."""

_numbers = itertools.count(1)


@dataclass
class Report:
    """What was done to servers, connections and daemons, and the seconds that stops and other things took."""

    done: Counter[str] = field(default_factory=Counter)
    stops: dict[str, float] = field(default_factory=dict)
    took: dict[str, float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    """Of campaigns, as they are."""


_report = pytest.StashKey[Report]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Where a test counts what it does."""
    return request.config.stash.setdefault(_report, Report())


@dataclass(frozen=True)
class Servers:
    """Two shards and a target."""

    a: Server
    b: Server
    target: Server

    def all(self) -> tuple[Server, ...]:
        """Return all of them."""
        return self.a, self.b, self.target

    def shards(self) -> dict[str, Server]:
        """Return the shards by the names of their streams."""
        return {"a": self.a, "b": self.b}

    def recover(self) -> None:
        """Bring back whatever a test left stopped, frozen or read-only."""
        for server in self.all():
            server.resume()
            if not server.is_running:
                server.restart()
            server.query("SET GLOBAL super_read_only = OFF, read_only = OFF, net_write_timeout = DEFAULT")


@pytest.fixture(scope="session")
def fault_servers(lab: Lab) -> Servers:
    """Started once for all tests of faults."""
    return Servers(*lab.start_many(("fault_a", "fault_b", "fault_target")))


@pytest.fixture
def servers(fault_servers: Servers) -> Iterator[Servers]:
    """The servers, all running before and after."""
    yield fault_servers
    fault_servers.recover()


@pytest.fixture
def new_site(lab: Lab, servers: Servers) -> Iterator[NewSite]:
    """Makes sites over both shards and the target, whose daemons are killed at the end."""
    sites: list[Site] = []

    def make(**options: object) -> Site:
        site = Site(lab, f"f{next(_numbers)}", {"a": servers.a, "b": servers.b}, servers.target, **options)  # type: ignore[arg-type]  # passed on
        sites.append(site)
        return site

    yield make
    for site in sites:
        site.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the counts."""
    report = config.stash.get(_report, None)
    if report is None:
        return
    terminalreporter.section("faults")
    for what, count in sorted(report.done.items()):
        terminalreporter.line(f"{count:6}  {what}")
    for what, seconds in sorted(report.stops.items()):
        terminalreporter.line(f"{seconds:6.2f}  s to stop {what}")
    for what, seconds in sorted(report.took.items()):
        terminalreporter.line(f"{seconds:6.2f}  s {what}")
    for line in report.lines:
        terminalreporter.line(line)
