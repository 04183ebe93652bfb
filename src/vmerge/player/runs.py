"""A blocked stream's next transactions, taken together.

Knows: that they are kept in memory as far as the backlog's reach goes, and that the net effect of more grows on disk.
Never knows: when they are needed. Used by the player and its ``Contention``, in the player's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vmerge.core.events import Transaction
from vmerge.core.fold import Fold
from vmerge.core.long_run import LongRun
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stretch import Stretch, gtids_of
from vmerge.errors import VmergeError
from vmerge.player.backlog import Backlog, Reach
from vmerge.player.ends import Target


@dataclass(frozen=True, slots=True)
class Flight:
    """What is applied to the target and not yet committed."""

    stretch: Stretch
    position: GtidSet
    """The one that comes with it."""
    dropped: int
    """How many items of the backlog are done then."""

    @classmethod
    def of(cls, run: Sequence[Transaction], position: GtidSet) -> Flight:
        """Take whole transactions that the backlog begins with; ``position`` is the one before them."""
        return cls(Stretch.of(run), position.advanced(gtids_of(run)), len(run))


class Runs:
    """What a stream knows of its own future. Owner: the player."""

    def __init__(self, backlog: Backlog, reach: Reach, target: Target) -> None:
        self._backlog = backlog
        self._reach = reach
        self._target = target
        self.long: LongRun | None = None
        """The run from the position on, if it is longer than what the backlog keeps."""

    @property
    def effect(self) -> Fold | None:
        """The net effect of the long run, if there is one."""
        return None if self.long is None else self.long.effect

    @property
    def failure(self) -> VmergeError | None:
        """What keeps the stream from reading on, while it is blocked."""
        return self._backlog.failure

    def kept(self, position: GtidSet) -> list[Transaction]:
        """Return as many as are kept; ``position`` is the one before the first."""
        return self._backlog.look_ahead(self._reach.transactions, position)

    def last_of(self, kept: Sequence[Transaction]) -> Gtid:
        """Return the last transaction that is known; ``kept`` is at least one."""
        return kept[-1].gtid if self.long is None or self.long.stretch is None else self.long.stretch.last

    def grow(
        self, kept: Sequence[Transaction], position: GtidSet, count: int, meanwhile: Callable[[], None]
    ) -> LongRun:
        """Let the long run grow to so many transactions, or all that have arrived; begin it with those that are kept.

        ``meanwhile`` is called every now and then. Raises ``UnsupportedEvent``, after which there is no long run.
        """
        if self.long is None:
            self.long = LongRun(position, self._target.begin_fold())
            self.long.add(kept)
            self.long.kept = len(kept)
        while self.long.count < count and (more := self._backlog.read_on(self.long.position)):
            self.long.add(more)
            meanwhile()
        return self.long

    def end_long(self) -> None:
        """Forget the long run: the position has moved, or it is of no use."""
        long, self.long = self.long, None
        if long is not None:
            long.close()

    def leave_long(self) -> None:
        """Leave the long run to a leader, who reads it in another thread and is the last to let go of it."""
        self.long = None
