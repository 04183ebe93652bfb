"""The order in which net effects go to the target, so that no key and no foreign key is broken on the way.

Knows: which rows must go before which, and which foreign keys may stay unchecked for a moment. Never knows: servers.
Used by ``mysql/target.py``, for one stream's jump and for the joint commit of several streams.

Unique keys want every row out of the way before any comes: all deletes, then all inserts, an update being both. Foreign
keys are checked at every row, and want the opposite: the new parent before the child turns to it, the child away before
the old parent goes. So, of tables with foreign keys:

1. Rows that come back with the values that children refer to are *lifted*: deleted without a check. Whoever refers to
   them finds them again.
2. All other rows that go are deleted, children first, each with its check: a child that stays forbids it.
3. Rows come, parents first, each with its check: a parent that is missing forbids it.

A row that leaves one stream and arrives in another in the same joint commit comes back, too.

No order suits tables that refer to themselves, or to each other in a circle. Their rows go and come without checks, and
are then *proven* one by one: a row that went is put there again and deleted with the check; a row that came is
taken away and inserted with it.

What is checked is what the source had checked. So the target never gets a row, nor loses one, against its foreign keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.fold import TableRules
from vmerge.core.rowimage import ImageCutter, Key
from vmerge.core.rules import TableName


class RelationRules(TableRules, Protocol):
    """What must be known of how tables refer to each other."""

    def target_name(self, table_map: TableMap) -> TableName:
        """Return the target's table."""

    def referenced_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """Return where, from 0, the columns stand that children of the table refer to; none without children."""

    def is_in_circle(self, table_map: TableMap) -> bool:
        """Whether the table is, over one or more foreign keys, a parent of itself."""


class Effect(Protocol):
    """A net effect, walked as often as it is asked for. Deletes begin with children, inserts with parents."""

    @property
    def tables(self) -> frozenset[TableMap]:
        """The tables whose rows it has."""

    @property
    def deletes(self) -> Iterable[RowsEvent]:
        """The rows that go."""

    @property
    def updates(self) -> Iterable[RowsEvent]:
        """The rows that change; of tables with foreign keys only."""

    @property
    def inserts(self) -> Iterable[RowsEvent]:
        """The rows that come."""


Owner = TypeVar("Owner")
"""Whose rows they are, for whoever applies them."""


@dataclass(frozen=True, slots=True)
class Share(Generic[Owner]):
    """What one stream brings."""

    owner: Owner
    effect: Effect
    rules: RelationRules


References = tuple[Key, ...]
"""The bytes of a row's columns that children refer to."""
_Arrivals = Mapping[tuple[TableName, Key], References]
"""The rows that some share inserts into tables with foreign keys."""


def in_order(shares: Sequence[Share[Owner]]) -> Iterator[tuple[Owner, RowsEvent]]:
    """Yield all rows, one an event, each with its owner.

    Raises ``UnsupportedEvent`` or ``CorruptEvent`` when images cannot be cut.
    """
    cutter = _Cutter()
    arrivals = _arrivals(shares, cutter) if len(shares) > 1 else {}
    ordered = [_OrderedShare(share, cutter, arrivals) for share in shares]
    depths = sorted({depth for one in ordered for depth in one.depths()})
    for one in ordered:
        yield from one.owned(one.lifts())
    for depth in reversed(depths):
        for one in ordered:
            yield from one.owned(one.deletes(depth))
    for one in ordered:
        yield from one.owned(one.proofs_of_deletes())
    for one in ordered:
        yield from one.owned(one.unproven_inserts())
    for depth in depths:
        for one in ordered:
            yield from one.owned(one.inserts(depth))
    for one in ordered:
        yield from one.owned(one.proofs_of_inserts())


