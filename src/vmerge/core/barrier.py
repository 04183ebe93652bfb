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


def meeting(own: Arrival, arrivals: Mapping[str, Arrival]) -> Together | Missing | Crossed:
    """Return how it stands with a stream's change; ``arrivals`` has all streams that wait, this one among them."""
    missing = _missing(own, arrivals)
    if not missing:
        return Together(tuple(arrivals[name] for name in sorted(own.carriers)))
    if own.stream in _hopeful(arrivals):
        return Missing(missing)
    return Crossed(tuple(arrivals[name] for name in missing if name in arrivals))


def _missing(own: Arrival, arrivals: Mapping[str, Arrival]) -> tuple[str, ...]:
    return tuple(name for name in sorted(own.carriers) if name not in arrivals or arrivals[name].is_same != own.is_same)


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
