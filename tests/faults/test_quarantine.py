"""Connections and daemons are lost while rows go to quarantine and come back: nothing is lost or doubled."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.faults.conftest import CHECKPOINT, NewSite, Report, Servers
from tests.operating import Site, wait_until

from vmerge.core.position import GtidSet
from vmerge.lab.proxy import COMMIT, Moment, Proxy

pytestmark = [pytest.mark.server, pytest.mark.faults]

ROWS = 3
BASE = 7_000_000


def set_aside(site: Site, places: dict[str, Any] | None = None) -> None:
    """Let every table of the site set duplicates aside."""
    document = {**site.document(places), "true_duplicates": {"default": "quarantine"}}
    site.file.write_text(yaml.safe_dump(document))


def run(site: Site, shard: str, sql: str) -> None:
    place = site.shards[shard]
    place.server.execute_script(sql, place.database)


def insert(site: Site, shard: str, number: int, email: str) -> None:
    run(site, shard, f"INSERT INTO customer (id, email, name, balance) VALUES ({number}, '{email}', 'Test', 0)")


def entries(site: Site) -> list[tuple[Any, ...]]:
    """The rows in quarantine, each with its state and the transaction that changed it last."""
    if not site.stored("name"):
        return []  # the control tables are still to come
    return site.target.query(f"SELECT own, state, changed_gtid FROM {site.control}.quarantine ORDER BY own")


def is_applied(site: Site, shard: str) -> bool:
    head = site.shards[shard].server.query("SELECT @@GLOBAL.gtid_executed")[0][0]
    return GtidSet.parse(site.stored("position")[shard]).includes(GtidSet.parse(head))


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_lost_in_commit(new_site: NewSite, servers: Servers, report: Report, moment: Moment) -> None:
    """A COMMIT that sets a row aside, changes it there or brings it back happens once, however the connection ends."""
    with Proxy(servers.target.host, servers.target.port) as proxy:
        site = new_site(places={"target": proxy})
        set_aside(site, {"target": proxy})
        site.start_daemon()
        for number in range(ROWS):
            insert(site, "a", BASE + number, f"both{number}@example.org")
        for shard in ("a", "b"):
            site.wait_for(shard, is_at_head=True)
        sprung = 0
        for number in range(ROWS):
            steps = (
                f"INSERT INTO customer (id, email, name, balance) "
                f"VALUES ({BASE + 100 + number}, 'both{number}@example.org', 'Test', 0)",
                f"UPDATE customer SET name = 'changed' WHERE id = {BASE + 100 + number}",
                f"UPDATE customer SET email = 'free{number}@example.org' WHERE id = {BASE + 100 + number}",
            )
            for sql, count in zip(steps, (1, 1, 0), strict=True):
                run(site, "b", sql)
                sprung += 1
                proxy.cut_when(COMMIT, moment, behind=CHECKPOINT)
                assert proxy.wait_for_sprung(sprung, 30)
                report.done[f"connection lost in COMMIT of a quarantine, {moment.value}"] += 1
                wait_until(lambda: is_applied(site, "b"), "the change is stored")
                wait_until(lambda: len(entries(site)) == count, lambda: f"{count} in quarantine: {entries(site)}")  # noqa: B023  # waited for here
        site.require_exact()
        site.end()


def test_killed_between_any_two_changes(new_site: NewSite, report: Report) -> None:
    """A daemon that is killed again and again while rows go and come leaves each row in one place, as at its source."""
    site = new_site()
    set_aside(site)
    for number in range(ROWS):
        insert(site, "a", BASE + number, f"both{number}@example.org")
    for number in range(ROWS):
        insert(site, "b", BASE + 100 + number, f"both{number}@example.org")
        daemon = site.start_daemon()
        wait_until(lambda: len(entries(site)) == number + 1, lambda: f"in quarantine: {entries(site)}")  # noqa: B023  # waited for here
        run(site, "b", f"UPDATE customer SET name = CONCAT(name, '{number}') WHERE id >= {BASE}")
        daemon.kill()
        report.done["daemon killed with rows in quarantine"] += 1
    site.start_daemon()
    run(site, "b", f"UPDATE customer SET email = CONCAT('free', id, '@example.org') WHERE id >= {BASE}")
    site.require_exact()
    wait_until(lambda: not entries(site), lambda: f"in quarantine: {entries(site)}")
    site.end()
