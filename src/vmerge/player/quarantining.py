"""How a stream's rows go into quarantine and come back.

Knows: when a row is marked after a proof, when the rows in quarantine are tried, and how their number shows on the
board. Never knows: SQL, or how a run passes the quarantine (``core/quarantine.py``). Used by the player alone, in its
thread, but for ``reread_later``.

A row is tried right behind the commit that changed it, since what it meets then may be no duplicate at all, and all of
them in turn, a few every so often. Each try is a target transaction of its own: the target takes the row, or nothing
has happened.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from vmerge.core.duplicates import DuplicatePolicy, DuplicateRules
from vmerge.core.events import Transaction
from vmerge.core.evidence import Held
from vmerge.core.fold import Fold
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.quarantine import Entry, EntryState, Grounds, Quarantine, RowName
from vmerge.core.verdict import Finding, Permanent
from vmerge.errors import (
    KeyConflict,
    LockConflict,
    QuarantineSettled,
    SchemaMismatch,
    TargetRejected,
    UnsupportedEvent,
)
from vmerge.player.board import Board
from vmerge.player.reporting import SELDOM_SECONDS
from vmerge.player.surrender import describe
from vmerge.stopping import Clock

logger = logging.getLogger(__name__)

RETURN_SECONDS = 10.0
"""How often rows are tried that nobody has changed: a duplicate was proven, so somebody has to settle it first."""

RETURN_ROWS = 20
"""So many of them at a time: each try is a transaction, and the stream stands still meanwhile."""


class QuarantineTarget(Protocol):
    """What a target does for a quarantine."""

    @property
    def quarantine(self) -> Quarantine:
        """The rows that the stream keeps off the target, as of the last commit."""

    def reload_quarantine(self) -> None:
        """Read the quarantine anew, with no target transaction open: somebody else has changed it."""

    def visible(self, run: Sequence[Transaction]) -> Sequence[Transaction]:
        """Return a run without what only concerns rows in quarantine. Raises ``UnsupportedEvent``."""

    def mark(self, run: Sequence[Transaction], name: RowName, grounds: Grounds, until: Gtid) -> None:
        """Set a row aside as it comes, under whatever key, in a run up to a transaction that begins with these."""

    def bring_back(self, name: RowName, at_microseconds: int) -> None:
        """Begin a target transaction and move a row from the quarantine to its table.

        On an error, ``KeyConflict`` if a key is still held, the caller rolls back.
        """

    def commit(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Store the position in the open target transaction and commit."""

    def rollback(self) -> None:
        """Undo the open target transaction, if there is one."""


class Pointer(Protocol):
    """Who can tell which row a testimony is about."""

    def find(self, run: Sequence[Transaction], effect: Fold | None, held: Held) -> RowName:
        """Return the name of a testimony's own row. Raises ``UnsupportedEvent`` when it is not to be found.

        ``run`` and ``effect`` are what the testimony is about.
        """


