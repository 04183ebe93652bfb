"""What the supervisor needs of others, and what it keeps of each stream.

Knows: the parts of a stream by protocol (``assembly.py`` makes the real ones), its thread and its restarts. Never
knows: when a stream is started or stopped. Used by the supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vmerge.core.log_entry import LogEntry, StoredEntry
from vmerge.core.ownership import Claim
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.source_facts import SourceFacts
from vmerge.core.states import StreamState
from vmerge.errors import Fenced
from vmerge.player.board import Board
from vmerge.player.player import Player
from vmerge.stopping import StopToken

NOWHERE = GtidSet()
"""Where a stream stops that is not ordered to stop anywhere."""

TOLD_AGAIN_SECONDS = 60.0
"""A restart's cause that repeats is logged at most this often."""


POSITION_CHARACTERS = 200
"""Of a GTID set in a line of the log."""


def shown_position(position: GtidSet) -> str:
    """Return a position for a line of the log; old clusters have GTID sets of any length."""
    return str(position)[:POSITION_CHARACTERS] or "nothing"


class StreamParts(Protocol):
    """A player and the handles that end its calls from outside."""

    @property
    def player(self) -> Player:
        """The player, owned by the stream's thread."""

    def interrupt_source(self) -> None:
        """Break a read that hangs, of the binlog or for evidence."""

    def kill_target_query(self) -> None:
        """Ask the target, over a side connection, to end the running statement."""

    def interrupt_target(self) -> None:
        """Shut the target's socket."""


class Stored(Protocol):
    """What is known of a stream from earlier runs."""

    @property
    def position(self) -> GtidSet: ...
    @property
    def state(self) -> StreamState: ...
    @property
    def message(self) -> str: ...
    @property
    def applied_at(self) -> float | None: ...
    @property
    def stops_at(self) -> GtidSet: ...


class Assembly(Protocol):
    """Makes the parts of one workflow's streams, and keeps their states.

    Once another daemon has taken a stream over, ``find`` and ``write`` with an earlier claim raise ``Fenced``, and so
    does the player's opening.
    """

    def for_one_order(self) -> Assembly:
        """Return the same for one order to start a stream: ``interrupt`` ends that order's calls alone."""

    def interrupt(self) -> None:
        """End every call, present or future, with an error, for good; but none of the players that were built."""

    def claim(self, stream: str) -> Claim:
        """Look at a stream for the first time after an order to start it."""

    def find(self, claim: Claim) -> Stored | None:
        """Return what is stored of a stream; None when it was never started."""

    def enter(self, claim: Claim) -> None:
        """Examine the workflow and enter a new stream with its start position."""

    def write(self, claim: Claim, state: StreamState, message: str, stops_at: GtidSet | None = None) -> None:
        """Store a state durably, and where the stream shall stop: None leaves that, the empty set is nowhere."""

    def require_reachable(self, stream: str, stops_at: GtidSet) -> None:
        """Raise ``OrderRefused`` when a stream has passed a position, or its source can never bring it there."""

    def skip(self, claim: Claim, gtid: Gtid, reason: str) -> GtidSet:
        """Move a checkpoint past the next transaction, which must be this one, and return where it is then."""

    def append_conflicts(self, entries: Sequence[LogEntry], now: float) -> None:
        """Add entries to the log; ``now`` is the instant on the clock that their times are of."""

    def read_log(self, streams: Sequence[str], limit: int) -> Sequence[StoredEntry]:
        """Return the last entries of the log about some streams, the oldest first."""

    def ask_source(self, stream: str) -> SourceFacts:
        """Ask a stream's source what it says of itself, over a connection of its own; blocks for seconds at most."""

    def build(
        self,
        claim: Claim,
        board: Board,
        *,
        after_conflict: bool,
        accepted_schema_changes: frozenset[Gtid],
        stops_at: GtidSet = NOWHERE,
    ) -> StreamParts:
        """Make a player whose connections are still closed; reads schemas, so it may block and raise."""


class Gate(Protocol):
    """Whether this process may run the workflow; see ``tenure.py``."""

    def enter(self, stop: StopToken, waits: Callable[[str, bool], None]) -> None:
        """Return once it may, or when told to stop; ``waits`` is told what is waited for, and whether all is well."""

    def keep(self, stop: StopToken, on_lost: Callable[[], None]) -> None:
        """See that it may until told to stop; ``on_lost`` is called when it may no longer."""

    def interrupt(self) -> None:
        """End what ``keep`` waits for, from another thread."""

    def close(self) -> None:
        """Let others run the workflow, when ``keep`` has ended."""

    @property
    def refusal(self) -> Fenced | None:
        """Why it may not, if another process runs the workflow and is not waited for."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a stream is told when it is started."""

    resumes: bool = False
    """Whether a durable state other than running is to be overridden: an operator said start."""
    accepted_schema_changes: frozenset[Gtid] = frozenset()
    stops_at: GtidSet | None = None
    """Where it shall stop, ``NOWHERE`` if it shall not; None: as it is stored."""


class Hosted:
    """One start of a stream: its thread, what it was told, and what it found.

    Owner: the stream's orders; while the thread runs, it sets ``parts`` and what it finds.
    """

    def __init__(self, name: str, assembly: Assembly, order: Order) -> None:
        """``assembly`` is the workflow's."""
        self.name = name
        self.assembly = assembly.for_one_order()
        """For what comes before there is a player: a stop ends it at once."""
        self.last_words = assembly.for_one_order()
        """For storing why the stream failed: a stop gives it time."""
        self.stop = StopToken()
        self.thread: threading.Thread | None = None
        self.parts: StreamParts | None = None
        self.order = order
        """What of it is not yet stored."""
        self.stops_at = order.stops_at
        """None while it is not known."""
        self.stays = False
        """Whether its thread has found that the stream is not to run, and is about to end."""
        self.is_entered: bool | None = None
        """Whether the target has a row for the stream, where a state can be stored; None while that is not known."""
        self._claim: Claim | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self.thread is not None and self.thread.is_alive()

    def claim_by(self, assembly: Assembly) -> Claim:
        """Return what this order goes by, over all its restarts: who took the stream meanwhile is to keep it.

        The first look at the stream is by this assembly.
        """
        if self._claim is None:
            self._claim = assembly.claim(self.name)
        return self._claim


@dataclass
class Restarts:
    """What one run of a stream's thread remembers from player to player."""

    attempt: int = 0
    position: GtidSet = field(default_factory=GtidSet)
    after_conflict: bool = False

    def learn(self, player: Player | None) -> None:
        """Take over what an ended player knew; attempts count anew once the position has moved."""
        self.attempt += 1
        if player is None:
            return
        self.after_conflict = player.has_conflict
        if not player.position.is_empty() and player.position != self.position:
            self.position = player.position
            self.attempt = 1
