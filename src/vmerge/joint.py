"""Joint commits: several blocked streams in one target transaction, led by one of them.

Knows: how a stream offers its run and learns what became of it, and what the one that leads does with the offers.
Never knows: when a stream should join (``core/conflict.py``), or SQL. Used by the player alone, in its thread.

How it goes
-----------
Each member puts its run on the board and applies nothing while the offer stands. The member with the smallest name
takes all offers into its hand, applies their net effects in one target transaction of its own session, writes every
member's checkpoint in it, commits, and settles. A member's thread does nothing meanwhile but wait for that.

Nothing here is trusted for exactness. The leader's UPDATE of each checkpoint names the position that was offered and
the member's epoch, and must match one row. So a member that was stopped, or has started anew, is not harmed: either its
row is as it was offered and gets the new position with the rows, or the whole joint commit is rolled back. And a
member whose leader was lost in COMMIT starts anew from its checkpoint, behind the lock of its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vmerge.core.joint import Offer, Part, candidates


class JointTarget(Protocol):
    """What a target does for a joint commit."""

    def membership(self) -> object:
        """Return what a leader's target must know of this stream."""

    def apply_joint(self, parts: Sequence[Part]) -> str | None:
        """Begin a target transaction and apply the net effects of several streams together.

        Returns None if all of it is applied, or the stream whose part does not fit. Then, and on any error, the
        caller rolls back.
        """

    def commit_joint(self, parts: Sequence[Part]) -> None:
        """Write each part's position and commit.

        Raises ``JointRefused`` if a member is no longer where its offer said; the caller rolls back.
        """

    def rollback(self) -> None:
        """Undo the open target transaction, if there is one."""


def apply_joint(target: JointTarget, offers: Sequence[Offer]) -> tuple[Part, ...]:
    """Leave a target transaction open with the parts that are returned: nothing if no two parts fit together.

    On an error the caller rolls back.
    """
    for parts in candidates(offers):
        fitting = _apply_fitting(target, parts)
        if fitting:
            return fitting
    return ()


def _apply_fitting(target: JointTarget, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Apply parts, leaving out one after the other that does not fit with those that are left."""
    while len(parts) > 1:
        misfit = target.apply_joint(parts)
        if misfit is None:
            return parts
        target.rollback()
        parts = tuple(part for part in parts if part.stream != misfit)
    return ()
