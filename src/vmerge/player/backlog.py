"""What a stream has received from its source and not yet applied.

Knows: how items arrive, and how far ahead of the target a blocked stream may look. Never knows: the target, or why a
stream looks ahead. Used by the player alone, in its thread. The source is a protocol with two implementations:
``mysql/source.py`` and the simulator of the tests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from vmerge.core.events import Heartbeat, SchemaChange, SourceItem, Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stop_position import StopPosition
from vmerge.core.stretch import gtids_of
from vmerge.errors import SourceLost, SpoolFailed, Verdict, VmergeError


class Source(Protocol):
    """Where a stream's items come from. An error of a call is that of each later one, until it is opened again."""

    def open(self, position: GtidSet) -> None:
        """Begin behind ``position``, however often it was open before."""

    def read(self) -> Sequence[SourceItem]:
        """Return the next items in order, perhaps none; blocks for about a second at most."""

    def poll(self) -> Sequence[SourceItem]:
        """Return the next items that have arrived already, perhaps none; never blocks."""

    def close(self) -> None:
        """Let go of the source."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How much a backlog keeps for a look ahead. More passes by without being kept; see ``read_on``."""

    transactions: int = 20_000
    """Many may have no rows, so that their bytes alone would not bound the memory they take."""
    bytes: int = 2 * 1024 * 1024
    """Of row images: a hundred thousand of the smallest rows fold in about a second, in 100 MB."""


USUAL_REACH = Reach()


