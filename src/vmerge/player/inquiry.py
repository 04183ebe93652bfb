"""How a blocked stream finds out why.

Knows: whose testimony is asked for, and what it must be judged with. Never knows: when asking is due, or what follows
(``core/conflict.py``). Used by the player alone, in its thread.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from vmerge.core.events import Transaction
from vmerge.core.evidence import Testimony
from vmerge.core.fold import Fold
from vmerge.core.joint import Offer
from vmerge.core.position import GtidSet
from vmerge.core.verdict import Finding, Standing, Unproven, judge
from vmerge.errors import VmergeError
from vmerge.player.board import Board
from vmerge.player.ends import Target, Witness


@dataclass(frozen=True, slots=True)
class Answer:
    """What came out of asking."""

    finding: Finding
    testimony: Testimony | None
    """None when nobody could be asked."""
    run: Sequence[Transaction]
    """What it is about: the first of the stream's next transactions."""


class Inquiry:
    """What one stream has asked about its wait. Owner: the player."""

    def __init__(self, name: str, target: Target, witness: Witness, board: Board) -> None:
        self._name = name
        self._target = target
        self._witness = witness
        self._board = board
        self.fences: Mapping[str, GtidSet] = {}
        """The heads of the last testimony of this wait."""
        self.fellows: tuple[Offer, ...] = ()
        """What siblings offered when a joint commit with them did not fit."""

    def forget(self) -> None:
        """The stream has moved: what was found is of the past."""
        self.fences = {}
        self.fellows = ()

    def ask(self, kept: Sequence[Transaction], effect: Fold | None) -> Answer:
        """Gather evidence and judge it. ``effect`` is that of a longer run, which begins with ``kept``."""
        # Before the testimony: what a stream applied meanwhile may be what the testimony misses.
        applied = {progress.name: progress.applied for progress in self._board.all_progress()}
        standing = Standing(self._name, applied, self.fences)
        run: Sequence[Transaction] = kept
        try:
            run = self._target.visible(kept)
            testimony = self._witness.testify(run, effect, self._blocked_fellows(applied))
        except VmergeError as error:
            return Answer(Unproven(error.message), None, run)
        except Exception as error:  # a flaw in what only looks is no reason to stop; its text may hold row values
            return Answer(Unproven(f"internal error: {type(error).__name__}{_place_of(error)}"), None, run)
        self.fences = testimony.heads
        return Answer(judge(testimony, standing), testimony, run)

    def _blocked_fellows(self, applied: Mapping[str, GtidSet]) -> list[Offer]:
        """Return the fellows that still stand where their offers began.

        In a ring a duplicate may show only behind what the members release together. A longer run than is kept is its
        owner's, who may add to it now; such a fellow stays out.
        """
        return [one for one in self.fellows if one.long_run is None and applied[one.stream] == one.position]


def _place_of(error: Exception) -> str:
    """Return where an error comes from, to be reported."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at line {frames[-1].lineno} of {PurePath(frames[-1].filename).name}" if frames else ""
