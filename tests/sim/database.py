"""The simulated target server: rows, locks, open target transactions and checkpoints.

Knows: what InnoDB does about two transactions that meet, as far as a player can tell: a key held by a committed row
is a conflict; a row or entry that another open transaction wrote is a lock wait, which here has always timed out.
Never knows: what streams contain, or players. Used by ``SimTarget``; its snapshots make the search cheap.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tests.sim.rows import Change, Row, RowKey, Table, Value, decode, unique_entries

from vmerge.core.position import GtidSet
from vmerge.core.quarantine import Entry as QuarantineEntry
from vmerge.core.quarantine import EntryState, RowName
from vmerge.errors import Fenced, ForeignKeyConflict, JointRefused, KeyConflict, LockConflict, RowMissing

Entry = tuple[Hashable, ...]
"""What can be locked: a row by its primary key, or an entry of a unique key."""
OPERATOR = "operator"
"""In whose name an operator's transaction is open."""
Quarantined = Mapping[RowName, QuarantineEntry]
"""A stream's rows in quarantine. Never changed in place."""
Snapshot = tuple[
    dict[RowKey, Row],
    dict[str, GtidSet],
    dict[str, int],
    dict[Entry, dict[str, bool]],
    dict[str, dict[RowKey, Row | None]],
    dict[str, Quarantined],
]


