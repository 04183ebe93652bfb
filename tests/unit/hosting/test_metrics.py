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
from vmerge.core.states import Phase, StreamState
from vmerge.hosting.metrics import INFO_NAME, STREAM_METRICS, exposition
from vmerge.hosting.status import unready_streams, workflow_snapshot
from vmerge.player.board import Board, LockWait

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "config" / "monitoring"
NAMES = {metric.exposed_name for metric in STREAM_METRICS} | {INFO_NAME}
NAME = re.compile(r"\bvmerge_[a-z_]+")


def status(board: Board, workflow: str = "shop") -> dict[str, Any]:
    """Return a daemon's status."""
    return {"version": "1.2", "workflows": [workflow_snapshot(workflow, board, FixedClock())]}


def samples(board: Board) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Read an exposition back: name and labels → number."""
    families = text_string_to_metric_families(exposition(status(board)).decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def of_stream(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return the key of a sample of the stream ``a``."""
    return name, frozenset({"workflow": "shop", "stream": "a", **labels}.items())


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


def test_a_stream_without_a_transaction_has_no_lag() -> None:
    """A number that is not known is left out, and is no zero."""
    assert of_stream("vmerge_lag_seconds") not in samples(Board(["a"]))


def test_odd_names_are_escaped() -> None:
    """Label values with quotes, backslashes and line ends come out whole."""
    name = 'a"b\\c\nd'
    families = text_string_to_metric_families(exposition(status(Board([name]), name)).decode())
    labels = {
        (one.labels["workflow"], one.labels["stream"]) for f in families for one in f.samples if "stream" in one.labels
    }
    assert labels == {(name, name)}


def test_readiness() -> None:
    """A stream is not ready that is in error or lacks a server; one that an operator stopped, or that waits, is."""
    board = Board(["error", "connecting", "stopped", "waiting", "streaming"])
    board.update("error", state=StreamState.ERROR)
    board.update("connecting", state=StreamState.RUNNING, phase=Phase.CONNECTING)
    board.update("waiting", state=StreamState.RUNNING, phase=Phase.WAITING)
    board.update("streaming", state=StreamState.RUNNING, phase=Phase.STREAMING)
    assert [one["stream"] for one in unready_streams(status(board))] == ["error", "connecting"]


def test_every_metric_is_documented() -> None:
    """docs/metrics.md has exactly the metrics there are, with their meaning."""
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    documented = {row[0].strip("` "): row[3] for row in rows if len(row) == 4 and row[0].strip().startswith("`vmerge_")}
    assert documented.keys() == NAMES
    assert {metric.exposed_name: metric.help for metric in STREAM_METRICS}.items() <= documented.items()


def test_dashboard_and_alerts_ask_for_metrics_that_exist() -> None:
    """Every metric that the shipped dashboard and alerts name exists, and each alert says what to do."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    (group,) = yaml.safe_load((MONITORING / "prometheus-alerts.yml").read_text())["groups"]
    asked += [rule["expr"] for rule in group["rules"]]
    assert {name for text in asked for name in NAME.findall(text)} <= NAMES
    assert all(rule["annotations"]["description"] and rule["labels"]["severity"] for rule in group["rules"])
