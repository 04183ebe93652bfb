"""Snapshots and their words: what an operator reads is what the board has."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from vmerge.core.blocked import Blocked
from vmerge.core.position import GtidSet
from vmerge.core.source_facts import SourceFacts
from vmerge.core.states import Phase, StreamState
from vmerge.hosting.status import status_line, status_table, stream_sentence, stream_snapshot, workflow_snapshot
from vmerge.player.board import Board, LockWait, StreamProgress
from vmerge.player.counters import Counters

RUNNING = StreamProgress("-80", state=StreamState.RUNNING, phase=Phase.APPLYING)
BLOCKED = Blocked(since=90.0, attempts=3, gtid="u:1", key="customer.email", unfree=())


class FixedClock:
    """A clock that stands still."""

    def monotonic(self) -> float:
        """See ``Clock``."""
        return 100.0

    def wall(self) -> float:
        """See ``Clock``."""
        return 1_000_000.0


def sentence(progress: StreamProgress) -> str:
    """Return the words for a stream."""
    return stream_sentence(stream_snapshot(progress, {}, FixedClock()))


@pytest.mark.parametrize(
    ("progress", "lag"),
    [
        (RUNNING, None),
        (replace(RUNNING, applied_at=999_990.0), 10.0),
        (replace(RUNNING, applied_at=1_000_500.0), 0.0),
        (replace(RUNNING, applied_at=999_990.0, is_at_head=True), 0.0),
    ],
    ids=["nothing applied yet", "behind", "the source's clock is ahead", "at head"],
)
def test_lag(progress: StreamProgress, lag: float | None) -> None:
    """Lag is the age of the last applied transaction, never negative, and zero at the head."""
    assert stream_snapshot(progress, {}, FixedClock())["lag_seconds"] == lag


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (RUNNING, "applying"),
        (replace(RUNNING, is_at_head=True), "at head"),
        (replace(RUNNING, in_quarantine=1), "applying; 1 row in quarantine"),
        (replace(RUNNING, is_at_head=True, in_quarantine=2), "at head; 2 rows in quarantine"),
        (replace(RUNNING, phase=Phase.BACKING_OFF, message="no server"), "backing off: no server"),
        (replace(RUNNING, blocked=BLOCKED), "waits on a sibling since 10.0 s for customer.email"),
        (
            replace(RUNNING, blocked=replace(BLOCKED, key="", unfree=("80-",))),
            "waits on a sibling since 10.0 s for a key; not running: 80-",
        ),
        (replace(RUNNING, locked=LockWait(since=95.5, attempts=2)), "applying"),
        (
            replace(RUNNING, phase=Phase.LOCKED_OUT, locked=LockWait(since=95.5, attempts=5), blocked=BLOCKED),
            "waits for a lock on the target since 4.5 s, 5 attempts; see sys.innodb_lock_waits there",
        ),
        (StreamProgress("-80"), "stopped"),
        (
            StreamProgress("-80", state=StreamState.ERROR, message="two things:\n  one\n  two"),
            "error: two things: one two",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sentence(progress: StreamProgress, words: str) -> None:
    """One short sentence, in one line, says what a stream is doing and what for."""
    assert sentence(progress) == words


def test_blocked_time_counts_while_it_lasts() -> None:
    """The total of blocked time includes the wait that is under way."""
    progress = replace(RUNNING, blocked=BLOCKED, counters=Counters(blocked_seconds=2.5))
    snapshot = stream_snapshot(progress, {}, FixedClock())
    assert snapshot["blocked_seconds_total"] == 12.5
    assert snapshot["blocked"]["seconds"] == 10.0


def test_workflow_is_ready_for_json() -> None:
    """A workflow's snapshot has its streams in their order, and is JSON as it stands."""
    board = Board(("80-", "-80"))
    board.update("-80", applied=GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"))
    snapshot = workflow_snapshot("w", board, FixedClock())
    assert [stream["stream"] for stream in snapshot["streams"]] == ["80-", "-80"]
    assert json.loads(json.dumps(snapshot)) == snapshot
    assert snapshot["streams"][1]["applied"].endswith(":1-5")


def test_table_and_line() -> None:
    """The table has one aligned line a stream, and the status line all streams of a workflow."""
    board = Board(("-80", "80-"))
    board.update(
        "-80",
        state=RUNNING.state,
        phase=RUNNING.phase,
        applied_at=999_998.5,
        counters=Counters(transactions=1234),
    )
    snapshot = workflow_snapshot("customers", board, FixedClock())
    head, *rows = status_table([snapshot]).splitlines()
    assert [row.split()[1] for row in rows] == ["-80", "80-"]
    assert {row.index("applying") if "applying" in row else head.index("DOING") for row in rows} == {
        head.index("DOING")
    }
    assert status_line(snapshot) == "-80 1234 tx, lag 1.5 s, applying | 80- 0 tx, lag –, stopped"


def test_a_purge_to_come_is_told() -> None:
    """A stream whose source may purge what it needs within the hour says so behind whatever it does."""
    facts = SourceFacts(0.0, GtidSet(), GtidSet(), 0.0, kept_seconds=7200.0)
    progress = replace(RUNNING, heard_at=1_000_000.0 - 5400, source=facts)
    assert sentence(progress) == "applying; its source may purge what it still needs in 30 min"
    assert sentence(replace(progress, heard_at=1_000_000.0 - 3000)) == "applying"
    assert sentence(replace(progress, heard_at=1.0)) == "applying; its source purges what it still needs"


def test_table_without_workflows() -> None:
    """A daemon without workflows shows the head of the table alone."""
    assert len(status_table([]).splitlines()) == 1
