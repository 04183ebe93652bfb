"""The keys of one shard: read in pages, and looked up by the values of another shard.

Knows: how to ask a source for keys so that MySQL itself compares, by its own unique index. Never knows: which shards
are compared, how many pages, or what follows from a match. Used by ``collision_search.py``.

A sibling's column has the target's collation (preflight demands it), so ``WHERE key IN (…)`` at the sibling finds what
the target would refuse: by collation, padding, length of the prefix, expression. NULL matches nothing, as in a unique
key. Measured for every type and for keys on expressions: the look-up is a range over the unique index. A key that
begins with a prefix is the exception, as MySQL has no condition that means "equal as far as the index goes": there
each look-up reads the table.

Sessions are read only. Every statement is short but those of keys on a prefix; the server ends them by
``max_execution_time``, and ``close`` kills what is left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.collisions import Shown, Side
from vmerge.core.rules import TableName
from vmerge.core.schema import KeyPart, TableSchema, UniqueKey
from vmerge.mysql import sql
from vmerge.mysql.connect import Endpoint, connect, drop
from vmerge.mysql.faults import CONNECTION_LOST, describe, errno_of
from vmerge.mysql.key_values import KeyValue, column_value, expression_text, expression_value
from vmerge.mysql.source_views import quoted_name, source_rows

TOO_LONG = 3024
"""The server ended a statement by ``max_execution_time``."""

STATEMENT_BYTES = 512 * 1024
"""A look-up is cut into statements of about this size: far below the least ``max_allowed_packet`` in use."""

READ_TIMEOUT_MARGIN_SECONDS = 30.0

_SESSION: Mapping[str, str | int] = {
    "sql_mode": "",  # zero dates are compared like others
    "time_zone": "+00:00",  # a TIMESTAMP has one text only
    "transaction_read_only": 1,
    "transaction_isolation": "READ-COMMITTED",
    "lock_wait_timeout": 3,
    "range_optimizer_max_mem_size": 0,  # or long look-ups would not use the index
    "max_sort_length": 4096,  # a whole key counts
}

_COUNT = "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_RANGE = "SELECT CAST(MIN({column}) AS CHAR), CAST(MAX({column}) AS CHAR) FROM {table}"

Texts = tuple[str, ...]
"""The parts of a key, as ``KeyValue.read`` gives them."""


class Order(Enum):
    """From which end of a key a page is read."""

    FIRST = "ASC"
    LAST = "DESC"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One row, by the key that is compared and by its primary key."""

    key: Texts
    primary_key: Texts


@dataclass(frozen=True, slots=True)
class SeenRow:
    """One row that was looked at again."""

    key: Texts
    shown_primary_key: Shown
    shown_key: Shown


class ShardLost(Exception):
    """A shard cannot be asked any more; the message says why."""


class NotCompared(Exception):
    """A shard cannot answer about one table or key; the message says why."""


