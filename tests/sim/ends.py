"""The two ends of a simulated stream, and its clock: what the player's protocols ask for.

Knows: how a source delivers, how a target session uses the shared database, and where connections can break. Never
knows: schedules or what must hold. Used by the world, and by tests that need a single player.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum, auto

from tests.sim.database import SimDatabase
from tests.sim.rows import decode

from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG as NO_CHECKS
from vmerge.core.events import Heartbeat, RowsEvent, SourceItem, TableMap, Transaction
from vmerge.core.fold import Fold, fold
from vmerge.core.joint import Part
from vmerge.core.position import GtidSet
from vmerge.core.row_order import Share, in_order
from vmerge.errors import CommitUnknown, KeyConflict, SourceLost, TargetLost, VmergeError


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

    def depth(self, table_map: TableMap) -> int:
        """See ``TableRules``."""
        return self._database.depth(table_map.table)

    def target_name(self, table_map: TableMap) -> tuple[str, str]:
        """See ``RelationRules``."""
        return table_map.database, table_map.table

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
        self.fault: Fault | None = None
        self.interlude: Callable[[], None] | None = None
        """What happens elsewhere right behind the next rollback, before the player does anything more."""

    def open(self) -> GtidSet:
        """See ``Target``."""
        self.close()
        position, self._epoch = self._database.take_over(self._stream)
        self._is_connected = True
        return position

    def apply(self, batch: Sequence[Transaction]) -> None:
        """See ``Target``; a fault strikes behind the first row."""
        self._apply(event for transaction in batch for event in transaction.rows)

    def apply_net_effect(self, run: Sequence[Transaction]) -> None:
        """See ``Target``; the effect is made by the product's own code."""
        self._apply(row for _, row in in_order([self._share(self._stream, run)]))

    def begin_fold(self) -> Fold:
        """See ``Target``."""
        return Fold(SimRules(self._database))

    def apply_effect(self, effect: Fold, first: Transaction) -> None:
        """See ``Target``."""
        self._apply(row for _, row in in_order([Share(self._stream, effect, SimRules(self._database))]))

    def _share(self, stream: str, run: Sequence[Transaction], effect: Fold | None = None) -> Share[str]:
        rules = SimRules(self._database)
        if effect is not None:
            return Share(stream, effect.net_effect(), rules)
        return Share(stream, fold((event for transaction in run for event in transaction.rows), rules), rules)

    def membership(self) -> object:
        """See ``JointTarget``."""
        return self._epoch

    def apply_joint(self, parts: Sequence[Part]) -> str | None:
        """See ``JointTarget``."""
        for stream, row in in_order([self._share(part.stream, part.run, part.effect) for part in parts]):
            try:
                self._apply([row])
            except KeyConflict:
                return stream
        return None

    def commit_joint(self, parts: Sequence[Part]) -> None:
        """See ``JointTarget``."""
        self._require_connection()
        self._strike(Fault.BEFORE_COMMIT, CommitUnknown("gone in COMMIT"))
        self._database.begin(self._stream)
        checkpoints = []
        for part in parts:
            epoch = part.offer.membership
            assert isinstance(epoch, int)
            checkpoints.append((part.stream, part.offer.position, part.position, epoch))
        self._database.commit_joint(self._stream, checkpoints)
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
        self._database.commit(self._stream, position, self._epoch)
        self._strike(Fault.AFTER_COMMIT, CommitUnknown("gone in COMMIT"))

    def rollback(self) -> None:
        """See ``Target``."""
        self._require_connection()
        self._database.rollback(self._stream)
        interlude, self.interlude = self.interlude, None
        if interlude is not None:
            interlude()

    def close(self) -> None:
        """See ``Target``."""
        self._is_connected = False
        self._database.rollback(self._stream)

    def _require_connection(self) -> None:
        if not self._is_connected:
            raise TargetLost("not connected")

    def _strike(self, fault: Fault, error: VmergeError) -> None:
        if self.fault is fault:
            self.fault = None
            self.close()
            raise error
