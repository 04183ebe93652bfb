"""Servers for every test that is marked ``server``.

Three servers live for the whole session: two shards and a target. Tests share them and stay apart by database
names that are unique per test, not by emptying the servers: a reset of binlogs would cut off a dumper that is
still attached, and a second test process could not run beside the first. A test therefore reads a shard from
the ``gtid_executed`` it finds when it begins, and keeps its checkpoints in a database of its own name. A test
that stops, kills or reconfigures a server takes one of its own from ``start_server``.

Where no server can be found or fetched the tests fail; they never skip.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from vmerge.lab.servers import Lab, Options, Server

StartServer = Callable[..., Server]

_numbers = itertools.count(1)

# A shell that starts us in the background has SIGINT ignored, and whatever we start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A folder of private servers, gone at the end of the session, also if the session is killed."""
    with Lab() as lab:
        yield lab


@pytest.fixture(scope="session")
def mysql_servers(lab: Lab) -> dict[str, Server]:
    """The long-lived servers by name, started side by side."""
    names = ("shard_a", "shard_b", "target")
    return dict(zip(names, lab.start_many(names), strict=True))


@pytest.fixture(scope="session")
def shard_a(mysql_servers: dict[str, Server]) -> Server:
    """A source that all tests share."""
    return mysql_servers["shard_a"]


@pytest.fixture(scope="session")
def shard_b(mysql_servers: dict[str, Server]) -> Server:
    """Another source that all tests share."""
    return mysql_servers["shard_b"]


@pytest.fixture(scope="session")
def target(mysql_servers: dict[str, Server]) -> Server:
    """The target that all tests share."""
    return mysql_servers["target"]


@pytest.fixture
def database(mysql_servers: dict[str, Server]) -> Iterator[str]:
    """A database name of this test alone. The test creates it where it likes, and others with this prefix.

    All of them are dropped afterwards, on every long-lived server.
    """
    name = f"test_{os.getpid()}_{next(_numbers)}"
    yield name
    for server in mysql_servers.values():
        drop_databases(server, name)


@pytest.fixture
def start_server(lab: Lab) -> Iterator[StartServer]:
    """Starts servers of this test alone: ``start_server(options={...})``. They are removed afterwards."""
    started: list[Server] = []

    def start(options: Options | None = None) -> Server:
        server = lab.start(f"own_{next(_numbers)}", options=options)
        started.append(server)
        return server

    yield start
    for server in started:
        lab.remove(server)


def drop_databases(server: Server, prefix: str) -> None:
    """Drops the database of that name and those that continue the name after an underscore."""
    names = [name for (name,) in server.query("SHOW DATABASES")]
    for name in names:
        if name == prefix or name.startswith(f"{prefix}_"):
            server.query(f"DROP DATABASE `{name}`")
