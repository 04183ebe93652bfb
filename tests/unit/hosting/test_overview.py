"""The page's answer: lags of the last hour, bounded, and what streams do in words."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.hosting.test_status import FixedClock

from vmerge.core.blocked import Blocked
from vmerge.core.states import Phase, StreamState
from vmerge.hosting.overview import KEPT_SAMPLES, SAMPLE_SECONDS, LagHistory, overview_snapshot
from vmerge.hosting.status import workflow_snapshot
from vmerge.player.board import Board


def status(**lags: float | None) -> list[dict[str, Any]]:
    """Return the workflow of a status with each stream's lag."""
    return [{"workflow": "shop", "streams": [stream(name, lag) for name, lag in lags.items()]}]


def stream(name: str, lag: float | None) -> dict[str, Any]:
    """Return what a history reads of a stream's status."""
    return {"stream": name, "lag_seconds": lag, "heartbeat_lag_seconds": None, "is_at_head": False}


def lags_of(history: LagHistory, after: float | None = None) -> dict[str, list[float | None]]:
    """Return each stream's lags."""
    return {one["stream"]: one["lags"] for one in history.since(after)["streams"]}


def test_the_last_hour_is_kept() -> None:
    """A history holds an hour and no sample more, however long the daemon lives."""
    history = LagHistory()
    for number in range(KEPT_SAMPLES + 7):
        history.record(number * SAMPLE_SECONDS, status(a=float(number)))
    assert SAMPLE_SECONDS * KEPT_SAMPLES == 3600
    assert lags_of(history)["a"] == [float(number) for number in range(7, KEPT_SAMPLES + 7)]
    assert len(history.since(None)["times"]) == KEPT_SAMPLES


def test_only_what_is_new_is_told() -> None:
    """Who has seen a time gets what came later."""
    history = LagHistory()
    for at in (1.0004, 2.0004, 3.0004):
        history.record(at, status(a=at))
    times = history.since(None)["times"]
    assert history.since(times[1])["times"] == [times[2]] and lags_of(history, times[1]) == {"a": [3.0004]}
    assert history.since(times[2])["times"] == [] and lags_of(history, times[2]) == {"a": []}


def test_streams_come_and_go() -> None:
    """Each stream has one lag for each time, unknown before it came; one that is not hosted any more is forgotten."""
    history = LagHistory(kept=3)
    history.record(1, status(a=0.5, gone=1.0))
    history.record(2, status(a=None, new=2.0))
    assert lags_of(history) == {"a": [0.5, None], "new": [None, 2.0]}
    history.record(3, status(new=3.0, a=1.5))
    history.record(4, status(new=4.0, a=2.5))
    assert lags_of(history) == {"new": [2.0, 3.0, 4.0], "a": [None, 1.5, 2.5]}


def test_an_answer_has_words_and_edges() -> None:
    """The answer says what each stream does, and who waits; it can be written as JSON whatever is not known."""
    board = Board(["a", "b"])
    blocked = Blocked(since=90.0, attempts=3, gtid="u:1", key="customer.email", unfree=())
    board.update("a", state=StreamState.RUNNING, phase=Phase.WAITING, blocked=blocked)
    history = LagHistory()
    history.record(1, status(a=None))
    told = workflow_snapshot("shop", board, FixedClock(), standby_for="another")
    gone = {**told, "workflow": "gone"}  # by a reload, between two looks
    shown = overview_snapshot([told, gone], {"shop": board}, history, None, 100.0)
    answer = json.loads(json.dumps(shown, allow_nan=False))
    (workflow,) = answer["workflows"]
    assert workflow["standby_for"] == "another"
    assert [stream["doing"] for stream in workflow["streams"]] == [
        "waits on a sibling since 10.0 s for customer.email",
        "stopped",
    ]
    assert [(edge["from"], edge["to"]) for edge in workflow["graph"]["edges"]] == [("a", None)]
    assert answer["history"]["streams"] == [{"workflow": "shop", "stream": "a", "lags": [None]}]