class SimDatabase:
    """One server that all streams share.

    Invariants: ``rows`` holds what is committed; an open transaction is an overlay on it, and holds a lock on every row
    and entry it touched, so that no two overlays ever touch the same.
    """

    def __init__(self, tables: Mapping[str, Table], checkpoints: Mapping[str, GtidSet]) -> None:
        self._tables = tables
        self.rows: dict[RowKey, Row] = {}
        self.checkpoints = dict(checkpoints)
        self.epochs = dict.fromkeys(checkpoints, 0)
        self._locks: dict[Entry, dict[str, bool]] = {}
        self.open: dict[str, dict[RowKey, Row | None]] = {}
        self.quarantine: dict[str, Quarantined] = {stream: {} for stream in checkpoints}

    def save(self) -> Snapshot:
        """Return everything, for ``restore``."""
        locks = {entry: dict(holders) for entry, holders in self._locks.items()}
        overlays = {stream: dict(overlay) for stream, overlay in self.open.items()}
        return dict(self.rows), dict(self.checkpoints), dict(self.epochs), locks, overlays, dict(self.quarantine)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to what was saved; the snapshot stays usable."""
        rows, checkpoints, epochs, locks, overlays, quarantine = snapshot
        self.rows, self.checkpoints, self.epochs = dict(rows), dict(checkpoints), dict(epochs)
        self._locks = {entry: dict(holders) for entry, holders in locks.items()}
        self.open = {stream: dict(overlay) for stream, overlay in overlays.items()}
        self.quarantine = dict(quarantine)

    # Transactions

    def begin(self, stream: str) -> None:
        """Open a stream's transaction unless it is open."""
        self.open.setdefault(stream, {})

    def rollback(self, stream: str) -> None:
        """Forget a stream's transaction and its locks, if there is one."""
        self.open.pop(stream, None)
        for entry in list(self._locks):
            self._locks[entry].pop(stream, None)
            if not self._locks[entry]:
                del self._locks[entry]

    def commit(
        self, stream: str, position: GtidSet, epoch: int, quarantined: Mapping[str, Quarantined] | None = None
    ) -> None:
        """Make a stream's transaction and its position visible, if the epoch is the stream's newest.

        ``quarantined`` has the rows in quarantine of the streams where these change.
        """
        if epoch != self.epochs[stream]:
            raise Fenced(f"stream {stream} was taken over")
        assert position.includes(self.checkpoints[stream]), "a position went back"
        for key, row in self.open.get(stream, {}).items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        self.checkpoints[stream] = position
        self.quarantine.update(quarantined or {})
        self.rollback(stream)

    def commit_joint(
        self,
        leader: str,
        checkpoints: Sequence[tuple[str, GtidSet, GtidSet, int]],
        quarantined: Mapping[str, Quarantined],
    ) -> None:
        """Make the leader's transaction visible with each member's position, from the first to the second position.

        Raises ``JointRefused``, changing nothing, if a member has another position or epoch by now.
        """
        for stream, before, _, epoch in checkpoints:
            if (self.checkpoints[stream], self.epochs[stream]) != (before, epoch):
                raise JointRefused(f"stream {stream} has moved")
        for stream, _, after, _ in checkpoints:
            self.checkpoints[stream] = after
        self.commit(leader, self.checkpoints[leader], self.epochs[leader], quarantined)

    def take_over(self, stream: str) -> tuple[GtidSet, int]:
        """Give a stream a new owner; return its position and the owner's epoch."""
        self.epochs[stream] += 1
        return self.checkpoints[stream], self.epochs[stream]

    # Quarantine

    def lock_entry(self, stream: str, owner: str, name: RowName) -> QuarantineEntry | None:
        """Lock an entry of some stream for an open transaction and return it as it is committed."""
        self._lock(stream, ("quarantine", owner, name))
        return self.quarantine[owner].get(name)

    def retry(self, owner: str, name: RowName) -> None:
        """Do what an operator's retry does; raises as ``apply`` does, with nothing changed."""
        self.begin(OPERATOR)
        try:
            entry = self.lock_entry(OPERATOR, owner, name)
            if entry is not None:
                self.apply(OPERATOR, decode(entry.insert()))
                self.rows.update((key, row) for key, row in self.open[OPERATOR].items() if row is not None)
                self.quarantine[owner] = {key: one for key, one in self.quarantine[owner].items() if key != name}
        finally:
            self.rollback(OPERATOR)

    def drop(self, owner: str, name: RowName) -> None:
        """Do what an operator's drop does."""
        self.begin(OPERATOR)
        try:
            entry = self.lock_entry(OPERATOR, owner, name)
            if entry is not None:
                self.quarantine[owner] = {**self.quarantine[owner], name: replace(entry, state=EntryState.DROPPED)}
        finally:
            self.rollback(OPERATOR)

    # Changes

    def apply(self, stream: str, change: Change, *, checks_foreign_keys: bool = True) -> None:
        """Change one row in a stream's open transaction; on an error what came before stays, as on a server."""
        if change.before is not None:
            self._remove(stream, change.table, change.before)
        if change.after is not None:
            self._add(stream, change.table, change.after, checks_foreign_keys=checks_foreign_keys)
        if checks_foreign_keys:
            self._check_children(stream, change)

    def _remove(self, stream: str, table_name: str, before: Row) -> None:
        key = (table_name, before[0])
        self._lock(stream, ("row", *key))
        found = self._find(stream, key)
        if found is None:
            raise RowMissing(f"{table_name}: no row {before[0]}")
        assert found == before, f"DIVERGENCE: {table_name} has {found}, the stream's own row is {before}"
        for number, values in unique_entries(self._tables[table_name], before):
            self._lock(stream, ("entry", table_name, number, values))
        self.open[stream][key] = None

    def _add(self, stream: str, table_name: str, after: Row, *, checks_foreign_keys: bool) -> None:
        table = self._tables[table_name]
        key = (table_name, after[0])
        self._lock(stream, ("row", *key))
        if self._find(stream, key) is not None:
            raise KeyConflict(f"{table_name}: duplicate primary key {after[0]}", key="PRIMARY")
        for number, values in unique_entries(table, after):
            self._lock(stream, ("entry", table_name, number, values))
            if self._has_entry(stream, table, number, values):
                raise KeyConflict(f"{table_name}: duplicate {values}", key=f"unique_{number}")
        for column, parent in table.parents if checks_foreign_keys else ():
            if after[column] is not None and (parent, after[column]) != key:
                self._lock(stream, ("row", parent, after[column]), exclusive=False)
                if self._find(stream, (parent, after[column])) is None:
                    raise ForeignKeyConflict(f"{table_name}: no parent {after[column]}", key=f"{table_name}_{parent}")
        self.open[stream][key] = after

    def _check_children(self, stream: str, change: Change) -> None:
        if change.before is None or (change.after is not None and change.after[0] == change.before[0]):
            return
        for child, column in self._children_of(change.table):
            for row in self._rows_of(stream, child):
                if row[column] != change.before[0]:
                    continue
                self._lock(stream, ("row", child, row[0]), exclusive=False)
                raise ForeignKeyConflict(
                    f"{change.table}: row {change.before[0]} has children", key=f"{child}_{change.table}"
                )

    def _children_of(self, parent: str) -> Iterator[tuple[str, int]]:
        for table in self._tables.values():
            for column, name in table.parents:
                if name == parent:
                    yield table.name, column

    def is_related(self, table_name: str) -> bool:
        """Tell whether a table is child or parent of a foreign key."""
        return bool(self._tables[table_name].parents) or any(True for _ in self._children_of(table_name))

    def depth(self, table_name: str) -> int:
        """Return how many parents stand above a table; of tables in a circle, any number."""
        return len(self._ancestors(table_name))

    def is_own_ancestor(self, table_name: str) -> bool:
        """Tell whether a table is a parent of itself, directly or over others."""
        return table_name in self._ancestors(table_name)

    def _ancestors(self, table_name: str) -> set[str]:
        found: set[str] = set()
        stack = [table_name]
        while stack:
            new = {parent for _, parent in self._tables[stack.pop()].parents} - found
            found |= new
            stack.extend(new)
        return found

    def _find(self, stream: str, key: RowKey) -> Row | None:
        overlay = self.open[stream]
        return overlay[key] if key in overlay else self.rows.get(key)

    def _rows_of(self, stream: str, table_name: str) -> Iterable[Row]:
        visible: dict[RowKey, Row | None] = {**self.rows, **self.open[stream]}
        return [row for (name, _), row in visible.items() if name == table_name and row is not None]

    def _has_entry(self, stream: str, table: Table, number: int, values: tuple[Value, ...]) -> bool:
        return any((number, values) in unique_entries(table, row) for row in self._rows_of(stream, table.name))

    def _lock(self, stream: str, entry: Entry, *, exclusive: bool = True) -> None:
        holders = self._locks.setdefault(entry, {})
        for holder, is_exclusive in holders.items():
            if holder != stream and (exclusive or is_exclusive):
                raise LockConflict(f"{entry} is locked by {holder}")
        holders[stream] = exclusive or holders.get(stream, False)
