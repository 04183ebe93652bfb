"""Rows in quarantine on real servers, as an operator lives with them: the daemon, the commands, the log."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import yaml
from tests.operating import Access, Site, running, wait_until

from vmerge.errors import VmergeError
from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

FIRST, SECOND, THIRD = 7_000_001, 7_000_002, 7_000_003
EMAIL = "both@example.org"
PREFLIGHT, CONFLICT, DAEMON, TARGET = 3, 4, 6, 8
HELD = f"is held by row id={FIRST}"


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Site]:
    """A workflow on the shared servers that sets duplicate customers aside."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target, access=Access.CERTIFICATE)
    document = {**site.document(), "true_duplicates": {"tables": {f"{database}.customer": "quarantine"}}}
    site.file.write_text(yaml.safe_dump(document))
    yield site
    site.end()


def run(site: Site, shard: str, sql: str) -> None:
    place = site.shards[shard]
    place.server.execute_script(sql, place.database)


def insert(site: Site, shard: str, number: int, email: str = EMAIL) -> None:
    run(site, shard, f"INSERT INTO customer (id, email, name, balance) VALUES ({number}, '{email}', 'Zoë', 12.5)")


def has_customer(site: Site, number: int) -> bool:
    return bool(site.target.query(f"SELECT 1 FROM {site.database}.customer WHERE id = %s", number))


