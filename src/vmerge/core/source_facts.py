"""How far a stream is behind its source, and for how long the source keeps what it needs.

Knows: what a source says of itself now and then, and the arithmetic of that with what the stream has applied. Never
knows: how a source is asked, or when. Used by ``mysql/source.py``, the board, the supervisor and the status.

Two clocks meet here. Commit times are the source's, all other instants this machine's; ``clock_ahead_seconds`` brings
the first to the second. Instants are seconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vmerge.core.position import GtidSet

WARNED_BELOW_SECONDS = 3600.0
"""With less time than this an operator must hear that a source will purge what is needed..."""
WARNED_SHARE = 0.5
"""...unless it is more than this share of all the time that the source keeps binlogs: for some that is an hour."""
CALM_AGAIN = 1.5
"""The time left must have grown to so many times the warned one before it is warned of again."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What a source said when it was last asked."""

    asked_at: float
    executed: GtidSet
    purged: GtidSet
    clock_ahead_seconds: float
    """By how much the source's clock is ahead of this machine's, right to about the time that asking took."""
    kept_seconds: float | None
    """For how long after its last write the source keeps a binlog; None when it does not purge by itself."""


class PurgeUnknown(Enum):
    """Why nobody knows when a source purges what a stream needs."""

    NOT_ASKED = "the source has not been asked yet"
    NOT_BY_ITSELF = "the source purges nothing by itself"
    NOTHING_APPLIED = "nothing of the source was applied or heard yet"


def as_of(
    heard_at: float | None, applied_at: float | None, moved_at: float | None, facts: SourceFacts | None
) -> float | None:
    """Return the instant at which the source was as the target is: the newest sign that is fully applied.

    ``heard_at`` is when the source last said that there was nothing more, and all was applied. ``applied_at`` is the
    commit time of the last applied transaction; ``moved_at`` is when it was applied, and a transaction is no younger
    than that, whatever the source's clock says.
    """
    committed_at = None
    if applied_at is not None:
        committed_at = applied_at - (facts.clock_ahead_seconds if facts is not None else 0.0)
        committed_at = committed_at if moved_at is None else min(committed_at, moved_at)
    signs = [one for one in (heard_at, committed_at) if one is not None]
    return max(signs, default=None)


def head_of(applied: GtidSet, is_at_head: bool, facts: SourceFacts | None) -> GtidSet | None:
    """Return what the source has executed, as far as is known: what it said, and what has come from it since."""
    if is_at_head:
        return applied
    return None if facts is None else facts.executed.union(applied)


def purge_in(applied: GtidSet, as_of_seconds: float | None, facts: SourceFacts | None) -> float | PurgeUnknown:
    """Return in how many seconds, at the earliest, the source purges what is needed; ``as_of_seconds`` is an age.

    0 when it has purged some of that. What is needed next was committed after the newest sign that is applied, and a
    binlog is kept for a time after its last write: so it is there for that time at least.
    """
    if facts is None:
        return PurgeUnknown.NOT_ASKED
    if not applied.includes(facts.purged) and not applied.is_empty():
        return 0.0
    if facts.kept_seconds is None:
        return PurgeUnknown.NOT_BY_ITSELF
    if as_of_seconds is None:
        return PurgeUnknown.NOTHING_APPLIED
    return max(0.0, facts.kept_seconds - as_of_seconds)


def warned_below(kept_seconds: float | None) -> float:
    """Return the time left at which an operator must hear of it, for a source that keeps binlogs for so long."""
    return WARNED_BELOW_SECONDS if kept_seconds is None else min(WARNED_BELOW_SECONDS, kept_seconds * WARNED_SHARE)


@dataclass(slots=True)
class PurgeAlarm:
    """Rings once each time that a source comes close to purging what a stream needs. Owner: who asks the source."""

    is_on: bool = False

    def rings(self, seconds: float, kept_seconds: float | None) -> bool:
        """Whether to warn now, with so many seconds left."""
        threshold = warned_below(kept_seconds)
        was_on = self.is_on
        self.is_on = seconds < (threshold * CALM_AGAIN if was_on else threshold)
        return self.is_on and not was_on
