"""What a stream makes of a schema change of its source: words shared by the plan, the player and the driver.

Knows: the ways there are past a change. Never knows: which way is taken. Used by ``core/plan.py`` (which reads a
statement), ``schema_changes.py`` (which decides) and ``mysql/schema_changes.py`` (which runs it).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vmerge.core.online_change import ToolTable
from vmerge.core.rules import TableName


class OnDdl(Enum):
    """What becomes of a schema change of a table that a stream carries."""

    STOP = "stop"
    IGNORE = "ignore"
    EXECUTE = "execute"


class Note(Enum):
    """What a statement about a tool's shadow table means for what is known of it."""

    BEGINS = "begins"
    """The table is made or gone: what was collected before is of another change."""
    ADDS = "adds"
    """It is altered, as the real table will be."""


@dataclass(frozen=True, slots=True)
class ShadowStatement:
    """A statement about a tool's shadow table: it changes nothing, and is kept until the tables are exchanged."""

    shadow: TableName
    """The source's."""
    note: Note


@dataclass(frozen=True, slots=True)
class Exchange:
    """The statement by which a tool puts its shadow table in the place of the real one."""

    tool: ToolTable
    shadow: TableName
    real: TableName
    """Both the source's."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """Any other statement that may change a table of the stream."""

    takes_rows: bool
    """Whether rows go away, or whether that cannot be told."""


Reading = ShadowStatement | Exchange | Alteration
