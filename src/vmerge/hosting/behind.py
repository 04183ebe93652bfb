"""How far a stream is behind its source, as plain data and in a few words.

Knows: which figures an operator is told, and how they are rounded. Never knows: how they come about
(``core/source_facts.py``). Used by the status.
"""

from __future__ import annotations

from typing import Any

from vmerge.core.source_facts import (
    PurgeUnknown,
    SourceFacts,
    as_of,
    head_of,
    purge_in,
    warned_below,
)
from vmerge.player.board import StreamProgress
from vmerge.stopping import Clock


def source_snapshot(progress: StreamProgress, clock: Clock) -> dict[str, Any]:
    """Return the keys of a stream's status that are about its source. JSON-ready; every key is always there."""
    facts = progress.source
    newest = as_of(progress.heard_at, progress.applied_at, progress.moved_at, facts)
    age = None if newest is None else max(0.0, clock.wall() - newest)
    head = head_of(progress.applied, progress.is_at_head, facts)
    is_placed = newest is not None or not progress.applied.is_empty()  # else nobody has read its checkpoint yet
    purge = purge_in(progress.applied, age, facts)
    return {
        "as_of": newest,
        "heartbeat_lag_seconds": _rounded(age),
        "applied_count": progress.applied.count(),
        "head": None if head is None else str(head),
        "head_count": None if head is None else head.count(),
        "transactions_behind": head.subtract(progress.applied).count() if head is not None and is_placed else None,
        "purge_in_seconds": None if isinstance(purge, PurgeUnknown) else _rounded(purge),
        "purge_unknown": purge.value if isinstance(purge, PurgeUnknown) else None,
        "source": None if facts is None else _facts(facts, clock),
    }


def _facts(facts: SourceFacts, clock: Clock) -> dict[str, Any]:
    return {
        "asked_seconds_ago": _rounded(max(0.0, clock.wall() - facts.asked_at)),
        "clock_ahead_seconds": _rounded(facts.clock_ahead_seconds),
        "kept_seconds": facts.kept_seconds,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def shown_lag(stream: dict[str, Any]) -> float | None:
    """Return the lag that a person is shown, in seconds: how old the target is, unless only a commit time is known."""
    by_heartbeat: float | None = stream["heartbeat_lag_seconds"]
    by_commit: float | None = stream["lag_seconds"]
    return by_commit if stream["is_at_head"] or by_heartbeat is None else by_heartbeat


def lag_words(stream: dict[str, Any]) -> str:
    """Put that lag into words."""
    lag = shown_lag(stream)
    return "–" if lag is None else f"{lag:.1f} s"


def purge_words(stream: dict[str, Any]) -> str:
    """Return what is said behind the state of a stream whose source soon purges what it needs, else nothing."""
    seconds = stream["purge_in_seconds"]
    if seconds is None or seconds >= warned_below(stream["source"]["kept_seconds"]):
        return ""
    if not seconds:
        return "; its source purges what it still needs"
    return f"; its source may purge what it still needs in {seconds / 60:.0f} min"