class _Cutter:
    """Takes rows events and images apart."""

    def __init__(self) -> None:
        self._shapes: dict[tuple[RowsShape, RowsKind, bool], RowsShape] = {}
        self._by_columns: dict[tuple[TableMap, tuple[int, ...]], ImageCutter] = {}

    def shape(self, shape: RowsShape, kind: RowsKind, *, is_checked: bool) -> RowsShape:
        """Return the shape of a delete or insert of rows that came in another shape."""
        found = self._shapes.get((shape, kind, is_checked))
        if found is None:
            columns = shape.columns
            if shape.kind is RowsKind.UPDATE:
                columns = columns[: -((shape.table.column_count + 7) // 8)]
            flags = shape.flags if is_checked else shape.flags | NO_FOREIGN_KEY_CHECKS_FLAG
            found = self._shapes[shape, kind, is_checked] = RowsShape(shape.table, kind, flags, columns)
        return found

    def key(self, table: TableMap, columns: tuple[int, ...], image: bytes) -> Key:
        """Return the bytes of some columns of one row."""
        return next(self._cutter(table, columns).cut(image))[0]

    def halves(self, row: RowsEvent) -> tuple[bytes, bytes]:
        """Return the two images of an updated row."""
        (_, before), (_, after) = self._cutter(row.shape.table, ()).cut(row.images)
        return before, after

    def references(self, table: TableMap, rules: RelationRules, image: bytes) -> References:
        """Return what children may refer to, column by column: a NULL shall not pass for its neighbour."""
        return tuple(self.key(table, (column,), image) for column in rules.referenced_columns(table))

    def _cutter(self, table: TableMap, columns: tuple[int, ...]) -> ImageCutter:
        found = self._by_columns.get((table, columns))
        if found is None:
            found = self._by_columns[table, columns] = ImageCutter(table, columns)
        return found


def _arrivals(shares: Sequence[Share[Owner]], cutter: _Cutter) -> _Arrivals:
    found: dict[tuple[TableName, Key], References] = {}
    for share in shares:
        for shape, image in share.effect.inserts:
            table, rules = shape.table, share.rules
            if rules.has_foreign_keys(table):
                key = cutter.key(table, rules.key_columns(table), image)
                found[rules.target_name(table), key] = cutter.references(table, rules, image)
    return found


class _OrderedShare(Generic[Owner]):
    """One share, phase by phase. Each phase walks the effect anew, so nothing of it is kept."""

    def __init__(self, share: Share[Owner], cutter: _Cutter, arrivals: _Arrivals) -> None:
        self._owner = share.owner
        self._effect = share.effect
        self._rules = share.rules
        self._cutter = cutter
        self._arrivals = arrivals
        self._has_relations = any(map(share.rules.has_foreign_keys, share.effect.tables))
        self._has_circles = any(map(share.rules.is_in_circle, share.effect.tables))

    def owned(self, rows: Iterator[RowsEvent]) -> Iterator[tuple[Owner, RowsEvent]]:
        """Add the owner to each row."""
        return ((self._owner, row) for row in rows)

    def depths(self) -> set[int]:
        """Return the depths of all tables."""
        return {self._rules.depth(table) for table in self._effect.tables}

    def lifts(self) -> Iterator[RowsEvent]:
        """Yield what goes without a check."""
        if not self._has_relations:
            return
        for shape, image in self._effect.deletes:
            if self._is_in_circle(shape) or self._arrives_elsewhere(shape, image):
                yield self._delete(shape, image, is_checked=False)
        for row in self._effect.updates:
            before, after = self._cutter.halves(row)
            if self._is_in_circle(row.shape) or self._keeps_references(row.shape, before, after):
                yield self._delete(row.shape, before, is_checked=False)

    def deletes(self, depth: int) -> Iterator[RowsEvent]:
        """Yield what goes with its check."""
        for shape, image in self._effect.deletes:
            is_due = self._rules.depth(shape.table) == depth and not self._is_in_circle(shape)
            if is_due and not self._arrives_elsewhere(shape, image):
                yield RowsEvent(shape, image)
        for row in self._effect.updates:
            if self._rules.depth(row.shape.table) == depth and not self._is_in_circle(row.shape):
                before, after = self._cutter.halves(row)
                if not self._keeps_references(row.shape, before, after):
                    yield self._delete(row.shape, before, is_checked=True)

    def proofs_of_deletes(self) -> Iterator[RowsEvent]:
        """Yield what proves that nobody refers to the rows of circles that are gone."""
        for shape, image in self._gone_from_circles():
            yield self._insert(shape, image, is_checked=False)
            yield self._delete(shape, image, is_checked=True)

    def unproven_inserts(self) -> Iterator[RowsEvent]:
        """Yield what comes to circles."""
        for shape, image in self._come_to_circles():
            yield self._insert(shape, image, is_checked=False)

    def inserts(self, depth: int) -> Iterator[RowsEvent]:
        """Yield what comes with its check."""
        for shape, image in self._come_or_back():
            if self._rules.depth(shape.table) == depth and not self._is_in_circle(shape):
                yield self._insert(shape, image, is_checked=True)

    def proofs_of_inserts(self) -> Iterator[RowsEvent]:
        """Yield what proves that the rows of circles that came have their parents."""
        for shape, image in self._come_to_circles():
            yield self._delete(shape, image, is_checked=False)
            yield self._insert(shape, image, is_checked=True)

    def _gone_from_circles(self) -> Iterator[RowsEvent]:
        if not self._has_circles:
            return
        for shape, image in self._effect.deletes:
            if self._is_in_circle(shape) and not self._arrives_elsewhere(shape, image):
                yield RowsEvent(shape, image)
        for row in self._effect.updates:
            if self._is_in_circle(row.shape):
                before, after = self._cutter.halves(row)
                if not self._keeps_references(row.shape, before, after):
                    yield RowsEvent(row.shape, before)

    def _come_to_circles(self) -> Iterator[RowsEvent]:
        if self._has_circles:
            yield from (row for row in self._come_or_back() if self._is_in_circle(row.shape))

    def _come_or_back(self) -> Iterator[RowsEvent]:
        """Yield the images that come, those of updates among them, with the shape they came in."""
        yield from self._effect.inserts
        for row in self._effect.updates:
            yield RowsEvent(row.shape, self._cutter.halves(row)[1])

    def _is_in_circle(self, shape: RowsShape) -> bool:
        return self._rules.is_in_circle(shape.table)

    def _keeps_references(self, shape: RowsShape, before: bytes, after: bytes) -> bool:
        references = (self._cutter.references(shape.table, self._rules, image) for image in (before, after))
        return next(references) == next(references)

    def _arrives_elsewhere(self, shape: RowsShape, image: bytes) -> bool:
        """Whether another share brings a row of this key, with what children refer to."""
        table, rules = shape.table, self._rules
        if not self._arrivals or not rules.has_foreign_keys(table):
            return False
        key = self._cutter.key(table, rules.key_columns(table), image)
        arrival = self._arrivals.get((rules.target_name(table), key))
        return arrival is not None and arrival == self._cutter.references(table, rules, image)

    def _delete(self, shape: RowsShape, image: bytes, *, is_checked: bool) -> RowsEvent:
        return RowsEvent(self._cutter.shape(shape, RowsKind.DELETE, is_checked=is_checked), image)

    def _insert(self, shape: RowsShape, image: bytes, *, is_checked: bool) -> RowsEvent:
        return RowsEvent(self._cutter.shape(shape, RowsKind.WRITE, is_checked=is_checked), image)
