"""Which keys of which shards are compared for rows that collide, and what came of it, as plain data.

Knows: which keys can be compared at all, and the shape of the outcome. Never knows: how keys are read. Used by
``collision_search.py``, which fills it, and by the command line, which prints it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from vmerge.core.constant_keys import constants_of
from vmerge.core.findings import Finding, warning
from vmerge.core.layout import Unfit, lay_out, projected_schema
from vmerge.core.risk import TableRisk
from vmerge.core.rules import TableName, TableRule
from vmerge.core.schema import KeyPart, TableSchema, UniqueKey, differences
from vmerge.core.table_checks import StreamTables

SHOWN_PAIRS = 10
"""Pairs of rows of one key and two streams that are shown; all are counted, up to ``COUNTED_PAIRS``."""

COUNTED_PAIRS = 1000
"""A key that so many rows collide in has a cause that is not found by counting on."""


class CollisionMode(Enum):
    """How much of the shards' keys is compared."""

    NONE = "none"
    SAMPLE = "sample"
    COMPLETE = "complete"


Shown = tuple[tuple[str, str | None], ...]
"""Columns or expressions with their values, for an operator's eyes alone."""


@dataclass(frozen=True, slots=True)
class Side:
    """One shard's table in a comparison."""

    stream: str
    source: TableName
    table: TableSchema
    """As its rows come to the target: with the target's columns."""
    key: UniqueKey
    """The shard's key over these columns, under the name that it has at the shard."""
    rule: TableRule | None = None
    """What makes the shard's rows those of the target's table."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One unique key of a table of the target, and the shards whose rows can meet in it."""

    table: TableName
    key: UniqueKey
    sides: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class Uncompared:
    """What was not compared, or not to the end, and why."""

    table: TableName
    key: str
    streams: tuple[str, ...]
    reason: str

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "table": ".".join(self.table),
            "key": self.key,
            "streams": list(self.streams),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Pair:
    """Two rows of two shards that hold one key: both were seen twice."""

    primary_keys: tuple[Shown, Shown]
    values: tuple[Shown, Shown]
    """Of the key; they can differ in what the collation does not tell apart."""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "primary_keys": [dict(shown) for shown in self.primary_keys],
            "values": [dict(shown) for shown in self.values],
        }


@dataclass(slots=True)
class Meeting:
    """What two streams were found to hold both, of one key. Owner: the search."""

    streams: tuple[str, str]
    count: int = 0
    pairs: list[Pair] = field(default_factory=list)
    """The first ones."""

    @property
    def is_counted(self) -> bool:
        """Whether counting goes on."""
        return self.count < COUNTED_PAIRS

    def add(self, pair: Pair) -> None:
        """Count one pair that was seen twice."""
        self.count += 1
        if len(self.pairs) < SHOWN_PAIRS:
            self.pairs.append(pair)


@dataclass(slots=True)
class KeyOutcome:
    """What was found of one key. Owner: the search."""

    comparison: Comparison
    meetings: dict[tuple[str, str], Meeting] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """How many keys of each stream were looked up in its siblings."""
    is_whole: bool = False
    """Whether all keys were compared, not a sample of them."""

    @property
    def found(self) -> list[Meeting]:
        """The streams that collide."""
        return [meeting for meeting in self.meetings.values() if meeting.count]

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "table": ".".join(self.comparison.table),
            "key": self.comparison.key.name,
            "streams": [side.stream for side in self.comparison.sides],
            "rows": dict(self.rows),
            "is_whole": self.is_whole,
            "collisions": [
                {
                    "streams": list(meeting.streams),
                    "count": meeting.count,
                    "is_count_whole": meeting.is_counted,
                    "pairs": [pair.as_data() for pair in meeting.pairs],
                }
                for meeting in self.found
            ],
        }


