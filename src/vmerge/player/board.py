"""What sibling players publish and read: the only state that players share.

Knows: each stream's position, phase and waits. Never knows: rows, servers, or what a player will do. One lock, one
condition. Used by the players (each publishes its own stream, reads the others) and by the status (reads all).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from vmerge.core.appliers import Choice
from vmerge.core.barrier import Arrival, Hindered
from vmerge.core.blocked import Blocked, Ended
from vmerge.core.conflict_terms import Siblings
from vmerge.core.joint import Offer, Part
from vmerge.core.position import GtidSet
from vmerge.core.rules import TableName
from vmerge.core.seldom import Seldom
from vmerge.core.source_facts import SourceFacts
from vmerge.core.spool_use import SpoolUse
from vmerge.core.states import Phase, StreamState, is_free
from vmerge.player.counters import Counters
from vmerge.player.journal import Journal
from vmerge.stopping import StopToken


@dataclass(frozen=True, slots=True)
class LockWait:
    """Locks that somebody holds on the target have kept a stream out since its last commit."""

    since: float
    """Monotonic."""
    attempts: int


@dataclass(frozen=True, slots=True)
class BarrierWait:
    """A stream waits at a schema change."""

    since: float
    """Monotonic."""
    gtid: str
    statement: str
    awaited: tuple[str, ...]
    """The streams that have not come to it; none while it is run."""
    hindered: tuple[Hindered, ...] = ()
    """Those of them that do not come by themselves, as far as is known."""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """One stream as its siblings and its operator see it."""

    name: str
    state: StreamState = StreamState.STOPPED
    phase: Phase = Phase.IDLE
    message: str = ""
    applied: GtidSet = field(default_factory=GtidSet)
    applied_at: float | None = None
    """The source's commit time of the last applied transaction, seconds since 1970."""
    moved_at: float | None = None
    """When the position last moved, by this machine's clock, seconds since 1970."""
    heard_at: float | None = None
    """When the source last said that there was nothing more, and all of it was applied; likewise."""
    source: SourceFacts | None = None
    """What the source said when it was last asked."""
    spool: SpoolUse | None = None
    """What the stream has on disk for now."""
    is_at_head: bool = False
    """The source had nothing more when it last said so, and all of it is applied."""
    blocked: Blocked | None = None
    locked: LockWait | None = None
    barrier: BarrierWait | None = None
    surrendered: Ended | None = None
    """The wait that stopped the stream, until it is started again."""
    stops_at: GtidSet = field(default_factory=GtidSet)
    """Where it is ordered to stop; the empty set: nowhere."""
    batch_limit: int = 0
    in_quarantine: int = 0
    """Rows of the stream that are kept off the target."""
    counters: Counters = field(default_factory=Counters)
    appliers: Mapping[TableName, Choice] = field(default_factory=dict)
    """Of the target's tables, as of the stream's last start."""


class Settlement(Enum):
    """What became of an offer of which no part was committed, as far as is known."""

    DECLINED = "it did not fit; nothing of it is on the target"
    UNKNOWN = "the leader was lost in the commit; the checkpoint knows"


@dataclass(frozen=True, slots=True)
class Offered:
    """An offer on the board."""

    offer: Offer
    leader: str | None = None
    """Who has it in hand."""
    led_at: float = 0.0
    """Since when, or when it last was."""
    settlement: Part | Settlement | None = None
    """What of it was committed, or why nothing; None while that is open."""
    fellows: tuple[Offer, ...] = ()
    """The other offers it was settled with."""


class Watcher(Protocol):
    """Who wants to know what happens."""

    def changed(self, before: StreamProgress, after: StreamProgress) -> None:
        """A stream's progress is another."""

    def ended(self, stream: str, ended: Ended) -> None:
        """A wait is over."""


