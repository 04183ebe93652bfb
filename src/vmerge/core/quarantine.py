"""Rows that a stream keeps off the target, and what its transactions do past them.

Knows: which rows are in quarantine, and how a run of transactions parts into rows for the target and changes of
quarantined ones. Never knows: servers, conflicts, or why a row is set aside. Used by ``mysql/target.py``, which stores
what comes of it in the same target transaction, and by the simulator of the tests.

The rule
--------
A row is named by its table on the target and the bytes of its primary key. *Entries* are the rows in quarantine, as
they stand at the source by the stream's position. *Marks* name rows that were proven duplicates and are to be set aside
as soon as they come. Then, in the order of the source:

    what comes                        to the target              to the quarantine
    --------------------------------  -------------------------  ---------------------------------------------
    update of an entry                nothing                    its new image; another key moves the entry
    delete of an entry                nothing                    the entry ends
    insert of a marked row            nothing                    a new entry
    update from or to a marked row    delete of the old version  a new entry
    delete of a marked row            that delete                nothing
    insert of an entry that ended     nothing                    the entry goes on, to be tried again
      within this run
    anything else                     the same                   nothing

So the target always has the stream's rows up to its position but those in quarantine, and whatever is deleted is a row
that this stream has put there itself. A row that is set aside without need costs little: whoever commits the run tries
right behind it whether the target takes the rows that it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Protocol, assert_never

from vmerge.core.column_types import ColumnShape, column_shapes
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap, Transaction
from vmerge.core.fold import Changes, Fold, TableRules
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.rowimage import ImageCutter, Key, pairs, whole_rows
from vmerge.core.rules import TableName
from vmerge.errors import UnsupportedEvent

_LENGTH_BYTES = 4

RowName = tuple[TableName, Key]
"""One row of a stream: its table on the target and the bytes of its primary key."""


def write_key(key: Key) -> bytes:
    """Return a key as one value: each part behind its length."""
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in key)


def read_key(value: bytes) -> Key:
    """Return the key that ``write_key`` made a value of."""
    parts = []
    offset = 0
    while offset < len(value):
        start = offset + _LENGTH_BYTES
        offset = start + int.from_bytes(value[offset:start], "big")
        parts.append(value[start:offset])
    return tuple(parts)


class RowRules(Protocol):
    """What must be known of tables to name their rows."""

    def key_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """Return where, from 0, the columns of the primary key stand."""

    def target_name(self, table_map: TableMap) -> TableName:
        """Return the table on the target that rows of this shape go to."""

    def in_full(self, table_map: TableMap) -> TableMap:
        """Return the table map with the names of its columns, for a row that is kept while the table may change."""


class EntryState(Enum):
    """What is to become of a row in quarantine."""

    PARKED = "parked"
    """It comes to the target as soon as that takes it."""
    DROPPED = "dropped"
    """An operator gave it up: it stays away until it ends at the source."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why a row was set aside: the duplicate that was proven. Primary keys are texts for the operator."""

    key: str
    """The name of the unique key."""
    own: str
    holder: str
    holder_stream: str
    text: str
    """The proof in one sentence, without any value but primary keys."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One row in quarantine."""

    id: int | None
    """Its number in the control table; None before it is stored."""
    state: EntryState
    grounds: Grounds
    table: TableMap
    """That of the image, with the names of its columns."""
    flags: int
    """Of the rows event that brought the image."""
    image: bytes
    gtid: Gtid
    """The transaction that left the row as it is."""

    def insert(self) -> RowsEvent:
        """Return the event that brings the row to the target."""
        return RowsEvent(whole_rows(self.table, RowsKind.WRITE, self.flags), self.image)


