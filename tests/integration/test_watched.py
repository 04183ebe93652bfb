"""A daemon that is watched over TCP: nothing leaks to those who watch, and none of them holds anything up."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.operating import Site, insert_customers, wait_until

from vmerge.lab.processes import Program
from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

TOKEN = "watchers-token-0123456789"
PASSWORD = "secret"
"""The site's."""
EMAIL, NAME = "quiet-value@example.org", "Unspoken Name"
FIRST = 6 * 10**9
IDLE_WATCHERS = 12
QUESTIONS = 200
"""That each of them asks; together their answers are larger than any buffer between."""


@dataclass
class Watched:
    """A daemon that answers questions over TCP."""

    site: Site
    daemon: Program
    port: int

    def ask(self, path: str, token: str = TOKEN) -> str:
        """Return what is answered to a question."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()


@pytest.fixture
def watched(
    lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str, tmp_path: Path
) -> Iterator[Watched]:
    """A daemon on the shared servers, with both streams at their heads."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("--listen", f"127.0.0.1:{port}", "--token-file", str(tmp_path / "token"), "--log-format", "json")
    site.daemon = site.spawn("daemon", "start", str(site.workflows), "--foreground", *words)
    try:
        wait_until(site.answers, "the daemon answers")
        for name in site.shards:
            site.wait_for(name, is_at_head=True)
        yield Watched(site, site.daemon, port)
    finally:
        site.end()


def write(site: Site, stream: str, statement: str, *values: object) -> None:
    """Run one transaction on a shard."""
    shard = site.shards[stream]
    with shard.server.connect(shard.database) as connection, connection.cursor() as cursor:
        cursor.execute(statement, values)


def insert(site: Site, stream: str, number: int) -> None:
    """Insert the customer whose values must not be told."""
    write(site, stream, "INSERT INTO customer (id, email, name, balance) VALUES (%s, %s, %s, 0)", number, EMAIL, NAME)


def everything_told(watched: Watched) -> dict[str, str]:
    """Return what there is to see of a daemon, but for the evidence of ``vmerge show``, which is asked for by name."""
    site = watched.site
    told = {path: watched.ask(path) for path in ("/metrics", "/readyz", "/v1/status", "/v1/log?workflow=shop")}
    told["a wrong token"] = watched.ask("/v1/status", "guess") + watched.ask("/metrics", "guess")
    told |= {" ".join(words): site.vmerge(*words).stdout for words in (("status",), ("log", "shop"))}
    told["log"] = watched.daemon.errors + watched.daemon.output
    told["process list"] = Path(f"/proc/{watched.daemon.pid}/cmdline").read_text()
    told |= {table: str(site.target.query(f"SELECT * FROM {site.control}.{table}")) for table in ("stream", "log")}
    return told


def test_what_is_told_nowhere(watched: Watched) -> None:
    """No log, status, answer, table of states or process list has a password, a token or a row's values.

    Not even where a server's message quotes them: a key is waited for, a true duplicate is proven, a row is missing.
    """
    site = watched.site
    insert(site, "a", FIRST)
    site.wait_for("a", transactions=1)
    site.client.stop(site.workflow, ["a"])
    write(site, "a", "DELETE FROM customer WHERE id = %s", FIRST)
    insert(site, "b", FIRST + 1)
    wait_until(lambda: (site.streams()["b"]["blocked"] or {}).get("finding") == "transient", "b waits for the key")
    site.client.start(site.workflow, ["a"], None)
    site.wait_for("b", blocked=None, transactions=1)
    insert(site, "a", FIRST + 2)
    assert "duplicate" in site.wait_for("a", state="error")["message"]
    site.target.query(f"DELETE FROM {site.database}.customer WHERE id = {FIRST + 1}")
    write(site, "b", "UPDATE customer SET name = 'x' WHERE id = %s", FIRST + 1)
    assert "1032" in site.wait_for("b", state="error")["message"]
    told = everything_told(watched)
    leaks = [(place, word) for place, text in told.items() for word in (PASSWORD, TOKEN, EMAIL, NAME) if word in text]
    assert not leaks
    lines = [json.loads(line) for line in watched.daemon.errors.splitlines()]
    assert len([line for line in lines if "without the right token" in line["message"]]) == 1


@contextmanager
def idle_watchers(port: int) -> Iterator[None]:
    """Ask for the metrics again and again, over several connections, and never read an answer."""
    question = f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(IDLE_WATCHERS):
            watcher = stack.enter_context(socket.socket())
            watcher.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            watcher.connect(("127.0.0.1", port))
            watcher.sendall(question * QUESTIONS)
        yield


def test_who_never_reads_holds_nothing_up(watched: Watched) -> None:
    """Watchers that ask and never read keep neither the streams from merging nor others from their answers."""
    with idle_watchers(watched.port):
        for number, shard in enumerate(watched.site.shards.values()):
            insert_customers(shard, FIRST + 1000 * number, 50)
        watched.site.require_exact()
        assert "vmerge_transactions_total" in watched.ask("/metrics")
        assert watched.site.streams().keys() == {"a", "b"}
