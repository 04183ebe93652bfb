"""Where rows of several shards can meet on the target, by the tables' descriptions.

Knows: which unique keys a table has, which streams fill it, and where the shards' counters stand. Never knows: rows,
servers, or whether values are kept apart by the application. Used by ``checking.py``; ``core/collisions.py`` goes on
from here.

A table that one stream alone fills cannot collide: its shard keeps its keys unique by itself. Of a table that several
fill, every unique key can meet, the primary key among them. What preflight refuses (another collation on the target,
tables without a primary key, cascades on one side) or warns of (triggers, generated primary keys, keys on one side
only) is not told here again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from vmerge.core.constant_keys import meeting_streams
from vmerge.core.findings import Finding, warning
from vmerge.core.rules import TableName
from vmerge.core.schema import GENERATED_KEY, Column, KeyPart, TableSchema, UniqueKey
from vmerge.core.table_checks import StreamTables

_APPROXIMATE = frozenset({"float", "double"})


class Trait(Enum):
    """What an operator should know of a unique key."""

    PRIMARY = "primary"
    AUTO_INCREMENT = "auto-increment"
    NULLABLE = "nullable"
    PREFIX = "prefix"
    EXPRESSION = "expression"
    GENERATED = "generated-column"
    APPROXIMATE = "approximate-number"
    IGNORES_CASE = "ignores-case"
    IGNORES_TRAILING_SPACES = "ignores-trailing-spaces"


_WORDS = {
    Trait.PRIMARY: "the primary key",
    Trait.AUTO_INCREMENT: "AUTO_INCREMENT",
    Trait.NULLABLE: "may be NULL, which never collides",
    Trait.PREFIX: "on a prefix",
    Trait.EXPRESSION: "on an expression",
    Trait.GENERATED: "on a generated column",
    Trait.APPROXIMATE: "on an approximate number",
    Trait.IGNORES_CASE: "ignores case",
    Trait.IGNORES_TRAILING_SPACES: "ignores trailing spaces",
}


@dataclass(frozen=True, slots=True)
class KeyRisk:
    """One unique key of a table of the target."""

    key: UniqueKey
    traits: tuple[Trait, ...]
    collations: tuple[str, ...]
    """Those that it compares by, without repetition."""
    groups: tuple[tuple[str, ...], ...]
    """The streams whose rows can meet in it, two or more together; none with a stream of another group."""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "key": self.key.name,
            "parts": [str(part) for part in self.key.parts],
            "can_meet": bool(self.groups),
            "traits": [trait.value for trait in self.traits],
            "collations": list(self.collations),
        }

    def __str__(self) -> str:
        words = [_WORDS[trait] for trait in self.traits]
        if self.collations:
            words.append(f"compares by {', '.join(self.collations)}")
        return f"{self.key}" + (f": {'; '.join(words)}" if words else "")


@dataclass(frozen=True, slots=True)
class Counting:
    """How a server counts an AUTO_INCREMENT column, for sessions that do not say otherwise."""

    increment: int = 1
    offset: int = 1

    @property
    def first(self) -> int:
        """The first number: a server ignores an offset that is greater than the increment."""
        return self.offset if self.offset <= self.increment else 1


@dataclass(frozen=True, slots=True)
class CounterRange:
    """The least and the greatest number of a column in one shard; None for a table without rows."""

    stream: str
    least: int | None
    greatest: int | None
    counting: Counting

    def overlaps(self, other: CounterRange) -> bool:
        """Whether the two ranges have a number in common."""
        if self.least is None or self.greatest is None or other.least is None or other.greatest is None:
            return False
        return self.least <= other.greatest and other.least <= self.greatest

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "stream": self.stream,
            "least": self.least,
            "greatest": self.greatest,
            "increment": self.counting.increment,
            "offset": self.counting.offset,
        }

    def __str__(self) -> str:
        numbers = "no rows" if self.least is None else f"{self.least} to {self.greatest}"
        return f"{self.stream}: {numbers} (increment {self.counting.increment}, offset {self.counting.offset})"


@dataclass(frozen=True, slots=True)
class Counter:
    """The AUTO_INCREMENT column of a table that several streams fill."""

    column: str
    ranges: tuple[CounterRange, ...]

    @property
    def is_kept_apart(self) -> bool:
        """Whether the servers count in steps that never meet."""
        increments = {one.counting.increment for one in self.ranges}
        firsts = {one.counting.first for one in self.ranges}
        return len(increments) == 1 and len(firsts) == len(self.ranges)

    @property
    def overlaps(self) -> bool:
        """Whether the numbers of two shards overlap now."""
        return any(one.overlaps(other) for index, one in enumerate(self.ranges) for other in self.ranges[:index])

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "column": self.column,
            "kept_apart": self.is_kept_apart,
            "overlaps": self.overlaps,
            "ranges": [one.as_data() for one in self.ranges],
        }


@dataclass(frozen=True, slots=True)
class TableRisk:
    """One table of the target, and who fills it."""

    name: TableName
    streams: tuple[str, ...]
    keys: tuple[KeyRisk, ...]
    counting_column: str | None
    cascades_to: tuple[str, ...]
    """The tables whose rows change with rows of this one."""
    is_counted_by_server: bool
    """Whether the primary key is one that servers make by themselves; preflight warns of it."""

    @property
    def can_meet(self) -> bool:
        """Whether rows of two shards can hold one key."""
        return any(key.groups for key in self.keys)

    def as_data(self, counter: Counter | None) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "table": ".".join(self.name),
            "streams": list(self.streams),
            "can_meet": self.can_meet,
            "keys": [key.as_data() for key in self.keys],
            "auto_increment": counter.as_data() if counter is not None else None,
            "cascades_to": list(self.cascades_to),
        }


def assess(streams: Sequence[StreamTables], targets: Mapping[TableName, TableSchema]) -> tuple[TableRisk, ...]:
    """Return every table that is merged and that the target has, by name."""
    feeding: dict[TableName, list[StreamTables]] = {}
    for stream in streams:
        for _, name in stream.carried():
            feeding.setdefault(name, []).append(stream)
    cascades = _cascades(targets)
    return tuple(
        _assess_table(targets[name], feeding[name], cascades.get(name, ()))
        for name in sorted(feeding)
        if name in targets
    )


def _cascades(targets: Mapping[TableName, TableSchema]) -> dict[TableName, tuple[str, ...]]:
    children: dict[TableName, list[str]] = {}
    for table in targets.values():
        for key in table.foreign_keys:
            if key.cascades:
                children.setdefault(key.parent, []).append(table.name)
    return {parent: tuple(sorted(set(names))) for parent, names in children.items()}


def _assess_table(table: TableSchema, streams: Sequence[StreamTables], cascades_to: tuple[str, ...]) -> TableRisk:
    primary = table.primary_key
    keys = tuple(
        _assess_key(key, table, meeting_streams(key, table, streams), is_primary=key is primary)
        for key in (primary, *table.unique_keys)
        if key is not None
    )
    counted = next((column.name for column in table.columns if column.auto_increment), None)
    meets = any(key.groups and any(part.column == counted for part in key.key.parts) for key in keys)
    return TableRisk(
        name=(table.database, table.table),
        streams=tuple(stream.name for stream in streams),
        keys=keys,
        counting_column=counted if meets else None,
        cascades_to=cascades_to,
        is_counted_by_server=primary is not None and [part.column for part in primary.parts] == [GENERATED_KEY],
    )


def _assess_key(
    key: UniqueKey, table: TableSchema, groups: tuple[tuple[str, ...], ...], *, is_primary: bool
) -> KeyRisk:
    columns = {column.name.lower(): column for column in table.columns}
    found = {trait for part in key.parts for trait in _traits(part, columns)}
    if is_primary:
        found.add(Trait.PRIMARY)
    collations = dict.fromkeys(
        column.collation for part in key.parts if (column := _column(part, columns)) and column.collation
    )
    return KeyRisk(
        key=key,
        traits=tuple(trait for trait in Trait if trait in found),
        collations=tuple(collation for collation in collations if collation is not None),
        groups=groups,
    )


def _column(part: KeyPart, columns: Mapping[str, Column]) -> Column | None:
    return columns.get(part.column.lower()) if part.column is not None else None


def _traits(part: KeyPart, columns: Mapping[str, Column]) -> Iterator[Trait]:
    if part.expression is not None:
        yield Trait.EXPRESSION
        yield Trait.NULLABLE  # what an expression gives may always be NULL
    if part.prefix_length is not None:
        yield Trait.PREFIX
    column = _column(part, columns)
    if column is None:
        return
    if column.auto_increment:
        yield Trait.AUTO_INCREMENT
    if column.nullable:
        yield Trait.NULLABLE
    if column.generated is not None:
        yield Trait.GENERATED
    if column.family in _APPROXIMATE:
        yield Trait.APPROXIMATE
    if column.collation is not None:
        yield from _collation_traits(column.collation)


def _collation_traits(collation: str) -> Iterator[Trait]:
    """Read a collation's name: those of UCA 9.0.0 and the binary one alone count trailing spaces."""
    if collation.endswith("_ci"):
        yield Trait.IGNORES_CASE
    if "_0900_" not in collation and collation != "binary":
        yield Trait.IGNORES_TRAILING_SPACES


