"""Asks the sources of one workflow now and then how far they are, and whether they still keep what is needed.

Knows: how often each source is asked, and when an operator must hear that a binlog is soon gone. Never knows: SQL, or
players: what a stream does never waits for this. The body of a thread that the supervisor makes.
"""

from __future__ import annotations

import logging
from typing import Protocol

from vmerge.core.source_facts import PurgeAlarm, SourceFacts, as_of, purge_in
from vmerge.errors import VmergeError
from vmerge.player.board import Board
from vmerge.stopping import Clock, StopToken

logger = logging.getLogger(__name__)

ROUND_SECONDS = 10.0
"""Between two rounds; as often as Prometheus usually comes."""
AT_HEAD_SECONDS = 60.0
"""For so long a source is not asked whose stream is at its head: the dump tells then what there is to know."""
TOLD_AGAIN_SECONDS = 600.0
"""Between two lines about a fault that keeps a source from being asked."""


class AskedSources(Protocol):
    """Who can ask."""

    def ask_source(self, stream: str) -> SourceFacts:
        """See ``vmerge.hosting.hosted.Assembly``."""


class SourceWatch:
    """The sources of one workflow. Owner: its thread."""

    def __init__(self, workflow: str, sources: AskedSources, board: Board, clock: Clock) -> None:
        self._workflow = workflow
        self._sources = sources
        self._board = board
        self._clock = clock
        self._asked_at: dict[str, float] = {}
        self._alarms: dict[str, PurgeAlarm] = {}

    def run(self, stop: StopToken) -> None:
        """Ask round by round until told to stop."""
        while not stop.is_set():
            for progress in self._board.all_progress():
                if stop.is_set():
                    return
                self._look_at(progress.name, progress.is_at_head)
            stop.wait(ROUND_SECONDS)

    def _look_at(self, stream: str, is_at_head: bool) -> None:
        now = self._clock.monotonic()
        if not is_at_head or now - self._asked_at.get(stream, -AT_HEAD_SECONDS) >= AT_HEAD_SECONDS:
            self._ask(stream)
            self._asked_at[stream] = now
        self._warn(stream)

    def _ask(self, stream: str) -> None:
        try:
            facts = self._sources.ask_source(stream)
        except VmergeError as error:
            # The stream meets the same, and says so; here only figures grow old, and the status has their age.
            logger.debug("%s", error.message, extra=self._about(stream))
        except Exception:  # the next round may do better, and the other streams' figures are not this one's fault
            telling = self._board.lines(stream).tell("asking its source", self._clock.monotonic(), TOLD_AGAIN_SECONDS)
            if telling is not None:
                logger.exception("internal error in asking its source%s", telling, extra=self._about(stream))
        else:
            self._board.update(stream, source=facts)

    def _warn(self, stream: str) -> None:
        """Tell once that a source will soon purge what is needed, whether or not it could be asked just now."""
        progress = self._board.progress(stream)
        facts = progress.source
        newest = as_of(progress.heard_at, progress.applied_at, progress.moved_at, facts)
        age = None if newest is None else self._clock.wall() - newest
        seconds = purge_in(progress.applied, age, facts)
        alarm = self._alarms.setdefault(stream, PurgeAlarm())
        if facts is None or not isinstance(seconds, float) or not alarm.rings(seconds, facts.kept_seconds):
            return
        logger.warning(
            "its source %s; see why it is behind, or keep binlogs for longer there (binlog_expire_logs_seconds)",
            f"may purge what it still needs in {seconds / 60:.0f} min" if seconds else "purges what it still needs",
            extra=self._about(stream),
        )

    def _about(self, stream: str) -> dict[str, str]:
        return {"stream": f"{self._workflow}/{stream}"}
