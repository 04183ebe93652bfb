"""What an operator sees of conflicts: status, show, the log table, and no row value where none belongs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.operating import Site, running, wait_until

from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

EMAIL = "kept-secret@example.org"
IN_A, IN_B = 4 * 10**9, 5 * 10**9
"""Primary keys of rows of either shard."""
DAEMON, TARGET = 6, 8


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Site]:
    """A workflow on the shared servers."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    yield site
    site.end()


def take(site: Site, stream: str, statement: str, *values: object) -> None:
    """Run one transaction on a shard."""
    shard = site.shards[stream]
    with shard.server.connect(shard.database) as connection, connection.cursor() as cursor:
        cursor.execute(statement, values)


def insert(site: Site, stream: str, number: int, email: str = EMAIL) -> None:
    """Insert a customer on a shard."""
    take(site, stream, "INSERT INTO customer (id, email, name, balance) VALUES (%s, %s, 'Test', 0)", number, email)


def is_merged(site: Site, number: int) -> bool:
    """Whether a customer is on the target."""
    return bool(site.target.query(f"SELECT 1 FROM {site.database}.customer WHERE id = {number}"))


def merge(site: Site, stream: str, number: int, email: str = EMAIL) -> None:
    """Insert a customer on a shard and wait until it is on the target."""
    insert(site, stream, number, email)
    wait_until(lambda: is_merged(site, number), "the row is on the target")


def logged(site: Site, stream: str) -> dict[str, dict[str, Any]]:
    """Return the facts of a stream's conflicts in the log table, by their kinds."""
    query = f"SELECT kind, facts FROM {site.control}.log WHERE stream = %s AND facts IS NOT NULL"
    return {kind: json.loads(facts) for kind, facts in site.target.query(query, stream)}


def wait_for_entry(site: Site, stream: str, kind: str) -> dict[str, Any]:
    """Wait until the log table has an entry of a kind about a stream, and return its facts."""
    wait_until(lambda: kind in logged(site, stream), lambda: f"{kind} is logged; there is {logged(site, stream)}")
    return logged(site, stream)[kind]


