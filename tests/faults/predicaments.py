"""States in which vmerge may be told to stop: each holds it up in another way. Used by ``test_stopping.py``."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.faults.conftest import Servers
from tests.operating import Site, insert_customers, wait_until

from vmerge.errors import DaemonError, VmergeError
from vmerge.lab.proxy import COMMIT, Moment, Pace, Proxy
from vmerge.lab.servers import Server

LARGE_ROWS = 30_000
HUGE_ROWS, HUGE_BYTES = 100, 1024 * 1024
FAR_IDS = 10**9
BUSY_SECONDS = 60.0
FIRST_OF_B = 2
"""Customers count from 1, shard by shard in turn."""

Arrange = Callable[[Site, Servers], AbstractContextManager[None]]


@dataclass(frozen=True)
class Predicament:
    """One state."""

    words: str
    arrange: Arrange
    is_quick: bool = True
    """Whether CI has time for it."""
    stores: bool = True
    """Whether the target can store, within the bound, that streams were stopped."""
    is_entered: bool = True
    """Whether the target knows the streams."""


class Blackhole:
    """Where connections are neither taken nor refused, as behind a firewall that drops packets."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._listener = socket.socket()
        self._listener.bind((self.host, 0))
        self._listener.listen(0)
        self._waiting: list[socket.socket] = []

    @property
    def port(self) -> int:
        """Where nothing answers."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Blackhole:
        for _ in range(3):  # one more than the queue holds, whatever the system rounds it to
            one = socket.socket()
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect((self.host, self.port))
            self._waiting.append(one)
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self._waiting, self._listener):
            one.close()


LIMITS = {"stop_timeout_seconds": 6.0}


def prepare(site: Site) -> None:
    """Let a workflow run schema changes by itself; before its daemon starts."""
    write(site)
    site.allow_schema_changes()


def write(site: Site, **places: Proxy | Blackhole) -> None:
    """Write the workflow file, with other places for some of the servers."""
    site.write_workflow(places=places, limits=LIMITS)
    site.file.write_text(yaml.safe_dump({**yaml.safe_load(site.file.read_text()), "on_ddl": "execute"}))


# The network, and servers that hang


@contextmanager
def reached_by(site: Site, **places: Proxy | Blackhole) -> Iterator[None]:
    """Let the streams begin again over other places."""
    write(site, **places)
    site.client.reload()
    yield
    write(site)


@contextmanager
def idle(site: Site, servers: Servers) -> Iterator[None]:
    """Nothing to do."""
    yield


@contextmanager
def target_swallows(site: Site, servers: Servers) -> Iterator[None]:
    """Packets to the target are dropped."""
    with Blackhole() as hole, reached_by(site, target=hole):
        yield


@contextmanager
def source_swallows(site: Site, servers: Servers) -> Iterator[None]:
    """Packets to a source are dropped."""
    with Blackhole() as hole, reached_by(site, a=hole):
        yield


@contextmanager
def handshakes_trickle(site: Site, servers: Servers) -> Iterator[None]:
    """All servers answer, a byte at a time."""
    with ExitStack() as stack:
        places = {**servers.shards(), "target": servers.target}
        proxies = {name: stack.enter_context(Proxy(one.host, one.port)) for name, one in places.items()}
        for proxy in proxies.values():
            proxy.slow_down(Pace(1, 0.5))
        stack.enter_context(reached_by(site, **proxies))
        yield


@contextmanager
def commit_unanswered(site: Site, servers: Servers) -> Iterator[None]:
    """The target gets a COMMIT, and its answer does not come."""
    with Proxy(servers.target.host, servers.target.port) as proxy, reached_by(site, target=proxy):
        site.wait_for("a", is_at_head=True)
        proxy.cut_when(COMMIT, Moment.UNANSWERED)
        update_all(site)
        assert proxy.wait_for_sprung(1, BUSY_SECONDS)
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


@contextmanager
def all_sources_hang(site: Site, servers: Servers) -> Iterator[None]:
    """Streams that were never entered examine one server after the other, and none of the sources answers."""
    site.begin_here()
    write(site)
    site.client.reload()
    site.client.stop(site.workflow, None)
    site.target.query(f"DELETE FROM {site.control}.stream")
    for server in (servers.a, servers.b):
        server.pause()
    site.client.start(site.workflow, None, None)
    wait_until(lambda: has_unread_bytes(servers.a) or has_unread_bytes(servers.b), "vmerge has asked a source")
    yield


@contextmanager
def question_hangs(site: Site, servers: Servers) -> Iterator[None]:
    """Somebody has asked for the log, and the target does not answer."""
    servers.target.pause()
    with asked(lambda: site.client.log(site.workflow, None)):
        wait_until(lambda: has_unread_bytes(servers.target), "the daemon has asked the target")
        yield


@contextmanager
def asked(question: Callable[[], object]) -> Iterator[None]:
    """Keep a question to the daemon under way."""

    def ask() -> None:
        with suppress(DaemonError, VmergeError):  # the daemon ends before it answers
            question()

    thread = threading.Thread(target=ask)
    thread.start()
    yield
    thread.join()


# Work on the target


@contextmanager
def large_statement(site: Site, servers: Servers) -> Iterator[None]:
    """A transaction that takes the target a while, and thousands of small ones."""
    shard = site.shards["a"]
    (largest,) = shard.server.query(f"SELECT MAX(id) FROM {shard.database}.purchase")[0]
    first = largest + FAR_IDS  # which shard b never has
    shard.server.query(
        f"INSERT INTO {shard.database}.purchase (id, customer_id, reference, amount) "
        f"WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {LARGE_ROWS}) "
        f"SELECT /*+ SET_VAR(cte_max_recursion_depth = {LARGE_ROWS}) */ {first} + i, i, CONCAT('B', {first} + i), 1 "
        "FROM n"
    )
    insert_customers(site.shards["b"], 10**9, 100)
    wait_until(lambda: bool(servers.target.sessions(site.user, command="Query")), "the target applies", BUSY_SECONDS)
    yield


@contextmanager
def huge_transaction(site: Site, servers: Servers) -> Iterator[None]:
    """A transaction of 100 MB is on its way to the target."""
    shard = site.shards["a"]
    for server, database in ((shard.server, shard.database), (servers.target, site.database)):
        server.query(f"CREATE TABLE {database}.bulk (id INT PRIMARY KEY, content LONGTEXT)")
    with shard.server.connect(shard.database) as connection, connection.cursor() as cursor:
        connection.begin()
        for number in range(HUGE_ROWS):
            cursor.execute(f"INSERT INTO bulk VALUES ({number}, REPEAT('x', {HUGE_BYTES}))")
        connection.commit()
    wait_until(lambda: bool(servers.target.open_transactions(site.user)), "the target applies", BUSY_SECONDS)
    yield


@contextmanager
def row_lock(site: Site, servers: Servers) -> Iterator[None]:
    """Somebody holds a row of the target."""
    with servers.target.connect(site.database) as holder, holder.cursor() as cursor:
        holder.begin()
        cursor.execute("SELECT id FROM customer FOR UPDATE")
        before = site.streams()["a"]["lock_conflicts"]
        update_all(site)
        wait_until(lambda: site.streams()["a"]["lock_conflicts"] > before, "the stream meets the lock")
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
def locked(site: Site, servers: Servers, statement: str) -> Iterator[None]:
    """Hold a lock on the target that vmerge waits for."""
    with servers.target.connect() as holder, holder.cursor() as cursor:
        cursor.execute(statement)
        update_all(site)
        wait_until(lambda: bool(servers.target.sessions(site.user, command="Query")), "vmerge waits for the lock")
        yield


# Siblings


@contextmanager
def waiting_on_a_sibling(site: Site, servers: Servers) -> Iterator[None]:
    """Shard a took an address that shard b released, and b's stream does not run."""
    site.client.stop(site.workflow, ["b"])
    release(site)
    take(site)
    site.wait_for("a", phase="waiting on a sibling")
    yield


