"""What a stream has done since its daemon started, as numbers.

Knows: what is counted. Never knows: when, or for whom. Part of a stream's progress on the board.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vmerge.core.stretch import Stretch

BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Up to so many transactions in a batch are counted together."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a stream has done since its daemon started."""

    transactions: int = 0
    batches: int = 0
    batch_sizes: tuple[int, ...] = (0,) * (len(BATCH_SIZES) + 1)
    """How many batches had so many transactions: by the bounds of ``BATCH_SIZES``, and more than the last."""
    row_events: int = 0
    rows_bytes: int = 0
    flushes: int = 0
    splits: int = 0
    waits: int = 0
    jumps: int = 0
    joints: int = 0
    testimonies: int = 0
    duplicates: int = 0
    foreign_rows: int = 0
    stricter_targets: int = 0
    """Verdicts, by their proofs."""
    quarantined: int = 0
    returned: int = 0
    """Rows that came back from quarantine."""
    lock_conflicts: int = 0
    restarts: int = 0
    restart_causes: Mapping[str, int] = field(default_factory=dict)
    """By the names of the errors."""
    restart_seconds: float = 0.0
    """Pauses before restarts that have ended."""
    schema_changes_executed: int = 0
    schema_changes_ignored: int = 0
    barrier_seconds: float = 0.0
    """Ended waits at schema changes only; see ``BarrierWait`` for the one under way."""
    blocked_seconds: float = 0.0
    """Ended waits only; see ``Blocked`` for the one under way."""
    locked_seconds: float = 0.0
    """Ended waits for locks only; see ``LockWait`` for the one under way."""

    def with_batch(self, stretch: Stretch) -> Counters:
        """Return the counters with one more target transaction, in which these were committed."""
        sizes = list(self.batch_sizes)
        sizes[bisect_left(BATCH_SIZES, stretch.count)] += 1
        return replace(
            self,
            transactions=self.transactions + stretch.count,
            batches=self.batches + 1,
            batch_sizes=tuple(sizes),
            row_events=self.row_events + stretch.event_count,
            rows_bytes=self.rows_bytes + stretch.byte_count,
        )

    def with_restart(self, cause: str) -> Counters:
        """Return the counters with one more restart after an error of this name."""
        causes = {**self.restart_causes, cause: self.restart_causes.get(cause, 0) + 1}
        return replace(self, restarts=self.restarts + 1, restart_causes=causes)
