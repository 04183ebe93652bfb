"""Rules as an operator meets them: ``vmerge check``, and a daemon that carries rows under them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.operating import Site, insert_customers, running, wait_until

from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

WRONG_FILE, PREFLIGHT = 2, 3


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Site:
    """A workflow on the shared servers."""
    return Site(lab, database, {"a": shard_a, "b": shard_b}, target)


def write(site: Site, *, exclude: tuple[str, ...] = (), **rules: dict[str, Any]) -> None:
    """Add rules of single tables to the workflow file."""
    more = {
        "exclude": [f"{site.database}.{pattern}" for pattern in exclude],
        "rules": {f"{site.database}.{table}": rule for table, rule in rules.items()},
    }
    site.file.write_text(yaml.safe_dump({**site.document(), **more}))


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "a column that is not there": ({"drop_columns": ["nope"]}, PREFLIGHT, "the source has no column `nope`"),
    "a constant that does not fit": (
        {"drop_columns": ["name"], "constant_columns": {"name": 7}},
        PREFLIGHT,
        "the target's column `name` is varchar(80), and takes no number",
    ),
    "a filter that is not decided exactly": ({"where": "score > 1"}, PREFLIGHT, "the filter's part"),
    "a filter that is none": ({"where": "id >"}, WRONG_FILE, "rules."),
    "a source table that is not there": ({"source_table": "x"}, PREFLIGHT, "no stream has a table for the rule of"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_rule_that_does_not_fit_is_told_before_anything_runs(site: Site, case: str) -> None:
    """The check names what does not fit with its own exit code, and changes nothing."""
    rule, code, says = BAD[case]
    write(site, customer=rule)
    checked = site.vmerge("check", str(site.file), "--collisions", "none")
    assert checked.returncode == code, checked.stdout + checked.stderr
    assert says in checked.stdout + checked.stderr
    assert "Traceback" not in checked.stderr
    assert site.stored("state") == {}


def test_a_daemon_carries_what_the_rules_say(site: Site) -> None:
    """After a kill the rows are the filtered ones, each once, and a table that is left out stays as it was."""
    write(site, exclude=("purch*",), customer={"where": "id % 2 = 0"})
    before = site.target.query(f"SELECT COUNT(*) FROM {site.database}.purchase")
    with running(site) as daemon:
        insert_customers(site.shards["a"], 10**9, 20)
        wait_until(lambda: bool(site.stored("state")), "the streams have begun")
        daemon.kill()
    site.shards["a"].server.query(f"ALTER TABLE {site.shards['a'].database}.purchase ADD more INT")
    site.shards["a"].server.query(
        f"UPDATE {site.shards['a'].database}.customer SET id = id + 1 WHERE id > 1000000009 ORDER BY id DESC"
    )
    with running(site):
        wait_until(site.is_at_heads, "both streams are at their heads")
    found = site.target.query(
        f"SELECT id - 1000000000 FROM {site.database}.customer WHERE id >= 1000000000 ORDER BY id"
    )
    assert [row[0] for row in found] == [0, 2, 4, 6, 8, 12, 14, 16, 18, 20]
    assert site.target.query(f"SELECT COUNT(*) FROM {site.database}.purchase") == before
