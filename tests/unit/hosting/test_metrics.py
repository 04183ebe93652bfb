"""Metrics: what Prometheus reads is what the status says, and what is documented and shipped exists."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.hosting.test_status import FixedClock

from vmerge.core.blocked import Blocked
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.source_facts import SourceFacts
from vmerge.core.states import Phase, StreamState
from vmerge.core.stretch import Stretch
from vmerge.hosting.metrics import (
    BATCHES_HELP,
    BATCHES_NAME,
    DROPPED_HELP,
    DROPPED_NAME,
    FOLLOWERS_HELP,
    FOLLOWERS_NAME,
    INFO_NAME,
    STANDBY_HELP,
    STANDBY_NAME,
    STREAM_METRICS,
    exposition,
)
from vmerge.hosting.status import unready_streams, workflow_snapshot
from vmerge.player.board import Board, LockWait
from vmerge.player.counters import Counters

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "config" / "monitoring"
HELPS = {metric.exposed_name: metric.help for metric in STREAM_METRICS} | {
    BATCHES_NAME: BATCHES_HELP,
    STANDBY_NAME: STANDBY_HELP,
    FOLLOWERS_NAME: FOLLOWERS_HELP,
    f"{DROPPED_NAME}_total": DROPPED_HELP,
}
NAMES = HELPS.keys() | {INFO_NAME}
NAME = re.compile(r"\bvmerge_[a-z_]+")


def status(board: Board, workflow: str = "shop") -> dict[str, Any]:
    """Return a daemon's status."""
    events = {"followers": 2, "dropped": 1}
    return {"version": "1.2", "events": events, "workflows": [workflow_snapshot(workflow, board, FixedClock())]}


def samples(board: Board) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read an exposition back: name and labels → number."""
    families = text_string_to_metric_families(exposition(status(board)).decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def of_stream(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return the key of a sample of the stream ``a``."""
    return name, frozenset({"workflow": "shop", "stream": "a", **labels}.items())


def test_a_standby_is_told() -> None:
    """A workflow that waits for another daemon's end has 1, one that runs here 0."""
    board = Board(["a"])
    for standby_for, value in (("elsewhere, process 7", 1.0), (None, 0.0)):
        snapshot = workflow_snapshot("shop", board, FixedClock(), standby_for)
        text = exposition({**status(board), "workflows": [snapshot]}).decode()
        assert f'{STANDBY_NAME}{{workflow="shop"}} {value}' in text
        assert ("vmerge_stream_phase{" in text) == (standby_for is None), "all else is the other daemon's"


def test_numbers_are_those_of_the_status() -> None:
    """Counters, times and the wait under way come out as the board has them, each under its labels."""
    board = Board(["a", "b"])
    counters = replace(board.progress("a").counters, transactions=12, jumps=3, duplicates=1, blocked_seconds=2.5)
    blocked = Blocked(since=90.0, attempts=3, gtid="u:1", key="customer.email", unfree=())
    board.update(
        "a",
        state=StreamState.RUNNING,
        phase=Phase.WAITING,
        applied_at=999_990.0,
        counters=counters,
        blocked=blocked,
        locked=LockWait(since=96.0, attempts=3),
    )
    found = samples(board)
    assert found[of_stream("vmerge_transactions_total")] == 12
    assert found[of_stream("vmerge_lag_seconds")] == 10
    assert found[of_stream("vmerge_conflict_remedies_total", remedy="jumps")] == 3
    assert found[of_stream("vmerge_verdicts_total", proof="duplicate")] == 1
    assert found[of_stream("vmerge_blocked_now_seconds")] == 10
    assert found[of_stream("vmerge_locked_now_seconds")] == 4
    assert found[of_stream("vmerge_blocked_seconds_total")] == 12.5
    assert found[of_stream("vmerge_stream_phase", phase=Phase.WAITING.value)] == 1
    assert found[of_stream("vmerge_stream_phase", phase=Phase.STREAMING.value)] == 0
    assert found[INFO_NAME, frozenset({("version", "1.2")})] == 1
    assert [found[name, frozenset()] for name in (FOLLOWERS_NAME, f"{DROPPED_NAME}_total")] == [2, 1]


def test_a_stream_without_a_transaction_has_no_lag() -> None:
    """A number that is not known is left out, and is no zero."""
    found = samples(Board(["a"]))
    for name in ("lag_seconds", "heartbeat_lag_seconds", "transactions_behind", "purge_in_seconds"):
        assert of_stream(f"vmerge_{name}") not in found


