"""The event feed of a real daemon: over the socket, by the command, over TCP, and beside those who never read."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operating import Site, running, wait_until

from vmerge.hosting.feed import MOST_FOLLOWERS
from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

TOKEN = "a-token-for-events"


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Site]:
    """A workflow on the shared servers."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    yield site
    site.end()


def lazy_follower(site: Site) -> socket.socket:
    """Ask for the events and never read them."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(site.state_folder / "control.sock"))
    sock.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return sock


def followers(site: Site) -> int:
    """Return how many follow."""
    count: int = site.client.status()["events"]["followers"]
    return count


def test_events(site: Site, tmp_path: Path) -> None:
    """Two followers see a stop and a start alike; those who never read keep no request waiting, and have a limit."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    words = ("--listen", f"127.0.0.1:{port}", "--token-file", str(token))
    with running(site, *words), contextlib.ExitStack() as stack:
        site.wait_for("a", is_at_head=True)
        over_tcp = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)))
        over_tcp.request("GET", "/v1/events?workflow=shop")
        assert over_tcp.getresponse().status == http.HTTPStatus.UNAUTHORIZED
        over_tcp.close()
        over_tcp.request("GET", "/v1/events?workflow=shop", headers={"Authorization": f"Bearer {TOKEN}"})
        response = stack.enter_context(contextlib.closing(over_tcp.getresponse()))
        assert (response.status, response.getheader("Content-Type")) == (200, "application/x-ndjson")
        command = site.spawn("events", "shop", "--json")
        stack.callback(command.kill)
        wait_until(lambda: followers(site) == 2, "both follow")
        lazy = [stack.enter_context(lazy_follower(site)) for _ in range(MOST_FOLLOWERS - 2)]
        wait_until(lambda: followers(site) == MOST_FOLLOWERS, "all follow")
        refused = site.vmerge("events")
        assert refused.returncode == 6 and "follow the events already" in refused.stderr
        assert site.vmerge("events", "nope").returncode == 6
        site.client.stop(site.workflow, ["a"])
        site.client.start(site.workflow, ["a"])
        events = [json.loads(response.readline()) for _ in range(2)]
        assert [(one["stream"], one["kind"], one["message"]) for one in events] == [
            ("a", "state", "stopped: stopped by an operator"),
            ("a", "state", "running"),
        ]
        wait_until(lambda: command.output.count("\n") >= 2, "the command prints them")
        assert [json.loads(line) for line in command.output.splitlines()[:2]] == events
        for sock in lazy:
            sock.close()
        wait_until(lambda: followers(site) == 2, "who has left is forgotten")
        site.require_exact()
