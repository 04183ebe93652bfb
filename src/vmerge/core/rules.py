"""Which tables of a source a stream carries, what they are called on the target, and what is done to their rows.

Knows: the workflow's database mapping, table patterns and rules of tables, and where a stream starts. Never knows:
schemas or servers. Used by ``config``, ``core/plan.py``, ``core/projection.py`` and the drivers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import translate

from vmerge.core.position import GtidSet
from vmerge.core.predicate import Predicate

TableName = tuple[str, str]
"""Database and table."""


class StartAt(Enum):
    """A start that is found at the source when the stream starts for the first time."""

    CURRENT = "current"
    """What the source has executed by then: only later changes are carried."""
    EARLIEST = "earliest"
    """What the source has purged by then: everything its binlogs still hold is carried."""


Start = StartAt | GtidSet
"""Where a stream without a checkpoint starts; a set means: everything behind it."""


@dataclass(frozen=True, slots=True)
class TablePattern:
    """``database.table`` with shell wildcards, in the target's names; case counts.

    The first dot divides, so a ``?`` must stand for a dot in a database's name.
    """

    text: str
    _database: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _table: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        database, dot, table = self.text.partition(".")
        if not (database and dot and table):
            raise ValueError(f"{self.text!r} is not of the form database.table")
        object.__setattr__(self, "_database", re.compile(translate(database)))
        object.__setattr__(self, "_table", re.compile(translate(table)))

    def matches_database(self, database: str) -> bool:
        """Whether tables of this target database can match."""
        return self._database.match(database) is not None

    def matches(self, name: TableName) -> bool:
        """Whether this target table matches."""
        return self.matches_database(name[0]) and self._table.match(name[1]) is not None


Constant = int | str | None
"""The value of a constant column: a number, a text or NULL."""


@dataclass(frozen=True, slots=True)
class TableRule:
    """What becomes of one table's rows on their way, for one stream. Names of columns are compared without case.

    A table with a rule is carried by the names of its columns, one without by their places.
    """

    source_table: str | None = None
    """The table's name at the source; None when it is the target's."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Target column → source column."""
    dropped: tuple[str, ...] = ()
    """Source columns that are not carried."""
    constants: Mapping[str, Constant] = field(default_factory=dict)
    """Target column → its value in all rows of this stream."""
    where: Predicate | None = None
    """Which rows are carried, in the source's names of columns; None for all."""


@dataclass(frozen=True, slots=True)
class StreamRules:
    """One stream's share of the workflow: source database → target database, and what the workflow says of tables."""

    databases: Mapping[str, str]
    patterns: tuple[TablePattern, ...]
    exclude: tuple[TablePattern, ...] = ()
    """Target tables that are not carried, though ``patterns`` match them."""
    table_rules: Mapping[TableName, TableRule] = field(default_factory=dict)
    """By target table. No two of them have one source table."""

    @classmethod
    def build(
        cls,
        databases: Mapping[str, str],
        patterns: Iterable[str] = ("*.*",),
        *,
        exclude: Iterable[str] = (),
        table_rules: Mapping[TableName, TableRule] | None = None,
    ) -> StreamRules:
        """Make rules from a mapping and the texts of patterns; ValueError when one has no dot."""
        return cls(
            dict(databases),
            tuple(TablePattern(text) for text in patterns),
            tuple(TablePattern(text) for text in exclude),
            dict(table_rules or {}),
        )

    def rule(self, target: TableName) -> TableRule | None:
        """Return the rule of a target table; None when its rows are carried as they are."""
        return self.table_rules.get(target)

    def target_name(self, database: str, table: str) -> TableName | None:
        """Return a source table's name on the target; None when the stream does not carry it.

        A table that a rule names as the source of another is that other; and a target table whose rule names its
        source gets no rows from a source table of its own name.
        """
        name = self.place(database, table)
        return name if name is not None and self._takes(name) else None

    def source_names(self, target: TableName) -> list[TableName]:
        """Return the names that a target table may have at the source; none when the stream does not fill it."""
        rule = self.table_rules.get(target)
        table = target[1] if rule is None or rule.source_table is None else rule.source_table
        return [(database, table) for database in self.databases if self.target_name(database, table) == target]

    def names_on_target(self, target_database: str, table: str) -> Iterator[str]:
        """Yield, in lower case, what a source's table may be called on the target if case does not count."""
        yield table.lower()
        for name, rule in self.table_rules.items():
            if name[0].lower() == target_database.lower() and (rule.source_table or "").lower() == table.lower():
                yield name[1].lower()

    def place(self, database: str, table: str) -> TableName | None:
        """Return the name that a source table would have on the target if no pattern kept it out."""
        target_database = self.databases.get(database)
        return None if target_database is None else self._destination(target_database, table)

    def excludes(self, database: str, table: str) -> bool:
        """Whether a source table of exactly this name is kept out by a pattern that excludes it."""
        name = self.place(database, table)
        return name is not None and any(pattern.matches(name) for pattern in self.exclude)

    def displaced_by(self, database: str, table: str) -> TableName | None:
        """Return the target table of a source table's own name if a rule gives it another source table."""
        target_database = self.databases.get(database)
        if target_database is None or self._destination(target_database, table) is not None:
            return None
        return target_database, table

    def may_fill(self, target: TableName) -> bool:
        """Whether rows of this stream may go to this target table."""
        return bool(self.source_names(target))

    def _destination(self, target_database: str, table: str) -> TableName | None:
        for name, rule in self.table_rules.items():
            if name[0] == target_database and rule.source_table == table:
                return name
        own = self.table_rules.get((target_database, table))
        return (target_database, table) if own is None or own.source_table is None else None

    def _takes(self, target: TableName) -> bool:
        return any(pattern.matches(target) for pattern in self.patterns) and not any(
            pattern.matches(target) for pattern in self.exclude
        )
