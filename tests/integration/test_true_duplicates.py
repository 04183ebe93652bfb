"""A true duplicate on real servers, as an operator lives through it: the verdict, the siblings, the repair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.operating import Access, Site, insert_customers, running, wait_until

from vmerge.lab.servers import Lab, Server
from vmerge.stopping import SystemClock

pytestmark = pytest.mark.server

VERDICT_SECONDS = 5.0
FIRST, SECOND = 7_000_001, 7_000_002
EMAIL = "both@example.org"


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Site]:
    """A workflow on the shared servers."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target, access=Access.CERTIFICATE)
    yield site
    site.end()


def insert(site: Site, shard: str, number: int) -> None:
    """Insert a customer with the hot e-mail address at one shard."""
    place = site.shards[shard]
    place.server.execute_script(
        f"INSERT INTO customer (id, email, name, balance) VALUES ({number}, '{EMAIL}', 'Test', 0)", place.database
    )


def has_customer(site: Site, number: int) -> bool:
    """Whether the target has a customer."""
    return bool(site.target.query(f"SELECT 1 FROM {site.database}.customer WHERE id = %s", number))


def run_into_duplicate(site: Site) -> str:
    """Let both shards take one address; return the message of the stream that the verdict stops, in time."""
    insert(site, "a", FIRST)
    wait_until(lambda: has_customer(site, FIRST), "the first row arrives")
    site.wait_for("a", is_at_head=True)
    clock = SystemClock()
    insert(site, "b", SECOND)
    since = clock.monotonic()
    message: str = site.wait_for("b", state="error")["message"]
    assert clock.monotonic() - since < VERDICT_SECONDS
    return message


def repair_by_deleting(site: Site, shard: str, number: int) -> None:
    """Settle it at a source."""
    place = site.shards[shard]
    place.server.execute_script(f"DELETE FROM customer WHERE id = {number}", place.database)


def test_a_true_duplicate_is_named_with_both_rows_while_siblings_go_on(site: Site) -> None:
    """The later stream stops within seconds, naming key and rows without the value; the other shard is merged on."""
    with running(site):
        message = run_into_duplicate(site)
        assert "true duplicate" in message
        assert f"{site.database}.customer, unique key email" in message
        assert f"row id={SECOND} of stream b and row id={FIRST} of stream a" in message
        assert EMAIL not in message
        insert_customers(site.shards["a"], 7_100_000, 5)
        wait_until(lambda: has_customer(site, 7_100_004), "the sibling goes on")
        assert not has_customer(site, SECOND)
        assert site.stored("state") == {"a": "running", "b": "error"}


@pytest.mark.parametrize(("shard", "number"), [("a", FIRST), ("b", SECOND)])
def test_after_a_repair_at_either_source_the_merge_completes(site: Site, shard: str, number: int) -> None:
    """Once one of both rows is gone at its source, ``vmerge start`` brings the merge to the union."""
    with running(site):
        run_into_duplicate(site)
        repair_by_deleting(site, shard, number)
        started = site.vmerge("start", site.workflow, "b")
        assert started.returncode == 0, started.stderr
        site.require_exact()
        assert site.stored("state") == {"a": "running", "b": "running"}


def test_a_duplicate_of_a_moment_stops_nobody(site: Site) -> None:
    """Both shards have the value for a moment, the later one gives it up before the proof is given twice."""
    with running(site):
        insert(site, "a", FIRST)
        wait_until(lambda: has_customer(site, FIRST), "the first row arrives")
        insert(site, "b", SECOND)
        wait_until(lambda: site.streams()["b"]["blocked"] is not None, "the later stream waits")
        repair_by_deleting(site, "a", FIRST)
        site.require_exact()
        assert site.stored("state") == {"a": "running", "b": "running"}
