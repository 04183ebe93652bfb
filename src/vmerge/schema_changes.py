"""What a stream does when it comes to a schema change of a table that it carries.

Knows: which changes an operator has accepted, and the words for the others. Never knows: how a statement is told to
concern the stream (``core/plan.py``), or positions. Used by the player alone, in its thread.
"""

from __future__ import annotations

from vmerge.core.events import SchemaChange
from vmerge.core.position import Gtid
from vmerge.errors import SchemaChanged

STATEMENT_CHARACTERS = 200
"""Of a statement in a message."""


class SchemaChanges:
    """One stream's way past schema changes. Owner: the player."""

    def __init__(self, name: str, accepted: frozenset[Gtid]) -> None:
        self._name = name
        self._accepted = accepted

    def may_pass(self, change: SchemaChange) -> bool:
        """Whether an operator has made this change on the target and says so."""
        return change.gtid in self._accepted

    def refusal(self, change: SchemaChange) -> SchemaChanged:
        """Return the error that stops the stream before a change."""
        return SchemaChanged(
            f"stream {self._name} reached a schema change of a merged table, transaction {change.gtid}: "
            f"{' '.join(change.statement.split())[:STATEMENT_CHARACTERS]}",
            hint="Change the target's table likewise (after TRUNCATE or DROP delete this shard's rows only: the "
            "siblings' are there, too), then go on with `vmerge start --past-schema-change "
            f"{change.gtid} -- WORKFLOW {self._name}`.",
        )