class Shard:
    """One source, asked about keys. It connects with the first question. Owner: one thread; close it."""

    def __init__(self, endpoint: Endpoint, *, statement_seconds: float) -> None:
        self._endpoint = endpoint
        self._statement_seconds = statement_seconds
        self._connection: Connection[Any] | None = None
        self._lost = ""
        self._is_asking = False

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of one statement.

        Raises:
            ShardLost: the connection is gone, or was gone before.
            NotCompared: the server refused this statement.
        """
        return self._answer(statement, values)[0]

    def wire_type(self, expression: str, table: str) -> tuple[int, str] | None:
        """Return type and character set of an expression over a table; None when it has no rows."""
        statement = f"SELECT CHARSET({expression}), {expression} FROM {table} LIMIT 1"
        rows, types = self._answer(statement, ())
        return (types[1], rows[0][0]) if rows else None

    def _answer(self, statement: str, values: tuple[object, ...]) -> tuple[list[tuple[Any, ...]], list[int]]:
        """Return the rows of one statement, and the types of its columns."""
        if self._lost:
            raise ShardLost(self._lost)
        try:
            return self._ask(statement, values)
        except (MySQLError, OSError) as error:
            self._is_asking = False
            if errno_of(error) == TOO_LONG:
                seconds = f"{self._statement_seconds:g}"
                raise NotCompared(f"{self._endpoint.role} was still searching after {seconds} s") from error
            reason = f"{self._endpoint.role}: {describe(error)}"
            if self._connection is not None and errno_of(error) not in CONNECTION_LOST:
                raise NotCompared(reason) from error
            self._lost = reason
            raise ShardLost(reason) from error

    def _ask(self, statement: str, values: tuple[object, ...]) -> tuple[list[tuple[Any, ...]], list[int]]:
        if self._connection is None:
            session = {**_SESSION, "max_execution_time": int(self._statement_seconds * 1000)}
            timeout = self._statement_seconds + READ_TIMEOUT_MARGIN_SECONDS
            self._connection = connect(self._endpoint, read_timeout_seconds=timeout, session=session)
        with self._connection.cursor() as cursor:
            self._is_asking = True
            cursor.execute(statement, values or None)
            found = list(cursor.fetchall())
            self._is_asking = False
            return found, [int(column[1]) for column in cursor.description]

    def estimate(self, table: TableName) -> int | None:
        """Return about how many rows a table has, as its statistics say."""
        rows = self.rows(_COUNT, *table)
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    def number_range(self, name: TableName, column: str) -> tuple[int, int] | None:
        """Return the least and greatest number of a column that a key begins with; None when there are no rows."""
        least, greatest = self.rows(_RANGE.format(column=sql.quoted(column), table=quoted_name(name)))[0]
        return (int(least), int(greatest)) if least is not None else None

    def close(self) -> None:
        """Close the connection; end a statement that was left behind, as far as the server lets us."""
        if self._connection is None:
            return
        if self._is_asking:
            with contextlib.suppress(MySQLError, OSError):
                self._kill(self._connection.thread_id())  # type: ignore[no-untyped-call]  # the library's stubs
        drop(self._connection)

    def _kill(self, id: int) -> None:
        side = connect(self._endpoint, read_timeout_seconds=3, session={})
        try:
            with side.cursor() as cursor:
                cursor.execute(sql.KILL_QUERY.format(id=id))
        finally:
            drop(side)


class ShardKey:
    """One key of one table of one shard. It reads, and never locks a row. Owner: as the shard."""

    def __init__(self, shard: Shard, side: Side) -> None:
        """Look at what the key is made of.

        Raises:
            NotCompared: of something that cannot be compared.
        """
        primary_key = side.table.primary_key
        assert primary_key is not None  # a side has one
        self.stream = side.stream
        self._shard = shard
        self._side = side
        self._table = self._rows(None)
        self._is_empty = False
        self._key = self._values(side.table, side.key.parts)
        self._primary_key = self._values(side.table, _whole(primary_key))
        self._is_indexed = side.key.parts[0].prefix_length is None
        self._forced = self._rows(side.key.name) if self._is_indexed else self._table
        has_prefix = any(part.prefix_length is not None for part in side.key.parts)
        # A key on a prefix gives no order; the primary key does, at worst without an index.
        self._order = self._primary_key if has_prefix else self._key
        self._ordered = self._table if has_prefix else self._forced
        self._orders_by_primary_key = has_prefix

    def _rows(self, index: str | None) -> str:
        """Return what stands behind FROM; with an index, no other is used."""
        return source_rows(self._side.source, self._side.table, self._side.rule, index=index)

    def _values(self, table: TableSchema, parts: Iterable[KeyPart]) -> tuple[KeyValue, ...]:
        columns = {column.name.lower(): column for column in table.columns}
        values = []
        for part in parts:
            value = (
                column_value(columns[part.column.lower()], part.prefix_length)
                if part.column is not None
                else self._expression(part)
            )
            if value is not None:
                values.append(value)
            elif not self._is_empty:
                raise NotCompared(f"keys of the type of {part} are not looked up")
        return tuple(values)

    def _expression(self, part: KeyPart) -> KeyValue | None:
        """Look at what an expression gives; a table without rows does not tell, and has nothing to compare."""
        found = self._shard.wire_type(expression_text(part), self._table)
        if found is None:
            self._is_empty = True
            return None
        return expression_value(part, *found)

    @property
    def is_indexed(self) -> bool:
        """Whether a look-up can use an index."""
        return self._is_indexed

    def page(self, order: Order, limit: int, *, beyond: KeyRow | None = None) -> list[KeyRow]:
        """Return the first or last rows whose key has no NULL, of those that come behind a row in ascending order."""
        if self._is_empty:
            return []
        conditions = [f"{value.expression} IS NOT NULL" for value in self._key]
        if beyond is not None:
            conditions.append(self._beyond(beyond))
        ordering = ", ".join(f"{value.expression} {order.value}" for value in self._order)
        return self._read(self._ordered, " AND ".join(conditions), f"ORDER BY {ordering} LIMIT {limit}")

    def _beyond(self, row: KeyRow) -> str:
        """Compare with a row in the order of the pages, part by part."""
        texts = row.primary_key if self._orders_by_primary_key else row.key
        condition = ""
        for value, text in reversed(list(zip(self._order, texts, strict=True))):
            literal = _literal(value, text)
            rest = f" OR ({value.expression} = {literal} AND {condition})" if condition else ""
            condition = f"({value.expression} > {literal}{rest})"
        return condition

    def holders(self, keys: Sequence[Texts]) -> Iterator[KeyRow]:
        """Yield the rows that hold any of these keys, in no order."""
        if self._is_empty:
            return
        for some in _pieces(self._key, keys):
            yield from self._read(self._forced, some)

    def holder(self, key: Texts, among: Sequence[KeyRow]) -> KeyRow | None:
        """Return the row that holds a key. Where no index helps, it is looked for among the rows of a page."""
        condition = _any_of(self._key, [key])
        if not self._is_indexed:
            condition = f"{condition} AND ({_any_of(self._primary_key, [row.primary_key for row in among])})"
        return next(iter(self._read(self._forced, condition)), None)

    def again(self, primary_key: Texts, key: Texts | None = None) -> SeenRow | None:
        """Return one row if it is there and holds a key: this one, if one is given."""
        reads = [value.read for value in self._key]
        shown = [value.shown for value in (*self._primary_key, *self._key)]
        condition = _any_of(self._primary_key, [primary_key])
        if key is not None:
            condition = f"{condition} AND {_any_of(self._key, [key])}"
        rows = self._shard.rows(f"SELECT {', '.join([*reads, *shown])} FROM {self._table} WHERE {condition}")
        if not rows or None in rows[0][: len(reads)]:
            return None
        texts, count = rows[0][len(reads) :], len(self._primary_key)
        return SeenRow(
            key=tuple(rows[0][: len(reads)]),
            shown_primary_key=_named(self._primary_key, texts[:count]),
            shown_key=_named(self._key, texts[count:]),
        )

    def _read(self, table: str, condition: str, tail: str = "") -> list[KeyRow]:
        reads = ", ".join(value.read for value in (*self._key, *self._primary_key))
        rows = self._shard.rows(f"SELECT {reads} FROM {table} WHERE {condition} {tail}")
        count = len(self._key)
        return [KeyRow(tuple(row[:count]), tuple(row[count:])) for row in rows]


def _whole(key: UniqueKey) -> list[KeyPart]:
    """The columns of a primary key: whole ones tell rows apart, too."""
    return [KeyPart(part.column) for part in key.parts]


def _pieces(values: Sequence[KeyValue], keys: Sequence[Texts]) -> Iterator[str]:
    """Yield conditions that together match any of the keys, each of a bounded size."""
    some: list[Texts] = []
    size = 0
    for key in keys:
        length = sum(len(text) + len(value.expression) + 20 for value, text in zip(values, key, strict=True))
        if some and size + length > STATEMENT_BYTES:
            yield _any_of(values, some)
            some, size = [], 0
        some.append(key)
        size += length
    if some:
        yield _any_of(values, some)


def _any_of(values: Sequence[KeyValue], keys: Sequence[Texts]) -> str:
    """Match any of the keys. Spelt so that the server uses an index on the columns, and on expressions, too."""
    if len(values) == 1:
        value = values[0]
        return f"{value.expression} IN ({', '.join(_literal(value, key[0]) for key in keys)})"
    rows = (
        " AND ".join(f"{value.expression} = {_literal(value, text)}" for value, text in zip(values, key, strict=True))
        for key in keys
    )
    return "(" + " OR ".join(f"({row})" for row in rows) + ")"


def _literal(value: KeyValue, text: str) -> str:
    try:
        return value.literal(text)
    except ValueError as error:
        raise NotCompared(f"{value.name} holds what cannot be looked up: {error}") from error


def _named(values: Sequence[KeyValue], texts: Sequence[str | None]) -> Shown:
    return tuple((value.name, text) for value, text in zip(values, texts, strict=True))