@contextmanager
def looking_for_evidence(site: Site, servers: Servers) -> Iterator[None]:
    """The same, and a asks b's source about it, which hangs."""
    site.client.stop(site.workflow, ["b"])
    release(site)
    servers.b.pause()
    take(site)
    wait_until(lambda: remedy_of(site, "a") == "looking up", "evidence is asked for")
    yield


def remedy_of(site: Site, stream: str) -> str | None:
    """Return what is under way in a stream's conflict."""
    blocked = site.streams()[stream]["blocked"]
    return None if blocked is None else str(blocked["remedy"])


def release(site: Site) -> None:
    """Let shard b give up the address of its first customer."""
    shard = site.shards["b"]
    shard.server.query(f"UPDATE {shard.database}.customer SET email = UUID() ORDER BY id LIMIT 1")


def take(site: Site) -> None:
    """Let shard a take the address that the target's row of b's first customer has yet."""
    shard = site.shards["a"]
    (email,) = site.target.query(f"SELECT email FROM {site.database}.customer WHERE id = {FIRST_OF_B}")[0]
    shard.server.query(f"UPDATE {shard.database}.customer SET email = %s ORDER BY id LIMIT 1", email)


# Schema changes


@contextmanager
def at_a_barrier(site: Site, servers: Servers) -> Iterator[None]:
    """Stream a waits for b to come to the same schema change, whose stream does not run."""
    site.client.stop(site.workflow, ["b"])
    alter_all(site, "at_barrier")
    site.wait_for("a", phase="waiting at a schema change")
    yield


