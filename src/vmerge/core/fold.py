"""The net effect of a run of transactions of one stream.

Knows: which rows a run changes, from what to what. Never knows: servers, conflicts, or what a value means. Used by
``mysql/target.py`` for jumps and joint commits. Follows each row from before-image to after-image:

    insert + update = insert of the last       insert + delete = nothing
    update + update = first before, last after update + delete = delete of the first before
    delete + insert = update                   an update that changes the key moves the row

A row that this run inserts and deletes leaves no trace, least of all a DELETE: by then the row with that key may be a
sibling's. The effect is all deletes of first before-images, then all inserts of last after-images, an update being
both: so unique values may be permuted among the rows in any way.

A table with foreign keys keeps its updates as updates here: which of their halves goes when, and is checked how, is
known to ``core/row_order.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from vmerge.core.events import RowsEvent, RowsKind, TableMap, Transaction
from vmerge.core.rowimage import ImageCutter, Key, pairs, whole_rows
from vmerge.errors import UnsupportedEvent


class TableRules(Protocol):
    """What must be known of a table to follow its rows."""

    def key_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """Return where, from 0, the columns of the primary key stand; none without one.

        Raises ``UnsupportedEvent`` for a table whose rows do not tell all.
        """

    def has_foreign_keys(self, table_map: TableMap) -> bool:
        """Whether the table is child or parent of any foreign key."""

    def depth(self, table_map: TableMap) -> int:
        """Return how many parents stand above the table, one above the other; 0 for a table without parents."""


@dataclass(frozen=True, slots=True)
class NetEffect:
    """What a run does in the end.

    Deletes begin with children, inserts with parents. ``core/row_order.py`` puts it in the order for a target.
    """

    deletes: tuple[RowsEvent, ...]
    updates: tuple[RowsEvent, ...]
    inserts: tuple[RowsEvent, ...]

    @property
    def tables(self) -> frozenset[TableMap]:
        """The tables whose rows it has."""
        return frozenset(row.shape.table for row in self.rows())

    def rows(self) -> Iterator[RowsEvent]:
        """Yield everything in its order."""
        yield from self.deletes
        yield from self.updates
        yield from self.inserts


Change = tuple[bytes | None, bytes | None]
"""What a run does to the row of one key: first before-image (None: not there), last after-image (None: gone)."""


class Changes(Protocol):
    """Where the changes of one table's rows are kept."""

    def find(self, key: Key) -> Change | None:
        """Return a row's change; None for a row that was not met."""

    def put(self, key: Key, change: Change) -> None:
        """Keep a row's change instead of the one before."""

    def __iter__(self) -> Iterator[Change]:
        """Walk all changes, in the order in which their rows were first met."""

    def close(self) -> None:
        """Let go of what they are kept in."""


class MemoryChanges:
    """Changes in memory."""

    def __init__(self) -> None:
        self._changes: dict[Key, Change] = {}

    def find(self, key: Key) -> Change | None:
        """See ``Changes``."""
        return self._changes.get(key)

    def put(self, key: Key, change: Change) -> None:
        """See ``Changes``."""
        self._changes[key] = change

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes.values())

    def close(self) -> None:
        """See ``Changes``."""


