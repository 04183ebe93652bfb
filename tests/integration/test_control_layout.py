"""Control tables of older and newer versions: what is found is made as it shall be, or refused, and no row is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import yaml
from tests.operating import Site, insert_customers, running

from vmerge.core.grants import Grant
from vmerge.errors import TargetRejected, VmergeError
from vmerge.lab.accounts import allow
from vmerge.lab.servers import Lab, Server
from vmerge.mysql.control_layout import LAYOUT, ControlLayout

pytestmark = pytest.mark.server

OLDEST = (Path(__file__).parent / "layouts" / "oldest.sql").read_text()
"""As the first vmerge made them."""


def make_oldest(server: Server, control: str) -> None:
    """Make the control tables of the first version, with a stream and an entry of the log."""
    server.execute_script(OLDEST.format(control=control))
    server.query(f"INSERT INTO {control}.stream VALUES ('w', '-80', '', 'stopped', 'why', 7, NULL, UTC_TIMESTAMP(6))")
    server.query(f"INSERT INTO {control}.log VALUES (1, 'w', '-80', UTC_TIMESTAMP(6), 'entered', '')")


def described(server: Server, control: str) -> dict[str, str]:
    """Return the definitions of all control tables, as they are without rows."""
    names = [name for (name,) in server.query(f"SHOW TABLES FROM {control}")]
    return {
        name: server.query(f"SHOW CREATE TABLE {control}.{name}")[0][1].replace("AUTO_INCREMENT=2 ", "")
        for name in names
    }


def test_an_upgrade_that_was_killed_is_finished(target: Server, database: str) -> None:
    """After any number of its statements the next upgrade leaves what a new database has, and every row."""
    with target.connect() as connection:
        ControlLayout(f"{database}_new").create(connection)
        fresh = described(target, f"{database}_new")
        done = 0
        while True:
            control = f"{database}_{done}"
            make_oldest(target, control)
            layout = ControlLayout(control)
            statements = layout.pending(connection)
            for statement in statements[:done]:
                target.query(statement.format(control=control))
            assert layout.upgrade(connection) == 0
            assert described(target, control) == fresh
            assert layout.version(connection) == LAYOUT and layout.upgrade(connection) is None
            assert target.query(f"SELECT message, epoch, owner FROM {control}.stream") == [("why", 7, "")]
            assert target.query(f"SELECT kind, facts FROM {control}.log") == [("entered", None)]
            if done == len(statements):
                return
            done += 1


def test_a_daemon_of_the_first_version_goes_on(target: Server, database: str) -> None:
    """Another workflow of the same control database, run by an older vmerge, is not disturbed by an upgrade."""
    make_oldest(target, database)
    with target.connect() as connection:
        ControlLayout(database).upgrade(connection)
    stream, log = f"{database}.stream", f"{database}.log"
    target.query(
        f"INSERT INTO {stream} (workflow, name, position, state, message, epoch, updated_at) "
        "VALUES ('v', '80-', '', 'running', '', 0, UTC_TIMESTAMP(6))"
    )
    target.query(f"UPDATE {stream} SET position = '', updated_at = SYSDATE(6) WHERE workflow = 'v' AND epoch = 0")
    target.query(f"INSERT INTO {log} (workflow, stream, happened_at, kind, message) VALUES ('v', '', NOW(), '', '')")
    assert target.query(f"SELECT name, state, epoch FROM {stream} WHERE workflow = 'v'") == [("80-", "running", 0)]


def test_two_upgrade_at_once(target: Server, database: str) -> None:
    """Several daemons that find older tables make them as they shall be, once, and all go on."""
    make_oldest(target, database)
    failures: list[Exception] = []

    def upgrade() -> None:
        with target.connect() as connection:
            try:
                ControlLayout(database).create(connection)
            except VmergeError as error:
                failures.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert target.query(f"SELECT version FROM {database}.layout") == [(LAYOUT,)]
    assert target.query(f"SELECT COUNT(*) FROM {database}.stream") == [(1,)]


def test_newer_tables_are_refused(target: Server, database: str) -> None:
    """An older vmerge says which layout it knows and which it found, and touches nothing."""
    with target.connect() as connection:
        layout = ControlLayout(database)
        layout.create(connection)
        target.query(f"INSERT INTO {database}.layout VALUES ({LAYOUT + 1}, '9.9', UTC_TIMESTAMP(6))")
        target.query(f"DROP TABLE {database}.log")
        for order in (layout.create, layout.upgrade):
            with pytest.raises(TargetRejected, match=f"layout {LAYOUT + 1}, of a newer vmerge.*layout {LAYOUT}"):
                order(connection)
    assert "log" not in described(target, database)


def test_streams_go_on_from_the_oldest_tables(
    lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str
) -> None:
    """A daemon upgrades the oldest tables, once its account may, and its streams resume from their checkpoints."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    target.execute_script(OLDEST.format(control=site.control))
    for name, shard in site.shards.items():
        executed = shard.server.query("SELECT @@GLOBAL.gtid_executed")[0][0]
        target.query(
            f"INSERT INTO {site.control}.stream VALUES ('shop', %s, %s, 'running', '', 3, NULL, UTC_TIMESTAMP(6))",
            *(name, executed),
        )
        insert_customers(shard, 10**9 + 100 * ord(name), 5)
    site.file.write_text(without_starts(site))
    with running(site):
        message = site.wait_for("a", state="error")["message"]
        assert "cannot be upgraded" in message and "UPDATE, DELETE, ALTER ON" in message
        allow(target, site.user, [Grant(("ALTER",), site.control)])
        assert site.vmerge("start", site.workflow).returncode == 0
        site.require_exact()
        assert all(epoch > 3 for epoch in site.stored("epoch").values())


def without_starts(site: Site) -> str:
    """Return the workflow file as it would begin new streams: with what is written from now on."""
    document = yaml.safe_load(site.file.read_text())
    for stream in document["streams"].values():
        stream["start"] = "current"
    return str(yaml.safe_dump(document))
