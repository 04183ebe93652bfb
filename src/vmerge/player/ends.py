"""What the player needs of its target and of whoever can be asked about a conflict.

Knows: the promises, as protocols with two implementations each: ``vmerge.mysql`` and the simulator of the tests. Never
knows: how they are kept. Used by the player and its parts. The source's protocol is in ``backlog.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vmerge.core.events import Transaction
from vmerge.core.evidence import Testimony
from vmerge.core.fold import Fold
from vmerge.core.joint import Offer
from vmerge.core.position import GtidSet
from vmerge.player.joint import JointTarget
from vmerge.player.quarantining import Pointer, QuarantineTarget


class Target(JointTarget, QuarantineTarget, Protocol):
    """Where a stream's transactions go. At most one target transaction is open."""

    def open(self) -> GtidSet:
        """Take the stream over, so that no earlier owner can commit any more, and return its position."""

    def apply(self, batch: Sequence[Transaction]) -> None:
        """Begin a target transaction and apply whole transactions in it. On an error the caller rolls back."""

    def apply_net_effect(self, run: Sequence[Transaction]) -> None:
        """Begin a target transaction and apply what a run of transactions does in the end (``core/fold.py``).

        Raises ``UnsupportedEvent`` when that cannot be told. On any error the caller rolls back.
        """

    def begin_fold(self) -> Fold:
        """Return an empty fold for a run of any length; ``apply_effect`` takes it."""

    def apply_effect(self, effect: Fold, first: Transaction) -> None:
        """Begin a target transaction and apply the net effect of a run that begins with ``first``."""

    def commit(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Store the position in the open target transaction (or one of its own) and commit."""

    def close(self) -> None:
        """Let go of the target."""


class Witness(Pointer, Protocol):
    """Who can be asked about a conflict."""

    def testify(
        self, run: Sequence[Transaction], effect: Fold | None = None, fellows: Sequence[Offer] = ()
    ) -> Testimony:
        """Look up what keeps a run's net effect out of the target, and where those rows are at the sources.

        ``effect`` is that of a longer run, of which ``run`` has the first transactions. ``fellows`` are runs of
        siblings: the target is looked at as it would be with as many of them as fit.
        Changes nothing. Raises ``UnsupportedEvent`` when the rows cannot be followed, and errors of source or target.
        """
