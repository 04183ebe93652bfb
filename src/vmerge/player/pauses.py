"""How long to pause before something is tried again.

Knows: the growth and jitter of pauses. Never knows: what is tried, or how to wait. Used by the player and
the supervisor.
"""

from __future__ import annotations

from tenacity import RetryCallState, wait_random_exponential
from tenacity.wait import wait_base


def pause_of(strategy: wait_base, attempt: int) -> float:
    """Return what a tenacity wait strategy says for an attempt, in seconds; ``attempt`` counts from 1."""
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]  # it only counts
    state.attempt_number = attempt
    return float(strategy(state))


_RESTART = wait_random_exponential(multiplier=0.25, min=0.05, max=10)
_RETRY = wait_random_exponential(multiplier=0.01, min=0.002, max=2)


def restart_pause(attempt: int) -> float:
    """Return the pause before the next restart; restarts count anew once the position has moved."""
    return pause_of(_RESTART, attempt)


def retry_pause(attempt: int) -> float:
    """Return the pause before a blocked or locked-out transaction is tried again."""
    return pause_of(_RETRY, attempt)
