"""Schema changes that vmerge runs by itself, while both shards are written and the daemon is killed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from tests.operating import Access, Site, insert_customers, running, wait_until

from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

ADD = "ALTER TABLE customer ADD COLUMN {name} VARCHAR(20) NOT NULL DEFAULT 'none'"


@pytest.fixture(params=["FULL"])
def site(
    lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str, request: pytest.FixtureRequest
) -> Iterator[Site]:
    """A workflow that runs schema changes, with an account that may; the parameter is the shards' row metadata."""
    for shard in (shard_a, shard_b):
        shard.query(f"SET GLOBAL binlog_row_metadata = {request.param}")
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target, access=Access.CERTIFICATE)
    set_policy(site, "execute")
    site.allow_schema_changes()
    yield site
    site.end()
    for shard in (shard_a, shard_b):
        shard.query("SET GLOBAL binlog_row_metadata = DEFAULT")


def set_policy(site: Site, on_ddl: str) -> None:
    """Write what becomes of schema changes into the workflow file."""
    site.file.write_text(yaml.safe_dump({**yaml.safe_load(site.file.read_text()), "on_ddl": on_ddl}))


def alter(site: Site, stream: str, statement: str) -> None:
    """Run a statement on a shard, in its database."""
    shard = site.shards[stream]
    shard.server.execute_script(statement, shard.database)


def columns(site: Site) -> list[str]:
    """Return the target's columns of the altered table."""
    return [row[0] for row in site.target.query(f"SHOW COLUMNS FROM {site.database}.customer")]


def test_a_change_waits_for_its_siblings(site: Site) -> None:
    """The first stream at a change waits, says for whom, and both go on once the change has run on the target."""
    with running(site):
        wait_for_heads(site)
        alter(site, "a", ADD.format(name="nick"))
        insert_customers(site.shards["a"], 3000, 5)
        site.wait_for("a", phase="waiting at a schema change")
        barrier = site.streams()["a"]["barrier"]
        assert barrier["awaited"] == ["b"] and "`nick`" not in columns(site)
        assert "for b to come to the same one" in site.vmerge("status").stdout
        insert_customers(site.shards["b"], 4000, 5)
        alter(site, "b", ADD.format(name="nick").lower())
        insert_customers(site.shards["b"], 5000, 5)
        site.require_exact()
        assert "nick" in columns(site)
        streams = site.streams()
        assert [stream["schema_changes"]["executed"] for stream in streams.values()].count(1) == 1
        assert [(one["barrier"], one["restarts"]) for one in streams.values()] == [(None, 0)] * 2


@pytest.mark.parametrize(("site", "count"), [("FULL", 5), ("MINIMAL", 1)], indirect=["site"])
def test_the_daemon_dies_around_changes(site: Site, count: int) -> None:
    """Whenever the daemon is killed, each change of both shards is on the target once, and no row is lost.

    Rows without names are carried over one change that a stream lags behind, and not over several.
    """
    names = [f"c{number}" for number in range(count)]
    with running(site):
        wait_for_heads(site)
    for number, name in enumerate(names):
        daemon = site.start_daemon()
        for stream in site.shards:
            insert_customers(site.shards[stream], 10_000 * (number + 1) + (5000 if stream == "a" else 0), 3)
            alter(site, stream, ADD.format(name=name))
        wait_until(lambda: bool(barriers(site)) or names[number] in columns(site), "a change is met")  # noqa: B023  # at once
        daemon.kill()
    with running(site):
        site.require_exact()
    assert [name for name in columns(site) if name in names] == names
    (done,) = site.target.query(f"SELECT COUNT(*) FROM {site.control}.schema_change WHERE state = 'done'")
    assert done == (len(names),)


def barriers(site: Site) -> list[str]:
    """Return the streams that wait at a change."""
    return [name for name, stream in site.streams().items() if stream["barrier"]]


def wait_for_heads(site: Site) -> None:
    """Wait until all streams have been entered and have nothing to do."""
    for name in site.shards:
        site.wait_for(name, is_at_head=True)


def test_a_truncate_never_runs(site: Site) -> None:
    """TRUNCATE of one shard stops its stream in front of it, and the target keeps all rows."""
    with running(site):
        site.wait_for("a", is_at_head=True)
        (before,) = site.target.query(f"SELECT COUNT(*) FROM {site.database}.purchase")
        alter(site, "a", "TRUNCATE TABLE purchase")
        message = site.wait_for("a", state="error")["message"]
        assert "TRUNCATE" in message and "rows go away" in message
        assert site.target.query(f"SELECT COUNT(*) FROM {site.database}.purchase") == [before]


@pytest.mark.parametrize("site", ["MINIMAL"], indirect=True)
def test_rows_are_read_by_what_their_table_was(site: Site) -> None:
    """Rows without names from before a change are read by the table of that time, also after a restart, or refused."""
    table = "CREATE TABLE pair (id INT PRIMARY KEY, a INT, b INT)"
    swap, back = "ALTER TABLE pair MODIFY a INT AFTER b", "ALTER TABLE pair MODIFY b INT AFTER a"
    merged = site.database
    site.target.execute_script(table, merged)
    for stream in site.shards:
        alter(site, stream, table)
    set_policy(site, "stop")
    with running(site):
        wait_for_heads(site)
    alter(
        site,
        "a",
        f"INSERT INTO pair (id, a, b) VALUES (1, 10, 20); {swap}; INSERT INTO pair (id, a, b) VALUES (2, 10, 20)",
    )
    site.target.execute_script(swap, merged)
    rows = f"SELECT id, a, b FROM {merged}.pair"
    with running(site):
        assert "column 2" in site.wait_for("a", state="error")["message"]
        assert site.target.query(rows) == []
        site.target.execute_script(back, merged)
        site.client.start(site.workflow, ["a"], None)
        message = site.wait_for("a", state="error")["message"]
        assert "MODIFY a INT AFTER b" in message and site.target.query(rows) == [(1, 10, 20)]
        site.target.execute_script(swap, merged)
        change = re.search(r"transaction (\S+): ALTER", message)
        assert change is not None
        site.client.start(site.workflow, ["a"], change[1])
        wait_until(lambda: site.target.query(rows) == [(1, 10, 20), (2, 10, 20)], "both rows are there")