def check_counters(tables: Sequence[TableRisk], counters: Mapping[TableName, Counter]) -> Iterator[Finding]:
    """Warn of AUTO_INCREMENT columns that two shards count through the same numbers."""
    for table in tables:
        counter = counters.get(table.name)
        if counter is None or table.is_counted_by_server or counter.is_kept_apart or not counter.overlaps:
            continue
        ranges = "; ".join(map(str, counter.ranges))
        yield warning(
            "auto-increment",
            ".".join(table.name),
            f"the shards' numbers of the AUTO_INCREMENT column `{counter.column}` overlap: {ranges}",
            "If the servers count these numbers, give each shard its own auto_increment_offset below one common "
            "auto_increment_increment, or one range of numbers. If the application makes them, nothing is wrong.",
        )


def risk_lines(tables: Sequence[TableRisk], counters: Mapping[TableName, Counter]) -> Iterator[str]:
    """Yield what can meet, as the command line prints it; nothing when no table could be looked at."""
    meeting = [table for table in tables if table.can_meet]
    if meeting:
        yield "Unique keys that can meet across shards:"
    for table in meeting:
        yield f"  {'.'.join(table.name)}, filled by {', '.join(table.streams)}"
        for key in table.keys:
            yield f"    {key}{_parted(key, table)}"
        counter = counters.get(table.name)
        if counter is not None:
            yield f"    numbers of `{counter.column}`: {'; '.join(map(str, counter.ranges))}"
        if table.cascades_to:
            yield f"    changes cascade to {', '.join(table.cascades_to)}: conflicts are waited for, never jumped over"
    alone = [f"{'.'.join(table.name)} ({table.streams[0]})" for table in tables if len(table.streams) == 1]
    if alone:
        yield f"Filled by one stream alone, so that no key can meet: {', '.join(alone)}"
    parted = [".".join(table.name) for table in tables if not table.can_meet and len(table.streams) > 1]
    if parted:
        yield f"Every key has a constant column that keeps the streams apart: {', '.join(parted)}"


def _parted(key: KeyRisk, table: TableRisk) -> str:
    """Say which streams cannot meet in a key, if any."""
    if not key.groups:
        return "; constants keep all streams apart"
    if len(key.groups) == 1 and len(key.groups[0]) == len(table.streams):
        return ""
    together = ", and ".join(" with ".join(names) for names in key.groups)
    return f"; constants let only {together} meet"
