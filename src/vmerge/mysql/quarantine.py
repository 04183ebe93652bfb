"""Rows in quarantine, in the control database.

Knows: how entries lie in their control table, and how one stream's session keeps in step with them. Never knows: when
a row is set aside or tried again. Used by ``mysql/target.py``, and by ``mysql/quarantine_orders.py`` for operators.

Who changes an entry changes exactly one row of the table, by its number, in the transaction that also changes the row
of the target. So its row lock is what keeps the stream and an operator apart: whoever comes second finds no row, or
another state of it, and rolls back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.position import Gtid, GtidSet
from vmerge.core.quarantine import (
    Changed,
    Difference,
    Diversion,
    Entry,
    EntryState,
    Grounds,
    Quarantine,
    RowName,
    RowRules,
    read_key,
    write_key,
)
from vmerge.core.table_map import read_table_map, write_table_map
from vmerge.errors import QuarantineSettled
from vmerge.mysql import sql
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.faults import errno_of

_NOT_THERE = frozenset({1049, 1146})
"""No such database, no such table."""

GROUND_CHARACTERS = 1000
"""Of a primary key in words."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry as the control table has it."""

    id: int
    stream: str
    name: RowName
    entry: Entry
    parked_gtid: str
    """The transaction that brought the duplicate."""
    parked_at: float
    """Seconds since 1970."""
    changed_at: float


class QuarantineTable:
    """Statements on the control table of one workflow. Each call is given a connection, whose transaction it is in."""

    def __init__(self, database: str, workflow: str) -> None:
        self._control = sql.quoted(database).replace("%", "%%")  # values are put in by % formatting
        self._workflow = workflow

    def read(self, connection: Connection[Any], stream: str | None = None) -> list[StoredEntry]:
        """Return all entries, or a stream's, in the order in which they came; none where no table was made."""
        condition, values = ("", ()) if stream is None else (" AND stream = %s", (stream,))
        try:
            rows = self._run(connection, f"{sql.READ_QUARANTINE}{condition} ORDER BY id", *values)
        except MySQLError as error:
            if errno_of(error) in _NOT_THERE:
                return []
            raise
        return [_stored(row) for row in rows]

    def lock(self, connection: Connection[Any], id: int) -> StoredEntry | None:
        """Return an entry, locked for the open transaction; None when there is none."""
        rows = self._run(connection, f"{sql.READ_QUARANTINE} AND id = %s FOR UPDATE", id)
        return _stored(rows[0]) if rows else None

    def add(self, connection: Connection[Any], stream: str, name: RowName, entry: Entry) -> Entry:
        """Store a new entry; return it with its number."""
        grounds = entry.grounds
        with connection.cursor() as cursor:
            cursor.execute(
                sql.ADD_TO_QUARANTINE.format(control=self._control),
                (
                    self._workflow,
                    stream,
                    *name[0],
                    write_key(name[1]),
                    entry.image,
                    write_table_map(entry.table),
                    entry.flags,
                    entry.state.value,
                    grounds.key,
                    grounds.own[:GROUND_CHARACTERS],
                    grounds.holder[:GROUND_CHARACTERS],
                    grounds.holder_stream,
                    grounds.text,
                    str(entry.gtid),
                    str(entry.gtid),
                ),
            )
            return replace(entry, id=cursor.lastrowid)

    def change(self, connection: Connection[Any], changed: Changed) -> None:
        """Store an entry's new image and key. Raises ``QuarantineSettled`` as ``remove`` does."""
        name, entry, state_before = changed
        self._run_on_one(
            connection,
            sql.CHANGE_IN_QUARANTINE,
            write_key(name[1]),
            entry.image,
            write_table_map(entry.table),
            entry.flags,
            entry.state.value,
            str(entry.gtid),
            entry.id,
            state_before.value,
        )

    def set_state(self, connection: Connection[Any], id: int, state: EntryState) -> None:
        """Change what is to become of an entry."""
        self._run_on_one(connection, sql.SET_QUARANTINE_STATE, state.value, id)

    def remove(self, connection: Connection[Any], entry: Entry) -> None:
        """Take an entry away. Raises ``QuarantineSettled`` when it is gone, or is to have another end by now."""
        self._run_on_one(connection, sql.REMOVE_FROM_QUARANTINE, entry.id, entry.state.value)

    def _run_on_one(self, connection: Connection[Any], statement: str, *values: Any) -> None:
        with connection.cursor() as cursor:
            matched = cursor.execute(statement.format(control=self._control), (*values, self._workflow))
        if matched != 1:
            raise QuarantineSettled("an operator has settled a row in quarantine meanwhile")

    def _run(self, connection: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(control=self._control), (self._workflow, *values))
            return list(cursor.fetchall())


