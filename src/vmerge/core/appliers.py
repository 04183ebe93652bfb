"""Which of the two appliers brings a table's rows to the target.

Knows: the two kinds, what an operator may choose, and what both must know of a table. Never knows: servers, or how
rows are sent. Used by ``core/plan.py``, ``mysql/applier.py`` and whoever tells an operator which and why.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from vmerge.core.events import TableMap
from vmerge.core.rules import TableName
from vmerge.core.schema import TableSchema


class ApplierKind(Enum):
    """How rows are sent."""

    EVENTS = "events"
    """As row events, with BINLOG: no value is decoded."""
    STATEMENTS = "statements"
    """As INSERT, UPDATE and DELETE."""


class ApplierRules(Protocol):
    """What appliers must know of a stream's tables. Asked about rows that are wanted only."""

    def target_name(self, table_map: TableMap) -> TableName:
        """Return the name of the target's table."""

    def applier(self, table_map: TableMap) -> ApplierKind:
        """Return which of the two applies rows of this shape."""

    def is_in_circle(self, table_map: TableMap) -> bool:
        """Whether the table is, over one or more foreign keys, a parent of itself."""

    def target_schema(self, table_map: TableMap) -> TableSchema:
        """Return the target's table."""
