"""The only code that waits.

Knows: clocks, stop tokens and conditions. Never knows: what is waited for, or why. Used by the board, the player, the
supervisor and the daemon. Every wait here ends when its token is set: nothing else in vmerge sleeps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Where instants come from."""

    def monotonic(self) -> float:
        """Seconds that only grow; for durations and deadlines."""

    def wall(self) -> float:
        """Seconds since 1970; for display and for lag."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        """See ``Clock``."""
        return time.monotonic()

    def wall(self) -> float:
        """See ``Clock``."""
        return time.time()


class StopToken:
    """Tells those who wait that they shall end.

    Promise: after ``set`` returned, every wait on the token, present or future, ends at once; it is never unset.
    Owner: whoever made it; any thread may set it.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._waited_for: list[threading.Condition] = []
        """One entry a wait, so that the end of one does not hide another on the same condition."""

    def set(self) -> None:
        """Tell everyone to stop."""
        self._event.set()
        with self._lock:
            conditions = set(self._waited_for)
        for condition in conditions:
            with condition:
                condition.notify_all()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until the token is set; return whether it is."""
        return self._event.wait(max(0.0, seconds))

    def wait_for(self, condition: threading.Condition, predicate: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``predicate`` holds, the token is set, or so long; return whether the predicate holds.

        ``condition`` must not be held by the caller, and is notified by whoever may change what is asked for.
        """
        with self._lock:
            self._waited_for.append(condition)
        try:
            with condition:
                condition.wait_for(lambda: self._event.is_set() or predicate(), max(0.0, seconds))
                return predicate()
        finally:
            with self._lock:
                self._waited_for.remove(condition)
