"""Evidence about a conflict → what it proves.

Knows: which rows at the sources make a conflict pass by itself, and which make it permanent. Never knows: servers, or
what the stream does next. Used by the player, which hands the finding to ``core/conflict.py``.

The rule
--------
``own`` is our row as our transactions leave it, ``holder`` the row that keeps it out of the target. Our own presence is
that at our source, the holder's that at the sources of all streams that carry the table.

    our row            holder                                    finding
    -----------------  ----------------------------------------  -----------------------------------------------
    changed or gone    anything                                  transient: our own later transactions release it
    alive              alive at another source                   permanent: a true duplicate
    alive              changed at another source                 transient: that stream brings the change
    alive              gone; some stream is before its fence     transient: that stream releases it
    alive              gone; a source cannot be asked            nothing is proven
    alive              gone elsewhere, all past their fences,
                       and alive at our own source               permanent: the target is stricter than the source
                       and at our own source neither             permanent: a foreign row, or, if it has our own
                                                                 row's primary key, a row that is there already

Both rows of a true duplicate were seen at their sources twice, with the other one in between, so it needs no word
about how far any stream is. The other two permanent findings do. Their heads are the *fences*: those of the testimony
before this one, read when the row was gone from its source already. A stream that had applied its fence before the
target was looked at had applied the release, and still the row is there. So they take two testimonies at least, and, as
any proof, count when the next one says the same (``core/conflict.py``): a value that goes to and fro between two looks
can deceive one testimony, and has to do so twice in a row, at least a second apart.

A holder with our own row's primary key is at our own source only as that row itself; it says nothing there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from vmerge.core.evidence import Held, Presence, Testimony
from vmerge.core.position import GtidSet


class Proof(Enum):
    """What makes a conflict permanent."""

    DUPLICATE = "a true duplicate"
    STRICTER_TARGET = "the target is stricter than the source"
    FOREIGN_ROW = "a row that no shard has"
    ALREADY_THERE = "the target has a row with this primary key already, and no other shard has one"


@dataclass(frozen=True, slots=True)
class Permanent:
    """No transaction of any stream will end the conflict."""

    proof: Proof
    held: Held
    holder_stream: str | None
    """The stream whose source has the holder; None for a row that no shard has, or only as our own row."""

    def is_about(self, other: Permanent) -> bool:
        """Whether both findings are the same proof about the same two rows."""
        mine, theirs = self.held, other.held
        return (self.proof, self.holder_stream, mine.table, mine.key, mine.own, mine.holder) == (
            other.proof,
            other.holder_stream,
            theirs.table,
            theirs.key,
            theirs.own,
            theirs.holder,
        )


@dataclass(frozen=True, slots=True)
class Transient:
    """The conflict will pass."""

    held: Held | None
    """None when nothing was held any more."""
    streams: tuple[str, ...]
    """Whose transactions will end it."""


@dataclass(frozen=True, slots=True)
class Unproven:
    """What was seen decides nothing."""

    reason: str


Finding = Permanent | Transient | Unproven


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the streams stood when a testimony was taken."""

    own: str
    """The stream that is blocked."""
    applied: Mapping[str, GtidSet]
    """How far each stream was on the target *before* the testimony was taken."""
    fences: Mapping[str, GtidSet]
    """The heads of the testimony before; none before the second one."""

    def before_fence(self) -> tuple[str, ...]:
        """Return the siblings that have not reached their fences, or have none yet that was asked for."""
        return tuple(
            stream
            for stream, position in self.applied.items()
            if stream != self.own and not (stream in self.fences and position.includes(self.fences[stream]))
        )


def judge(testimony: Testimony, standing: Standing) -> Finding:
    """Return what a testimony proves; of several rows that are kept out the gravest finding counts."""
    findings = [_judge(held, testimony.heads, standing) for held in testimony.held]
    for kind in (Permanent, Transient, Unproven):
        for finding in findings:
            if isinstance(finding, kind):
                return finding
    return Transient(None, ())


def _judge(held: Held, heads: Mapping[str, GtidSet], standing: Standing) -> Finding:
    own = standing.own
    if held.own_presence is not Presence.ALIVE:
        return Transient(held, (own,))
    others = {stream: presence for stream, presence in held.holder_presences.items() if stream != own}
    for stream, presence in others.items():
        if presence is Presence.ALIVE:
            return Permanent(Proof.DUPLICATE, held, stream)
    changed = tuple(stream for stream, presence in others.items() if presence is Presence.CHANGED)
    if changed:
        return Transient(held, changed)
    silent = [stream for stream in standing.applied if stream not in heads]
    if silent:
        return Unproven(f"the source of {', '.join(silent)} could not be asked")
    return _judge_vanished(held, standing)


def _judge_vanished(held: Held, standing: Standing) -> Finding:
    """Judge a holder that no other source has."""
    behind = standing.before_fence()
    if behind:
        return Transient(held, behind)
    is_same_row = held.holder == held.own
    at_own = Presence.GONE if is_same_row else held.holder_presences.get(standing.own, Presence.GONE)
    match at_own:
        case Presence.ALIVE:
            return Permanent(Proof.STRICTER_TARGET, held, standing.own)
        case Presence.CHANGED:
            return Transient(held, (standing.own,))
        case Presence.GONE:
            return Permanent(Proof.ALREADY_THERE if is_same_row else Proof.FOREIGN_ROW, held, None)
