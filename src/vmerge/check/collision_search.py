"""Looks for rows of several shards that hold one unique key now.

Knows: how much is compared, in which order, and when a match counts. Never knows: SQL. Used by ``checking.py``.

Each key's values of one shard are read in pages and looked up at the sibling shards, so each two shards meet once.
Shards live: a row that moves is for a moment in both, or was seen in one and then in the other. So a match is a pair
only when both rows are seen again, with the same primary keys and one key, some seconds after they were seen first.

Memory is bounded: by a page, by the matches that wait to be seen again, and by the pairs that are kept for display.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmerge.core.collisions import CollisionMode, CollisionReport, Comparison, KeyOutcome, Meeting, Pair, Uncompared
from vmerge.core.rules import TableName
from vmerge.mysql.collisions import KeyRow, NotCompared, Order, Shard, ShardKey, ShardLost, Texts
from vmerge.stopping import Clock, StopToken

PAGE_ROWS = 1000
"""One look-up of so many keys takes some milliseconds; more gains nothing."""

PREFIX_PAGE_ROWS = 10_000
"""Where no index serves, each page costs one reading of the sibling's table: few large ones."""

SAMPLE_ROWS = 1000
"""Keys from each end: the ends are where shards that count meet first, and reading them costs one page each."""

SAMPLE_SECONDS = 60.0
"""A check before a start may take so long; many tables and slow servers must not make it last."""

SAMPLE_STATEMENT_SECONDS = 5.0
"""An indexed look-up takes milliseconds: only one that reads a whole large table lasts."""

STATEMENT_SECONDS = 3600.0
"""A bound for what is left behind on a server when nobody can end it any more."""

SEEN_AGAIN_AFTER_SECONDS = 2.0
"""Longer than an application takes to move a row from shard to shard, which it does in one request as a rule."""

WAITING_MATCHES = 1000
"""Matches that are kept until they can be seen again."""