@contextmanager
def change_waits_for_a_lock(site: Site, servers: Servers) -> Iterator[None]:
    """A schema change runs on the target and waits for a transaction that has read the table."""
    with servers.target.connect(site.database) as reader, reader.cursor() as cursor:
        reader.begin()
        cursor.execute("SELECT COUNT(*) FROM purchase")
        alter_all(site, "behind_lock")
        waits = "Waiting for table metadata lock"
        wait_until(lambda: bool(servers.target.sessions(site.user, state=waits)), "the change waits for the lock")
        yield


def alter_all(site: Site, column: str) -> None:
    """Change a table on every shard."""
    for shard in site.shards.values():
        shard.server.query(f"ALTER TABLE {shard.database}.purchase ADD COLUMN {column} INT")


# Looks


def update_all(site: Site) -> None:
    """Give the streams something to do, a row that the seed made on each shard."""
    for shard in site.shards.values():
        shard.server.query(f"UPDATE {shard.database}.customer SET note = UUID() ORDER BY id LIMIT 1")


def has_unread_bytes(server: Server) -> bool:
    """Whether something was sent to a server over TCP that it has not read."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        int(fields[1].split(":")[1], 16) == server.port and int(fields[4].split(":")[1], 16) > 0 for fields in lines
    )


PREDICAMENTS: tuple[Predicament, ...] = (
    Predicament("idle", idle),
    Predicament("applying a large statement", large_statement, is_quick=False),
    Predicament("applying a transaction of 100 MB", huge_transaction, is_quick=False),
    Predicament("waiting on a sibling", waiting_on_a_sibling),
    Predicament("asking a source that hangs for evidence", looking_for_evidence),
    Predicament("waiting at a schema change", at_a_barrier, is_quick=False),
    Predicament("a schema change waits for a lock", change_waits_for_a_lock),
    Predicament("a row lock is held", row_lock),
    Predicament("a table lock is held", table_lock, is_quick=False),
    Predicament("a global read lock is held", global_lock, stores=False),
    Predicament("COMMIT is not answered", commit_unanswered, stores=False),
    Predicament("the target is down", target_down, is_quick=False, stores=False),
    Predicament("a source is down", source_down, is_quick=False),
    Predicament("packets to the target are dropped", target_swallows, stores=False),
    Predicament("packets to a source are dropped", source_swallows),
    Predicament("all handshakes trickle", handshakes_trickle, stores=False),
    Predicament("all sources hang while they are examined", all_sources_hang, is_entered=False),
    Predicament("the target hangs", target_hangs, stores=False),
    Predicament("a source hangs", source_hangs),
    Predicament("a question waits for the target", question_hangs, is_quick=False, stores=False),
)
