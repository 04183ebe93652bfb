"""Applies raw row events on the target with BINLOG.

Knows: how transactions become BINLOG statements on an open connection. Never knows: checkpoints, or what to do about an
error. Used by ``mysql/target.py``. The server applies the rows exactly as a replica would; no value is decoded here.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

from pymysql.connections import Connection

from vmerge.core.appliers import ApplierRules
from vmerge.core.events import RowsEvent, Transaction
from vmerge.core.statement import StatementBuilder, format_description
from vmerge.errors import TargetRejected
from vmerge.mysql import sql
from vmerge.mysql.definitions import Definitions, require_unchanged

PIECE_BYTES = 4 * 1024 * 1024
"""Rows in one BINLOG: well below any max_allowed_packet, and what memory holds of a large transaction at a time."""


class EventsApplier:
    """Applies batches over one connection.

    Promise: all rows of a batch are sent, in order, to tables that still are what the stream's plan proved, or an
    error is raised. Owner: the stream's thread.
    """

    def __init__(
        self, connection: Connection[Any], rules: ApplierRules, definitions: Definitions, server_id: int
    ) -> None:
        self._connection = connection
        self._definitions = definitions
        with connection.cursor() as cursor:
            cursor.execute(sql.TARGET_FACTS)
            facts = cursor.fetchone()
        assert facts is not None
        if facts[0] != "STRICT":
            raise TargetRejected(
                f"rbr_exec_mode is {facts[0]} on the target: missing rows and duplicates would pass without a word",
                hint="Take it out of the target's init_connect: it can be set for sessions only.",
            )
        self._packet_bytes = int(facts[1])
        self._limit = min(PIECE_BYTES, _unencoded(self._packet_bytes))
        self._server_id = server_id
        self._builder = StatementBuilder(rules.target_name, self._limit, server_id)
        self._send(format_description(server_id))
        connection.query(sql.AUTOMATIC_GTID)

    def twin(self, rules: ApplierRules, definitions: Definitions) -> EventsApplier:
        """See ``Applier``."""
        twin = copy(self)
        twin._definitions = definitions
        twin._builder = StatementBuilder(rules.target_name, self._limit, self._server_id)
        return twin

    def apply(self, batch: Sequence[Transaction], rows: Iterable[RowsEvent]) -> None:
        """See ``Applier``."""
        seconds = batch[0].committed_at_microseconds // 1_000_000
        for piece in self._builder.build(rows, seconds):
            if len(piece) > _unencoded(self._packet_bytes):
                raise TargetRejected(
                    f"transaction {batch[0].gtid} holds a row of {len(piece)} bytes, too large for the target",
                    hint="Raise max_allowed_packet on the target to at least 1.4 times that.",
                )
            self._send(piece)
        require_unchanged(self._connection, self._builder.touched, self._definitions)

    def _send(self, piece: bytes) -> None:
        self._connection.query(b"BINLOG '" + b2a_base64(piece, newline=False) + b"'")


def _unencoded(packet_bytes: int) -> int:
    """Return how many bytes fit a statement of that size once they are base64."""
    return (packet_bytes - 64) // 4 * 3
