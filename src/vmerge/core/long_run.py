"""A run that is too long to be kept: its net effect grows on disk while its transactions pass by.

Knows: how far the run reaches, and what it comes to. Never knows: when it is long enough. Used by the player when a
jump needs more transactions than a backlog keeps, and offered to siblings for a joint commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmerge.core.events import Transaction
from vmerge.core.fold import Fold
from vmerge.core.position import GtidSet
from vmerge.core.stretch import Stretch, gtids_of


class LongRun:
    """The transactions from a stream's position on. Owner: the player, which closes it."""

    def __init__(self, position: GtidSet, fold: Fold) -> None:
        self._fold = fold
        self.position = position
        """The one behind the last transaction that was added."""
        self.stretch: Stretch | None = None
        """None before the first transaction."""
        self.kept = 0
        """How many of the transactions, the first ones, the backlog keeps."""

    @property
    def count(self) -> int:
        """How many transactions were added."""
        return self.stretch.count if self.stretch is not None else 0

    def add(self, transactions: Sequence[Transaction]) -> None:
        """Let the run grow. Raises as ``Fold.add`` does; the run is of no use then."""
        for transaction in transactions:
            self._fold.follow(transaction)
        self.position = self.position.advanced(gtids_of(transactions))
        added = Stretch.of(transactions)
        self.stretch = added if self.stretch is None else self.stretch.extended(added)

    @property
    def effect(self) -> Fold:
        """The net effect of all that was added."""
        return self._fold

    def close(self) -> None:
        """Let go of what is on disk."""
        self._fold.close()
