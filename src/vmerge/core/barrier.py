"""When several streams may pass one schema change together.

Knows: which streams have come to which change, and which may still come. Never knows: servers, threads, or who runs the
change. Used by ``schema_changes.py`` and the board (which keeps the arrivals).

A stream waits at its change until every stream that fills the same table of the target has come to the same one: only
then is that table the union of what the shards had before it. Streams may come to changes in orders that never meet: A
to one and B to another, each waiting for the other. Then none of them can go on, and ``meeting`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from vmerge.core.position import Gtid, GtidSet
from vmerge.core.target_statement import TargetStatement


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A stream that has come to a schema change and applied everything before it."""

    stream: str
    gtid: Gtid
    committed_at_microseconds: int
    statement: TargetStatement
    session: tuple[tuple[str, int | str], ...]
    """Session variables that the statement ran under at the source, by their names."""
    carriers: frozenset[str]
    """The streams that fill the same table, this one among them."""
    position: GtidSet
    """The stream's checkpoint."""
    membership: object
    """What the target must know of a member; made and read by targets only."""
    has_left: bool = False
    """Whether the stream has stopped there, as its siblings wait at other changes. It is waited for like any that has
    not come; but where it stands tells those that come later that theirs and its change never meet."""

    @property
    def is_same(self) -> tuple[object, ...]:
        """What is equal for arrivals at the same change."""
        return self.statement.normal, dict(self.session).get("sql_mode"), self.carriers


@dataclass(frozen=True, slots=True)
class Together:
    """All have come; the first one runs the change."""

    members: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """These have not come yet."""

    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Crossed:
    """These have come to other changes, and wait there for what cannot come."""

    others: tuple[Arrival, ...]


_ADVICE = (
    "so neither goes on: take that key off the target's table until all are past the change; "
    'see "A key behind a change" in docs/schema-changes.md'
)


class Hindrance(Enum):
    """Why a stream that others wait for does not come; the value is a stable name."""

    STOPPED = "stopped"
    FAILED = "failed"
    AWAY = "away"
    """It has lost a server, or locks keep it out; it goes on by itself if that ends."""
    AT_CHANGE = "at change"
    """It waits at another schema change."""
    HELD_UP = "held up"
    """It waits for a key that those who wait for it release only behind the change: neither goes on."""
    RING = "ring"
    """The same from the other side: it waits at a change for the one that waits for its key."""

    @property
    def lasts(self) -> bool:
        """Whether nothing but an operator ends it."""
        return self in (Hindrance.STOPPED, Hindrance.FAILED, Hindrance.HELD_UP, Hindrance.RING)


@dataclass(frozen=True, slots=True)
class Hindered:
    """A stream that others wait for, and that does not come."""

    stream: str
    hindrance: Hindrance
    reason: str
    """Its message, phase, statement or key, as the hindrance is."""

    def sentence(self) -> str:
        """Return that for an operator, with what to do about it."""
        start = f"`vmerge start -- WORKFLOW {self.stream}`"
        reason = f" ({self.reason})" if self.reason else ""
        match self.hindrance:
            case Hindrance.STOPPED:
                return f"{self.stream} is stopped{reason}: {start}"
            case Hindrance.FAILED:
                return f"{self.stream} is in error{reason}: mend that, then {start}"
            case Hindrance.AWAY:
                return f"{self.stream} cannot move now{reason}"
            case Hindrance.AT_CHANGE:
                return f"{self.stream} waits at a schema change{reason}"
            case Hindrance.HELD_UP:
                return f"{self.stream} waits for {self.reason}, which is released only behind this change; {_ADVICE}"
            case Hindrance.RING:
                return f"{self.stream} releases it only behind a schema change{reason}, and waits there; {_ADVICE}"
            case _:
                assert_never(self.hindrance)


def meeting(own: Arrival, arrivals: Mapping[str, Arrival]) -> Together | Missing | Crossed:
    """Return how it stands with a stream's change; ``arrivals`` has all streams that wait, this one among them."""
    missing = _missing(own, arrivals)
    if not missing:
        return Together(tuple(arrivals[name] for name in sorted(own.carriers)))
    if own.stream in _hopeful(arrivals):
        return Missing(missing)
    return Crossed(tuple(arrivals[name] for name in missing if name in arrivals))


def _missing(own: Arrival, arrivals: Mapping[str, Arrival]) -> tuple[str, ...]:
    others = sorted(own.carriers - {own.stream})
    return tuple(name for name in others if not _has_come(arrivals.get(name), own))


def _has_come(other: Arrival | None, own: Arrival) -> bool:
    return other is not None and not other.has_left and other.is_same == own.is_same


def _hopeful(arrivals: Mapping[str, Arrival]) -> set[str]:
    """Return the streams whose changes may still be met: those that they miss are on their way, or will be."""
    hopeful: set[str] = set()
    while True:
        more = {
            name
            for name, one in arrivals.items()
            if all(other not in arrivals or other in hopeful for other in _missing(one, arrivals))
        }
        if more == hopeful:
            return hopeful
        hopeful = more
