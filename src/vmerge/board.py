"""What sibling players publish and read: the only state that players share.

Knows: each stream's position, phase and waits. Never knows: rows, servers, or what a player will do. One lock, one
condition. Used by the players (each publishes its own stream, reads the others) and by the status (reads all).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from vmerge.core.conflict import Siblings
from vmerge.core.position import GtidSet
from vmerge.core.states import Phase, StreamState, is_free
from vmerge.stopping import StopToken


@dataclass(frozen=True, slots=True)
class Counters:
    """What a stream has done since its daemon started."""

    transactions: int = 0
    batches: int = 0
    rows_bytes: int = 0
    flushes: int = 0
    splits: int = 0
    waits: int = 0
    jumps: int = 0
    lock_conflicts: int = 0
    restarts: int = 0
    blocked_seconds: float = 0.0
    """Ended waits only; see ``Blocked`` for the one under way."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The wait a stream is in."""

    since: float
    """Monotonic."""
    attempts: int
    gtid: str
    key: str
    unfree: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """One stream as its siblings and its operator see it."""

    name: str
    state: StreamState = StreamState.STOPPED
    phase: Phase = Phase.IDLE
    message: str = ""
    applied: GtidSet = field(default_factory=GtidSet)
    applied_at: float | None = None
    """The source's commit time of the last applied transaction, seconds since 1970."""
    is_at_head: bool = False
    """The source had nothing more when it last said so, and all of it is applied."""
    blocked: Blocked | None = None
    batch_limit: int = 0
    counters: Counters = field(default_factory=Counters)


class Board:
    """Progress of all streams of one workflow.

    Promise: a commit that was published is seen by every snapshot taken after it, and wakes every sibling that waits.
    Invariant: ``version`` of a stream grows whenever transactions of it were committed. Any thread may read; only
    a stream's owner (its player while it runs, else the supervisor) changes it. The condition's lock is re-entrant.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._changed = threading.Condition()
        self._streams = {name: StreamProgress(name) for name in names}
        self._versions = dict.fromkeys(self._streams, 0)

    def update(self, name: str, **changes: object) -> StreamProgress:
        """Change some fields of a stream's progress and return it."""
        with self._changed:
            progress = self._streams[name] = replace(self._streams[name], **changes)  # type: ignore[arg-type]  # fields
            return progress

    def commit(self, name: str, **changes: object) -> StreamProgress:
        """Change some fields of a stream whose position moved on the target with rows, and wake its siblings."""
        with self._changed:
            progress = self.update(name, **changes)
            self._versions[name] += 1
            self._changed.notify_all()
            return progress

    def progress(self, name: str) -> StreamProgress:
        """Return one stream's progress."""
        with self._changed:
            return self._streams[name]

    def all_progress(self) -> list[StreamProgress]:
        """Return every stream's progress, in the order of the workflow."""
        with self._changed:
            return list(self._streams.values())

    def siblings_of(self, name: str) -> Siblings:
        """Return the snapshot that decisions of this stream are made on."""
        with self._changed:
            others = [stream for other, stream in self._streams.items() if other != name]
            unfree = tuple(stream.name for stream in others if not is_free(stream.state, stream.phase))
            is_moving = any(_is_moving(stream) for stream in others)
            return Siblings(self._version_of_others(name), len(others), unfree, is_moving)

    def wait_for_siblings(self, name: str, seen_version: int, seconds: float, stop: StopToken) -> bool:
        """Wait until a sibling commits beyond ``seen_version``, a stop, or so long; return whether one did."""
        return stop.wait_for(self._changed, lambda: self._version_of_others(name) != seen_version, seconds)

    def _version_of_others(self, name: str) -> int:
        return sum(version for other, version in self._versions.items() if other != name)


def _is_moving(stream: StreamProgress) -> bool:
    """Whether a stream will commit soon: it is free, not blocked itself, and not known to be at its head."""
    return is_free(stream.state, stream.phase) and stream.blocked is None and not stream.is_at_head
