"""Row images as INSERT, UPDATE and DELETE statements.

Knows: how rows are laid out in as few statements as leave the target with the same rows, and how many rows each must
find. Never knows: connections, or what follows when a row is not found. Used by ``mysql/statement_applier.py``.

Which rows share a statement
----------------------------
Neighbours of one shape. The server takes the rows of an INSERT in their order and checks every key at each of them, so
inserts share a statement as they come. In an UPDATE or DELETE of many rows the server is free to choose the order, so
only changes that commute share one:

- no row twice; a row is known by the bytes of its primary key, and those of one stream name one row each;
- no update that changes any unique key, as a later one may need the value that an earlier one releases;
- no table that is, over foreign keys, its own parent; the foreign keys of others look at other tables' rows.

All others go alone, and so do rows with the ENUM error value, for which the server has to be lenient.

What a statement finds
----------------------
A row is found by its primary key, and only if all its columns have the bytes of the before-image. BINLOG looks at the
primary key alone and overwrites what else somebody changed on the target; here the stream stops. Without a primary key
any row with these bytes is as good as another, and one of them is changed.

An UPDATE leaves a row as it is when MySQL takes it and the one that it should become for equal, and documents are equal
that differ in the types of their numbers only. So where nothing changes but documents the changed rows count, too.

Every column is named in INSERT and in SET, so neither defaults nor ``ON UPDATE CURRENT_TIMESTAMP`` count, and the
session needs no time of the source. Generated columns are left out, as the server computes them. Foreign keys are
checked as the rows' flag says, by a hint of the statement: the session keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vmerge.core.appliers import ApplierRules
from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.joined_rows import ROWS, after_value, guard, key_condition, place_of, quoted
from vmerge.core.literals import LENIENT_HINT, RowLiterals
from vmerge.core.rowimage import Slices
from vmerge.core.rules import TableName
from vmerge.core.schema import TableSchema
from vmerge.errors import CorruptEvent, UnsupportedEvent

ROWS_A_STATEMENT = 500
"""Measured: more gain nothing."""

_WARNINGS_KEPT = 1000
"""A server keeps 1,024 warnings of a statement to be looked at, and an account may not change that."""

_WITHOUT_WARNING = frozenset({None, "binary", "utf8mb4", "utf8mb3", "latin1", "ascii"})
"""The usual character sets; a server may warn at each value that names another, as it is deprecated."""

_MANY_TABLES = 1_000
"""Remembered at most: a source may alter tables for ever."""


class RowStatement(NamedTuple):
    """One statement."""

    text: bytes
    table: TableName
    kind: RowsKind
    rows: int
    """How many rows it must insert, match or delete."""
    warnings: int
    """How many warnings it must give: one for each ENUM error value."""
    documents: int = 0
    """How many rows it must at least not only match but change: those of which nothing changes but documents."""


class RowStatements:
    """Writes statements for one stream.

    Promise: applied in their order, the statements do what the rows do in theirs. Invariant: a statement is longer than
    ``limit_bytes`` only when it has one row. Owner: the stream's thread (it keeps what it compiled).
    """

    def __init__(self, rules: ApplierRules, charsets: Mapping[int, str], limit_bytes: int) -> None:
        """``charsets`` is the target's: collation id → character set."""
        self._rules = rules
        self._charsets = charsets
        self._limit_bytes = limit_bytes
        self._tables: dict[TableMap, _Table] = {}
        self.touched: set[TableName] = set()
        """The target's tables in the statements of the last ``write``, as far as it was walked."""

    def write(self, rows: Iterable[RowsEvent]) -> Iterator[RowStatement]:
        """Yield the statements for rows.

        Raises:
            UnsupportedEvent: a row cannot be written exactly, or its image is partial.
            CorruptEvent: an image is cut.
        """
        self.touched = set()
        if len(self._tables) > _MANY_TABLES:
            self._tables.clear()
        last: RowsShape | None = None
        group: _Group | None = None
        for shape, images in rows:
            if shape is not last:
                if group is not None:
                    yield from group.end()
                group, last = self._begin(shape), shape
            assert group is not None
            yield from group.take(images)
        if group is not None:
            yield from group.end()

    def _begin(self, shape: RowsShape) -> _Group:
        if shape.kind is RowsKind.PARTIAL_UPDATE:
            raise UnsupportedEvent(
                f"rows of {shape.table.name} cannot be written as SQL: their documents are partial",
                hint="SET PERSIST binlog_row_value_options='' on the source, in every session too; "
                "or let the events applier carry the table.",
            )
        table = self._tables.get(shape.table)
        if table is None:
            table = self._tables[shape.table] = _Table(shape.table, self._rules, self._charsets)
        self.touched.add(table.name)
        return _GROUPS[shape.kind](table, shape, self._limit_bytes)


