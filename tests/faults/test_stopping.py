"""A stop ends within its bound, whatever holds vmerge up and whoever asks.

Each predicament leaves vmerge in one of the states that a stop may meet. The bound is asserted, not more; how long
each stop took is printed at the end of the session.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.faults.conftest import NewSite, Report, Servers
from tests.operating import Site, insert_customers, wait_until

from vmerge.lab.processes import Program
from vmerge.lab.servers import Server
from vmerge.stopping import SystemClock

pytestmark = [pytest.mark.server, pytest.mark.faults]

BOUND_SECONDS = 6.0
START_SECONDS = 2.0
"""A command of its own needs this to start and to end, on a busy machine."""
EXIT_STOP_TIMEOUT = 5
EXIT_TARGET_FAILED = 8

Predicament = Callable[[Site, Servers], AbstractContextManager[None]]


@contextmanager
def idle(site: Site, servers: Servers) -> Iterator[None]:
    """Nothing to do."""
    yield


@contextmanager
def large_backlog(site: Site, servers: Servers) -> Iterator[None]:
    """A transaction that takes the target seconds, and thousands of small ones."""
    shard = site.shards["a"]
    shard.server.query(
        f"INSERT INTO {shard.database}.purchase (id, customer_id, reference, amount) "
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
        "SELECT /*+ SET_VAR(cte_max_recursion_depth = 100000) */ 1000000000 + i, i, CONCAT('B', i), 1 FROM n"
    )
    insert_customers(site.shards["b"], 10**9, 3000)
    wait_until(lambda: is_busy(site, servers.target, "Query"), "the target applies", 60)
    yield


@contextmanager
def waiting_on_a_sibling(site: Site, servers: Servers) -> Iterator[None]:
    """Shard a took an address that shard b released, and b's stream does not run."""
    site.vmerge("stop", site.workflow, "b")
    give, take = site.shards["b"], site.shards["a"]
    (email,) = give.server.query(f"SELECT email FROM {give.database}.customer LIMIT 1")[0]
    give.server.query(f"UPDATE {give.database}.customer SET email = 'elsewhere@example.org' WHERE email = %s", email)
    take.server.query(f"UPDATE {take.database}.customer SET email = %s LIMIT 1", email)
    site.wait_for("a", phase="waiting on a sibling")
    yield


@contextmanager
def row_lock(site: Site, servers: Servers) -> Iterator[None]:
    """Somebody holds a row of the target."""
    with servers.target.connect(site.database) as holder, holder.cursor() as cursor:
        holder.begin()
        cursor.execute("SELECT id FROM customer FOR UPDATE")
        update_all(site)
        wait_until(lambda: site.streams()["a"]["lock_conflicts"] > 0, "the stream meets the lock")
        yield


@contextmanager
def table_lock(site: Site, servers: Servers) -> Iterator[None]:
    """Somebody has locked a table of the target."""
    with locked(site, servers, f"LOCK TABLES {site.database}.customer WRITE"):
        yield


@contextmanager
def global_lock(site: Site, servers: Servers) -> Iterator[None]:
    """Somebody makes a backup of the target."""
    with locked(site, servers, "FLUSH TABLES WITH READ LOCK"):
        yield


@contextmanager
def target_down(site: Site, servers: Servers) -> Iterator[None]:
    """The target is not there."""
    servers.target.kill()
    site.wait_for("a", phase="backing off")
    yield


@contextmanager
def source_down(site: Site, servers: Servers) -> Iterator[None]:
    """A source is not there."""
    servers.a.kill()
    site.wait_for("a", phase="backing off")
    yield


@contextmanager
def target_hangs(site: Site, servers: Servers) -> Iterator[None]:
    """The target takes what it is sent and answers nothing."""
    servers.target.pause()
    update_all(site)
    wait_until(lambda: has_unread_bytes(servers.target), "vmerge has asked the target")
    yield


@contextmanager
def source_hangs(site: Site, servers: Servers) -> Iterator[None]:
    """A source takes what it is sent and sends nothing."""
    servers.a.pause()
    yield


PREDICAMENTS: dict[str, Predicament] = {
    "idle": idle,
    "applying a large backlog": large_backlog,
    "waiting on a sibling": waiting_on_a_sibling,
    "a row lock is held": row_lock,
    "a table lock is held": table_lock,
    "a global read lock is held": global_lock,
    "the target is down": target_down,
    "a source is down": source_down,
    "the target hangs": target_hangs,
    "a source hangs": source_hangs,
}
CANNOT_STORE = {"the target is down", "the target hangs", "a global read lock is held"}