class QuarantineSession:
    """One stream's quarantine, as its session on the target knows it.

    Invariant: ``quarantine`` is what the control table has by the stream's checkpoint, but for what operators did
    meanwhile. An attempt's changes become part of it only by ``committed``. Owner: the stream's target.
    """

    def __init__(self, table: QuarantineTable, log: ControlTables, stream: str) -> None:
        self._table = table
        self._log = log
        self._stream = stream
        self.quarantine = Quarantine()
        self._next: Mapping[RowName, Entry] | None = None

    def load(self, connection: Connection[Any]) -> None:
        """Read all entries anew; whoever was told of rows to mark is told again."""
        stored = self._table.read(connection, self._stream)
        self._next = None
        self.quarantine = Quarantine({one.name: one.entry for one in stored})

    def divert(self, rules: RowRules) -> Diversion | None:
        """Return what a run has to pass; None when every row just passes."""
        return None if self.quarantine.is_empty else Diversion(self.quarantine, rules)

    def write(self, connection: Connection[Any], diversion: Diversion) -> None:
        """Store what a run changed, in the open transaction."""
        if diversion.has_diverted:
            self._next = self.store(connection, self._stream, diversion.difference(), diversion.entries)

    def store(
        self, connection: Connection[Any], stream: str, difference: Difference, entries: Mapping[RowName, Entry]
    ) -> Mapping[RowName, Entry]:
        """Store a difference, of this stream or of a member of its joint commit; return the entries with numbers."""
        numbered = dict(entries)
        for name, entry in difference.ended:
            self._table.remove(connection, entry)
            self._tell(connection, stream, "quarantine ended", name, entry, "it ended at its source")
        for changed in difference.changed:
            self._table.change(connection, changed)
        for name, entry in difference.added:
            numbered[name] = self._table.add(connection, stream, name, entry)
            self._tell(connection, stream, "quarantined", name, entry, entry.grounds.text)
        return numbered

    def take(self, connection: Connection[Any], name: RowName) -> Entry:
        """Take an entry away, in the open transaction, since its row goes to the target; return it."""
        entry = self.quarantine.entries[name]
        self._table.remove(connection, entry)
        self._next = {other: one for other, one in self.quarantine.entries.items() if other != name}
        return entry

    def tell_returned(self, connection: Connection[Any], name: RowName, entry: Entry) -> None:
        """Note in the log, in the open transaction, that a row came to the target."""
        self._tell(connection, self._stream, "quarantine left", name, entry, "the target takes it")

    def _tell(
        self, connection: Connection[Any], stream: str, kind: str, name: RowName, entry: Entry, text: str
    ) -> None:
        row = f"row {entry.grounds.own} of {'.'.join(name[0])}, transaction {entry.gtid}"
        self._log.append_log(connection, stream, kind, f"{row}: {text}")

    def mark(self, names: frozenset[RowName], grounds: Grounds, until: Gtid) -> None:
        """Set rows aside as they come, in a run up to this transaction."""
        self.quarantine = self.quarantine.marked(names, grounds, until)

    def committed(self, position: GtidSet) -> None:
        """What was written is on the target, with this position."""
        entries = self.quarantine.entries if self._next is None else self._next
        self.quarantine = self.quarantine.at(position, entries)
        self._next = None

    def rolled_back(self) -> None:
        """What was written is not on the target."""
        self._next = None


def _stored(row: tuple[Any, ...]) -> StoredEntry:
    id, stream, database, table, key, image, table_map, flags, state, *grounds, gtid, changed_gtid, at, changed_at = row
    entry = Entry(
        id=id,
        state=EntryState(state),
        grounds=Grounds(*grounds),
        table=read_table_map(table_map),
        flags=flags,
        image=image,
        gtid=Gtid.parse(changed_gtid),
    )
    name = (database, table), read_key(key)
    return StoredEntry(id, stream, name, entry, gtid, _seconds(at), _seconds(changed_at))


def _seconds(instant: datetime) -> float:
    return instant.replace(tzinfo=UTC).timestamp()