class _Table:
    """What is known of one shape of one table. Immutable."""

    def __init__(self, table_map: TableMap, rules: ApplierRules, charsets: Mapping[int, str]) -> None:
        schema = rules.target_schema(table_map)
        self.name = rules.target_name(table_map)
        self.place = place_of(self.name)
        self.literals = RowLiterals(table_map, schema.columns, charsets)
        self.columns = tuple(at for at, column in enumerate(schema.columns) if column.generated is None)
        self.names = tuple(quoted(column.name) for column in schema.columns)
        self.key = schema.primary_key_positions
        found = None if rules.is_in_circle(table_map) else key_condition(schema, self.place)
        self.joins = found is not None
        self.join = f"STRAIGHT_JOIN {self.place} FORCE INDEX (PRIMARY) ON {found}"
        self.join += f" AND {guard(schema, self.place, self.columns, self.literals.charsets)}"
        self.afters = tuple((at, after_value(schema.columns[at], at)) for at in self.columns)
        names = len(self.columns) * 2 if set(self.literals.charsets) - _WITHOUT_WARNING else 0
        self.rows = max(1, min(ROWS_A_STATEMENT, _WARNINGS_KEPT // names)) if names else ROWS_A_STATEMENT
        """How many rows a statement may have."""
        self.unique = _unique_columns(schema)
        self.enums = tuple(at for at, column in enumerate(schema.columns) if column.family == "enum")
        self._documents = frozenset(at for at in self.columns if schema.columns[at].family == "json")
        self.has_all = len(self.columns) == len(schema.columns)

    def values(self, row: Slices) -> Sequence[bytes]:
        """Return the literals of the columns that are written."""
        literals = self.literals.assign(row)
        return literals if self.has_all else [literals[at] for at in self.columns]

    def values_of_both(self, before: Slices, after: Slices) -> Sequence[bytes]:
        """Return the literals of an update's two images, one behind the other."""
        literals = self.literals.assign(before)
        changed = self.literals.reassign(literals, before, after)
        if self.has_all:
            return literals + changed
        return [*(literals[at] for at in self.columns), *(changed[at] for at in self.columns)]

    def error_values(self, row: Slices) -> int:
        """Return how many columns have the ENUM error value: each gives a warning, where it is let in."""
        if not self.enums:
            return 0
        return sum(value is not None and not any(value) for value in map(row.__getitem__, self.enums))

    def condition(self, row: Slices) -> bytes:
        """Return what finds this one row."""
        same = self.literals.same(row, self.columns)
        return self.literals.match(row, self.key) + b" AND " + same if self.key else same

    def changes_documents_only(self, before: Slices, after: Slices) -> bool:
        """Whether documents change and nothing else. The room that is left within them is no part of them."""
        if not self._documents:
            return False
        changed = [at for at in self.columns if before[at] != after[at]]
        return self._documents.issuperset(changed) and self.values(before) != self.values(after)

    def releases(self, before: Slices, after: Slices) -> bool:
        """Whether an update changes any unique key."""
        return self.unique is None or any(before[at] != after[at] for at in self.unique)


def _unique_columns(schema: TableSchema) -> tuple[int, ...] | None:
    """Return where all columns of unique keys stand; None when an expression is among them."""
    keys = [key for key in (schema.primary_key, *schema.unique_keys) if key is not None]
    names = {part.column for key in keys for part in key.parts}
    if None in names:
        return None
    return tuple(at for at, column in enumerate(schema.columns) if column.name in names)


class _Group:
    """Statements of one table and kind, in the making. Subclasses know the kind."""

    def __init__(self, table: _Table, shape: RowsShape, limit_bytes: int) -> None:
        self._table = table
        self._kind = shape.kind
        self._limit_bytes = limit_bytes
        checks = 0 if shape.flags & NO_FOREIGN_KEY_CHECKS_FLAG else 1
        self._hint = f"/*+ SET_VAR(foreign_key_checks={checks}) */"
        self._rows: list[bytes] = []
        self._size = 0
        self._keys: set[tuple[bytes | None, ...]] = set()
        self._documents = 0

    def take(self, images: bytes) -> Iterator[RowStatement]:
        """Add rows, yield the statements that are full."""
        raise NotImplementedError

    def end(self) -> Iterator[RowStatement]:
        """Yield the statement that is open, if one is."""
        if self._rows:
            yield self._statement(self._written(), len(self._rows), documents=self._documents)
            self._rows, self._size, self._documents = [], 0, 0
            self._keys = set()

    def _written(self) -> bytes:
        """Return the statement for the rows that share one."""
        raise NotImplementedError

    def _add(self, row: bytes) -> Iterator[RowStatement]:
        if self._rows and (self._size + len(row) > self._limit_bytes or len(self._rows) >= self._table.rows):
            yield from self.end()
        self._rows.append(row)
        self._size += len(row) + 1

    def _require_new(self, row: Slices) -> Iterator[RowStatement]:
        """End the statement when the row is in it already."""
        key = tuple([row[at] for at in self._table.key])
        if key in self._keys:
            yield from self.end()
        self._keys.add(key)

    def _alone(self, text: bytes, warnings: int = 0, documents: int = 0) -> Iterator[RowStatement]:
        """Yield a statement of one row behind those in front of it."""
        yield from self.end()
        yield self._statement(text if self._table.key else text + b" LIMIT 1", 1, warnings, documents)

    def _statement(self, text: bytes, rows: int, warnings: int = 0, documents: int = 0) -> RowStatement:
        return RowStatement(text, self._table.name, self._kind, rows, warnings, documents)

    def _lenient(self) -> str:
        return self._hint.removesuffix("*/") + LENIENT_HINT.decode().removeprefix("/*+ ")


class _Inserts(_Group):
    def take(self, images: bytes) -> Iterator[RowStatement]:
        table = self._table
        for row in table.literals.cut(images):
            values = b"(" + b",".join(table.values(row)) + b")"
            zeros = table.error_values(row)
            if zeros:
                yield from self.end()
                yield self._statement(self._head(self._lenient()) + values, 1, zeros)
            else:
                yield from self._add(values)

    def _head(self, hint: str) -> bytes:
        columns = ",".join([self._table.names[at] for at in self._table.columns])
        return f"INSERT {hint} INTO {self._table.place} ({columns}) VALUES ".encode()

    def _written(self) -> bytes:
        return self._head(self._hint) + b",".join(self._rows)


class _Deletes(_Group):
    def take(self, images: bytes) -> Iterator[RowStatement]:
        table = self._table
        for row in table.literals.cut(images):
            if not table.joins:
                head = f"DELETE {self._hint} FROM {table.place} WHERE "
                yield from self._alone(head.encode() + table.condition(row))
                continue
            yield from self._require_new(row)
            yield from self._add(b"ROW(" + b",".join(table.values(row)) + b")")

    def _written(self) -> bytes:
        table = self._table
        names = ",".join([f"b{at}" for at in table.columns])
        head = f"DELETE {self._hint} {table.place} FROM (VALUES ".encode()
        return head + b",".join(self._rows) + f") AS {ROWS} ({names}) {table.join}".encode()


class _Updates(_Group):
    def take(self, images: bytes) -> Iterator[RowStatement]:
        table = self._table
        rows = table.literals.cut(images)
        for before in rows:
            after = next(rows, None)
            if after is None:
                raise CorruptEvent("an update has a row without its after-image")
            zeros = table.error_values(after)
            documents = int(table.changes_documents_only(before, after))
            if zeros or not table.joins or table.releases(before, after):
                text = self._single(before, after, self._lenient() if zeros else self._hint)
                yield from self._alone(text, zeros, documents)
                continue
            yield from self._require_new(before)
            yield from self._add(b"ROW(" + b",".join(table.values_of_both(before, after)) + b")")
            self._documents += documents

    def _single(self, before: Slices, after: Slices, hint: str) -> bytes:
        table = self._table
        names = [table.names[at].encode() for at in table.columns]
        pairs = b",".join([name + b"=" + value for name, value in zip(names, table.values(after), strict=True)])
        return f"UPDATE {hint} {table.place} SET ".encode() + pairs + b" WHERE " + table.condition(before)

    def _written(self) -> bytes:
        table = self._table
        names = ",".join([f"{letter}{at}" for letter in "ba" for at in table.columns])
        head = f"UPDATE {self._hint} (VALUES ".encode()
        pairs = ",".join([f"{table.place}.{table.names[at]}={value}" for at, value in table.afters])
        return head + b",".join(self._rows) + f") AS {ROWS} ({names}) {table.join} SET {pairs}".encode()


_GROUPS = {RowsKind.WRITE: _Inserts, RowsKind.UPDATE: _Updates, RowsKind.DELETE: _Deletes}
