"""The two ends of a simulated stream, and its clock: what the player's protocols ask for.

Knows: how a source delivers, how a target session uses the shared database, and where connections can break. Never
knows: schedules or what must hold. Used by the world, and by tests that need a single player.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from tests.sim.database import Quarantined, SimDatabase
from tests.sim.rows import decode

from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG as NO_CHECKS
from vmerge.core.events import Heartbeat, RowsEvent, SourceItem, TableMap, Transaction
from vmerge.core.fold import Fold, MemoryChanges, fold
from vmerge.core.joint import Offer, Part
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.quarantine import Diversion, DivertedFold, Entry, Grounds, Quarantine, RowName, names_in, visible
from vmerge.core.row_order import Effect, Share, in_order
from vmerge.errors import (
    CommitUnknown,
    JointRefused,
    KeyConflict,
    QuarantineSettled,
    SourceLost,
    TargetLost,
    VmergeError,
)


class SimClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """See ``Clock``."""
        return self.now

    def wall(self) -> float:
        """See ``Clock``."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class Fault(Enum):
    """Where a connection breaks."""

    SOURCE = auto()
    APPLY = auto()
    BEFORE_COMMIT = auto()
    AFTER_COMMIT = auto()


class SimSource:
    """Delivers a fixed list of items in chunks, then a heartbeat for each read."""

    def __init__(self, items: Sequence[SourceItem], chunk: int) -> None:
        self._items = items
        self._chunk = chunk
        self.rest: list[SourceItem] = []
        self.fault: Fault | None = None
        self.reads = 0

    def open(self, position: GtidSet) -> None:
        """See ``Source``."""
        self.rest = [item for item in self._items if isinstance(item, Heartbeat) or not position.contains(item.gtid)]

    def read(self) -> list[SourceItem]:
        """See ``Source``."""
        self.reads += 1
        if self.fault is Fault.SOURCE:
            self.fault = None
            raise SourceLost("the source is gone")
        chunk, self.rest = self.rest[: self._chunk], self.rest[self._chunk :]
        return chunk or [Heartbeat()]

    def poll(self) -> list[SourceItem]:
        """See ``Source``."""
        return self.read() if self.rest or self.fault is Fault.SOURCE else []

    def close(self) -> None:
        """See ``Source``."""
        self.rest = []


class SimRules:
    """What the net effect must know of the simulator's tables."""

    def __init__(self, database: SimDatabase) -> None:
        self._database = database

    def key_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """See ``TableRules``."""
        return (0,)

    def has_foreign_keys(self, table_map: TableMap) -> bool:
        """See ``TableRules``."""
        return self._database.is_related(table_map.table)

    def target_name(self, table_map: TableMap) -> tuple[str, str]:
        """See ``RowRules``."""
        return table_map.database, table_map.table

    def in_full(self, table_map: TableMap) -> TableMap:
        """See ``RowRules``."""
        return table_map

    def depth(self, table_map: TableMap) -> int:
        """See ``TableRules``."""
        return self._database.depth(table_map.table)

    def referenced_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """See ``RelationRules``."""
        return (0,)

    def is_in_circle(self, table_map: TableMap) -> bool:
        """See ``RelationRules``."""
        return self._database.is_own_ancestor(table_map.table)


