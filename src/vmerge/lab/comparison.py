"""Whether the target is the union of the shards, byte for byte.

Knows: how to read every row of every table exactly, on each server in the same order. Never knows: positions, streams
or what may explain a difference. Used by the tests, the demo and the benchmark, while nobody writes.

Exact means: text as the bytes of its own character set, FLOAT through DOUBLE (its own text form drops digits), ENUM and
SET as numbers, zero dates as they are; nothing passes through Python's types. The text of JSON is compared, not its
storage. Rows are streamed: memory does not grow with the tables.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from pymysql.cursors import SSCursor

from vmerge.core.rules import StreamRules, TableName, TableRule
from vmerge.core.schema import TableSchema
from vmerge.lab.servers import Server
from vmerge.mysql.schemas import read_schemas
from vmerge.mysql.source_views import quoted_name, source_rows
from vmerge.mysql.sql import quoted

Key = tuple[int | bytes, ...]
Row = tuple[bytes | str | None, ...]

SHOWN_DIFFERENCES = 10
"""Rows of a table that are named; all are counted."""

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_EXPRESSIONS = {
    "float": "CAST({column} AS DOUBLE)",
    **dict.fromkeys(("enum", "set"), "CAST({column} AS UNSIGNED)"),
    **dict.fromkeys(_TEXTS, "CAST({column} AS BINARY)"),
}
# A primary key has up to 3,072 bytes, all of which must count; a slow comparison must not be cut off.
_SESSION = "SET time_zone = '+00:00', max_sort_length = 4096, net_write_timeout = 3600, character_set_results = binary"

TABLES_OF_DATABASE = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type = 'BASE TABLE' ORDER BY table_name
"""
COLUMNS_OF_TABLE = """
SELECT c.column_name, c.data_type, k.seq_in_index
FROM information_schema.columns c LEFT JOIN information_schema.statistics k
  ON k.table_schema = c.table_schema AND k.table_name = c.table_name AND k.column_name = c.column_name
  AND k.index_name = 'PRIMARY'
WHERE c.table_schema = %s AND c.table_name = %s ORDER BY c.ordinal_position
"""


@dataclass(frozen=True)
class Shard:
    """One shard, where its databases go (source database → target database), and the rules of single tables."""

    server: Server
    databases: Mapping[str, str]
    table_rules: Mapping[TableName, TableRule] = field(default_factory=dict)

    @property
    def rules(self) -> StreamRules:
        """What the shard's stream carries: everything."""
        return StreamRules.build(self.databases, table_rules=self.table_rules)


@dataclass(frozen=True)
class Difference:
    """One row that is not the same on both sides."""

    key: tuple[object, ...]
    """The primary key, or a digest of the row of a table without one."""
    found: str


@dataclass
class TableComparison:
    """One table of the target against the tables that go into it."""

    table: str
    rows: int = 0
    """On the target."""
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    """The first ones."""

    @property
    def is_equal(self) -> bool:
        """Whether every row is on both sides, with the same bytes."""
        return not self.differing

    def add(self, key: Key, found: str) -> None:
        """Note one differing row."""
        self.differing += 1
        if len(self.differences) < SHOWN_DIFFERENCES:
            shown = tuple(part.decode("utf-8", "backslashreplace") if isinstance(part, bytes) else part for part in key)
            self.differences.append(Difference(shown, found))


