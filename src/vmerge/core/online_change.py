"""Tables of online schema change tools, recognised by their names.

Knows: how gh-ost and pt-online-schema-change name the tables that stand beside the one they change. Never knows:
which tables there are. Used by ``core/plan.py`` and ``core/table_checks.py``. Sources: gh-ost,
``go/base/context.go``; pt-online-schema-change, its manual under "--new-table-name" and "DESCRIPTION".

Both fill a *shadow* table with the new columns beside the real one, and exchange the two with one RENAME TABLE in the
end; what the real one was then has a name for old tables. gh-ost keeps a *log* table, too. pt-online-schema-change puts
as many underscores in front as make the name a new one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass
from enum import Enum

from vmerge.core.rules import StreamRules, TableName

LONGEST_NAME = 64
"""Of a table; both tools cut the real table's name when theirs would be longer."""


class Role(Enum):
    """What a tool's table is for."""

    SHADOW = "shadow"
    LOG = "log"
    OLD = "old"


class Tool(Enum):
    """Who made a table."""

    GHOST = "gh-ost"
    PERCONA = "pt-online-schema-change"


@dataclass(frozen=True, slots=True)
class ToolTable:
    """A table that a tool keeps beside a real one."""

    tool: Tool
    role: Role
    real: str
    """The real table's name."""


_ENDINGS = (
    (re.compile(r"_(.+)_gho\Z", re.DOTALL), Tool.GHOST, Role.SHADOW),
    (re.compile(r"_(.+)_ghc\Z", re.DOTALL), Tool.GHOST, Role.LOG),
    (re.compile(r"_(.+)_\d{14}_del\Z", re.DOTALL), Tool.GHOST, Role.OLD),
    (re.compile(r"_(.+)_del\Z", re.DOTALL), Tool.GHOST, Role.OLD),
    (re.compile(r"_(.+)_new\Z", re.DOTALL), Tool.PERCONA, Role.SHADOW),
    (re.compile(r"_(.+)_old\Z", re.DOTALL), Tool.PERCONA, Role.OLD),
)
_MOST_UNDERSCORES = 10


def tool_table(name: str, reals: Set[str]) -> ToolTable | None:
    """Return what a table is to one of some real ones, by its name; None when it is none of a tool's.

    ``reals`` are in lower case, as the comparison is without regard to case.
    """
    folded = name.lower()
    for ending, tool, role in _ENDINGS:
        match = ending.match(folded)
        if match is None:
            continue
        for base in _bases(match[1], tool):
            real = _real_of(base, len(name), reals)
            if real is not None:
                return ToolTable(tool, role, real)
    return None


class ToolTables:
    """The tools' tables among those of one source. Immutable.

    A name is believed only beside a real table that the stream carries, and not if the target has a table for it, too.
    """

    def __init__(self, rules: StreamRules, targets: Collection[TableName]) -> None:
        self._rules = rules
        self._targets = targets
        reals: dict[str, set[str]] = {}
        for target in targets:
            for database, table in rules.source_names(target):
                reals.setdefault(database.lower(), set()).add(table.lower())
        self._reals = reals

    def find(self, database: str, table: str) -> ToolTable | None:
        """Return what a source's table is to a tool; None when it is an ordinary one."""
        if self._rules.target_name(database, table) in self._targets:
            return None
        return tool_table(table, self._reals.get(database.lower(), frozenset()))


def _bases(base: str, tool: Tool) -> Iterator[str]:
    yield base
    more = _MOST_UNDERSCORES - 1 if tool is Tool.PERCONA else 0
    while more and len(base) > 1 and base.startswith("_"):
        base, more = base[1:], more - 1
        yield base


def _real_of(base: str, length: int, reals: Iterable[str]) -> str | None:
    for real in reals:
        if real == base or (length == LONGEST_NAME and real.startswith(base)):
            return real
    return None
