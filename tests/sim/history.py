"""Histories: what happened at the sources, and an oracle that says which vectors of positions are possible.

Knows: the model of the conflict rules. The target is the union of a prefix of each shard, so a vector of prefix lengths
says everything. Never knows: players, locks or batches; the oracle looks at whole states, where ``SimDatabase`` looks
at entries, so that neither can be wrong in the way of the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product

from tests.sim.rows import Change, Row, RowKey, Table, changed, is_consistent

Work = tuple[Change, ...]
"""What one source transaction does; nothing at all for one that concerns other tables only."""
Vector = tuple[int, ...]
"""How many transactions of each stream are on the target."""


@dataclass(frozen=True)
class History:
    """What each shard has in the beginning and did then, each in its own order."""

    tables: tuple[Table, ...]
    streams: tuple[tuple[Work, ...], ...]
    initial: tuple[Work, ...] = ()
    """The rows of each shard before its first transaction, as inserts; these are on the target already."""
    order: tuple[int, ...] = ()
    """The stream of each transaction in a real order that was legal, if one is known."""
    _states: dict[tuple[int, int], dict[RowKey, Row]] = field(default_factory=dict, compare=False, repr=False)
    _steps: dict[tuple[Vector, int], bool] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def tables_by_name(self) -> Mapping[str, Table]:
        """The tables by their names."""
        return {table.name: table for table in self.tables}

    @property
    def start(self) -> Vector:
        """Nothing is applied."""
        return (0,) * len(self.streams)

    @property
    def end(self) -> Vector:
        """Everything is applied."""
        return tuple(len(stream) for stream in self.streams)

    def shard(self, stream: int, length: int) -> dict[RowKey, Row]:
        """Return one shard's rows after so many transactions. Foreign keys may cross shards and are not looked at."""
        if (stream, length) in self._states:
            return self._states[stream, length]
        if length == 0:
            work = self.initial[stream] if self.initial else ()
            rows: dict[RowKey, Row] = {}
        else:
            work = self.streams[stream][length - 1]
            rows = dict(self.shard(stream, length - 1))
        for change in work:
            _apply_alone(rows, change)
        self._states[stream, length] = rows
        return rows

    def union(self, vector: Vector) -> dict[RowKey, Row] | None:
        """Return the union of the shards at a vector; None if two rows cannot stand side by side."""
        rows: dict[RowKey, Row] = {}
        for stream, length in enumerate(vector):
            shard = self.shard(stream, length)
            if rows.keys() & shard.keys():
                return None
            rows |= shard
        return rows if is_consistent(self.tables_by_name, rows) else None

    def can_step(self, vector: Vector, stream: int) -> bool:
        """Tell whether a stream's next transaction is possible, row by row, on the union at a vector."""
        key = (vector, stream)
        if key not in self._steps:
            self._steps[key] = self._find_whether_can_step(vector, stream)
        return self._steps[key]

    def _find_whether_can_step(self, vector: Vector, stream: int) -> bool:
        if vector[stream] == len(self.streams[stream]):
            return False
        rows = self.union(vector)
        for change in self.streams[stream][vector[stream]]:
            if rows is None:
                return False
            rows = changed(self.tables_by_name, rows, change)
        return rows is not None

    def following(self, vector: Vector) -> Iterator[Vector]:
        """Yield the vectors that one transaction leads to."""
        for stream, length in enumerate(vector):
            if self.can_step(vector, stream):
                yield (*vector[:stream], length + 1, *vector[stream + 1 :])

    def jumps(self, vector: Vector) -> Iterator[Vector]:
        """Yield the vectors that the net effect of some transactions of one stream leads to."""
        for stream, length in enumerate(vector):
            for longer in range(length + 1, len(self.streams[stream]) + 1):
                reached = (*vector[:stream], longer, *vector[stream + 1 :])
                if self.union(reached) is not None:
                    yield reached

    def joints(self, vector: Vector) -> Iterator[Vector]:
        """Yield the vectors that the net effect of several streams together leads to."""
        ranges = [range(now, end + 1) for now, end in zip(vector, self.end, strict=True)]
        for reached in product(*ranges):
            movers = sum(after > before for before, after in zip(vector, reached, strict=True))
            if movers > 1 and self.union(reached) is not None:
                yield reached

    def is_dead(self, vector: Vector) -> bool:
        """Tell whether nothing leads on: no step, no jump, no joint commit, though something is left."""
        ways = chain(self.following(vector), self.jumps(vector), self.joints(vector))
        return vector != self.end and next(ways, None) is None


def _apply_alone(rows: dict[RowKey, Row], change: Change) -> None:
    if change.before is not None:
        assert rows.pop((change.table, change.before[0]), None) == change.before, f"no such row: {change}"
    if change.after is not None:
        key = (change.table, change.after[0])
        assert key not in rows, f"row is there already: {change}"
        rows[key] = change.after


def from_real_order(
    tables: tuple[Table, ...], events: Sequence[tuple[int, Work]], *, streams: int = 2, initial: tuple[Work, ...] = ()
) -> History:
    """Make a history from transactions in their real order; AssertionError if that order breaks a key."""
    works: list[list[Work]] = [[] for _ in range(streams)]
    for stream, work in events:
        works[stream].append(work)
    order = tuple(stream for stream, _ in events)
    history = History(tables, tuple(tuple(stream) for stream in works), initial, order)
    vector = list(history.start)
    for stream, work in events:
        assert history.can_step(tuple(vector), stream), f"not legal at the sources: {work}"
        vector[stream] += 1
    return history