@dataclass(frozen=True)
class Comparison:
    """All tables."""

    tables: tuple[TableComparison, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the target is the union of the shards."""
        return all(table.is_equal for table in self.tables)

    @property
    def rows(self) -> int:
        """How many rows the target has."""
        return sum(table.rows for table in self.tables)

    def __str__(self) -> str:
        return "\n".join(_lines(self.tables))


@dataclass(frozen=True)
class _Place:
    """Rows of one server, in the target's shape."""

    server: Server
    database: str
    table: str
    rows: str
    """What stands behind FROM."""
    shape: _Place | None = None
    """The table that has the columns, if it is another."""


def compare(shards: Sequence[Shard], target: Server) -> Comparison:
    """Compare every table of the target databases with the tables of the shards that go into it."""
    places = _places(shards, target)
    return Comparison(tuple(_compare_table(name, sources, target) for name, sources in sorted(places.items())))


def _places(shards: Sequence[Shard], target: Server) -> dict[TableName, list[_Place]]:
    """Return for each target table the places that its rows come from: none for a table too many."""
    databases = {database for shard in shards for database in shard.databases.values()}
    with target.connect() as connection:
        schemas = read_schemas(connection, databases)
    places: dict[TableName, list[_Place]] = {name: [] for name in schemas}
    for shard in shards:
        for database in shard.databases:
            for (table,) in shard.server.query(TABLES_OF_DATABASE, database):
                name = shard.rules.target_name(database, table)
                if name is not None:
                    place = _place(shard, (database, table), target, schemas.get(name))
                    places.setdefault(name, []).append(place)
    return places


def _place(shard: Shard, source: TableName, target: Server, schema: TableSchema | None) -> _Place:
    rule = None if schema is None else shard.table_rules.get((schema.database, schema.table))
    if schema is None or rule is None:
        return _Place(shard.server, *source, quoted_name(source))
    shape = _Place(target, schema.database, schema.table, "")
    return _Place(shard.server, *source, source_rows(source, schema, rule), shape)


def _compare_table(name: TableName, sources: Sequence[_Place], target: Server) -> TableComparison:
    comparison = TableComparison(".".join(name))
    with contextlib.ExitStack() as stack:
        streams = [_labelled(stack.enter_context(_rows(place)), place.server.name) for place in sources]
        ours = _labelled(stack.enter_context(_rows(_Place(target, *name, quoted_name(name)))), "")
        merged = heapq.merge(*streams, ours, key=itemgetter(0))
        for key, same_key in itertools.groupby(merged, key=itemgetter(0)):
            _compare_rows(comparison, key, [(row, label) for _, row, label in same_key])
    return comparison


def _compare_rows(comparison: TableComparison, key: Key, found: Sequence[tuple[Row, str]]) -> None:
    """Compare all rows of one key: one on one shard, and the same on the target."""
    on_target = [row for row, label in found if not label]
    on_shards = [(row, label) for row, label in found if label]
    comparison.rows += len(on_target)
    if len(found) == 2 and len(on_target) == 1 and found[0][0] == found[1][0]:
        return
    names = " and ".join(label for _, label in on_shards)
    if not on_target:
        comparison.add(key, f"only on {names}")
    elif not on_shards:
        comparison.add(key, "only on the target")
    elif len(on_target) != len(on_shards):
        comparison.add(key, f"{len(on_shards)} times on shards ({names}), {len(on_target)} times on the target")
    elif sorted(map(repr, on_target)) != sorted(repr(row) for row, _ in on_shards):
        comparison.add(key, f"differs between {names} and the target")


def _labelled(rows: Iterable[tuple[Key, Row]], label: str) -> Iterator[tuple[Key, Row, str]]:
    return ((key, row, label) for key, row in rows)


@contextlib.contextmanager
def _rows(place: _Place) -> Iterator[Iterator[tuple[Key, Row]]]:
    """All rows with their sort keys, in the order of the keys; none when the table is missing."""
    shape = place.shape or place
    columns = shape.server.query(COLUMNS_OF_TABLE, shape.database, shape.table)
    if not columns:
        yield iter(())
        return
    keys = sorted((column for column in columns if column[2]), key=itemgetter(2))
    is_integer = [data_type in _INTEGERS for _, data_type, _ in keys] or [False]
    order = [_order(name, data_type) for name, data_type, _ in keys] or [_digest(columns)]
    values = [_value(name, data_type) for name, data_type, _ in columns]
    # The sort keys are also read, in front of the values.
    statement = f"SELECT {', '.join([*order, *values])} FROM {place.rows} ORDER BY {', '.join(order)}"
    # Without conversions every value arrives as the text that the server sent.
    with place.server.connect(conv={}, cursorclass=SSCursor) as connection, connection.cursor() as cursor:
        cursor.execute(_SESSION)
        cursor.execute(statement)
        yield _keyed(cursor, is_integer)


def _keyed(rows: Iterable[tuple[Any, ...]], is_integer: Sequence[bool]) -> Iterator[tuple[Key, Row]]:
    count = len(is_integer)
    if is_integer == [True]:
        for row in rows:
            yield (int(row[0]),), row[1:]
        return
    for row in rows:
        yield tuple(_part(value, integer) for value, integer in zip(row[:count], is_integer, strict=True)), row[count:]


def _part(value: Any, is_integer: bool) -> int | bytes:
    if is_integer:
        return int(value)
    return value.encode() if isinstance(value, str) else value


def _order(name: str, data_type: str) -> str:
    """An integer sorts by its index; everything else by its bytes, which is one order on every server."""
    return quoted(name) if data_type in _INTEGERS else f"CAST({_value(name, data_type)} AS BINARY)"


def _digest(columns: Sequence[tuple[Any, ...]]) -> str:
    """What a table without a primary key is sorted by."""
    texts = [f"COALESCE(HEX(CAST({_value(name, data_type)} AS BINARY)), '-')" for name, data_type, _ in columns]
    return f"CAST(SHA2(CONCAT_WS(',', {', '.join(texts)}), 256) AS BINARY)"


def _value(name: str, data_type: str) -> str:
    return _EXPRESSIONS.get(data_type, "{column}").format(column=quoted(name))


def _lines(tables: Sequence[TableComparison]) -> Iterator[str]:
    for table in tables:
        verdict = "equal" if table.is_equal else f"{table.differing:,} DIFFERENT"
        yield f"{table.table}: {table.rows:,} rows, {verdict}"
        for difference in table.differences:
            yield f"  {', '.join(map(str, difference.key))}: {difference.found}"
        if table.differing > len(table.differences):
            yield f"  … and {table.differing - len(table.differences):,} more"
