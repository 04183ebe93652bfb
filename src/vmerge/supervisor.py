"""One workflow: the only creator of player threads.

Knows: when a player is started, restarted or stopped, and how long a stop may take. Never knows: rows, conflicts or
SQL. Used by the daemon and by ``vmerge run``.

The stop order
--------------
A stop ends within ``stop_timeout_seconds`` in every state. Each step gets a share of that time, and the next follows
only when threads are left:

1. The token is set, which ends every wait at once, and reading from the source is broken: both are safe anywhere.
2. A target call that still runs is asked to end with KILL QUERY from a side connection; the player rolls back.
3. The target's socket is shut: the server rolls back, or COMMIT's outcome stays open until the checkpoint is read.
4. What still hangs is named in a ``StopTimeout``; the process may exit, since everything on the target is whole.

A state is stored on the target only after its thread has ended: the durable state comes first, then board and log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from vmerge.board import Board
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.states import Phase, StreamState, may_change
from vmerge.errors import Fenced, StopTimeout, Verdict, VmergeError
from vmerge.pauses import restart_pause
from vmerge.player import Player
from vmerge.stopping import Clock, StopToken

logger = logging.getLogger(__name__)

_GRACE_SHARE, _KILL_SHARE, _SHUT_SHARE = 0.5, 0.2, 0.2
_SHOWN_MESSAGE_SECONDS = 30.0
"""A restart's cause that repeats is logged at most this often."""


class StreamParts(Protocol):
    """A player and the handles that end its calls from outside."""

    @property
    def player(self) -> Player:
        """The player, owned by the stream's thread."""

    def interrupt_source(self) -> None:
        """Break a read that hangs."""

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


class Assembly(Protocol):
    """Makes the parts of one workflow's streams, and keeps their states."""

    def find(self, stream: str) -> Stored | None:
        """Return what is stored of a stream; None when it was never started."""

    def enter(self, stream: str) -> None:
        """Examine the workflow and enter a new stream with its start position."""

    def write(self, stream: str, state: StreamState, message: str) -> None:
        """Store a state durably."""

    def build(
        self, stream: str, board: Board, *, after_conflict: bool, accepted_schema_changes: frozenset[Gtid]
    ) -> StreamParts:
        """Make a player whose connections are still closed; reads schemas, so it may block and raise."""


