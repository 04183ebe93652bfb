"""What a stream's log says, and how often."""

from __future__ import annotations

import logging

import pytest

from vmerge.core import conflict_terms as terms
from vmerge.core.conflict_terms import Jumping, Siblings, Waiting
from vmerge.core.events import Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.core.stretch import Stretch
from vmerge.player.board import Board, LockWait
from vmerge.player.reporting import SELDOM_SECONDS, TOLD_LOCKS, Reporter

JUMPING = Jumping(Waiting(0.0, 2, Siblings(0, 1)), count=1)


class SetClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 5.0

    def monotonic(self) -> float:
        """See ``Clock``."""
        return self.now

    def wall(self) -> float:
        """See ``Clock``."""
        return self.now


def test_a_lock_that_somebody_holds_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that is locked out says since when, in the log ever more seldom; a commit ends it."""
    caplog.set_level(logging.INFO)
    clock, board = SetClock(), Board(["A", "B"])
    board.update("A", state=StreamState.RUNNING, phase=Phase.STREAMING)
    reporter = Reporter("A", board, clock)
    phases = []
    for second in range(100):
        clock.now = float(second)
        event = terms.Locked(1, clock.now, 0.1)
        reporter.decided(terms.Clear(), event, terms.Await(clock.now, None))
        phases.append(board.progress("A").phase)
    assert phases == [Phase.STREAMING] * 2 + [Phase.LOCKED_OUT] * 98
    assert board.progress("A").locked == LockWait(since=0.0, attempts=100)
    told = [record.getMessage().split(" since ")[1].split(",")[0] for record in caplog.records]
    assert told == ["2.0 s", "4.0 s", "8.0 s", "16.0 s", "32.0 s", "64.0 s"]
    reporter.committed(terms.Clear(), Stretch.of([Transaction(Gtid(b"A" * 16, "", 1), 0, (), 1)]), GtidSet(), 1)
    assert board.progress("A").locked is None
    assert board.progress("A").counters.locked_seconds == 99.0
    assert caplog.records[-1].getMessage() == "goes on"


def test_brief_locks_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """Streams in each other's way for a moment count their conflicts, and say nothing."""
    caplog.set_level(logging.INFO)
    board = Board(["A", "B"])
    reporter = Reporter("A", board, SetClock())
    for _ in range(TOLD_LOCKS - 1):
        reporter.decided(terms.Clear(), terms.Locked(1, 0.0, 0.1), terms.Await(0.0, None))
    assert (board.progress("A").phase, caplog.records) == (Phase.IDLE, [])
    assert board.progress("A").counters.lock_conflicts == TOLD_LOCKS - 1


def test_what_happens_all_day_is_told_seldom(caplog: pytest.LogCaptureFixture) -> None:
    """Of many jumps one gets a line in a while, which says how many were left out; all are counted."""
    caplog.set_level(logging.INFO)
    clock, board = SetClock(), Board(["A", "B"])
    board.update("A", state=StreamState.RUNNING, phase=Phase.STREAMING)
    reporter = Reporter("A", board, clock)
    run = Stretch.of([Transaction(Gtid(b"A" * 16, "", 1), 0, (), 1)])
    for _ in range(20):
        reporter.committed(JUMPING, run, GtidSet(), 1)
        clock.now += SELDOM_SECONDS / 10
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" (")[2] for line in lines] == ["", "as 9 times since this was last told)"]
    assert board.progress("A").counters.jumps == 20
