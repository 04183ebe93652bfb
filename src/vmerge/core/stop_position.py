"""Where a stream shall stop by itself.

Knows: when a position has come to it, and where what a source sends is cut. Never knows: who ordered it, or where it is
stored. Used by the backlog, which lets nothing through that is behind it, and by the player.

Which transactions are behind it
--------------------------------
A position is a set, and what a source sends has an order. A stream has come to its stop position when all of the set is
applied; what the source sends behind the last of these transactions is behind it. A transaction that is not in the set
and comes before one that is, is in front of it, as the source had it committed when it came to the set; nobody can pass
it by. MySQL's ``START REPLICA UNTIL SQL_AFTER_GTIDS`` means the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from vmerge.core.events import Heartbeat, SchemaChange, SourceItem, Transaction
from vmerge.core.position import GtidSet

Item = TypeVar("Item", bound=SourceItem)


@dataclass(frozen=True, slots=True)
class SourcePast:
    """What a source has committed."""

    uuid: bytes
    """Of its own transactions, 16 bytes."""
    executed: GtidSet
    purged: GtidSet
    """What of it the binlogs no longer hold."""


@dataclass(frozen=True, slots=True)
class StopPosition:
    """A stop position. An empty set has been reached from the beginning, so nobody is given one."""

    gtids: GtidSet

    def is_reached(self, position: GtidSet) -> bool:
        """Whether a stream at this position has come to it."""
        return position.includes(self.gtids)

    def obstacle(self, position: GtidSet, past: SourcePast) -> str:
        """Return why a stream at this position can never stop there, as the end of a sentence; empty if it can.

        What the source has not committed yet may come, if it is the source's own or comes to it from where it had
        something before. A position that is the very set is no obstacle: the stream has just come there.
        """
        if self.is_reached(position) and position != self.gtids:
            return f"it has applied all of that already, and is at {position}"
        missing = self.gtids.subtract(position)
        purged = missing.intersection(past.purged)
        if purged:
            return f"its source has purged transactions of that, which are not applied: {purged}"
        foreign = missing.sources - past.executed.sources - {past.uuid}
        if foreign:
            names = ", ".join(sorted(str(UUID(bytes=source)) for source in foreign))
            return f"its source has no transaction of {names}"
        return ""

    def missing(self, position: GtidSet) -> int:
        """Return how many transactions of it are not yet in a position."""
        return self.gtids.subtract(position).count()

    def cut(self, items: Iterable[Item], missing: int) -> tuple[list[Item], int]:
        """Return those of a source's next items that are not behind it, and how many of it are missing then.

        ``missing`` is the number before the first of them.
        """
        kept: list[Item] = []
        for item in items:
            if not missing:
                break
            kept.append(item)
            missing -= self._share(item)
        return kept, missing

    def _share(self, item: SourceItem) -> int:
        """Return how many of its transactions are done with an item: two with the end of an XA transaction."""
        match item:
            case Transaction(gtid=gtid, prepared=prepared):
                is_prepared = prepared is not None and self.gtids.contains(prepared)
                return self.gtids.contains(gtid) + is_prepared
            case SchemaChange(gtid=gtid):
                return int(self.gtids.contains(gtid))
            case Heartbeat():
                return 0
