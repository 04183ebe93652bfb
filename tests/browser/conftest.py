"""One browser, and one daemon that is watched, for all tests of the page."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml
from selenium.webdriver import Chrome
from tests.browser.browsers import Page, chromium
from tests.conftest import drop_databases
from tests.operating import Site, wait_until

from vmerge.lab.servers import Lab, Server

TOKEN = "a-long-and-secret-word"
ODD_TABLE = """<img src=x onerror="document.title='owned'">"""
ODD_KEY = "<b>key & 'quotes'</b>"


@dataclass(frozen=True, slots=True)
class Watched:
    """A workflow whose daemon answers over TCP."""

    site: Site
    port: int
    words: tuple[str, ...]

    def start(self) -> None:
        """Start the daemon."""
        self.site.daemon = self.site.spawn(*self.words)
        wait_until(self.site.answers, "the daemon answers")


@pytest.fixture(scope="session")
def watched(
    lab: Lab, mysql_servers: dict[str, Server], shard_a: Server, shard_b: Server, target: Server
) -> Iterator[Watched]:
    """Two streams, ``a`` and ``b``, into a target; one of their tables has a name that looks like markup."""
    database = f"test_{os.getpid()}_page"
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    for server, name in (*((shard.server, shard.database) for shard in site.shards.values()), (target, database)):
        create_odd_table(server, name)
    site.allow_schema_changes()
    policies = {"on_ddl": "execute", "true_duplicates": {"tables": {f"{database}.customer": "quarantine"}}}
    site.file.write_text(yaml.safe_dump({**site.document(), **policies}))
    file = site.workflows.parent / "token"
    file.touch(mode=0o600)
    file.write_text(TOKEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    listen = ("--listen", f"127.0.0.1:{port}", "--token-file", str(file))
    watched = Watched(site, port, ("daemon", "start", str(site.workflows), "--foreground", *listen))
    watched.start()
    yield watched
    site.end()
    for server in mysql_servers.values():
        drop_databases(server, database)


def create_odd_table(server: Server, database: str) -> None:
    """Create the table without a trace in the binlog."""
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"CREATE TABLE `{ODD_TABLE}` (id BIGINT PRIMARY KEY, word INT, UNIQUE KEY `{ODD_KEY}` (word))")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A browser."""
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def page(browser: Chrome, watched: Watched) -> Page:
    """The daemon's page, not opened yet."""
    return Page(browser, f"http://127.0.0.1:{watched.port}/")
