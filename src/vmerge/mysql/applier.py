"""What brings rows to the target: the protocol of both appliers, and how they take turns in one target transaction.

Knows: which applier has which table. Never knows: how rows are sent, checkpoints, or what follows an error. Used by
``mysql/target.py``, ``mysql/probe.py`` and ``mysql/quarantine_orders.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from pymysql.connections import Connection

from vmerge.core.appliers import ApplierRules
from vmerge.core.events import RowsEvent, Transaction
from vmerge.mysql.definitions import Definitions
from vmerge.mysql.events_applier import EventsApplier


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
    return EventsApplier(connection, rules, definitions, server_id)
