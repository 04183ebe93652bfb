"""The simulated target's schema: what was run on it, and what a stream's ledger does there.

Knows: the steps of running a change once (``mysql/schema_changes.py`` has the real ones), and where a process may die
between them. Never knows: statements; a change is its text. Used by the worlds of the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.sim.database import SimDatabase

from vmerge.core.barrier import Arrival
from vmerge.core.events import SchemaChange
from vmerge.core.position import Gtid
from vmerge.core.rules import TableName
from vmerge.core.schema_policy import Alteration, Reading, ShadowStatement
from vmerge.core.target_statement import TargetStatement
from vmerge.errors import JointRefused, TargetLost


class Death(Enum):
    """Where the session that runs a change ends."""

    BEFORE_BEGIN = auto()
    BEFORE_RUN = auto()
    AFTER_RUN = auto()
    AFTER_COMMIT = auto()


@dataclass
class SimSchema:
    """What all ledgers share. ``runs`` has the statements that took effect, in order."""

    runs: list[str] = field(default_factory=list)
    begun: list[tuple[dict[str, Gtid], int]] = field(default_factory=list)
    """Of changes that are not done: the streams' transactions, and how many statements had been run before."""


class SimLedger:
    """One stream's ledger."""

    def __init__(self, database: SimDatabase, schema: SimSchema | None = None) -> None:
        self._database = database
        self.schema = schema or SimSchema()
        self.death: Death | None = None
        self.notes: dict[TableName, list[str]] = {}
        self.logged: list[tuple[str, str]] = []

    def note(self, gtid: Gtid, reading: ShadowStatement, statement: str) -> None:
        """See ``Ledger``."""
        self.notes.setdefault(reading.shadow, []).append(statement)

    def collected(self, shadow: TableName) -> Sequence[str]:
        """See ``Ledger``."""
        return self.notes.get(shadow, [])

    def outdate(self, tables: frozenset[TableName] | None, at_microseconds: int) -> None:
        """See ``Ledger``: rows of the simulator name nothing, and need no memory."""

    def log(self, kind: str, message: str) -> None:
        """See ``Ledger``."""
        self.logged.append((kind, message))

    def carry_out(self, members: Sequence[Arrival]) -> None:
        """See ``Ledger``; a death strikes behind a step."""
        self._require_waiting(members)
        self._die(Death.BEFORE_BEGIN)
        ours = {member.stream: member.gtid for member in members}
        begun = [count for gtids, count in self.schema.begun if gtids.items() & ours.items()]
        if not begun:
            self.schema.begun.append((ours, len(self.schema.runs)))
        self._die(Death.BEFORE_RUN)
        if not begun or begun[0] == len(self.schema.runs):
            self.schema.runs.append(members[0].statement.text)
        self._die(Death.AFTER_RUN)
        self._require_waiting(members)
        for member in members:
            self._database.checkpoints[member.stream] = member.position.advanced([member.gtid])
        self.schema.begun = [entry for entry in self.schema.begun if not entry[0].items() & ours.items()]
        self._die(Death.AFTER_COMMIT)

    def _require_waiting(self, members: Sequence[Arrival]) -> None:
        for member in members:
            epoch = member.membership[0] if isinstance(member.membership, tuple) else None
            found = self._database.checkpoints[member.stream], self._database.epochs[member.stream]
            if found != (member.position, epoch):
                raise JointRefused(f"stream {member.stream} has moved")

    def _die(self, death: Death) -> None:
        if self.death is death:
            self.death = None
            raise TargetLost("the session is gone")


class PlainInterpreter:
    """Takes every statement for a change of one table that may run as it is, but for TRUNCATE."""

    def read(self, change: SchemaChange) -> Reading:
        """See ``Interpreter``."""
        return Alteration(takes_rows=change.statement.startswith("TRUNCATE"))

    def changed_tables(self, change: SchemaChange) -> frozenset[TableName] | None:
        """See ``Interpreter``."""
        return None

    def translate(self, change: SchemaChange, reading: Reading, collected: Sequence[str]) -> TargetStatement:
        """See ``Interpreter``."""
        table = change.statement.split()[2]
        return TargetStatement(("shop", table), (change.statement,), change.statement, is_create=False)
