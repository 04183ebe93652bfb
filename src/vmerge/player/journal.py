"""Conflicts on their way into the log table.

Knows: which waits get an entry of their own, and that an entry may be late or lost but never in anybody's way. Never
knows: SQL, or why a wait ended. Players add to it (through their reporters), one thread of the supervisor's writes.

Why it is like this
-------------------
The log is for people, and rows and positions are not: so an entry is neither part of a target transaction, where its
locks and errors would become the stream's, nor written by the player, where it would cost the path a round trip. A
player leaves it here *after* its COMMIT and after the board has told its siblings, in memory, and goes on. The writer
gathers a moment's entries for one short connection. When the target cannot take them they wait, up to a bound, and the
oldest go first.

Where values move all day a stream may meet thousands of conflicts a minute that last milliseconds, and the table keeps
a thousand entries of each stream. So a stream gets ``TOLD_A_MINUTE`` entries a minute, and one more that counts the
rest by their outcomes. What stopped a stream, and any wait of ``LONG_SECONDS``, has its own entry in every case: there
can be but one a second of those.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vmerge.core.blocked import Ended
from vmerge.core.log_entry import LogEntry, Tally, entry_of
from vmerge.core.seldom import Seldom, kind_of
from vmerge.errors import VmergeError
from vmerge.stopping import Clock, StopToken

logger = logging.getLogger(__name__)

TOLD_A_MINUTE = 10
PERIOD_SECONDS = 60.0
LONG_SECONDS = 1.0
"""As long as a wait takes to be looked into: from then on an entry can say who held the key."""
GATHER_SECONDS = 0.5
"""So long entries wait for others, to share a connection."""
RETRY_SECONDS = 10.0
TOLD_AGAIN_SECONDS = 60.0
"""The daemon's log has an error that repeats at most this often."""
KEPT_ENTRIES = 1000
"""While the target cannot take them; as many as the table keeps of a stream."""

Write = Callable[[Sequence[LogEntry], float], None]
"""Writes entries down; the second argument is the present instant."""


@dataclass(frozen=True, slots=True)
class _Minute:
    """What was told of a stream since an instant."""

    since: float
    told: int = 0
    rest: Tally = field(default_factory=Tally)
    all: Tally = field(default_factory=Tally)


class Journal:
    """The conflicts of one workflow that are not in the log table yet.

    Promise: adding never waits for anything but a lock that is held for moments, and never fails.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._entries: deque[LogEntry] = deque(maxlen=KEPT_ENTRIES)
        self._minutes: dict[str, _Minute] = {}
        self._lines: deque[tuple[str, str]] = deque(maxlen=KEPT_ENTRIES)
        """For the daemon's log: a minute of each stream that had any conflict."""
        self._told = Seldom()

    def add(self, stream: str, ended: Ended, now: float) -> None:
        """Take note of a wait that has ended."""
        with self._changed:
            self._close_minutes(now)
            minute = self._minutes.get(stream) or _Minute(now)
            minute = replace(minute, all=minute.all.with_wait(ended))
            is_own = ended.outcome.is_surrender or ended.seconds >= LONG_SECONDS or minute.told < TOLD_A_MINUTE
            if is_own:
                self._entries.append(entry_of(stream, ended, now))
                self._minutes[stream] = replace(minute, told=minute.told + 1)
                self._changed.notify_all()
            else:
                self._minutes[stream] = replace(minute, rest=minute.rest.with_wait(ended))

    def _close_minutes(self, now: float, period_seconds: float = PERIOD_SECONDS) -> None:
        for stream, minute in tuple(self._minutes.items()):
            if now - minute.since < period_seconds:
                continue
            del self._minutes[stream]
            self._lines.append((stream, minute.all.sentence(now - minute.since)))
            if minute.rest.counts:
                self._entries.append(minute.rest.entry(stream, now, now - minute.since))

    def take(self, now: float) -> list[LogEntry]:
        """Take out everything that is due."""
        with self._changed:
            self._close_minutes(now)
            return self._take_all()

    def take_rest(self, now: float) -> list[LogEntry]:
        """Take out everything; nothing more comes."""
        with self._changed:
            self._close_minutes(now, period_seconds=0.0)
            return self._take_all()

    def _log_lines(self) -> None:
        """Tell the daemon's log of the minutes that have ended; never where a player waits for it."""
        while self._lines:
            stream, text = self._lines.popleft()
            logger.info("%s", text, extra={"stream": stream})

    def _take_all(self) -> list[LogEntry]:
        entries = list(self._entries)
        self._entries.clear()
        return entries

    def _put_back(self, entries: Sequence[LogEntry]) -> None:
        with self._changed:
            self._entries = deque([*entries, *self._entries], maxlen=KEPT_ENTRIES)

    def keep(self, write: Write, clock: Clock, stop: StopToken) -> None:
        """Write entries as they come, until told to stop, and then what is left; the body of a thread."""
        has_failed = False
        while not stop.is_set():
            # An entry wakes it; the end of a minute that has something to count is seen a moment late.
            stop.wait_for(self._changed, lambda: bool(self._entries), PERIOD_SECONDS / 4)
            stop.wait(RETRY_SECONDS if has_failed else GATHER_SECONDS)
            has_failed = not self._write(write, self.take(clock.monotonic()), clock)
        self._write(write, self.take_rest(clock.monotonic()), clock)

    def _write(self, write: Write, entries: Sequence[LogEntry], clock: Clock) -> bool:
        """Write entries, or put them back; return whether they are written."""
        self._log_lines()
        if not entries:
            return True
        try:
            write(entries, clock.monotonic())
        except VmergeError as error:
            telling = self._told.tell(kind_of(error.message), clock.monotonic(), TOLD_AGAIN_SECONDS)
            if telling is not None:
                logger.warning("entries for the log table wait: %s%s", error.message, telling)
        except Exception:  # a log must not end because of one entry, or of a fault of ours
            telling = self._told.tell("lost", clock.monotonic(), TOLD_AGAIN_SECONDS)
            if telling is not None:
                logger.exception("entries for the log table were lost%s", telling)
            return True
        else:
            return True
        self._put_back(entries)
        return False
