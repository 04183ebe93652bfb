"""What becomes of a stream that meets a proven true duplicate, by table.

Knows: the policies, and which one a table has. Never knows: how a duplicate is proven or set aside. Used by ``config``,
the player and ``core/table_checks.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vmerge.core.rules import TableName, TablePattern


class DuplicatePolicy(Enum):
    """What becomes of the stream whose row is kept out."""

    STOP = "stop"
    """It stops with both rows and the proof."""
    QUARANTINE = "quarantine"
    """It sets its own row aside and goes on."""


@dataclass(frozen=True, slots=True)
class DuplicateRules:
    """The policy of each table of the target. The first pattern that matches counts."""

    default: DuplicatePolicy = DuplicatePolicy.STOP
    tables: tuple[tuple[TablePattern, DuplicatePolicy], ...] = ()

    def policy(self, table: TableName) -> DuplicatePolicy:
        """Return what happens for a table of the target."""
        return next((policy for pattern, policy in self.tables if pattern.matches(table)), self.default)


STOP_ALWAYS = DuplicateRules()
