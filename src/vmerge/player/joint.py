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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vmerge.core.conflict_terms import Joining
from vmerge.core.joint import Offer, Part, candidates
from vmerge.player.board import Board, Offered
from vmerge.player.patience import Parked
from vmerge.stopping import Clock

LOOK_SECONDS = 0.25
"""How often a stream looks whether it may lead: some of what decides that changes by time alone."""

OFFER_SHARE = 0.02
"""Of ``jump_after_seconds``: how long an offer stands, though others move, of a stream that is blocked for longer."""

LED_SECONDS = 1.0
"""How long at a time a member waits for its leader; it is woken when the leader is done."""


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


@dataclass(frozen=True, slots=True)
class Retracted:
    """The offer was taken back: the stream may try alone again."""


class JointMember:
    """One stream as a member of joint commits. Owner: the player."""

    def __init__(self, name: str, target: JointTarget, board: Board, clock: Clock, jump_after_seconds: float) -> None:
        self._name = name
        self._target = target
        self._board = board
        self._clock = clock
        self._jump_after_seconds = jump_after_seconds
        self.parts: tuple[Part, ...] = ()
        """What is applied and not yet committed, if this stream leads."""
        self._may_be_joined = False
        """Whether a joint commit that this stream leads may be on the target."""

    @property
    def has_offer(self) -> bool:
        """Whether an offer of the stream stands, or was settled and not yet learned of."""
        return self._board.offered(self._name) is not None

    def leave(self) -> bool:
        """Take no part any more; return whether a leader may still read what was offered."""
        if self._may_be_joined:
            self._board.lose(self._name)
        self._board.settle(self._name, ())
        return self._board.withdraw(self._name)

    def go_on(self, joining: Joining, make_offer: Callable[[], Offer]) -> Parked | Retracted | Offered | None:
        """Offer the run; lead if it falls to this stream; learn what became of it; or take the offer back.

        Returns an offer once it is settled, and None after leading: ``parts`` are applied, or nothing is.
        Errors are those of ``apply_joint``; ``give_up`` must follow.
        """
        seen_news = self._board.news
        offered = self._board.offered(self._name)
        if offered is None:
            offered = self._board.offer(make_offer())
        if offered.settlement is not None:
            return offered
        now = self._clock.monotonic()
        if offered.leader is not None:
            return Parked(now + LED_SECONDS, seen_news)
        patient_since = now - self._jump_after_seconds
        offers = self._board.lead(self._name, now, patient_since)
        if offers:
            self._lead(offers)
            return None
        until = joining.until
        if self._board.siblings_of(self._name).version != joining.waiting.siblings.version:
            # In a long wait offers have to meet on the board, however fast other siblings move.
            stands = self._jump_after_seconds * OFFER_SHARE if joining.waiting.since <= patient_since else 0.0
            until = min(until, offered.offer.made_at + stands)
        if now >= until and self._board.retract(self._name):
            return Retracted()
        return Parked(min(until, now + LOOK_SECONDS), seen_news)

    def _lead(self, offers: Sequence[Offer]) -> None:
        self.parts = apply_joint(self._target, offers)
        if not self.parts:
            self._board.settle(self._name, ())

    def commit(self) -> Offered:
        """Commit ``parts`` and let the members go. On an error ``give_up`` must follow."""
        self._may_be_joined = True
        self._target.commit_joint(self.parts)
        self._may_be_joined = False
        parts, self.parts = self.parts, ()
        self._board.settle(self._name, parts)
        return self._own()

    def give_up(self) -> Offered:
        """Undo a joint commit that failed, then let the members go."""
        self.parts = ()
        self._target.rollback()
        self._may_be_joined = False
        self._board.settle(self._name, ())
        return self._own()

    def learned(self) -> None:
        """Forget the offer: what became of it is known."""
        self._board.withdraw(self._name)

    def _own(self) -> Offered:
        own = self._board.offered(self._name)
        assert own is not None, "a leader is a member"
        return own


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
