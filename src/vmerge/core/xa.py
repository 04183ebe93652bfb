"""XA transactions: their statements, and what is prepared and not yet ended.

Knows: the texts of XA statements in a binlog, and how prepared transactions are kept. Never knows: events or
positions. Used by ``core/binlog.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from vmerge.core.events import Transaction
from vmerge.core.row_store import RowStore
from vmerge.errors import CorruptEvent

_XA = re.compile(rb"XA\s+(START|BEGIN|END|COMMIT|ROLLBACK)\s+(.*)", re.IGNORECASE | re.DOTALL)


class XaStatement(NamedTuple):
    """One XA statement. ``xid`` is as the server writes it, which is the same in all statements of a transaction."""

    verb: str
    xid: bytes


def read_xa(statement: bytes) -> XaStatement | None:
    """Read an XA statement; None if it is not one that a binlog holds."""
    match = _XA.match(statement.rstrip())
    if match is None:
        return None
    verb = match[1].decode("ascii").upper()
    return XaStatement("START" if verb == "BEGIN" else verb, match[2])


class PreparedTransactions:
    """Transactions between XA PREPARE and their end, by xid.

    Invariant: the rows it holds in memory are no more than ``limit_bytes``, however many are prepared. Owner: the
    decoder that made it.
    """

    def __init__(self, open_store: Callable[[], RowStore], limit_bytes: int) -> None:
        self._open_store = open_store
        self._limit_bytes = limit_bytes
        self._by_xid: dict[bytes, tuple[Transaction, int]] = {}
        self._bytes_in_memory = 0

    def add(self, xid: bytes, transaction: Transaction) -> None:
        """Keep a prepared transaction.

        Raises:
            CorruptEvent: another one with this xid is prepared.
        """
        if xid in self._by_xid:
            raise CorruptEvent(f"transaction {transaction.gtid} prepares an xid that is prepared already")
        in_memory = transaction.byte_count if isinstance(transaction.rows, list) else 0
        if self._bytes_in_memory + in_memory > self._limit_bytes:
            store = self._open_store()
            store.extend(list(transaction.rows))
            transaction, in_memory = transaction._replace(rows=store), 0
        self._by_xid[xid] = transaction, in_memory
        self._bytes_in_memory += in_memory

    def take(self, xid: bytes) -> Transaction | None:
        """Hand over what was prepared with this xid, if anything."""
        transaction, in_memory = self._by_xid.pop(xid, (None, 0))
        self._bytes_in_memory -= in_memory
        return transaction