class Backlog:
    """The items behind a stream's position, in the order of the source.

    Invariant: ``items`` begins with what follows the position, and has no gap. Nothing behind the stop position is ever
    in it, or read on; so no batch, jump or joint commit can pass that. Owner: the player.
    """

    def __init__(
        self,
        source: Source,
        reach: Reach,
        concerns: Callable[[SchemaChange], bool],
        stop_position: StopPosition | None = None,
    ) -> None:
        """``concerns`` says whether a statement may change a table that the stream carries."""
        self._source = source
        self._reach = reach
        self._concerns = concerns
        self._stop_position = stop_position
        self._missing = 0
        """How many transactions up to the stop position have not arrived."""
        self.items: deque[Transaction | SchemaChange] = deque()
        self._is_torn = False
        """Whether the source has gone on without ``items``, so that what follows them must be asked for again."""
        self._reached: GtidSet | None = None
        """Behind which position the source goes on then; None while it is lost."""
        self._has_ended = False
        """Whether what was read on came to a schema change or the stop position."""
        self.failure: VmergeError | None = None
        """What keeps it from looking further ahead, and will not end by itself."""
        self._run: list[Transaction] = []
        """The first items, as far as they were looked at together: a stream that stays blocked looks ever again."""
        self._run_bytes = 0

    def open(self, position: GtidSet) -> None:
        """Begin behind a position, with nothing."""
        self.items.clear()
        self._run, self._run_bytes = [], 0
        self._is_torn = self._has_ended = False
        self._reached = None
        self.failure = None
        self._missing = self._missing_behind(position)
        self._source.open(position)

    def _missing_behind(self, position: GtidSet) -> int:
        return 0 if self._stop_position is None else self._stop_position.missing(position)

    @property
    def _is_complete(self) -> bool:
        """Whether all that may be kept has arrived."""
        return self._stop_position is not None and not self._missing

    def close(self) -> None:
        """Let go of the source."""
        self._source.close()

    def read(self, position: GtidSet) -> bool:
        """Wait for what arrives; return whether the source said that there was nothing more, and so it is.

        Nothing is there yet; ``position`` is the stream's.
        """
        if self._is_torn:
            self.open(position)
        return self._take(self._source.read())

    def _take(self, items: Iterable[SourceItem]) -> bool:
        is_at_head = False
        if self._stop_position is not None:
            items, self._missing = self._stop_position.cut(items, self._missing)
        for item in items:
            if isinstance(item, Heartbeat):
                is_at_head = not self.items
            else:
                is_at_head = False
                self.items.append(self._without_needless_bar(item))
        return is_at_head

    def _without_needless_bar(self, item: Transaction | SchemaChange) -> Transaction | SchemaChange:
        """Take a statement about other tables for a transaction without rows: it shall stop no batch and no jump."""
        if isinstance(item, SchemaChange) and not self._concerns(item):
            return Transaction(item.gtid, item.committed_at_microseconds, (), 0)
        return item

    def drop(self, count: int) -> None:
        """Forget the first items: they are done."""
        self._run, self._run_bytes = [], 0
        if count == len(self.items):
            self.items.clear()
            return
        for _ in range(count):
            self.items.popleft()

    def look_ahead(self, count: int, position: GtidSet) -> list[Transaction]:
        """Return so many transactions from the first on: fewer at a schema change, a bound, or where nothing more came.

        ``position`` is the one before the first.
        """
        wanted = min(count, self._reach.transactions)
        ahead = self._run_bytes + _bytes_of(islice(self.items, len(self._run), None))
        while len(self.items) < wanted and ahead < self._reach.bytes and not (self._is_torn or self._is_complete):
            before = len(self.items)
            self._poll(position)
            if len(self.items) == before:
                break
            ahead += _bytes_of(islice(self.items, before, None))
        return self._first(wanted)

    def _first(self, wanted: int) -> list[Transaction]:
        for item in islice(self.items, len(self._run), wanted):
            if not isinstance(item, Transaction):
                break
            if self._run and self._run_bytes + item.byte_count > self._reach.bytes:
                break
            self._run.append(item)
            self._run_bytes += item.byte_count
        return self._run[:wanted]

    def is_all_kept(self, run: Sequence[Transaction]) -> bool:
        """Whether a look ahead ended at the bounds of what is kept: there may be more to read on."""
        if self._is_torn or len(run) == self._reach.transactions:
            return True
        return len(run) < len(self.items) and isinstance(self.items[len(run)], Transaction)

    def is_too_large(self, run: Sequence[Transaction]) -> bool:
        """Whether a look ahead has a transaction that is itself beyond the bounds, and so is alone in it."""
        return run[0].byte_count > self._reach.bytes

    def read_on(self, reached: GtidSet) -> list[Transaction]:
        """Return what has arrived behind ``reached``, and do not keep it; perhaps nothing.

        That is the position behind all that is kept, or behind that and what was read on since. Nothing comes any more
        once a schema change or the stop position has come.
        """
        items: Sequence[SourceItem] = ()
        if not self._is_torn:
            items = self._tear()
            self._reached = reached
        elif self._reached != reached:  # another run was read on: what it had is missing in this one
            self._reopen(reached)
        if not items and not self._has_ended:
            items = self._poll_on(reached)
        found: list[Transaction] = []
        for item in self._cut_on(items, reached):
            if isinstance(item, Heartbeat):
                continue
            following = self._without_needless_bar(item)
            if isinstance(following, SchemaChange):
                self._has_ended = True
                break
            found.append(following)
        if self._reached is not None:
            self._reached = reached.advanced(gtids_of(found))
        return found

    def _cut_on(self, items: Sequence[SourceItem], reached: GtidSet) -> Sequence[SourceItem]:
        """Return what of ``items``, which follow ``reached``, is not behind the stop position."""
        if self._stop_position is None:
            return items
        kept, missing = self._stop_position.cut(items, self._stop_position.missing(reached))
        if not missing:
            self._has_ended = True
        return kept

    def _tear(self) -> list[Transaction | SchemaChange]:
        """Return what has arrived beyond what is kept, and keep it no more."""
        kept = len(self._first(self._reach.transactions))
        beyond = list(islice(self.items, kept, None))
        while len(self.items) > kept:
            self.items.pop()
        self._is_torn = True
        return beyond

    def _poll_on(self, reached: GtidSet) -> Sequence[SourceItem]:
        if self._reached is None:
            return ()
        try:
            return self._source.poll()
        except SourceLost:
            self._reopen(reached)
        except VmergeError as error:
            self._note(error)
        return ()

    def _reopen(self, reached: GtidSet) -> None:
        """Let the source go on behind ``reached``. While it is not back nothing more comes."""
        self._reached, self._has_ended = None, False
        if self._opens(reached):
            self._reached = reached

    def _opens(self, position: GtidSet) -> bool:
        """Open the source behind a position; return whether that came true. Else what has arrived has to do for now."""
        try:
            self._source.open(position)
        except VmergeError as error:
            self._note(error)
            return False
        self.failure = None
        return True

    def _note(self, error: VmergeError) -> None:
        """Take note of what ends the look ahead.

        What cannot be read keeps back nothing before it: ``read`` says so again once all of that is done. But where
        there is no room for what follows, no more can be tried to end a conflict, and making room is another's work.
        """
        if isinstance(error, SpoolFailed):
            raise error
        if error.verdict is not Verdict.TRANSIENT:
            self.failure = error.with_traceback(None)  # its frames would keep what has arrived

    def _poll(self, position: GtidSet) -> None:
        """Take what has arrived. A source that is lost while the stream is blocked is opened again behind what it gave.

        A restart would do that too, but forget for how long the stream is blocked already.
        """
        try:
            self._take(self._source.poll())
        except SourceLost:
            self._opens(position.advanced(self._gtids()))
        except VmergeError as error:
            self._note(error)

    def _gtids(self) -> list[Gtid]:
        changes = [item.gtid for item in self.items if isinstance(item, SchemaChange)]
        return changes + gtids_of([item for item in self.items if isinstance(item, Transaction)])


def _bytes_of(items: Iterable[Transaction | SchemaChange]) -> int:
    """Return how many bytes of row images items hold."""
    return sum(item.byte_count for item in items if isinstance(item, Transaction))
