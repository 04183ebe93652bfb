"""The target's half of a joint commit: the rows of several streams and all their checkpoints in one transaction.

Knows: in which order the members' net effects go, by whose applier, and which rows of the control tables they change.
Never knows: who leads, or what follows when it does not fit. Used by ``mysql/target.py`` of the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from pymysql.connections import Connection

from vmerge.core.appliers import ApplierRules
from vmerge.core.events import RowsEvent, Transaction
from vmerge.core.fold import fold
from vmerge.core.joint import Part
from vmerge.core.quarantine import Diversion, DivertedFold, Quarantine, RowRules
from vmerge.core.row_order import Effect, RelationRules, Share, in_order
from vmerge.errors import KeyConflict, SpoolFailed, UnsupportedEvent
from vmerge.mysql.applier import Applier
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.definitions import Definitions
from vmerge.mysql.quarantine import QuarantineSession

ApplyBy = Callable[[Applier, Sequence[Transaction], Iterable[RowsEvent]], None]
"""Applies rows by an applier in the open transaction, and classes its errors."""


class MemberRules(ApplierRules, RelationRules, RowRules, Protocol):
    """What must be known of a member's tables."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a joint commit's leader must know of a member: where its rows go, and which session of it made the offer."""

    plan: MemberRules
    definitions: Definitions
    epoch: int
    quarantine: Quarantine


@dataclass(frozen=True, slots=True, eq=False)
class _Member:
    """One member's part, and what applies its rows."""

    part: Part
    applier: Applier


class JointCommit:
    """One attempt. Owner: the leader's target."""

    def __init__(self) -> None:
        self._diversions: list[tuple[str, Diversion]] = []
        """What it changes in its members' quarantines."""

    def apply(self, parts: Sequence[Part], applier: Applier, apply_by: ApplyBy) -> str | None:
        """Apply all rows; return None, or the stream whose rows a key keeps out or cannot be followed."""
        shares: list[Share[_Member]] = []
        for part in parts:
            try:
                shares.append(self._share(part, applier))
            except (UnsupportedEvent, SpoolFailed):  # a member that was stopped has closed its file
                return part.stream
        for member, rows in groupby(in_order(shares), key=_member):
            try:
                apply_by(member.applier, member.part.run, (row for _, row in rows))
            except KeyConflict:
                return member.part.stream
        return None

    def _share(self, part: Part, applier: Applier) -> Share[_Member]:
        member = membership_of(part.offer.membership)
        effect, diversion = _effect_of(part, member)
        self._diversions.append((part.stream, diversion))
        return Share(_Member(part, applier.twin(member.plan, member.definitions)), effect, member.plan)

    def write(
        self, connection: Connection[Any], parts: Sequence[Part], kept: QuarantineSession, tables: ControlTables
    ) -> None:
        """Write what changes in quarantine, and every member's checkpoint. Raises PyMySQL's errors, too."""
        for stream, diversion in self._diversions:
            kept.store(connection, stream, diversion.difference(), diversion.entries)
        for part in parts:
            tables.write_joint_checkpoint(connection, part, membership_of(part.offer.membership).epoch)


def membership_of(membership: object) -> Membership:
    """Return what an offer tells its leader's target."""
    assert isinstance(membership, Membership), "offers of one workflow go to one kind of target"
    return membership


def _effect_of(part: Part, member: Membership) -> tuple[Effect, Diversion]:
    if isinstance(part.effect, DivertedFold):
        return part.effect.net_effect(), part.effect.diversion
    diversion = Diversion(member.quarantine, member.plan)
    if part.effect is not None:
        return part.effect.net_effect(), diversion
    return fold(diversion.rows(part.run), member.plan), diversion


def _member(row: tuple[_Member, RowsEvent]) -> _Member:
    return row[0]
