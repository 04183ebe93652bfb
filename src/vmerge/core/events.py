"""What a source yields, as values.

Knows: the transactions, heartbeats and schema changes that the binlog decoder hands to a player, and the shape
of the rows in them. Never knows: how they were read, or what the target does with them. Used by every zone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from vmerge.core.position import Gtid


class RowsKind(IntEnum):
    """What a rows event does; the numbers are the version 2 event types (and the partial update's)."""

    WRITE = 30
    UPDATE = 31
    DELETE = 32
    PARTIAL_UPDATE = 39


@dataclass(frozen=True, slots=True, eq=False)
class TableMap:
    """One shape of one source table, as a table map event describes it.

    The decoder keeps one object per shape, so identity is equality: two maps of the same table that differ in a
    single byte are two objects. ``tail`` is everything behind the table's name in the event's body. Lengths and
    fractional digits stay inside ``metadata``.

    What is behind ``names`` is there only when the source sends it: ``unsigned``, ``collation_ids`` of text and byte
    columns, ``geometries`` and ``dimensions`` always from MySQL 8.0 on; ``names``, ``labels``, ``primary_key``,
    ``visible`` and the ``collation_ids`` of ENUM and SET columns with binlog_row_metadata=FULL.
    """

    database: str
    table: str
    flags: int
    types: bytes
    metadata: bytes
    nullable: bytes
    tail: bytes
    names: tuple[str, ...]
    """Empty unless the source writes full metadata."""
    unsigned: tuple[bool, ...] | None
    """One flag a column; True for YEAR, False for what is no number. None when the source does not send it."""
    collation_ids: tuple[int | None, ...] | None = None
    """One a column; None for columns that have none, and for ENUM and SET without full metadata."""
    labels: tuple[tuple[bytes, ...] | None, ...] | None = None
    """One a column: the labels of ENUM and SET columns, in the column's own charset; None for others."""
    primary_key: tuple[int, ...] | None = None
    """The indexes of the primary key's columns, in its order."""
    visible: tuple[bool, ...] | None = None
    """One flag a column."""
    geometries: tuple[int | None, ...] | None = None
    """One a column: which geometry a spatial column takes, 0 for any; None for others."""
    dimensions: tuple[int | None, ...] | None = None
    """One a column: how many dimensions a VECTOR column has; None for others."""

    @property
    def name(self) -> str:
        """``database.table``, as messages print it."""
        return f"{self.database}.{self.table}"

    @property
    def column_count(self) -> int:
        """How many columns the source's table has, hidden index columns aside."""
        return len(self.types)

    def agrees_with(self, other: TableMap) -> bool:
        """Return whether both can be of one definition, so that their row images have one layout.

        What one of them does not tell is no difference: binlog_row_metadata may change while a source runs.
        """
        if (self.types, self.metadata, self.nullable) != (other.types, other.metadata, other.nullable):
            return False
        told = (
            (self.names or None, other.names or None),
            (self.unsigned, other.unsigned),
            (self.labels, other.labels),
            (self.primary_key, other.primary_key),
            (self.visible, other.visible),
            (self.geometries, other.geometries),
            (self.dimensions, other.dimensions),
            *zip(self.collation_ids or (), other.collation_ids or (), strict=False),
        )
        return all(ours is None or theirs is None or ours == theirs for ours, theirs in told)


@dataclass(frozen=True, slots=True, eq=False)
class RowsShape:
    """What is equal for all rows events that may be joined into one: table, kind, flags and column bitmaps.

    ``columns`` is the column count and the bitmaps as they stand in the event. ``flags`` never has the bit for
    the end of a statement, nor the one for relaxed unique checks: with it InnoDB may buffer a secondary index
    change without looking for a duplicate, and a merge lives on that look.
    """

    table: TableMap
    kind: RowsKind
    flags: int
    columns: bytes


class RowsEvent(NamedTuple):
    """Rows of one table and one kind, in the order of the source. A tuple because one is made for every event."""

    shape: RowsShape
    images: bytes


class Rows(Protocol):
    """Row events in their order, to be walked more than once; perhaps on disk."""

    def __iter__(self) -> Iterator[RowsEvent]: ...
    def __len__(self) -> int: ...


class Transaction(NamedTuple):
    """One source transaction, whole. A tuple because one is made for every transaction.

    ``byte_count`` counts the row images.
    ``prepared`` is the GTID of an XA transaction's earlier half, which is done only when this one is.
    """

    gtid: Gtid
    committed_at_microseconds: int
    rows: Rows
    byte_count: int
    prepared: Gtid | None = None


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A statement that is not a change of rows: CREATE, ALTER, DROP, TRUNCATE, GRANT and the like."""

    gtid: Gtid
    committed_at_microseconds: int
    database: str
    statement: str
    session: tuple[tuple[str, int | str], ...] = ()
    """Session variables that the statement ran under, as far as the event tells, by their names."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The source has nothing more to send: everything up to its head has been received."""


SourceItem = Transaction | SchemaChange | Heartbeat

new_named = tuple.__new__
"""Makes a named tuple past its own constructor, for the values that each transaction has: a tenth of its whole cost."""
