"""Which tables of a source a stream carries, and what they are called on the target.

Knows: the workflow's database mapping and table patterns, and where a stream starts. Never knows: schemas or servers.
Used by ``config``, ``core/plan.py`` and ``mysql/preflight.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import translate

from vmerge.core.position import GtidSet

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


@dataclass(frozen=True, slots=True)
class StreamRules:
    """One stream's share of the workflow: source database → target database, and the workflow's patterns."""

    databases: Mapping[str, str]
    patterns: tuple[TablePattern, ...]

    @classmethod
    def build(cls, databases: Mapping[str, str], patterns: Iterable[str] = ("*.*",)) -> StreamRules:
        """Make rules from a mapping and the texts of patterns; ValueError when one has no dot."""
        return cls(dict(databases), tuple(TablePattern(text) for text in patterns))

    def target_name(self, database: str, table: str) -> TableName | None:
        """Return a source table's name on the target; None when the stream does not carry it."""
        target = self.databases.get(database)
        if target is None or not any(pattern.matches((target, table)) for pattern in self.patterns):
            return None
        return target, table

    def may_fill(self, target: TableName) -> bool:
        """Whether rows of this stream may go to this target table."""
        return target[0] in self.databases.values() and any(pattern.matches(target) for pattern in self.patterns)