class SimTarget:
    """One stream's session on the shared database."""

    def __init__(self, database: SimDatabase, stream: str) -> None:
        self._database = database
        self._stream = stream
        self._epoch = 0
        self._is_connected = False
        self._rules = SimRules(database)
        self.quarantine = Quarantine()
        self._changed: dict[str, Quarantined] = {}
        """What the open transaction makes of quarantines, this stream's and those of its joint commit's members."""
        self.fault: Fault | None = None
        self.interlude: Callable[[], None] | None = None
        """What happens elsewhere right behind the next rollback, before the player does anything more."""

    def save(self) -> tuple[Any, ...]:
        """Return everything, for ``restore``."""
        return self._epoch, self._is_connected, self.quarantine, dict(self._changed)

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to what was saved."""
        self._epoch, self._is_connected, self.quarantine, changed = saved
        self._changed = dict(changed)

    def open(self) -> GtidSet:
        """See ``Target``."""
        self.close()
        position, self._epoch = self._database.take_over(self._stream)
        self._is_connected = True
        self.reload_quarantine()
        return position

    def apply(self, batch: Sequence[Transaction]) -> None:
        """See ``Target``; a fault strikes behind the first row."""
        diversion = Diversion(self.quarantine, self._rules)
        self._apply(diversion.rows(batch))
        self._keep(self._stream, self.quarantine, diversion)

    def apply_net_effect(self, run: Sequence[Transaction]) -> None:
        """See ``Target``; the effect is made by the product's own code."""
        diversion = Diversion(self.quarantine, self._rules)
        self._apply_effect(fold(diversion.rows(run), self._rules))
        self._keep(self._stream, self.quarantine, diversion)

    def begin_fold(self) -> Fold:
        """See ``Target``."""
        return DivertedFold(self._rules, MemoryChanges, Diversion(self.quarantine, self._rules))

    def apply_effect(self, effect: Fold, first: Transaction) -> None:
        """See ``Target``."""
        self._apply_effect(effect)
        if isinstance(effect, DivertedFold):
            self._keep(self._stream, self.quarantine, effect.diversion)

    def _apply_effect(self, effect: Effect) -> None:
        self._apply(row for _, row in in_order([Share(self._stream, effect, self._rules)]))

    # Quarantine

    def reload_quarantine(self) -> None:
        """See ``QuarantineTarget``."""
        self._require_connection()
        self.quarantine = Quarantine(self._database.quarantine[self._stream])

    def visible(self, run: Sequence[Transaction]) -> Sequence[Transaction]:
        """See ``QuarantineTarget``."""
        return visible(run, self.quarantine, self._rules)

    def mark(self, run: Sequence[Transaction], name: RowName, grounds: Grounds, until: Gtid) -> None:
        """See ``QuarantineTarget``."""
        self.quarantine = self.quarantine.marked(names_in(run, name, self._rules), grounds, until)

    def bring_back(self, name: RowName, at_microseconds: int) -> None:
        """See ``QuarantineTarget``."""
        self._require_connection()
        self._database.begin(self._stream)
        entry = self.quarantine.entries[name]
        self._require_known(self._stream, name, entry)
        self._apply([entry.insert()])
        self._changed[self._stream] = {other: one for other, one in self.quarantine.entries.items() if other != name}

    def _keep(self, stream: str, before: Quarantine, diversion: Diversion) -> None:
        """Note what a run changed in a quarantine; entries get their numbers here."""
        names = {entry.id: name for name, entry in before.entries.items()}
        difference = diversion.difference()
        for name, entry in difference.ended:
            self._require_known(stream, name, entry)
        for changed in difference.changed:
            name = names[changed.entry.id]
            self._require_known(stream, name, before.entries[name])
        if not difference.is_empty:
            self._changed[stream] = {name: self._numbered(entry) for name, entry in diversion.entries.items()}

    def _numbered(self, entry: Entry) -> Entry:
        return replace(entry, id=hash((entry.gtid, entry.image))) if entry.id is None else entry

    def _require_known(self, stream: str, name: RowName, entry: Entry) -> None:
        """Lock an entry, which must still be as it was read."""
        if self._database.lock_entry(self._stream, stream, name) is not entry:
            raise QuarantineSettled("somebody else has settled the row")

    # Joint commits

    def membership(self) -> object:
        """See ``JointTarget``."""
        return self._epoch, self.quarantine

    def apply_joint(self, parts: Sequence[Part]) -> str | None:
        """See ``JointTarget``."""
        diversions = {part.stream: self._diversion(part) for part in parts}
        shares = [Share(part.stream, self._effect(part, diversions[part.stream]), self._rules) for part in parts]
        for stream, row in in_order(shares):
            try:
                self._apply([row])
            except KeyConflict:
                return stream
        try:
            for part in parts:
                self._keep(part.stream, _member(part)[1], diversions[part.stream])
        except QuarantineSettled as error:
            raise JointRefused(error.message) from error
        return None

    def _diversion(self, part: Part) -> Diversion:
        if isinstance(part.effect, DivertedFold):
            return part.effect.diversion
        return Diversion(_member(part)[1], self._rules)

    def _effect(self, part: Part, diversion: Diversion) -> Effect:
        if part.effect is not None:
            return part.effect.net_effect()
        return fold(diversion.rows(part.run), self._rules)

    def commit_joint(self, parts: Sequence[Part]) -> None:
        """See ``JointTarget``."""
        self._require_connection()
        self._strike(Fault.BEFORE_COMMIT, CommitUnknown("gone in COMMIT"))
        self._database.begin(self._stream)
        checkpoints = [(part.stream, part.offer.position, part.position, _member(part)[0]) for part in parts]
        self._database.commit_joint(self._stream, checkpoints, self._changed)
        self._changed = {}
        self._strike(Fault.AFTER_COMMIT, CommitUnknown("gone in COMMIT"))

    def _apply(self, rows: Iterable[RowsEvent]) -> None:
        self._require_connection()
        self._database.begin(self._stream)
        for event in rows:
            self._database.apply(self._stream, decode(event), checks_foreign_keys=not event.shape.flags & NO_CHECKS)
            self._strike(Fault.APPLY, TargetLost("gone while applying"))

    def commit(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """See ``Target``."""
        self._require_connection()
        self._strike(Fault.BEFORE_COMMIT, CommitUnknown("gone in COMMIT"))
        self._database.begin(self._stream)
        self._database.commit(self._stream, position, self._epoch, self._changed)
        self.quarantine = self.quarantine.at(position, self._database.quarantine[self._stream])
        self._changed = {}
        self._strike(Fault.AFTER_COMMIT, CommitUnknown("gone in COMMIT"))

    def rollback(self) -> None:
        """See ``Target``."""
        self._require_connection()
        self._database.rollback(self._stream)
        self._changed = {}
        interlude, self.interlude = self.interlude, None
        if interlude is not None:
            interlude()

    def close(self) -> None:
        """See ``Target``."""
        self._is_connected = False
        self._database.rollback(self._stream)
        self._changed = {}

    def _require_connection(self) -> None:
        if not self._is_connected:
            raise TargetLost("not connected")

    def _strike(self, fault: Fault, error: VmergeError) -> None:
        if self.fault is fault:
            self.fault = None
            self.close()
            raise error


def quarantine_of(offer: Offer) -> Quarantine:
    """Return the quarantine of whoever made an offer, as of then."""
    return _membership(offer)[1]


def _member(part: Part) -> tuple[int, Quarantine]:
    """Return epoch and quarantine of a joint commit's member."""
    return _membership(part.offer)


def _membership(offer: Offer) -> tuple[int, Quarantine]:
    membership = offer.membership
    assert isinstance(membership, tuple)
    epoch, quarantine = membership
    return epoch, quarantine