@dataclass(frozen=True, slots=True)
class Quarantine:
    """All rows of one stream in quarantine at one position, and those that are to go there."""

    entries: Mapping[RowName, Entry] = field(default_factory=dict)
    marks: Mapping[RowName, Grounds] = field(default_factory=dict)
    marked_until: Gtid | None = None
    """The last transaction of the run that the marks are about."""

    @property
    def is_empty(self) -> bool:
        """Whether every row just passes."""
        return not self.entries and not self.marks

    def marked(self, names: Iterable[RowName], grounds: Grounds, until: Gtid) -> Quarantine:
        """Return it with more marks, for a run up to this transaction."""
        return replace(self, marks={**self.marks, **dict.fromkeys(names, grounds)}, marked_until=until)

    def at(self, position: GtidSet, entries: Mapping[RowName, Entry]) -> Quarantine:
        """Return it after a commit: with these entries, and without marks once their run is through."""
        if self.marked_until is None or position.contains(self.marked_until):
            return Quarantine(entries)
        return replace(self, entries=entries)


class Changed(NamedTuple):
    """An entry that a run changed; its number is the one from before."""

    name: RowName
    entry: Entry
    state_before: EntryState


@dataclass(frozen=True, slots=True)
class Difference:
    """What a run changed in a quarantine."""

    added: tuple[tuple[RowName, Entry], ...]
    changed: tuple[Changed, ...]
    ended: tuple[tuple[RowName, Entry], ...]
    """As they were before the run."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed."""
        return not (self.added or self.changed or self.ended)


