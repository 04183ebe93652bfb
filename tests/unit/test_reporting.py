"""What a stream's log says, and how often."""

from __future__ import annotations

import logging

import pytest

from vmerge.board import Board
from vmerge.core.conflict_terms import Jumping, Siblings, Waiting
from vmerge.core.events import Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.core.stretch import Stretch
from vmerge.reporting import SELDOM_SECONDS, Reporter

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