class _TableFold:
    """The changes of one table's rows."""

    def __init__(self, table: TableMap, key_columns: tuple[int, ...], changes: Changes, *, keeps_updates: bool) -> None:
        if not key_columns:
            raise UnsupportedEvent(f"rows of {table.name} cannot be followed: it has no primary key")
        self.table = table
        self._cutter = ImageCutter(table, key_columns)
        self._changes = changes
        self._keeps_updates = keeps_updates
        self._flags: int | None = None

    def add(self, rows: RowsEvent) -> None:
        """Follow the rows of one event."""
        images = self._cutter.cut(rows.images)
        if self._flags not in (None, rows.shape.flags):
            raise UnsupportedEvent(f"rows of {self.table.name} cannot be followed: their flags differ")
        self._flags = rows.shape.flags
        match rows.shape.kind:
            case RowsKind.WRITE:
                for key, image in images:
                    self._appear(key, image)
            case RowsKind.DELETE:
                for key, image in images:
                    self._vanish(key, image)
            case RowsKind.UPDATE:
                for (old_key, before), (key, after) in pairs(images):
                    self._vanish(old_key, before)
                    self._appear(key, after)
            case RowsKind.PARTIAL_UPDATE:
                raise UnsupportedEvent(f"rows of {self.table.name} cannot be followed: their images are partial")

    def _appear(self, key: Key, image: bytes) -> None:
        before, after = self._changes.find(key) or (None, None)
        if after is not None:
            raise self._contradiction()
        self._changes.put(key, (before, image))

    def _vanish(self, key: Key, image: bytes) -> None:
        before, after = self._changes.find(key) or (image, image)
        if after is None:
            raise self._contradiction()
        self._changes.put(key, (before, None))

    def _contradiction(self) -> UnsupportedEvent:
        """A row came or went in a way that is not in the binlog, as by a cascade that its source does not write."""
        return UnsupportedEvent(f"rows of {self.table.name} cannot be followed: one appears or vanishes twice")

    def deletes(self) -> Iterator[RowsEvent]:
        """Yield the first before-images of the rows that go, or change unless updates are kept."""
        keeps = self._keeps_updates
        return self._events(RowsKind.DELETE, (one for one, after in self._changed() if one and not (after and keeps)))

    def updates(self) -> Iterator[RowsEvent]:
        """Yield first before- and last after-images of the rows that change, if updates are kept."""
        if not self._keeps_updates:
            return iter(())
        both = (before + after for before, after in self._changed() if before and after)
        return self._events(RowsKind.UPDATE, both)

    def inserts(self) -> Iterator[RowsEvent]:
        """Yield the last after-images of the rows that come, or change unless updates are kept."""
        keeps = self._keeps_updates
        return self._events(RowsKind.WRITE, (one for before, one in self._changed() if one and not (before and keeps)))

    def _changed(self) -> Iterator[Change]:
        return ((before, after) for before, after in self._changes if before != after)

    def _events(self, kind: RowsKind, images: Iterator[bytes]) -> Iterator[RowsEvent]:
        shape = whole_rows(self.table, kind, self._flags or 0)
        return (RowsEvent(shape, image) for image in images)


class Fold:
    """The net effect of a run that is still growing. Owner: whoever lets it grow; walks of it see what was added."""

    def __init__(self, rules: TableRules, open_changes: Callable[[], Changes] = MemoryChanges) -> None:
        """``open_changes`` makes the place for one table's changes."""
        self._rules = rules
        self._open_changes = open_changes
        self._opened: list[Changes] = []
        self._tables: dict[str, _TableFold] = {}

    def add(self, rows: Iterable[RowsEvent]) -> None:
        """Follow further rows, in their source's order. After an error the fold is of no use any more.

        Raises:
            UnsupportedEvent: a row cannot be followed (no primary key, partial images, a table in two shapes, changes
                that are not in the binlog).
            CorruptEvent: an image is cut.
        """
        for event in rows:
            table = event.shape.table
            folded = self._tables.get(table.name)
            if folded is None:
                folded = self._tables[table.name] = self._begin(table)
            elif not folded.table.agrees_with(table):  # flags may differ: a source marks what a row needs a parent for
                raise UnsupportedEvent(f"rows of {table.name} cannot be followed: its definition changed among them")
            folded.add(event)

    def follow(self, transaction: Transaction) -> None:
        """Follow the rows of a further transaction. Raises as ``add`` does."""
        self.add(transaction.rows)

    def _begin(self, table: TableMap) -> _TableFold:
        key_columns, keeps_updates = self._rules.key_columns(table), self._rules.has_foreign_keys(table)
        changes = self._open_changes()
        self._opened.append(changes)
        return _TableFold(table, key_columns, changes, keeps_updates=keeps_updates)

    @property
    def tables(self) -> frozenset[TableMap]:
        """The tables that were met."""
        return frozenset(folded.table for folded in self._tables.values())

    @property
    def deletes(self) -> Iterator[RowsEvent]:
        """What goes, children first; walked anew each time."""
        return (event for folded in reversed(self._parents_first()) for event in folded.deletes())

    @property
    def updates(self) -> Iterator[RowsEvent]:
        """What changes in place, likewise."""
        return (event for folded in self._parents_first() for event in folded.updates())

    @property
    def inserts(self) -> Iterator[RowsEvent]:
        """What comes, parents first, likewise."""
        return (event for folded in self._parents_first() for event in folded.inserts())

    def rows(self) -> Iterator[RowsEvent]:
        """Yield everything in its order."""
        return chain(self.deletes, self.updates, self.inserts)

    def net_effect(self) -> NetEffect:
        """Return what was added so far, in memory."""
        return NetEffect(tuple(self.deletes), tuple(self.updates), tuple(self.inserts))

    def close(self) -> None:
        """Let go of what the changes are kept in."""
        for changes in self._opened:
            changes.close()

    def _parents_first(self) -> list[_TableFold]:
        return sorted(self._tables.values(), key=lambda folded: self._rules.depth(folded.table))


def fold(rows: Iterable[RowsEvent], rules: TableRules) -> NetEffect:
    """Return the net effect of rows in their source's order. Raises as ``Fold.add`` does."""
    run = Fold(rules)
    run.add(rows)
    return run.net_effect()
