"""Where the rows of a transaction go that is too large for memory.

Knows: what the reader asks of such a place. Never knows: files. Used by ``core/binlog.py``; ``mysql/spool.py`` is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from vmerge.core.events import Rows, RowsEvent


class RowStore(Rows, Protocol):
    """Filled once, walked any number of times."""

    def extend(self, rows: Sequence[RowsEvent]) -> None:
        """Append rows."""
