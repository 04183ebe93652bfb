"""Which event of the conflict machine an error is.

Knows: what the errors of an attempt mean for the stream that made it. Never knows: what follows from them
(``core/conflict.py``). Used by the player alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vmerge.core import conflict_terms as terms
from vmerge.core.conflict_terms import Joining, Jumping, Waiting
from vmerge.errors import (
    JointRefused,
    KeyConflict,
    LockConflict,
    QuarantineSettled,
    RowMissing,
    SchemaMismatch,
    TargetRejected,
    UnsupportedEvent,
    VmergeError,
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What was tried."""

    state: terms.State
    """Of the machine, in which it was tried."""
    count: int
    """Of transactions."""
    siblings: terms.Siblings
    """The snapshot taken before it."""
    now: float
    """Monotonic."""


def event_of(error: VmergeError, attempt: Attempt, pause: Callable[[int], float]) -> terms.Event | None:
    """Return what the machine must hear of a failed attempt; None when the error ends the player.

    ``pause`` gives the seconds before an attempt of that number, counted from 1.
    """
    now, count, state = attempt.now, attempt.count, attempt.state
    match error:
        case KeyConflict():
            return terms.Conflicted(count, attempt.siblings, now, pause_before_next(state, pause))
        case LockConflict():
            locks = 0 if isinstance(state, terms.Stuck | Joining) else state.locks
            return terms.Locked(count, now, pause(locks + 1))
        case QuarantineSettled():
            return terms.Locked(count, now, pause_before_next(state, pause))
        case JointRefused():
            return terms.Unjoined(now, pause_before_next(state, pause))
        case RowMissing() | SchemaMismatch() | TargetRejected():
            return terms.Rejected(count, now, pause_before_next(state, pause))
        case UnsupportedEvent():
            return terms.Unfoldable(now, pause_before_next(state, pause))
        case _:
            return None


def pause_before_next(state: terms.State, pause: Callable[[int], float]) -> float:
    """Return the pause before the attempt that comes next."""
    match state:
        case Waiting(attempts=attempts):
            return pause(attempts + 1)
        case Jumping(waiting) | Joining(waiting):
            return pause(waiting.attempts + 1)
        case _:
            return pause(1)
