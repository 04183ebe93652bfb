"""Where a stream stands, and how much of that is stored on the target.

Knows: when a position is worth a store of its own. Never knows: what moved it. Used by the player alone, in its thread.
"""

from __future__ import annotations

from vmerge.core.position import GtidSet
from vmerge.player.ends import Target
from vmerge.stopping import Clock

IDLE_SAVE_SECONDS = 2.0
"""How often a position is stored that moved without any row for the target."""

KEEP_ALIVE_SECONDS = 10.0
"""How often a position is stored that did not move: a target may end sessions that say nothing for longer."""


class Checkpoint:
    """One stream's position. Invariant: what is stored lags ``position`` by transactions without rows at most."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self.position = GtidSet()
        self.applied_at_microseconds = 0
        """The source's commit time of the last transaction; 0 before the first."""
        self.is_unsaved = False
        self._saved_at = 0.0

    def opened(self, position: GtidSet) -> None:
        """Begin with what is stored."""
        self.position = position
        self._saved_at = self._clock.monotonic()

    def move_to(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Move past what has no rows for the target; it is stored some time later."""
        self.position = position
        self.applied_at_microseconds = applied_at_microseconds
        self.is_unsaved = True

    def has_saved(self) -> None:
        """The position has been stored, together with rows."""
        self.is_unsaved = False
        self._saved_at = self._clock.monotonic()

    def save(self) -> None:
        """Store the position in a target transaction of its own."""
        self._target.commit(self.position, self.applied_at_microseconds)
        self.has_saved()

    def save_if_due(self) -> None:
        """Store the position if it has moved, or the target heard nothing, for long enough."""
        period = IDLE_SAVE_SECONDS if self.is_unsaved else KEEP_ALIVE_SECONDS
        if self._clock.monotonic() - self._saved_at >= period:
            self.save()