class Board:
    """Progress of all streams of one workflow.

    Promise: a commit that was published is seen by every snapshot taken after it, and wakes every sibling that waits.
    Invariant: ``version`` of a stream grows whenever transactions of it were committed. Any thread may read; only
    a stream's owner (its player while it runs, else the supervisor) changes it, and who watches its source that alone.
    The condition's lock is re-entrant.

    ``journal`` has the waits that have ended and are not in the log table yet.

    Offers for a joint commit: a stream owns its offer until a leader has it in hand, and again once that is settled.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._streams = {name: StreamProgress(name) for name in names}
        self._versions = dict.fromkeys(self._streams, 0)
        self._offers: dict[str, Offered] = {}
        self._arrivals: dict[str, Arrival] = {}
        self._crossed: set[str] = set()
        """Streams whose arrivals are done with."""
        self._news = 0
        """Grows with every commit and every change of an offer."""
        self._lines = {name: Seldom() for name in self._streams}
        self.journal = Journal()
        self.watcher: Watcher | None = None
        """Who is told of every change, under the board's lock: its calls return at once."""

    def update(self, name: str, **changes: object) -> StreamProgress:
        """Change some fields of a stream's progress and return it."""
        with self._changed:
            before = self._streams[name]
            progress = self._streams[name] = replace(before, **changes)  # type: ignore[arg-type]  # fields
            if self.watcher is not None:
                self.watcher.changed(before, progress)
            return progress

    def enter(self, name: str, ended: Ended, now: float) -> None:
        """Put the end of a wait into the journal."""
        self.journal.add(name, ended, now)
        if self.watcher is not None:
            self.watcher.ended(name, ended)

    def commit(self, name: str, **changes: object) -> StreamProgress:
        """Change some fields of a stream whose position moved on the target with rows, and wake its siblings."""
        with self._changed:
            progress = self.update(name, **changes)
            self._versions[name] += 1
            self._tell()
            return progress

    def progress(self, name: str) -> StreamProgress:
        """Return one stream's progress."""
        with self._changed:
            return self._streams[name]

    def all_progress(self) -> list[StreamProgress]:
        """Return every stream's progress, in the order of the workflow."""
        with self._changed:
            return list(self._streams.values())

    def lines(self, name: str) -> Seldom:
        """Return what was told in the log of a stream, over all its players. Its owner's, as the progress is."""
        return self._lines[name]

    def siblings_of(self, name: str) -> Siblings:
        """Return the snapshot that decisions of this stream are made on."""
        with self._changed:
            others = [stream for other, stream in self._streams.items() if other != name]
            unfree = tuple(stream.name for stream in others if not is_free(stream.state, stream.phase))
            is_moving = any(_is_moving(stream) for stream in others)
            return Siblings(self._version_of_others(name), len(others), unfree, is_moving)

    def wait_for_siblings(self, name: str, seen_version: int, seconds: float, stop: StopToken) -> bool:
        """Wait until a sibling commits beyond ``seen_version``, a stop, or so long; return whether one did."""
        return stop.wait_for(self._changed, lambda: self._version_of_others(name) != seen_version, seconds)

    def _version_of_others(self, name: str) -> int:
        return sum(version for other, version in self._versions.items() if other != name)

    def _tell(self) -> None:
        self._news += 1
        self._changed.notify_all()

    # Schema changes

    def arrive(self, arrival: Arrival) -> None:
        """Say that a stream waits at a schema change."""
        with self._changed:
            self._arrivals[arrival.stream] = arrival
            self._tell()

    def arrival(self, name: str) -> Arrival | None:
        """Return where a stream waits."""
        with self._changed:
            return self._arrivals.get(name)

    def arrivals(self) -> dict[str, Arrival]:
        """Return all that wait and were not told to look at their checkpoints, by their streams."""
        with self._changed:
            return {name: one for name, one in self._arrivals.items() if name not in self._crossed}

    def cross(self, names: Iterable[str]) -> None:
        """Say that the change at which these streams wait was tried: their checkpoints know what came of it."""
        with self._changed:
            self._crossed.update(names)
            self._tell()

    def has_crossed(self, name: str) -> bool:
        """Whether that was said of a stream's arrival."""
        with self._changed:
            return name in self._crossed

    def give_up(self, name: str) -> None:
        """Say that a stream stops where it waits, because its siblings wait at other changes: they are to learn it."""
        with self._changed:
            self._arrivals[name] = replace(self._arrivals[name], has_left=True)
            self._tell()

    def depart(self, name: str) -> None:
        """Say that a stream waits no more."""
        with self._changed:
            self._crossed.discard(name)
            if self._arrivals.pop(name, None) is not None:
                self._tell()

    # Joint commits

    @property
    def news(self) -> int:
        """A number that grows whenever something may have changed for a stream that has made an offer."""
        with self._changed:
            return self._news

    def wait_for_news(self, seen: int, seconds: float, stop: StopToken) -> bool:
        """Wait until ``news`` is another, a stop, or so long; return whether it is."""
        return stop.wait_for(self._changed, lambda: self._news != seen, seconds)

    def offer(self, offer: Offer) -> Offered:
        """Put an offer up; the stream has none yet."""
        with self._changed:
            offered = self._offers[offer.stream] = Offered(offer)
            self._tell()
            return offered

    def offered(self, name: str) -> Offered | None:
        """Return a stream's offer and what became of it."""
        with self._changed:
            return self._offers.get(name)

    def retract(self, name: str) -> bool:
        """Take a stream's offer back, so that it may act alone; return False if a leader has it, or has settled it."""
        with self._changed:
            offered = self._offers.get(name)
            if offered is not None and (offered.leader is not None or offered.settlement is not None):
                return False
            self.withdraw(name)
            return True

    def withdraw(self, name: str) -> bool:
        """Take a stream's offer away, come what may; one that a leader has in hand is settled without it.

        Return whether a leader has it in hand, and so may still read what was offered.
        """
        with self._changed:
            offered = self._offers.pop(name, None)
            if offered is not None:
                self._tell()
            return offered is not None and offered.leader is not None

    def lead(self, name: str, now: float, patient_since: float) -> tuple[Offer, ...]:
        """Take all offers that hold into a stream's hand and return them, in the order of names; none if it may not.

        The holder of the smallest name leads, and never alone. Who may still move is waited for: every other stream
        must be at its head, not free, or blocked with an offer; and an offer holds only while nobody has moved since
        its stream's last attempt. A stream that is blocked since ``patient_since`` has waited enough for both. But it
        waits for the offers of those that are blocked for as long: a ring that is joined in part is not joined at all.
        """
        with self._changed:
            open_offers = [one.offer for one in self._offers.values() if one.leader is None and one.settlement is None]
            standing = {
                offer.stream: offer
                for offer in open_offers
                if offer.blocked_since <= patient_since or offer.version == self._version_of_others(offer.stream)
            }
            if len(standing) < 2 or name != min(standing):
                return ()
            others = [one for one in self._streams.values() if one.name not in standing and _may_move(one)]
            if any(_will_offer(one, patient_since) for one in others):
                return ()
            if others and standing[name].blocked_since > patient_since:
                return ()
            for stream in standing:
                self._offers[stream] = replace(self._offers[stream], leader=name, led_at=now)
            return tuple(standing[stream] for stream in sorted(standing))

    def settle(self, leader: str, parts: Sequence[Part]) -> None:
        """Say what was committed; of a member that has no part in it, nothing was."""
        committed = {part.stream: part for part in parts}
        self._settle(leader, {name: committed.get(name, Settlement.DECLINED) for name in self._streams})

    def lose(self, leader: str) -> None:
        """Say of everything that a stream has in hand that its outcome is not known."""
        self._settle(leader, dict.fromkeys(self._streams, Settlement.UNKNOWN))

    def _settle(self, leader: str, settlements: Mapping[str, Part | Settlement]) -> None:
        with self._changed:
            led = {name: offered for name, offered in self._offers.items() if offered.leader == leader}
            for name, offered in led.items():
                fellows = tuple(other.offer for other in led.values() if other is not offered)
                self._offers[name] = replace(offered, leader=None, settlement=settlements[name], fellows=fellows)
            if led:
                self._tell()


def _is_moving(stream: StreamProgress) -> bool:
    """Whether a stream will commit soon: it is free, not blocked itself, and not known to be at its head."""
    return is_free(stream.state, stream.phase) and stream.blocked is None and not stream.is_at_head


def _may_move(stream: StreamProgress) -> bool:
    """Whether a stream may commit before anybody else does."""
    return is_free(stream.state, stream.phase) and not stream.is_at_head


def _will_offer(stream: StreamProgress, patient_since: float) -> bool:
    """Whether a stream that has no offer yet, or is just trying alone again, is about to make one."""
    blocked = stream.blocked
    return blocked is not None and blocked.may_join and blocked.since <= patient_since
