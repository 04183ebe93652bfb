"""Some transactions in a row, summed up.

Knows: what is left to say of transactions once they are applied. Never knows: rows. Used by the player and its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from vmerge.core.events import Transaction
from vmerge.core.position import Gtid

_byte_count_of = attrgetter("byte_count")
_rows_of = attrgetter("rows")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some transactions in a row, as far as it matters that they were committed."""

    count: int
    last: Gtid
    committed_at_microseconds: int
    """When the source committed the last one."""
    byte_count: int
    event_count: int
    """Of row events; nobody counts the rows in them."""

    @classmethod
    def of(cls, transactions: Sequence[Transaction]) -> Stretch:
        """Sum up at least one transaction."""
        last = transactions[-1]
        # Hot path: these two run over every transaction, and as maps cost two thirds of what generators do.
        byte_count = sum(map(_byte_count_of, transactions))
        event_count = sum(map(len, map(_rows_of, transactions)))
        return cls(len(transactions), last.gtid, last.committed_at_microseconds, byte_count, event_count)

    def extended(self, following: Stretch) -> Stretch:
        """Return both together."""
        return Stretch(
            self.count + following.count,
            following.last,
            following.committed_at_microseconds,
            self.byte_count + following.byte_count,
            self.event_count + following.event_count,
        )


def gtids_of(items: Sequence[Transaction]) -> list[Gtid]:
    """Return the GTIDs that are done with these transactions, the earlier halves of XA transactions last."""
    gtids = [item.gtid for item in items]
    gtids += [item.prepared for item in items if item.prepared is not None]
    return gtids