class Quarantining:
    """One stream's quarantine. Owner: the player."""

    def __init__(
        self, name: str, target: QuarantineTarget, pointer: Pointer, board: Board, clock: Clock, rules: DuplicateRules
    ) -> None:
        self._name = name
        self._target = target
        self._pointer = pointer
        self._board = board
        self._clock = clock
        self._rules = rules
        self._known: Mapping[RowName, Entry] = {}
        self._candidates: tuple[RowName, ...] = ()
        """To be tried next."""
        self._turn: tuple[RowName, ...] = ()
        """Whose turn comes after them."""
        self._tried_at = 0.0
        self._is_stale = False

    # Setting aside

    def policy(self, finding: Finding) -> DuplicatePolicy:
        """Return what becomes of a row that a finding is about."""
        return self._rules.policy(finding.held.table) if isinstance(finding, Permanent) else DuplicatePolicy.STOP

    def mark(self, run: Sequence[Transaction], effect: Fold | None, finding: Permanent, until: Gtid) -> None:
        """Set the stream's own row of a true duplicate aside as it comes.

        ``run`` and ``effect`` are what was looked at, up to a transaction.
        Raises ``UnsupportedEvent`` and errors of the target: the row is not marked.
        """
        held = finding.held
        grounds = Grounds(held.key, held.own, held.holder, finding.holder_stream or "", describe(finding, self._name))
        self._target.mark(run, self._pointer.find(run, effect, held), grounds, until)
        self._log("sets row %s of %s aside: %s", held.own, ".".join(held.table), grounds.text)

    # Keeping in step

    def reread_later(self) -> None:
        """Read the quarantine anew before the next attempt, as an operator has settled a row. Any thread may call."""
        self._is_stale = True

    def opened(self) -> None:
        """The target was opened: what is there was stored before."""
        self._is_stale = False
        self._known = self._target.quarantine.entries
        self._take_turn()
        self._show()

    def committed(self) -> None:
        """The stream has committed something."""
        entries = self._target.quarantine.entries
        if entries is self._known:
            return
        before, self._known = self._known, entries
        changed = tuple(name for name in self._parked() if before.get(name) is not entries[name])
        self._candidates = (*(name for name in self._candidates if name in entries and name not in changed), *changed)
        numbers = {entry.id for entry in before.values()}
        self._show(quarantined=sum(entry.id not in numbers for entry in entries.values()))

    def joined(self) -> None:
        """Another stream, or this one, has committed something for this one."""
        if not self._target.quarantine.is_empty:
            self._target.reload_quarantine()
            self.committed()

    # Coming back

    @property
    def is_due(self) -> bool:
        """Whether there is something to do before the next attempt."""
        if not self._known and not self._is_stale:
            return False
        is_time = self._clock.monotonic() - self._tried_at >= RETURN_SECONDS
        return self._is_stale or bool(self._candidates) or is_time

    def go_on(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Do one thing that is due; no target transaction is open, before and after."""
        if self._is_stale:
            self._is_stale = False
            self._target.reload_quarantine()
            self.opened()
        elif self._candidates:
            name, *rest = self._candidates
            self._candidates = tuple(rest)
            self._try(name, position, applied_at_microseconds)
        else:
            self._take_turn()

    def _take_turn(self) -> None:
        self._tried_at = self._clock.monotonic()
        turn = tuple(name for name in self._turn if name in self._known) or self._parked()
        self._candidates, self._turn = turn[:RETURN_ROWS], turn[RETURN_ROWS:]

    def _try(self, name: RowName, position: GtidSet, applied_at_microseconds: int) -> None:
        entry = self._known[name]
        try:
            self._target.bring_back(name, int(self._clock.wall() * 1e6))
            self._target.commit(position, applied_at_microseconds)
        except QuarantineSettled:
            self._is_stale = True
        except (KeyConflict, LockConflict, SchemaMismatch, TargetRejected, UnsupportedEvent):
            pass  # it stays; none of these is a reason to keep back what is behind it
        else:
            self._known = self._target.quarantine.entries
            self._log("brings row %s of %s back", entry.grounds.own, ".".join(name[0]))
            self._show(returned=1)
            return
        self._target.rollback()

    def _parked(self) -> tuple[RowName, ...]:
        return tuple(name for name, entry in self._known.items() if entry.state is EntryState.PARKED)

    # Showing

    def _show(self, *, quarantined: int = 0, returned: int = 0) -> None:
        counters = self._board.progress(self._name).counters
        counters = replace(
            counters, quarantined=counters.quarantined + quarantined, returned=counters.returned + returned
        )
        self._board.update(self._name, in_quarantine=len(self._known), counters=counters)

    def _log(self, text: str, *values: object) -> None:
        telling = self._board.lines(self._name).tell(text, self._clock.monotonic(), SELDOM_SECONDS)
        if telling is not None:
            logger.info(f"{text}%s", *values, telling, extra={"stream": self._name})
