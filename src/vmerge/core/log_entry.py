"""What the log table on the target keeps of conflicts.

Knows: an entry, what it says of a wait that ended, and what it says of many that are not told one by one. Never knows:
when an entry is written, or how. Used by ``journal.py`` and ``mysql/checkpoints.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vmerge.core.blocked import Ended, Outcome, counted

SUMMARY = "conflicts"
"""The kind of an entry for many waits."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Something that happened to a stream."""

    stream: str
    at: float
    """Monotonic."""
    kind: str
    message: str
    facts: Mapping[str, Any]
    """JSON-ready, without row values but primary keys."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it is read back."""

    id: int
    """Grows with the entries of a workflow, almost in their order: streams write side by side."""
    stream: str
    happened_at: str
    """UTC, such as ``2025-01-31 12:00:00.000000``."""
    kind: str
    message: str
    facts: Mapping[str, Any] | None
    """None for what is no conflict."""


def entry_of(stream: str, ended: Ended, at: float) -> LogEntry:
    """Return the entry for one wait."""
    return LogEntry(stream, at, ended.outcome.value, ended.sentence(), ended.facts())


@dataclass(frozen=True, slots=True)
class Tally:
    """Waits that are told together."""

    counts: Mapping[Outcome, int] = field(default_factory=dict)
    seconds: float = 0.0
    longest: float = 0.0

    def with_wait(self, ended: Ended) -> Tally:
        """Return this tally and one more wait."""
        counts = {**self.counts, ended.outcome: self.counts.get(ended.outcome, 0) + 1}
        return replace(
            self, counts=counts, seconds=self.seconds + ended.seconds, longest=max(self.longest, ended.seconds)
        )

    def sentence(self, period_seconds: float, what: str = "conflict") -> str:
        """Say how many there were, how they ended, and for how long they kept the stream."""
        words = ", ".join(f"{count:,} × {outcome.value}" for outcome, count in self.counts.items())
        return (
            f"{counted(sum(self.counts.values()), what)} within {period_seconds:.0f} s ({words}), "
            f"blocked for {self.seconds:.1f} s in all, for {self.longest:.3f} s at most"
        )

    def entry(self, stream: str, at: float, period_seconds: float) -> LogEntry:
        """Return the entry for them all."""
        facts = {
            "period_seconds": round(period_seconds, 3),
            "outcomes": {outcome.value: count for outcome, count in self.counts.items()},
            "seconds": round(self.seconds, 3),
            "longest_seconds": round(self.longest, 3),
        }
        return LogEntry(stream, at, SUMMARY, self.sentence(period_seconds, "more conflict"), facts)
