"""Which of the two appliers brings a table's rows to the target, and why.

Knows: the two kinds, what an operator may choose, and what both must know of a table. Never knows: servers, or how
rows are sent. Used by ``core/plan.py``, ``mysql/applier.py`` and whoever tells an operator which and why.

Events wherever they may be: no value is decoded, and it costs less. They need BINLOG, which some accounts may not use,
and columns that are equal. Statements need columns that keep every value, and no trigger on the target's table: BINLOG
fires none, INSERT would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from vmerge.core.events import TableMap
from vmerge.core.grants import REPLICATION_APPLIER, ROWS, TRIGGER, Grant
from vmerge.core.rules import TableName
from vmerge.core.schema import TableSchema, differences
from vmerge.core.widening import losses


class ApplierKind(Enum):
    """How rows are sent."""

    EVENTS = "events"
    """As row events, with BINLOG: no value is decoded."""
    STATEMENTS = "statements"
    """As INSERT, UPDATE and DELETE."""


class ApplierSetting(Enum):
    """What the workflow file asks for."""

    AUTO = "auto"
    EVENTS = "events"
    STATEMENTS = "statements"


@dataclass(frozen=True, slots=True)
class Choice:
    """The applier of one table."""

    kind: ApplierKind
    reason: str


@dataclass(frozen=True, slots=True)
class NoApplier:
    """No applier may have a table."""

    reasons: tuple[str, ...]
    id: str = "columns-differ"
    """Of the finding about it."""
    hint: str = "Give both sides the same columns: compare SHOW CREATE TABLE."


@dataclass(frozen=True, slots=True)
class ApplierPolicy:
    """What a workflow asks for, and what the target's account may."""

    setting: ApplierSetting = ApplierSetting.AUTO
    refusal: str | None = None
    """Why the target does not take BINLOG from the account; None if it does."""
    unseen: frozenset[str] = frozenset()
    """The target's databases whose triggers the account does not see."""
    account: str = "the account"
    """As GRANT writes it, for hints."""

    @property
    def kinds(self) -> frozenset[ApplierKind]:
        """The appliers that tables may have."""
        may_events = self.setting is not ApplierSetting.STATEMENTS and self.refusal is None
        may = {ApplierKind.EVENTS: may_events, ApplierKind.STATEMENTS: self.setting is not ApplierSetting.EVENTS}
        return frozenset(kind for kind, is_so in may.items() if is_so)

    def choose(self, source: TableSchema, target: TableSchema) -> Choice | NoApplier:
        """Choose the applier of a table by its descriptions."""
        return self.judge(differences(source, target), losses(source, target), target)

    def judge(self, different: Sequence[str], lost: Sequence[str], target: TableSchema) -> Choice | NoApplier:
        """Choose by how the columns differ, and by which of the differences may change a value."""
        if not different and ApplierKind.EVENTS in self.kinds:
            return Choice(ApplierKind.EVENTS, "the columns are equal")
        if self.setting is ApplierSetting.EVENTS:
            return self._without_events(different)
        if lost:
            return NoApplier(tuple(lost))
        why = self._reason(different)
        if target.has_triggers:
            text = f"table {target.name} on the target has triggers, which the statements applier would fire ({why})"
            return NoApplier((text,), "triggers", "Drop them: what they do must be done at the shards.")
        if target.database in self.unseen:
            text = f"the account lacks TRIGGER on `{target.database}`, without which it sees no trigger ({why})"
            return NoApplier((text,), "privilege", Grant((*ROWS, TRIGGER), target.database).statement(self.account))
        return Choice(ApplierKind.STATEMENTS, why)

    @property
    def events_hint(self) -> str:
        """What helps who asks for row events without the privilege."""
        return f"{Grant((REPLICATION_APPLIER,)).statement(self.account)} Or choose `applier: auto`."

    def _without_events(self, different: Sequence[str]) -> NoApplier:
        if different:
            return NoApplier(tuple(different))
        return NoApplier((self.refusal or "",), "privilege", self.events_hint)

    def _reason(self, different: Sequence[str]) -> str:
        if self.setting is ApplierSetting.STATEMENTS:
            return "the workflow file says so"
        if self.refusal is not None:
            return self.refusal
        return f"columns differ, and the target's keep every value: {'; '.join(different)}"


def appliers_data(choices: Mapping[TableName, Choice]) -> list[dict[str, str]]:
    """Return which tables of the target have which applier, and why, as plain data."""
    return [
        {"table": ".".join(name), "applier": choice.kind.value, "reason": choice.reason}
        for name, choice in sorted(choices.items())
    ]


def applier_lines(appliers: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each applier with its tables as text, tables of one reason together."""
    tables: dict[tuple[str, str], list[str]] = {}
    for one in appliers:
        tables.setdefault((one["applier"], one["reason"]), []).append(one["table"])
    for (applier, reason), names in tables.items():
        yield applier, f"{', '.join(names)}: {reason}"


ANY_APPLIER = ApplierPolicy()
"""Either, as the columns allow."""


class ApplierRules(Protocol):
    """What appliers must know of a stream's tables. Asked about rows that are wanted only."""

    @property
    def appliers(self) -> frozenset[ApplierKind]:
        """Those that rows of any stream of the workflow may need."""

    def target_name(self, table_map: TableMap) -> TableName:
        """Return the name of the target's table."""

    def applier(self, table_map: TableMap) -> ApplierKind:
        """Return which of the two applies rows of this shape."""

    def is_in_circle(self, table_map: TableMap) -> bool:
        """Whether the table is, over one or more foreign keys, a parent of itself."""

    def target_schema(self, table_map: TableMap) -> TableSchema:
        """Return the target's table."""