class Diversion:
    """One run of a stream on its way past its quarantine. Made anew for each attempt.

    Promise: rows of tables without entries and marks pass as they are, uncut. Owner: whoever applies the run; what it
    says beside ``rows`` holds once these were walked to their end.
    """

    def __init__(self, quarantine: Quarantine, rules: RowRules) -> None:
        self._before = quarantine.entries
        self._marks = quarantine.marks
        self._rules = rules
        self._ended: dict[RowName, Entry] = {}
        """Entries whose rows were deleted within this run."""
        self._tables = {table for table, _ in (*quarantine.entries, *quarantine.marks)}
        self._watches: dict[TableMap, _Watch | None] = {}
        self.entries: dict[RowName, Entry] = dict(quarantine.entries)
        self.has_diverted = False
        """Whether anything did not just pass."""

    def copy(self) -> Diversion:
        """Return one that goes on from here by itself."""
        twin = copy(self)
        twin.entries, twin._ended = dict(self.entries), dict(self._ended)
        return twin

    def rows(self, run: Iterable[Transaction]) -> Iterator[RowsEvent]:
        """Yield what is for the target, in the order of the source; once.

        Raises:
            UnsupportedEvent: rows of a table with entries cannot be followed.
            CorruptEvent: an image is cut.
        """
        for transaction in run:
            yield from self.rows_of(transaction)

    def rows_of(self, transaction: Transaction) -> Iterator[RowsEvent]:
        """Yield what of the next transaction is for the target; see ``rows``."""
        for event in transaction.rows:
            watch = self._watch(event.shape.table)
            if watch is None:
                yield event
            else:
                yield from self._divert(event, watch, transaction.gtid)

    def difference(self) -> Difference:
        """Return what the run changed."""
        before = {entry.id: (name, entry) for name, entry in self._before.items()}
        added, changed = [], []
        for name, entry in self.entries.items():
            known = before.pop(entry.id, None)
            if known is None:
                added.append((name, entry))
            elif known != (name, entry):
                changed.append(Changed(name, entry, known[1].state))
        return Difference(tuple(added), tuple(changed), tuple(before.values()))

    def _watch(self, table: TableMap) -> _Watch | None:
        if table not in self._watches:
            name = self._rules.target_name(table)
            self._watches[table] = self._made(name, table) if name in self._tables else None
        return self._watches[table]

    def _made(self, name: TableName, table: TableMap) -> _Watch:
        columns = self._rules.key_columns(table)
        if not columns:
            raise UnsupportedEvent(f"rows of {table.name} cannot be followed: it has no primary key")
        kept = self._rules.in_full(table)
        for (other, _), entry in self._before.items():
            if other == name and not _has_same_key(entry.table, kept, columns):
                raise UnsupportedEvent(
                    f"the primary key of {table.name} was altered while a row of it is in quarantine",
                    hint="Settle the rows in quarantine before such a change; see docs/quarantine.md.",
                )
        return _Watch(name, table, kept, columns)

    def _divert(self, event: RowsEvent, watch: _Watch, gtid: Gtid) -> Iterator[RowsEvent]:
        shape = event.shape
        match shape.kind:
            case RowsKind.WRITE:
                return _without(event, watch, lambda name, image: self._takes_insert(name, watch, shape, image, gtid))
            case RowsKind.DELETE:
                return _without(event, watch, lambda name, _: self._takes_delete(name))
            case RowsKind.UPDATE:
                return self._divert_updates(event, watch, gtid)
            case RowsKind.PARTIAL_UPDATE:
                raise UnsupportedEvent(
                    f"partial images came for rows of {watch.table.name}, of which one is in quarantine",
                    hint="Set binlog_row_value_options='' on the source; see docs/quarantine.md for the row.",
                )
            case _:
                assert_never(shape.kind)

    def _divert_updates(self, event: RowsEvent, watch: _Watch, gtid: Gtid) -> Iterator[RowsEvent]:
        shape = event.shape
        passed: list[bytes] = []
        has_diverted = False
        for (old_key, before), (key, after) in pairs(watch.cutter.cut(event.images)):
            old_name, name = (watch.name, old_key), (watch.name, key)
            entry = self.entries.pop(old_name, None)
            grounds = self._grounds(name) or self._grounds(old_name)
            if entry is not None:
                self._put(name, replace(entry, table=watch.kept, flags=shape.flags, image=after, gtid=gtid))
            elif grounds is not None:
                if passed:  # what stands behind the row in the event may need what the row had
                    yield RowsEvent(shape, b"".join(passed))
                    passed = []
                yield RowsEvent(watch.deletes(shape.flags), before)
                self._put(name, _new_entry(grounds, watch, shape, after, gtid))
            else:
                passed += (before, after)
                continue
            has_diverted = True
        if not has_diverted:
            yield event
        elif passed:
            yield RowsEvent(shape, b"".join(passed))

    def _takes_insert(self, name: RowName, watch: _Watch, shape: RowsShape, image: bytes, gtid: Gtid) -> bool:
        ended = self._ended.pop(name, None)
        if ended is not None:
            entry = replace(ended, table=watch.kept, flags=shape.flags, image=image, gtid=gtid)
            self._put(name, replace(entry, state=EntryState.PARKED))
            return True
        grounds = self._marks.get(name)
        if grounds is None:
            return False
        self._put(name, _new_entry(grounds, watch, shape, image, gtid))
        return True

    def _takes_delete(self, name: RowName) -> bool:
        entry = self.entries.pop(name, None)
        if entry is None:
            return False
        self.has_diverted = True
        self._ended[name] = entry
        return True

    def _grounds(self, name: RowName) -> Grounds | None:
        """Return why a row of this name is to be set aside; None if it is not."""
        ended = self._ended.get(name)
        return ended.grounds if ended is not None else self._marks.get(name)

    def _put(self, name: RowName, entry: Entry) -> None:
        if name in self.entries:
            raise UnsupportedEvent(f"rows of {entry.table.name} cannot be followed: one appears twice")
        self.has_diverted = True
        self.entries[name] = entry


class _Watch:
    """How rows of one shape of a table with entries or marks are told apart."""

    def __init__(self, name: TableName, table: TableMap, kept: TableMap, key_columns: Sequence[int]) -> None:
        self.name = name
        self.table = table
        self.kept = kept
        """The same for rows that go to quarantine."""
        self.cutter = ImageCutter(table, key_columns)
        self._deletes: dict[int, RowsShape] = {}

    def deletes(self, flags: int) -> RowsShape:
        """Return the shape of deletes: one object for the same flags, so that neighbours are joined."""
        shape = self._deletes.get(flags)
        if shape is None:
            shape = self._deletes[flags] = whole_rows(self.table, RowsKind.DELETE, flags)
        return shape