def rows(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.client.quarantine(site.workflow, "list")["rows"]
    return found


def park(site: Site) -> int:
    """Let both shards take one address; return the number of the row that is set aside."""
    insert(site, "a", FIRST)
    wait_until(lambda: has_customer(site, FIRST), "the first row arrives")
    insert(site, "b", SECOND)
    site.wait_for("b", in_quarantine=1, is_at_head=True)
    (row,) = rows(site)
    assert (row["own"], row["holder"], row["holder_stream"]) == (f"id={SECOND}", f"id={FIRST}", "a")
    return int(row["id"])


def log_kinds(site: Site) -> list[str]:
    query = f"SELECT kind FROM {site.control}.log WHERE stream = 'b' AND kind LIKE 'quarantine%%' ORDER BY id"
    return [kind for (kind,) in site.target.query(query)]


def test_a_duplicate_is_shown_and_retried(site: Site) -> None:
    """The stream goes on without the row, which commands show whole, and bring back once the holder is gone."""
    with running(site):
        number = park(site)
        insert(site, "b", THIRD, "third@example.org")
        wait_until(
            lambda: bool(site.target.query(f"SELECT 1 FROM {site.database}.customer WHERE id = {THIRD}")), "goes on"
        )
        assert "1 row in quarantine" in site.vmerge("status").stdout
        listed = site.vmerge("quarantine", "list", "shop").stdout
        assert f"id={SECOND}" in listed and EMAIL not in listed
        (as_json,) = json.loads(site.vmerge("quarantine", "list", "shop", "--json").stdout)
        assert (as_json["id"], as_json["state"], as_json["key"]) == (number, "parked", "email")
        shown = site.vmerge("quarantine", "show", "shop", str(number))
        assert "true duplicate" in shown.stdout, shown.stderr
        values = json.loads(site.vmerge("quarantine", "show", "shop", str(number), "--json").stdout)["values"]
        expected = {
            "id": str(SECOND),
            "email": EMAIL,
            "name": "Zoë",
            "balance": "12.5000",
            "note": None,
            "profile": None,
        }
        assert {name: values[name] for name in expected} == expected
        refused = site.vmerge("quarantine", "retry", "shop", str(number))
        assert refused.returncode == CONFLICT
        assert HELD in refused.stderr
        run(site, "a", f"DELETE FROM customer WHERE id = {FIRST}")
        site.wait_for("a", is_at_head=True)
        wait_until(lambda: retried(site, number), "the row comes back")
        run(site, "b", f"UPDATE customer SET name = 'later' WHERE id = {SECOND}")
        site.require_exact()
        site.wait_for("b", in_quarantine=0)
        assert log_kinds(site) == ["quarantined", "quarantine left"]


def retried(site: Site, number: int) -> bool:
    """Whether a row is in its table again; the stream may have been faster."""
    done = site.vmerge("quarantine", "retry", "shop", str(number))
    assert done.returncode in (0, CONFLICT, DAEMON), done.stderr
    return done.returncode != CONFLICT


def test_a_dropped_row_stays_away_over_a_restart(site: Site) -> None:
    """It does not come back when it could, and its entry ends with the row at its source."""
    with running(site):
        number = park(site)
        assert site.vmerge("quarantine", "drop", "shop", str(number)).returncode == 0
        run(site, "b", f"UPDATE customer SET email = 'free@example.org' WHERE id = {SECOND}")
        site.wait_for("b", is_at_head=True)
    with running(site):
        site.wait_for("b", in_quarantine=1, is_at_head=True)
        (row,) = rows(site)
        assert (row["id"], row["state"]) == (number, "dropped")
        assert not has_customer(site, SECOND)
        run(site, "b", f"DELETE FROM customer WHERE id = {SECOND}")
        site.require_exact()
        assert rows(site) == []
        assert log_kinds(site) == ["quarantined", "quarantine dropped", "quarantine ended"]


def test_rows_are_settled_while_their_stream_is_stopped(site: Site) -> None:
    """A retry needs no running stream; the stream finds the row where it is."""
    with running(site):
        number = park(site)
        site.client.stop("shop", ["b"])
        run(site, "b", f"UPDATE customer SET name = 'while stopped' WHERE id = {SECOND}")
        run(site, "a", f"UPDATE customer SET email = 'other@example.org' WHERE id = {FIRST}")
        site.wait_for("a", is_at_head=True)
        wait_until(lambda: retried(site, number), "the row comes back")
        site.client.start("shop", ["b"], None)
        site.require_exact()
        assert rows(site) == []


def test_what_is_not_there_is_refused(site: Site) -> None:
    """An unknown row or workflow is an error of its own, and changes nothing."""
    with running(site):
        assert site.vmerge("quarantine", "list", "shop").stdout == "No row is in quarantine.\n"
        for order in ("show", "retry", "drop"):
            refused = site.vmerge("quarantine", order, "shop", "17")
            assert refused.returncode == DAEMON
            assert "no row 17" in refused.stderr
        assert site.vmerge("quarantine", "list", "other").returncode == DAEMON


def test_a_table_with_foreign_keys_is_refused(site: Site) -> None:
    """``check`` names the tables that cannot set rows aside, in one finding."""
    for place in (*site.shards.values(),):
        place.server.execute_script(
            "ALTER TABLE purchase ADD FOREIGN KEY (customer_id) REFERENCES customer (id)", place.database
        )
    site.target.execute_script(
        "ALTER TABLE purchase ADD FOREIGN KEY (customer_id) REFERENCES customer (id)", site.database
    )
    checked = site.vmerge("check", str(site.file), "--collisions", "none")
    assert checked.returncode == PREFLIGHT
    assert f"duplicates cannot go to quarantine in {site.database}.customer (foreign keys)" in checked.stdout


def test_partial_images_of_a_table_with_that_policy_are_refused(
    site: Site, start_server: Callable[..., Server]
) -> None:
    """A source that writes changes of JSON values only cannot have its rows followed in quarantine."""
    own = start_server(options={"binlog_row_value_options": "PARTIAL_JSON"})
    document = yaml.safe_load(site.file.read_text())
    shard = site.shards["b"]
    own.execute_script(f"CREATE DATABASE {shard.database}")
    document["streams"]["b"]["port"] = own.port
    own.execute_script(f"CREATE USER {site.user} IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO {site.user}")
    site.file.write_text(yaml.safe_dump(document))
    checked = site.vmerge("check", str(site.file), "--collisions", "none")
    assert checked.returncode == PREFLIGHT
    assert "[quarantine-partial-images]" in checked.stdout


def test_orders_and_changes_of_one_row_meet_at_any_time(site: Site) -> None:
    """While a shard changes a row without end, an operator drops and retries it: no change is lost or done twice."""
    with running(site):
        number = park(site)
        is_over = threading.Event()
        writer = threading.Thread(target=change_names, args=(site, is_over))
        writer.start()
        try:
            for turn in range(4):
                site.client.quarantine("shop", "drop", number)
                with pytest.raises(VmergeError, match=HELD):
                    retry(site, number)
                run(site, "a", f"UPDATE customer SET email = 'turn{turn}@example.org' WHERE id = {FIRST}")
                wait_until(partial(retry, site, number, may_be_held=True), "the row comes back")
                site.wait_for("b", in_quarantine=0)
                run(site, "b", f"UPDATE customer SET email = 'turn{turn}@example.org' WHERE id = {SECOND}")
                site.wait_for("b", in_quarantine=1)
                (row,) = rows(site)
                number = row["id"]
        finally:
            is_over.set()
            writer.join()
        run(site, "b", f"UPDATE customer SET email = 'end@example.org' WHERE id = {SECOND}")
        site.require_exact()
        site.wait_for("b", in_quarantine=0, state="running")


def change_names(site: Site, is_over: threading.Event) -> None:
    """Change the name in the row over and over, and a row beside it."""
    place = site.shards["b"]
    insert(site, "b", THIRD, "third@example.org")
    with place.server.connect(place.database) as connection, connection.cursor() as cursor:
        for number in itertools.count():
            if is_over.is_set():
                return
            query = "UPDATE customer SET name = %s WHERE id IN (%s, %s)"
            cursor.execute(query, (str(number), SECOND, THIRD))


def retry(site: Site, number: int, *, may_be_held: bool = False) -> bool:
    """Retry a row; return whether it was done. An entry that its stream has locked is tried again."""
    while True:
        try:
            site.client.quarantine("shop", "retry", number)
        except VmergeError as error:
            if may_be_held and error.exit_code == CONFLICT:
                return False
            if error.exit_code != TARGET:
                raise
        else:
            return True