def test_how_far_behind_its_source() -> None:
    """Age, head, distance, time until the purge and the difference of the clocks are those of the stream's source."""
    board = Board(["a"])
    facts = SourceFacts(999_995.0, gtids(1, 50), GtidSet(), clock_ahead_seconds=2.0, kept_seconds=7200.0)
    board.update("a", source=facts)
    assert of_stream("vmerge_transactions_behind") not in samples(board), "its checkpoint was not read yet"
    board.update("a", applied=gtids(1, 45), applied_at=999_900.0, moved_at=999_910.0, source=facts)
    found = samples(board)
    assert found[of_stream("vmerge_heartbeat_lag_seconds")] == 102
    assert found[of_stream("vmerge_transactions_behind")] == 5
    assert found[of_stream("vmerge_applied_position")] == 45
    assert found[of_stream("vmerge_head_position")] == 50
    assert found[of_stream("vmerge_purge_in_seconds")] == 7200 - 102
    assert found[of_stream("vmerge_source_clock_ahead_seconds")] == 2


def gtids(first: int, last: int) -> GtidSet:
    """Return a GTID set."""
    return GtidSet.parse(f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{first}-{last}")


def test_sizes_of_batches() -> None:
    """The histogram counts each batch once, cumulatively, and sums their transactions."""
    board, gtid = Board(["a"]), Gtid(b"A" * 16, "", 1)
    counters = Counters()
    for count in (1, 1, 7, 1000, 20_000):
        counters = counters.with_batch(Stretch(count, gtid, 0, byte_count=10, event_count=2 * count))
    board.update("a", counters=counters)
    found = samples(board)
    counts = {
        bound: found[of_stream("vmerge_batch_transactions_bucket", le=f"{bound}")] for bound in (1, 5, 10, 1000, "+Inf")
    }
    assert counts == {1: 2, 5: 2, 10: 3, 1000: 4, "+Inf": 5}
    assert found[of_stream("vmerge_batch_transactions_sum")] == 21_009
    assert found[of_stream("vmerge_batch_transactions_count")] == 5
    assert found[of_stream("vmerge_row_events_total")] == 2 * 21_009


def test_waits_and_restarts_by_reason() -> None:
    """Waits under way count, each under its reason; each cause of a restart is there from the beginning."""
    board = Board(["a"])
    counters = Counters(blocked_seconds=2.5, locked_seconds=1.0, restart_seconds=4.0).with_restart("SourceLost")
    board.update("a", counters=counters, locked=LockWait(since=96.0, attempts=3))
    found = samples(board)
    waited = {
        reason: found[of_stream("vmerge_waited_seconds_total", reason=reason)]
        for reason in ("key", "lock", "schema_change", "restart")
    }
    assert waited == {"key": 2.5, "lock": 5.0, "schema_change": 0.0, "restart": 4.0}
    assert found[of_stream("vmerge_restart_causes_total", cause="SourceLost")] == 1
    assert found[of_stream("vmerge_restart_causes_total", cause="CommitUnknown")] == 0


def test_odd_names_are_escaped() -> None:
    """Label values with quotes, backslashes and line ends come out whole."""
    name = 'a"b\\c\nd'
    families = text_string_to_metric_families(exposition(status(Board([name]), name)).decode())
    labels = {
        (one.labels["workflow"], one.labels["stream"]) for f in families for one in f.samples if "stream" in one.labels
    }
    assert labels == {(name, name)}


def test_readiness() -> None:
    """A stream is not ready that is in error or lacks a server; one that an operator stopped, or that waits, is.

    Who asks needs no token, so no message is told.
    """
    board = Board(["error", "connecting", "stopped", "waiting", "streaming"])
    board.update("error", state=StreamState.ERROR, message="secret.table is missing")
    board.update("connecting", state=StreamState.RUNNING, phase=Phase.CONNECTING)
    board.update("waiting", state=StreamState.RUNNING, phase=Phase.WAITING)
    board.update("streaming", state=StreamState.RUNNING, phase=Phase.STREAMING)
    unready = unready_streams(status(board))
    assert [(one["stream"], one["state"]) for one in unready] == [("error", "error"), ("connecting", "running")]
    assert "secret" not in str(unready)


def test_every_metric_is_documented() -> None:
    """docs/metrics.md has exactly the metrics there are, with their meaning."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    documented = {row[0].strip("` "): row[3] for row in rows if len(row) == 4 and row[0].strip().startswith("`vmerge_")}
    assert documented.keys() == NAMES
    assert HELPS.items() <= documented.items()


def test_dashboard_and_alerts_ask_for_metrics_that_exist() -> None:
    """Every metric that the shipped dashboard and alerts name exists, and each alert says what to do."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    (group,) = yaml.safe_load((MONITORING / "prometheus-alerts.yml").read_text())["groups"]
    asked += [rule["expr"] for rule in group["rules"]]
    assert {name.removesuffix("_bucket") for text in asked for name in NAME.findall(text)} <= NAMES
    assert all(rule["annotations"]["description"] and rule["labels"]["severity"] for rule in group["rules"])