class _Hosted:
    """One stream's thread and what it was started with. Owner: the supervisor's lock."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stop = StopToken()
        self.thread: threading.Thread | None = None
        self.parts: StreamParts | None = None
        self.resumes = False
        """Whether a durable state other than running is to be overridden: an operator said start."""
        self.accepted_schema_changes: frozenset[Gtid] = frozenset()

    @property
    def is_alive(self) -> bool:
        return self.thread is not None and self.thread.is_alive()


class Supervisor:
    """Runs the streams of one workflow.

    Promise: each stream has at most one thread; whoever asks for a stop gets it within the bound or an error that names
    what hung. Any thread may call.
    """

    def __init__(
        self, workflow: str, streams: Iterable[str], assembly: Assembly, *, clock: Clock, stop_timeout_seconds: float
    ) -> None:
        self.workflow = workflow
        self._assembly = assembly
        self._clock = clock
        self._stop_timeout_seconds = stop_timeout_seconds
        self._lock = threading.Lock()
        names = tuple(streams)
        self.board = Board(names)
        self._hosted = {name: _Hosted(name) for name in names}

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams, in the order of the workflow."""
        return tuple(self._hosted)

    def start(
        self,
        streams: Sequence[str] | None = None,
        *,
        resumes: bool = False,
        accepted_schema_changes: frozenset[Gtid] = frozenset(),
    ) -> None:
        """Start threads of these streams, or all; those that run are left alone.

        ``resumes`` says that an operator wants streams to run that were stopped or failed before.
        """
        with self._lock:
            for name in streams if streams is not None else self.streams:
                if not self._hosted[name].is_alive:
                    self._start_one(name, resumes, accepted_schema_changes)

    def _start_one(self, name: str, resumes: bool, accepted: frozenset[Gtid]) -> None:
        hosted = self._hosted[name] = _Hosted(name)
        hosted.resumes = resumes
        hosted.accepted_schema_changes = accepted
        self.board.update(name, state=StreamState.RUNNING, phase=Phase.CONNECTING, message="", blocked=None)
        hosted.thread = threading.Thread(target=self._host, args=(hosted,), name=f"player:{self.workflow}/{name}")
        hosted.thread.start()

    def stop(self, streams: Sequence[str] | None = None) -> None:
        """Stop streams for good: they stay stopped when the daemon starts again.

        Raises:
            StopTimeout: a thread did not end within the bound.
            TargetError: the threads ended, but the state could not be stored.
        """
        names = tuple(streams) if streams is not None else self.streams
        self.shut_down(names)
        for name in names:
            if may_change(self.board.progress(name).state, StreamState.STOPPED):
                self._assembly.write(name, StreamState.STOPPED, "stopped by an operator")
                self.board.update(name, state=StreamState.STOPPED, phase=Phase.IDLE, message="stopped by an operator")

    def shut_down(self, streams: Sequence[str] | None = None) -> None:
        """End the threads of these streams, or all; their durable states stay as they are.

        Raises:
            StopTimeout: a thread did not end within the bound.
        """
        with self._lock:
            hosted = [self._hosted[name] for name in (streams if streams is not None else self.streams)]
        for one in hosted:
            one.stop.set()
            self._each([one], lambda parts: parts.interrupt_source())
            if one.is_alive:
                self.board.update(one.name, phase=Phase.STOPPING)
        if self._join(hosted, _GRACE_SHARE):
            return
        self._each(hosted, lambda parts: parts.kill_target_query())
        if self._join(hosted, _KILL_SHARE):
            return
        self._each(hosted, lambda parts: parts.interrupt_target())
        if not self._join(hosted, _SHUT_SHARE):
            names = ", ".join(one.name for one in hosted if one.is_alive)
            raise StopTimeout(f"workflow {self.workflow}: did not stop within the bound: {names}")

    def is_alive(self) -> bool:
        """Whether any stream's thread runs."""
        with self._lock:
            return any(hosted.is_alive for hosted in self._hosted.values())

    def _each(self, hosted: Iterable[_Hosted], action: Callable[[StreamParts], None]) -> None:
        for one in hosted:
            parts = one.parts
            if parts is not None and one.is_alive:
                action(parts)

    def _join(self, hosted: Sequence[_Hosted], share: float) -> bool:
        """Wait for threads to end; return whether all did."""
        until = self._clock.monotonic() + self._stop_timeout_seconds * share
        for one in hosted:
            if one.thread is not None:
                one.thread.join(max(0.0, until - self._clock.monotonic()))
        return not any(one.is_alive for one in hosted)

    # In the stream's own thread

    def _host(self, hosted: _Hosted) -> None:
        """Run players until the stream is told to stop or fails for good."""
        attempt = 0
        after_conflict = False
        position = GtidSet()
        while not hosted.stop.is_set():
            try:
                if not self._may_run(hosted):
                    return
                hosted.parts = self._assembly.build(
                    hosted.name,
                    self.board,
                    after_conflict=after_conflict,
                    accepted_schema_changes=hosted.accepted_schema_changes,
                )
                hosted.parts.player.run(hosted.stop)
                return
            except VmergeError as error:
                failure = error
            except Exception as error:
                logger.exception("internal error", extra={"stream": hosted.name})
                failure = VmergeError(f"internal error: {type(error).__name__}: {error}")
            player = hosted.parts.player if hosted.parts is not None else None
            moved = player is not None and player.position != position
            if player is not None:
                after_conflict = player.has_conflict
                position = player.position
            if hosted.stop.is_set():
                return
            if failure.verdict is not Verdict.TRANSIENT:
                self._fail(hosted.name, failure)
                return
            attempt = 1 if moved else attempt + 1
            self._back_off(hosted, failure, attempt)

    def _may_run(self, hosted: _Hosted) -> bool:
        """Look at the durable state, entering the stream if there is none; an operator's start overrides it."""
        stored = self._assembly.find(hosted.name)
        if stored is None:
            self._assembly.enter(hosted.name)
            return True
        if stored.state is StreamState.RUNNING:
            return True
        if hosted.resumes:
            self._assembly.write(hosted.name, StreamState.RUNNING, "")
            hosted.resumes = False
            return True
        self.board.update(
            hosted.name, state=stored.state, phase=Phase.IDLE, message=stored.message, applied=stored.position
        )
        return False

    def _back_off(self, hosted: _Hosted, failure: VmergeError, attempt: int) -> None:
        pause = restart_pause(attempt)
        logger.warning("%s; again in %.1f s", failure.message, pause, extra={"stream": hosted.name})
        progress = self.board.progress(hosted.name)
        counters = replace(progress.counters, restarts=progress.counters.restarts + 1)
        self.board.update(
            hosted.name, phase=Phase.BACKING_OFF, message=failure.message, counters=counters, is_at_head=False
        )
        hosted.stop.wait(pause)

    def _fail(self, name: str, failure: VmergeError) -> None:
        message = f"{failure.message} — {failure.hint}"
        logger.error("%s", message, extra={"stream": name})
        if not isinstance(failure, Fenced):  # the stored state is the new owner's now
            self._store_error(name, message)
        self.board.update(name, state=StreamState.ERROR, phase=Phase.IDLE, message=message)

    def _store_error(self, name: str, message: str) -> None:
        try:
            self._assembly.write(name, StreamState.ERROR, message)
        except VmergeError as error:
            logger.warning("the error state could not be stored: %s", error.message, extra={"stream": name})
