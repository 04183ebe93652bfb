"""What a stream has received from its source and not yet applied.

Knows: how items arrive, and how far ahead of the target a blocked stream may look. Never knows: the target, or why a
stream looks ahead. Used by the player alone, in its thread. The source is a protocol with two implementations:
``mysql/source.py`` and the simulator of the tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from vmerge.core.events import Heartbeat, SchemaChange, SourceItem, Transaction
from vmerge.core.joint import gtids_of
from vmerge.core.position import Gtid, GtidSet
from vmerge.errors import SourceLost

AHEAD_BYTES = 2 * 1024 * 1024
"""Row images that are looked at together: a hundred thousand of the smallest rows fold in about a second, in 100 MB."""

AHEAD_TRANSACTIONS = 20_000
"""And transactions, of which many may have no rows: what a blocked stream holds ahead stays bounded."""


class Source(Protocol):
    """Where a stream's items come from."""

    def open(self, position: GtidSet) -> None:
        """Begin behind ``position``, however often it was open before."""

    def read(self) -> Sequence[SourceItem]:
        """Return the next items in order, perhaps none; blocks for about a second at most."""

    def poll(self) -> Sequence[SourceItem]:
        """Return the next items that have arrived already, perhaps none; never blocks."""

    def close(self) -> None:
        """Let go of the source."""


class Backlog:
    """The items behind a stream's position, in the order of the source.

    Invariant: ``items`` begins with what follows the position, and has no gap. Owner: the player.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.items: deque[Transaction | SchemaChange] = deque()

    def open(self, position: GtidSet) -> None:
        """Begin behind a position."""
        self._source.open(position)

    def close(self) -> None:
        """Let go of the source."""
        self._source.close()

    def read(self) -> bool:
        """Wait for what arrives; return whether the source said that there was nothing more, and so it is."""
        return self._take(self._source.read())

    def _take(self, items: Iterable[SourceItem]) -> bool:
        is_at_head = False
        for item in items:
            if isinstance(item, Heartbeat):
                is_at_head = not self.items
            else:
                is_at_head = False
                self.items.append(item)
        return is_at_head

    def drop(self, count: int) -> None:
        """Forget the first items: they are done."""
        if count == len(self.items):
            self.items.clear()
            return
        for _ in range(count):
            self.items.popleft()

    def look_ahead(self, count: int, position: GtidSet) -> list[Transaction]:
        """Return so many transactions from the first on: fewer at a schema change, a bound, or where nothing more came.

        ``position`` is the one before the first.
        """
        wanted = min(count, AHEAD_TRANSACTIONS)
        ahead = _bytes_of(self.items)
        while len(self.items) < wanted and ahead < AHEAD_BYTES:
            before = len(self.items)
            self._poll(position)
            if len(self.items) == before:
                break
            ahead += _bytes_of(islice(self.items, before, None))
        return self._first(wanted)

    def _first(self, wanted: int) -> list[Transaction]:
        run: list[Transaction] = []
        size = 0
        for item in self.items:
            if not isinstance(item, Transaction) or len(run) == wanted:
                break
            size += item.byte_count
            if run and size > AHEAD_BYTES:
                break
            run.append(item)
        return run

    def _poll(self, position: GtidSet) -> None:
        """Take what has arrived. A source that is lost while the stream is blocked is opened again behind what it gave.

        A restart would do that too, but forget for how long the stream is blocked already.
        """
        try:
            self._take(self._source.poll())
        except SourceLost:
            with suppress(SourceLost):  # not yet back: what has arrived has to do until the next time
                self._source.open(position.advanced(self._gtids()))

    def _gtids(self) -> list[Gtid]:
        changes = [item.gtid for item in self.items if isinstance(item, SchemaChange)]
        return changes + gtids_of([item for item in self.items if isinstance(item, Transaction)])


def _bytes_of(items: Iterable[Transaction | SchemaChange]) -> int:
    """Return how many bytes of row images items hold."""
    return sum(item.byte_count for item in items if isinstance(item, Transaction))
