"""What brings rows to the target: the protocol of both appliers, and how they take turns in one target transaction.

Knows: which applier has which table. Never knows: how rows are sent, checkpoints, or what follows an error. Used by
``mysql/target.py``, ``mysql/probe.py`` and ``mysql/quarantine_orders.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

from pymysql.connections import Connection

from vmerge.core.appliers import ApplierKind, ApplierRules
from vmerge.core.events import RowsEvent, TableMap, Transaction
from vmerge.mysql.definitions import Definitions
from vmerge.mysql.events_applier import EventsApplier
from vmerge.mysql.statement_applier import StatementApplier

MANY_TABLES = 1_000
"""Remembered at most: a source may alter tables for ever."""


class Applier(Protocol):
    """Applies rows over one session.

    Promise: all rows that are given are sent, in order, to tables that still are what the stream's plan proved, and
    each found exactly its row; or an error is raised, and the caller rolls back. Methods raise PyMySQL's errors, too.
    """

    def apply(self, batch: Sequence[Transaction], rows: Iterable[RowsEvent]) -> None:
        """Send rows that whole transactions come to, inside the open target transaction."""

    def twin(self, rules: ApplierRules, definitions: Definitions) -> Applier:
        """Return an applier for a sibling's rows over the same session."""


def open_applier(connection: Connection[Any], rules: ApplierRules, definitions: Definitions, server_id: int) -> Applier:
    """Return what applies a stream's rows, with no target transaction open. Raises PyMySQL's errors, too."""
    appliers: dict[ApplierKind, Applier] = {}
    if ApplierKind.EVENTS in rules.appliers:
        appliers[ApplierKind.EVENTS] = EventsApplier(connection, rules, definitions, server_id)
    if ApplierKind.STATEMENTS in rules.appliers:
        appliers[ApplierKind.STATEMENTS] = StatementApplier(connection, rules, definitions)
    return next(iter(appliers.values())) if len(appliers) == 1 else ApplierByTable(appliers, rules)


class ApplierByTable:
    """Both appliers over one session, each for its tables. Rows keep their order: they are handed on run by run."""

    def __init__(self, appliers: Mapping[ApplierKind, Applier], rules: ApplierRules) -> None:
        self._appliers = appliers
        self._rules = rules
        self._kinds: dict[TableMap, ApplierKind] = {}

    def twin(self, rules: ApplierRules, definitions: Definitions) -> ApplierByTable:
        """See ``Applier``."""
        twins = {kind: applier.twin(rules, definitions) for kind, applier in self._appliers.items()}
        return ApplierByTable(twins, rules)

    def apply(self, batch: Sequence[Transaction], rows: Iterable[RowsEvent]) -> None:
        """See ``Applier``."""
        if len(self._kinds) > MANY_TABLES:
            self._kinds.clear()
        for kind, run in groupby(rows, key=self._kind):
            self._appliers[kind].apply(batch, run)

    def _kind(self, row: RowsEvent) -> ApplierKind:
        table = row.shape.table
        kind = self._kinds.get(table)
        if kind is None:
            kind = self._kinds[table] = self._rules.applier(table)
        return kind