@dataclass(slots=True)
class CollisionReport:
    """What a search has found so far. Owner: the search."""

    mode: CollisionMode
    outcomes: list[KeyOutcome] = field(default_factory=list)
    uncompared: list[Uncompared] = field(default_factory=list)
    interrupted: bool = False
    unconfirmed: int = 0
    """Matches that were seen once, and not again yet."""

    @property
    def count(self) -> int:
        """How many pairs of rows collide, as far as counted."""
        return sum(meeting.count for outcome in self.outcomes for meeting in outcome.found)

    def as_data(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        return {
            "mode": self.mode.value,
            "interrupted": self.interrupted,
            "count": self.count,
            "unconfirmed": self.unconfirmed,
            "keys": [outcome.as_data() for outcome in self.outcomes],
            "not_compared": [one.as_data() for one in self.uncompared],
        }

    def findings(self) -> Iterator[Finding]:
        """Yield a warning for each key and two streams that collide.

        It does not block: whether a stream will ever carry both rows is not known here.
        """
        for outcome in self.outcomes:
            key = outcome.comparison.key
            for meeting in outcome.found:
                yield warning(
                    "collision",
                    f"{' and '.join(meeting.streams)}, {'.'.join(outcome.comparison.table)}",
                    f"{_count(meeting)} of rows hold the same {key} now, such as {_rows(meeting, meeting.pairs[0])}",
                    "Settle it at the sources: change or delete one row of each pair. "
                    "A stream that carries both rows stops at the second one.",
                )

    def lines(self) -> Iterator[str]:
        """Yield it as the command line prints it, row values and all; nothing when there was nothing to compare."""
        if self.mode is CollisionMode.NONE or not (self.outcomes or self.uncompared or self.interrupted):
            return
        yield f"Rows that collide across shards now: {self._summary()}"
        for outcome in self.outcomes:
            for meeting in outcome.found:
                yield f"  {'.'.join(outcome.comparison.table)}, {outcome.comparison.key}: {_count(meeting)}"
                for pair in meeting.pairs:
                    yield f"    {_rows(meeting, pair)}: {' and '.join(map(show, pair.values))}"
        for reason, ones in self._by_reason().items():
            yield f"  not compared: {', '.join(ones)}: {reason}"

    def _summary(self) -> str:
        rows = sum(count for outcome in self.outcomes for count in outcome.rows.values())
        keys = f"{len(self.outcomes)} key{'s' if len(self.outcomes) != 1 else ''}"
        words = f"{self.count or 'none'} found, {rows} values of {keys} looked up"
        if not all(outcome.is_whole for outcome in self.outcomes):
            words += ", not all there are" + (" (a sample)" if self.mode is CollisionMode.SAMPLE else "")
        if self.interrupted:
            words += ", interrupted"
        if self.unconfirmed:
            matches = "1 match was" if self.unconfirmed == 1 else f"{self.unconfirmed} matches were"
            words += f"; {matches} seen once only and {'is' if self.unconfirmed == 1 else 'are'} not counted"
        return words

    def _by_reason(self) -> Mapping[str, list[str]]:
        """One line a reason: a shard that is away concerns every table."""
        grouped: dict[str, list[str]] = {}
        for one in self.uncompared:
            grouped.setdefault(one.reason, []).append(f"{'.'.join(one.table)} ({one.key})")
        return {reason: list(dict.fromkeys(ones)) for reason, ones in grouped.items()}


def _count(meeting: Meeting) -> str:
    number = str(meeting.count) if meeting.is_counted else f"{meeting.count} or more"
    return f"{number} pair{'s' if meeting.count != 1 else ''}"


def _rows(meeting: Meeting, pair: Pair) -> str:
    sides = zip(meeting.streams, pair.primary_keys, strict=True)
    return " and ".join(f"{stream} ({show(primary_key)})" for stream, primary_key in sides)


def show(values: Shown) -> str:
    """Return values in one line that is harmless on a terminal, whatever they hold."""
    return ", ".join(f"{_plain(name)}={_show_value(value)}" for name, value in values)


def _show_value(value: str | None) -> str:
    if value is None:
        return "NULL"
    if value.replace("-", "").isdigit() or value.startswith("0x"):
        return _plain(value)
    return _plain(json.dumps(value, ensure_ascii=False))


def _plain(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def plan(
    tables: Sequence[TableRisk], streams: Sequence[StreamTables], targets: Mapping[TableName, TableSchema]
) -> tuple[tuple[Comparison, ...], tuple[Uncompared, ...]]:
    """Return what to compare, and what cannot be.

    A shard's own unique key does the comparing, so it must have the target's key, over columns that are the target's.
    """
    comparisons: list[Comparison] = []
    uncompared: list[Uncompared] = []
    by_name = {stream.name: stream for stream in streams}
    sources = {(stream.name, name): schema for stream in streams for schema, name in stream.carried()}
    for table in tables:
        for risk in table.keys:
            for group in risk.groups:
                sides: list[Side] = []
                for name in group:
                    rule = by_name[name].rules.rule(table.name)
                    side = _side(name, sources[name, table.name], targets[table.name], risk.key, rule)
                    if isinstance(side, Side):
                        sides.append(side)
                    else:
                        uncompared.append(Uncompared(table.name, risk.key.name, (name,), f"stream {name} {side}"))
                if len(sides) > 1:
                    comparisons.append(Comparison(table.name, risk.key, tuple(sides)))
    return tuple(comparisons), tuple(uncompared)


def _side(stream: str, source: TableSchema, target: TableSchema, key: UniqueKey, rule: TableRule | None) -> Side | str:
    """Return a shard's side, or why it cannot take part."""
    shape = _shape(source, target, rule)
    if shape is None or differences(shape, target):
        return "has other columns than the target"
    if shape.primary_key is None:
        return "has no primary key" if source.primary_key is None else "has a primary key that is not carried"
    if any(part.expression is not None and part.expression.endswith(" array)") for part in key.parts):
        return "has many values a row in this key, which are not looked up"
    constants = constants_of(key, rule)
    parts = [part for part in map(_normal, key.parts) if part[0] not in constants]
    for own in (shape.primary_key, *shape.unique_keys):
        if [_normal(part) for part in own.parts] == parts:
            return Side(stream, (source.database, source.table), shape, own, rule)
    return "has no such key, so that duplicates are possible within it, too; look for them by GROUP BY"


def _shape(source: TableSchema, target: TableSchema, rule: TableRule | None) -> TableSchema | None:
    """Return the source's table as its rows come to the target; None if they cannot."""
    if rule is None:
        return source
    layout = lay_out([column.name for column in source.columns], target, rule)
    return None if isinstance(layout, Unfit) else projected_schema(source, target, layout)


def _normal(part: KeyPart) -> tuple[str | None, str | None, int | None]:
    return part.column.lower() if part.column is not None else None, part.expression, part.prefix_length