@contextmanager
def locked(site: Site, servers: Servers, statement: str) -> Iterator[None]:
    """Hold a lock on the target that vmerge waits for."""
    with servers.target.connect() as holder, holder.cursor() as cursor:
        cursor.execute(statement)
        update_all(site)
        wait_until(lambda: is_busy(site, servers.target, "Query"), "vmerge waits for the lock")
        yield


def update_all(site: Site) -> None:
    """Give the streams something to do, a row that the seed made on each shard."""
    for shard in site.shards.values():
        shard.server.query(f"UPDATE {shard.database}.customer SET note = UUID() ORDER BY id LIMIT 1")


def is_busy(site: Site, server: Server, command: str) -> bool:
    """Whether a session of vmerge is in a statement."""
    return bool(server.sessions(site.user, command=command))


def has_unread_bytes(server: Server) -> bool:
    """Whether something was sent to a server over TCP that it has not read."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        int(fields[1].split(":")[1], 16) == server.port and int(fields[4].split(":")[1], 16) > 0 for fields in lines
    )


# Who asks


def by_sigterm(site: Site) -> int:
    """The daemon gets SIGTERM, as from systemd or Kubernetes."""
    assert site.daemon is not None
    os.kill(site.daemon.pid, signal.SIGTERM)
    return site.daemon.wait(BOUND_SECONDS + START_SECONDS)


def by_daemon_stop(site: Site) -> int:
    """An operator stops the daemon."""
    done = site.vmerge("daemon", "stop")
    assert site.daemon is not None
    assert site.daemon.wait(START_SECONDS) == done.returncode
    return done.returncode


def by_stop(site: Site) -> int:
    """An operator stops the workflow; the daemon goes on."""
    done = site.vmerge("stop", site.workflow)
    assert site.answers()
    assert all(stream["phase"] == "idle" for stream in site.streams().values())
    return done.returncode


WAYS = {"SIGTERM": by_sigterm, "vmerge daemon stop": by_daemon_stop, "vmerge stop": by_stop}


def stop_and_measure(site: Site, report: Report, predicament: str, way: str) -> None:
    """Stop, within the bound and with the exit code that fits."""
    clock = SystemClock()
    began_at = clock.monotonic()
    exit_code = WAYS[way](site)
    seconds = clock.monotonic() - began_at
    report.stops[f"by {way}, while {predicament}"] = seconds
    assert seconds < BOUND_SECONDS + START_SECONDS
    assert exit_code == (EXIT_TARGET_FAILED if way == "vmerge stop" and predicament in CANNOT_STORE else 0)


@pytest.mark.parametrize(("predicament", "way"), list(zip(PREDICAMENTS, [*WAYS, *WAYS, *WAYS, *WAYS], strict=False)))
def test_stops_within_the_bound(
    new_site: NewSite, servers: Servers, report: Report, predicament: str, way: str
) -> None:
    """In every state a stop ends within the bound; the durable state tells what was asked; what follows is exact."""
    site = new_site(limits={"stop_timeout_seconds": BOUND_SECONDS})
    site.start_daemon()
    for name in site.shards:
        site.wait_for(name, is_at_head=True)
    with PREDICAMENTS[predicament](site, servers):
        stop_and_measure(site, report, predicament, way)
        servers.recover()
        # What could not be stored within the bound may be stored a little later.
        expected = {"running"} if way != "vmerge stop" else {"stopped"}
        assert site.stored("state")["a"] in expected | ({"running"} if predicament in CANNOT_STORE else set())
    if not site.goes_on():
        site.start_daemon()
    site.vmerge("start", site.workflow)
    site.require_exact()


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("predicament", PREDICAMENTS)
def test_stops_within_the_bound_every_way(
    new_site: NewSite, servers: Servers, report: Report, predicament: str, way: str
) -> None:
    """The same, for every state and everyone who asks."""
    test_stops_within_the_bound(new_site, servers, report, predicament, way)


@pytest.mark.parametrize("predicament", ["waiting on nothing", "the target hangs"])
def test_run_stops_on_ctrl_c(new_site: NewSite, servers: Servers, report: Report, predicament: str) -> None:
    """``vmerge run`` ends within the bound on SIGINT, also when the target hangs."""
    site = new_site(limits={"stop_timeout_seconds": BOUND_SECONDS})
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


@pytest.mark.parametrize("way", ["SIGTERM", "vmerge daemon stop"])
def test_bound_that_is_too_short(new_site: NewSite, servers: Servers, report: Report, way: str) -> None:
    """What does not end within its bound is named, and the process ends all the same, with exit code 5."""
    site = new_site(limits={"stop_timeout_seconds": 1})
    servers.target.pause()
    daemon = site.start_daemon()
    assert WAYS[way](site) == EXIT_STOP_TIMEOUT
    assert "did not stop within the bound: a (was connecting), b (was connecting)" in daemon.errors
    report.done["stops that were too long"] += 1


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
