"""Sources are asked seldom, and an operator hears once that a binlog is soon gone."""

from __future__ import annotations

import logging

import pytest

from vmerge.core.position import GtidSet
from vmerge.core.source_facts import SourceFacts
from vmerge.errors import SourceLost
from vmerge.hosting.source_watch import AT_HEAD_SECONDS, ROUND_SECONDS, SourceWatch
from vmerge.player.board import Board
from vmerge.stopping import StopToken

HOUR = 3600.0
GTIDS = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")


class Rounds(StopToken):
    """Ends after so many rounds, between which time passes at once."""

    def __init__(self, clock: SetClock, count: int) -> None:
        super().__init__()
        self._clock = clock
        self._left = count

    def wait(self, seconds: float) -> bool:
        """See ``StopToken``."""
        self._clock.now += seconds
        self._left -= 1
        if not self._left:
            self.set()
        return self.is_set()


class SetClock:
    """A clock that is set by hand."""

    now = 1000.0

    def monotonic(self) -> float:
        """See ``Clock``."""
        return self.now

    def wall(self) -> float:
        """See ``Clock``."""
        return self.now


class Sources:
    """Sources that keep binlogs for ten hours; those in ``down`` do not answer."""

    def __init__(self, clock: SetClock) -> None:
        self._clock = clock
        self.asked: list[tuple[str, float]] = []
        self.down: set[str] = set()

    def ask_source(self, stream: str) -> SourceFacts:
        """See ``AskedSources``."""
        self.asked.append((stream, self._clock.now))
        if stream in self.down:
            raise SourceLost("down")
        return SourceFacts(self._clock.now, GTIDS, GtidSet(), 0.0, 10 * HOUR)


def watch(board: Board, sources: Sources, clock: SetClock, rounds: int) -> None:
    """Let a watch make its rounds."""
    SourceWatch("w", sources, board, clock).run(Rounds(clock, rounds))


def test_sources_are_asked_seldom_at_the_head() -> None:
    """Who is behind has its source asked every round; who is at the head once in a while."""
    clock, board = SetClock(), Board(["behind", "at_head"])
    sources = Sources(clock)
    board.update("at_head", is_at_head=True)
    watch(board, sources, clock, int(AT_HEAD_SECONDS / ROUND_SECONDS) + 1)
    assert [at for stream, at in sources.asked if stream == "at_head"] == [1000.0, 1000.0 + AT_HEAD_SECONDS]
    assert sum(stream == "behind" for stream, _ in sources.asked) == 7


def test_a_source_that_is_down_keeps_nobody_from_the_others() -> None:
    """What is known of a source stays as it was while it does not answer, and the others are asked."""
    clock, board = SetClock(), Board(["a", "b"])
    sources = Sources(clock)
    watch(board, sources, clock, 1)
    sources.down.add("a")
    watch(board, sources, clock, 1)
    known = [board.progress(name).source for name in ("a", "b")]
    assert [facts.asked_at for facts in known if facts is not None] == [1000.0, 1010.0]


def test_a_purge_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that stands still is warned of when less than an hour is left, once, also if its source is away then."""
    caplog.set_level(logging.INFO)
    clock, board = SetClock(), Board(["a"])
    board.update("a", applied=GTIDS, heard_at=clock.now)
    sources = Sources(clock)
    watcher = SourceWatch("w", sources, board, clock)
    for hours, told in ((8.9, 0), (0.2, 1), (0.5, 1), (0.3, 1)):
        clock.now += hours * HOUR
        watcher.run(Rounds(clock, 2))
        assert len(caplog.records) == told
        sources.down.add("a")
    (record,) = caplog.records
    assert (record.levelname, record.__dict__["stream"]) == ("WARNING", "w/a")
    assert "may purge what it still needs in 54 min" in record.getMessage()