def shown(site: Site, *words: str) -> Any:
    """Return what ``vmerge show`` prints as JSON."""
    done = site.vmerge("show", site.workflow, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def require_no_values(site: Site) -> None:
    """No log has the value of a row: neither the daemon's nor the tables on the target."""
    assert site.daemon is not None
    assert EMAIL not in site.daemon.errors + site.daemon.output
    for table in ("log", "stream"):
        assert EMAIL not in str(site.target.query(f"SELECT * FROM {site.control}.{table}"))


def block_b(site: Site) -> None:
    """Let stream b wait for a value that a, which is stopped, has released at its source."""
    merge(site, "a", IN_A)
    site.client.stop(site.workflow, ["a"])
    take(site, "a", "DELETE FROM customer WHERE id = %s", IN_A)
    insert(site, "b", IN_B)
    wait_until(lambda: (site.streams()["b"]["blocked"] or {}).get("finding") == "transient", "the wait is looked into")


def overtake_b(site: Site) -> None:
    """Let b be overtaken by a: only a jump brings b on."""
    site.wait_for("b", is_at_head=True)
    site.client.stop(site.workflow, ["b"])
    insert(site, "b", IN_B)
    take(site, "b", "UPDATE customer SET email = 'other@example.org' WHERE id = %s", IN_B)
    merge(site, "a", IN_A)
    site.client.start(site.workflow, ["b"], None)


def test_a_wait_names_blocker_holder_and_fence(site: Site) -> None:
    """A blocked stream says whom it waits for, which row holds the key, how far that stream is, and what ends it."""
    with running(site):
        block_b(site)
        status = site.vmerge("status").stdout
        assert "waits on a since " in status
        words = f"customer.email held by id={IN_A}; a is 1 transaction before its fence"
        why = "a is stopped (stopped by an operator): `vmerge start -- WORKFLOW a`"
        assert f"{words}; {why}" in status.replace(" (jumping)", "").replace(" (joining)", "")
        blocked = site.streams()["b"]["blocked"]
        assert blocked["awaited"] == [{"stream": "a", "is_itself": False, "transactions_before_fence": 1}]
        assert blocked["held"]["holder_streams"] == []
        assert (blocked["held"]["row"], blocked["held"]["holder"]) == (f"id={IN_B}", f"id={IN_A}")
        assert blocked["ends_with"] == "transactions of a; `vmerge start -- WORKFLOW a` lets it run"
        assert EMAIL not in status + str(site.client.status())
        site.client.start(site.workflow, ["a"], None)
        site.require_exact()
        facts = wait_for_entry(site, "b", "wait")
        assert facts["held"]["holder"] == f"id={IN_A}"
        assert facts["awaited"] == ["a"] and facts["fences"]["a"]
        assert facts["seconds"] >= 1.0 and facts["transactions"] == 1
        log = site.vmerge("log", site.workflow, "b").stdout
        assert f"held by row id={IN_A}; ended by its release" in log
        require_no_values(site)


def test_show_has_the_whole_evidence(site: Site) -> None:
    """``show`` has the key's columns and values, both rows at every source, fences and the wait-for graph."""
    with running(site):
        block_b(site)
        (stream,) = shown(site, "b")["streams"]
        evidence = stream["evidence"]
        assert evidence["outcome"] is None
        (row,) = evidence["rows"]
        assert (row["table"], row["key"]) == (f"{site.database}.customer", "email")
        assert (row["columns"], row["values"]) == (["email"], [f"'{EMAIL}'"])
        assert row["row_at_its_source"] == "alive"
        assert row["holder_at_sources"] == {"a": "gone", "b": "gone"}
        fences = {fence["stream"]: fence["transactions_before_fence"] for fence in evidence["fences"]}
        assert fences == {"a": 1, "b": 1}
        assert evidence["attempts"] >= 2 and evidence["tried"]["testimonies"] >= 1
        graph = shown(site)["graph"]
        assert [(edge["from"], edge["to"], edge["holder"]) for edge in graph["edges"]] == [("b", "a", f"id={IN_A}")]
        assert graph["cycles"] == []
        text = site.vmerge("show", site.workflow).stdout
        assert EMAIL in text and f"b → a   customer.email held by id={IN_A}" in text
        site.client.stop(site.workflow, ["b"])
        assert wait_for_entry(site, "b", "wait interrupted")["gtid"] == evidence["gtid"]
        assert "Nobody waits." in site.vmerge("show", site.workflow).stdout
        site.client.start(site.workflow, None, None)
        site.require_exact()
        require_no_values(site)


def test_a_verdict_stays_on_show(site: Site) -> None:
    """The evidence of a true duplicate is shown as long as the daemon lives, and then what the log table has of it."""
    with running(site) as daemon:
        merge(site, "a", IN_A)
        insert(site, "b", IN_B)
        site.wait_for("b", state="error")
        facts = wait_for_entry(site, "b", "verdict")
        assert (facts["proof"], facts["held"]["holder_streams"]) == ("duplicate", ["a"])
        assert site.streams()["b"]["conflicts"]["verdicts"] == {"duplicate": 1, "foreign_row": 0, "stricter_target": 0}
        assert site.streams()["b"]["conflicts"]["testimonies"] >= 2
        (stream,) = shown(site, "b")["streams"]
        evidence = stream["evidence"]
        assert (evidence["outcome"], evidence["proof"]) == ("verdict", "duplicate")
        assert evidence["rows"][0]["values"] == [f"'{EMAIL}'"]
        assert evidence["rows"][0]["holder_at_sources"]["a"] == "alive"
        assert "a repair: one of the two rows" in site.vmerge("show", site.workflow, "b").stdout
        require_no_values(site)
        assert daemon.end() == 0
    with running(site):
        site.wait_for("b", state="error")
        (stream,) = shown(site, "b")["streams"]
        assert stream["evidence"]["from"] == "log"
        assert stream["evidence"]["held"]["holder"] == f"id={IN_A}"
        text = site.vmerge("show", site.workflow, "b").stdout
        assert f"id={IN_A} of a" in text and "it keeps no row values" in text and EMAIL not in text
        take(site, "a", "DELETE FROM customer WHERE id = %s", IN_A)
        site.client.start(site.workflow, ["b"], None)
        site.require_exact()


def test_a_jump_is_logged(site: Site) -> None:
    """A stream that its sibling overtook leaves an entry that says how many transactions it jumped over."""
    with running(site):
        overtake_b(site)
        site.require_exact()
        facts = wait_for_entry(site, "b", "jump")
        assert facts["transactions"] == 2
        assert facts["tried"]["longest_jump"] == 1
        assert facts["key"] == "customer.email"
        require_no_values(site)


def test_a_joint_commit_is_logged_by_each_member(site: Site) -> None:
    """Two streams that swap a value go together, and each of them leaves an entry."""
    with running(site):
        for name in site.shards:
            site.wait_for(name, is_at_head=True)
        site.client.stop(site.workflow, None)
        take(site, "a", "UPDATE customer SET email = 'customer2@example.com' WHERE id = 1")
        take(site, "b", "UPDATE customer SET email = 'customer1@example.com' WHERE id = 2")
        site.client.start(site.workflow, None, None)
        site.require_exact()
        for name in site.shards:
            facts = wait_for_entry(site, name, "joint commit")
            assert facts["transactions"] == 1
            assert facts["tried"]["offers"] >= 1
        assert "customer2@" not in str(logged(site, "a"))


def test_a_log_that_cannot_be_written_stops_nobody(site: Site) -> None:
    """Without its log table streams stop, start and merge on; entries wait, and come once the table is back."""
    with running(site) as daemon:
        site.wait_for("a", is_at_head=True)
        site.target.query(f"RENAME TABLE {site.control}.log TO {site.control}.elsewhere")
        overtake_b(site)
        site.require_exact()
        wait_until(lambda: "entries for the log table wait" in daemon.errors, "the daemon says so")
        assert set(site.stored("state").values()) == {"running"}
        assert site.vmerge("show", site.workflow).returncode == 0
        assert site.vmerge("log", site.workflow).returncode == TARGET
        site.target.query(f"RENAME TABLE {site.control}.elsewhere TO {site.control}.log")
        assert wait_for_entry(site, "b", "jump")["transactions"] == 2


@pytest.mark.parametrize("command", ["show", "log"])
def test_unknown_names(site: Site, command: str) -> None:
    """An unknown workflow or stream is told with the known ones."""
    with running(site):
        for words in [("nope",), (site.workflow, "nope")]:
            done = site.vmerge(command, *words)
            assert done.returncode == DAEMON
            assert "`nope`" in done.stderr and ("shop" in done.stderr or "a, b" in done.stderr)