_OVER = f"the sample's {SAMPLE_SECONDS:g} s were over"


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a search is, for display."""

    table: TableName
    key: str
    number: int
    """Of the key, from 1."""
    keys: int
    rows: int
    """Values of this key that were looked up so far."""
    expected_rows: int | None
    """About how many there will be; None when nobody knows."""

    def __str__(self) -> str:
        of = f" of about {max(self.expected_rows, self.rows)}" if self.expected_rows is not None else ""
        return f"key {self.number} of {self.keys}: {'.'.join(self.table)}, {self.key}: {self.rows}{of} values looked up"


@dataclass(frozen=True, slots=True)
class _Match:
    """Two rows that were seen once."""

    outcome: KeyOutcome
    meeting: Meeting
    ours: ShardKey
    theirs: ShardKey
    primary_keys: tuple[Texts, Texts]


class CollisionSearch:
    """One search. Use it as a context manager: at its end all connections are closed.

    ``report`` holds what was found so far, also after ``run`` was broken off. Owner: one thread.
    """

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        uncompared: Sequence[Uncompared],
        shards: Mapping[str, Shard],
        *,
        mode: CollisionMode,
        clock: Clock,
        stop: StopToken,
    ) -> None:
        self._comparisons = comparisons if mode is not CollisionMode.NONE else ()
        self._shards = shards
        self._mode = mode
        self._clock = clock
        self._stop = stop
        self._until = clock.monotonic() + SAMPLE_SECONDS
        self._matches: list[_Match] = []
        self._matched: set[tuple[str, str, Texts, Texts]] = set()
        """What was matched of the key under way, by streams and primary keys: a row that moves may come twice."""
        self._matched_at = clock.monotonic()
        self.report = CollisionReport(mode, uncompared=[*uncompared] if mode is not CollisionMode.NONE else [])

    def run(self) -> Iterator[Progress]:
        """Search, and tell after each page how far it is. Whoever iterates may stop at any time."""
        for number, comparison in enumerate(self._comparisons, 1):
            if self._is_over():
                self._leave_out(comparison, [side.stream for side in comparison.sides], _OVER)
                continue
            outcome = KeyOutcome(comparison)
            self.report.outcomes.append(outcome)
            self._matched.clear()
            progress = Progress(comparison.table, comparison.key.name, number, len(self._comparisons), 0, None)
            for rows, expected in self._compare(outcome):
                yield replace(progress, rows=rows, expected_rows=expected)
        self._see_again()

    def _compare(self, outcome: KeyOutcome) -> Iterator[tuple[int, int | None]]:
        """Compare one key of all shards; yield how many values were looked up, and how many there will be."""
        keys = self._open(outcome.comparison)
        expected = self._expect(outcome.comparison, keys)
        outcome.is_whole = len(keys) == len(outcome.comparison.sides)
        yield 0, expected
        for index, ours in enumerate(keys[:-1]):
            for _ in self._look_up_all(outcome, ours, keys[index + 1 :]):
                yield sum(outcome.rows.values()), expected

    def _open(self, comparison: Comparison) -> list[ShardKey]:
        keys = []
        for side in comparison.sides:
            try:
                keys.append(ShardKey(self._shards[side.stream], side))
            except (NotCompared, ShardLost) as failure:
                self._leave_out(comparison, [side.stream], str(failure))
        return keys

    def _expect(self, comparison: Comparison, keys: Sequence[ShardKey]) -> int | None:
        if self._mode is not CollisionMode.COMPLETE:
            return None
        streams = {key.stream for key in keys[:-1]}
        try:
            counts = [
                self._shards[side.stream].estimate(side.source) for side in comparison.sides if side.stream in streams
            ]
        except (NotCompared, ShardLost):
            return None  # the look-ups meet it, too, and tell
        return sum(count or 0 for count in counts)

    def _look_up_all(self, outcome: KeyOutcome, ours: ShardKey, siblings: Sequence[ShardKey]) -> Iterator[None]:
        """Look the keys of one shard up at its siblings, page by page."""
        left = list(siblings)
        outcome.rows[ours.stream] = 0
        try:
            for page in self._pages(outcome, ours):
                for theirs in tuple(left):
                    if not self._look_up(outcome, ours, theirs, page):
                        left.remove(theirs)
                outcome.rows[ours.stream] += len(page)
                if len(self._matches) >= WAITING_MATCHES:
                    self._see_again()
                yield
                if not left:
                    return
        except (NotCompared, ShardLost) as failure:
            outcome.is_whole = False
            self._leave_out(outcome.comparison, [ours.stream, *(key.stream for key in left)], str(failure))

    def _pages(self, outcome: KeyOutcome, ours: ShardKey) -> Iterator[list[KeyRow]]:
        if self._mode is CollisionMode.SAMPLE:
            yield from self._sample(outcome, ours)
            return
        limit = PAGE_ROWS if ours.is_indexed else PREFIX_PAGE_ROWS
        page = ours.page(Order.FIRST, limit)
        while page:
            yield page
            page = ours.page(Order.FIRST, limit, beyond=page[-1]) if len(page) == limit else []

    def _sample(self, outcome: KeyOutcome, ours: ShardKey) -> Iterator[list[KeyRow]]:
        """Yield both ends of a key."""
        first = ours.page(Order.FIRST, SAMPLE_ROWS)
        if first:
            yield first
        if len(first) < SAMPLE_ROWS:
            return
        last = ours.page(Order.LAST, SAMPLE_ROWS, beyond=first[-1])
        if len(last) == SAMPLE_ROWS:
            outcome.is_whole = False
        if last:
            yield last

    def _look_up(self, outcome: KeyOutcome, ours: ShardKey, theirs: ShardKey, page: Sequence[KeyRow]) -> bool:
        """Look one page up at one sibling; return whether it is worth going on with that sibling."""
        streams = ours.stream, theirs.stream
        meeting = outcome.meetings.setdefault(streams, Meeting(streams))
        reason = _OVER if self._is_over() else ""
        if not reason and meeting.is_counted:
            try:
                for held in theirs.holders([row.key for row in page]):
                    self._match(outcome, meeting, ours, theirs, held, page)
            except (NotCompared, ShardLost) as failure:
                reason = str(failure)
        if reason:
            self._leave_out(outcome.comparison, streams, reason)
        if reason or not meeting.is_counted:
            outcome.is_whole = False
            return False
        return True

    def _match(
        self,
        outcome: KeyOutcome,
        meeting: Meeting,
        ours: ShardKey,
        theirs: ShardKey,
        held: KeyRow,
        page: Sequence[KeyRow],
    ) -> None:
        """Find our row of a key that a sibling holds, too; it may have gone by now."""
        row = ours.holder(held.key, among=page)
        if row is None:
            return
        known = (*meeting.streams, row.primary_key, held.primary_key)
        if known in self._matched:
            return
        self._matched.add(known)
        self._matches.append(_Match(outcome, meeting, ours, theirs, (row.primary_key, held.primary_key)))
        self._matched_at = self._clock.monotonic()
        self.report.unconfirmed = len(self._matches)

    def _see_again(self) -> None:
        """Count the matches that are still there, after a while."""
        if not self._matches:
            return
        self._stop.wait(self._matched_at + SEEN_AGAIN_AFTER_SECONDS - self._clock.monotonic())
        matches, self._matches = self._matches, []
        self.report.unconfirmed = 0
        for match in matches:
            if not match.meeting.is_counted:
                continue
            try:
                pair = _pair(match)
            except (NotCompared, ShardLost) as failure:
                match.outcome.is_whole = False
                self._leave_out(match.outcome.comparison, match.meeting.streams, str(failure))
                continue
            if pair is not None:
                match.meeting.add(pair)

    def _is_over(self) -> bool:
        return self._mode is CollisionMode.SAMPLE and self._clock.monotonic() > self._until

    def _leave_out(self, comparison: Comparison, streams: Sequence[str], reason: str) -> None:
        one = Uncompared(comparison.table, comparison.key.name, tuple(streams), reason)
        if one not in self.report.uncompared[-1:]:
            self.report.uncompared.append(one)


def _pair(match: _Match) -> Pair | None:
    """Read both rows; None when one has gone, or they hold one key no more."""
    ours = match.ours.again(match.primary_keys[0])
    if ours is None:
        return None
    theirs = match.theirs.again(match.primary_keys[1], ours.key)
    if theirs is None:
        return None
    return Pair((ours.shown_primary_key, theirs.shown_primary_key), (ours.shown_key, theirs.shown_key))