def _without(event: RowsEvent, watch: _Watch, takes: Callable[[RowName, bytes], bool]) -> Iterator[RowsEvent]:
    """Yield what is left of inserts or deletes when some of the rows are taken."""
    count = 0
    passed = []
    for key, image in watch.cutter.cut(event.images):
        count += 1
        if not takes((watch.name, key), image):
            passed.append(image)
    if len(passed) == count:
        yield event
    elif passed:
        yield RowsEvent(event.shape, b"".join(passed))


class DivertedFold(Fold):
    """The net effect of a long run, whose transactions pass the quarantine as they are followed."""

    def __init__(self, rules: TableRules, open_changes: Callable[[], Changes], diversion: Diversion) -> None:
        super().__init__(rules, open_changes)
        self.diversion = diversion

    def follow(self, transaction: Transaction) -> None:
        """See ``Fold``."""
        self.add(self.diversion.rows_of(transaction))


def _new_entry(grounds: Grounds, watch: _Watch, shape: RowsShape, image: bytes, gtid: Gtid) -> Entry:
    return Entry(None, EntryState.PARKED, grounds, watch.kept, shape.flags, image, gtid)


def _has_same_key(older: TableMap, now: TableMap, columns: Sequence[int]) -> bool:
    """Whether keys of an older table can be compared with those of now, of which these columns are the key.

    A column that is not found there by its name may have been renamed: then the places count.
    """
    places = {name.lower(): place for place, name in enumerate(older.names)}
    found = [places.get(now.names[column].lower()) for column in columns] if now.names else [None]
    then = [place for place in found if place is not None]
    if len(then) < len(columns):
        return _key_shapes(older, columns) == _key_shapes(now, columns)
    return then == sorted(then) and _key_shapes(older, then) == _key_shapes(now, columns)


def _key_shapes(table: TableMap, columns: Sequence[int]) -> list[ColumnShape]:
    """Return the types of a primary key's columns: bytes of equal types can be compared."""
    shapes = column_shapes(table.types, table.metadata) or ()
    return [shapes[column] for column in columns if column < len(shapes)]


class _PassedRows:
    """The rows of a transaction that are for the target, found anew at each walk: they may not fit in memory."""

    def __init__(self, diversion: Diversion, transaction: Transaction, count: int) -> None:
        self._diversion = diversion
        self._transaction = transaction
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RowsEvent]:
        return self._diversion.copy().rows_of(self._transaction)


def visible(run: Sequence[Transaction], quarantine: Quarantine, rules: RowRules) -> Sequence[Transaction]:
    """Return a run with the rows that are for the target alone. Raises as ``Diversion.rows`` does."""
    if quarantine.is_empty:
        return run
    diversion = Diversion(quarantine, rules)
    passed = []
    for transaction in run:
        before = diversion.copy()
        count = sum(1 for _ in diversion.rows_of(transaction))  # now it is as the next transaction finds it
        passed.append(transaction._replace(rows=_PassedRows(before, transaction, count)))
    return passed


def names_in(run: Iterable[Transaction], name: RowName, rules: RowRules) -> frozenset[RowName]:
    """Return all names that a row goes by in a run, as far as updates connect them."""
    table, key = name
    cutters: dict[TableMap, ImageCutter] = {}
    groups: dict[Key, set[Key]] = {}
    for event in (event for transaction in run for event in transaction.rows):
        shape = event.shape
        if shape.kind is not RowsKind.UPDATE or rules.target_name(shape.table) != table:
            continue
        cutter = cutters.get(shape.table)
        if cutter is None:
            cutter = cutters[shape.table] = ImageCutter(shape.table, rules.key_columns(shape.table))
        for (old, _), (new, _) in pairs(cutter.cut(event.images)):
            if old != new:
                joined = groups.get(old, {old}) | groups.get(new, {new})
                groups.update(dict.fromkeys(joined, joined))
    return frozenset((table, one) for one in groups.get(key, {key}))
