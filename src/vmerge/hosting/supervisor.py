"""One workflow: the only creator of player threads.

Knows: when a player is started, restarted or stopped, and how long a stop may take. Never knows: rows, conflicts or
SQL. Used by the daemon and by ``vmerge run``.

Stops
-----
How threads are ended within the bound: ``ending.py``. A state is stored on the target only after its thread has ended:
the durable state comes first, then board and log. Storing it has a share of the bound, too.

Orders
------
Starts and stops of one stream come one after the other (``_orders``), so that a start during a stop waits for the
stop's end. Nobody joins a thread while holding the lock of the table of streams. The end of the process waits for no
order: it closes the table, after which nothing starts any more.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from vmerge.core.log_entry import StoredEntry
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.errors import (
    DaemonError,
    Fenced,
    OrderRefused,
    StopTimeout,
    TargetError,
    VmergeError,
)
from vmerge.hosting.ending import STORE_SHARE, Ending
from vmerge.hosting.gatekeeper import GateKeeper
from vmerge.hosting.hosted import (
    NOWHERE,
    Assembly,
    Gate,
    Hosted,
    Order,
)
from vmerge.hosting.source_watch import SourceWatch
from vmerge.hosting.stream_runner import StreamRunner
from vmerge.player.board import Board
from vmerge.player.pauses import restart_pause
from vmerge.stopping import Clock, StopToken

logger = logging.getLogger(__name__)

AS_STORED = Order()
"""The order of a daemon that starts: streams do what was stored of them."""

_BY_OPERATOR = "stopped by an operator"


class Supervisor:
    """Runs the streams of one workflow.

    Promise: each stream has at most one thread; whoever asks for a stop gets it within the bound or an error that names
    what hung. Any thread may call.
    """

    def __init__(
        self,
        workflow: str,
        streams: Iterable[str],
        assembly: Assembly,
        gate: Gate,
        *,
        clock: Clock,
        stop_timeout_seconds: float,
        pause: Callable[[int], float] = restart_pause,
    ) -> None:
        self.workflow = workflow
        self.stop_timeout_seconds = stop_timeout_seconds
        self._assembly = assembly
        self._gate = gate
        self._clock = clock
        self._lock = threading.Lock()
        names = tuple(streams)
        self.board = Board(names)
        self._runner = StreamRunner(workflow, self.board, gate, self._lock, clock=clock, pause=pause)
        self._ending = Ending(workflow, self.board, clock, stop_timeout_seconds)
        self._hosted = {name: Hosted(name, assembly, AS_STORED) for name in names}
        self._orders = {name: threading.Lock() for name in names}
        self._is_closed = False
        self._late: threading.Thread | None = None
        """Stores a state that a stop could not wait for."""
        self._gate_keeper = GateKeeper(workflow, gate)
        self._aside_stop = StopToken()
        """Ends the threads that are nobody's stream."""
        self._log_keeper: threading.Thread | None = None

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams, in the order of the workflow."""
        return tuple(self._hosted)

    def failures(self) -> dict[str, VmergeError]:
        """Return why streams are in error, by their names."""
        with self._lock:
            failures = self._runner.failures
            return {name: failures[name] for name in self._hosted if name in failures}

    def is_alive(self) -> bool:
        """Whether any stream's thread runs."""
        with self._lock:
            return any(hosted.is_alive for hosted in self._hosted.values())

    def start(self, streams: Sequence[str] | None = None, order: Order = AS_STORED) -> tuple[str, ...]:
        """Start threads of these streams, or all; return the names of the started.

        Those that run are left alone, but for one that is ordered to stop somewhere else than ``order`` says: it
        begins anew.

        Raises:
            DaemonError: the process is ending, or a stream hangs in a stop that was too long.
            OrderRefused: a stream cannot stop where it shall.
        """
        with self._ordered(streams) as names:
            if order.stops_at:
                for name in names:
                    self._assembly.require_reachable(name, order.stops_at)
            self._end([name for name in names if self._stops_elsewhere(name, order)])
            return self._start(names, order)

    def _stops_elsewhere(self, name: str, order: Order) -> bool:
        hosted = self._hosted[name]
        return order.stops_at is not None and hosted.is_alive and hosted.stops_at != order.stops_at

    def _start(self, names: Iterable[str], order: Order) -> tuple[str, ...]:
        self._gate_keeper.begin(self._surrender)
        self._begin_aside()
        if self._late is not None:
            # Its word must not come behind ours.
            self._late.join(self.stop_timeout_seconds * STORE_SHARE)
            if self._late.is_alive():
                raise DaemonError(
                    "the target has not yet stored that the streams were stopped", hint="Start them in a moment."
                )
        return tuple(name for name in names if self._start_one(name, order))

    def _start_one(self, name: str, order: Order) -> bool:
        before = self._hosted[name]
        if before.stays and before.thread is not None:
            before.thread.join()  # it does nothing any more
        with self._lock:
            if self._is_closed:
                raise DaemonError("nothing is started any more: the process is ending", hint="Start a new one.")
            if before.is_alive and not before.stays:
                if before.stop.is_set():
                    raise DaemonError(f"stream {name} is still stopping", hint="Start it when it has ended.")
                if order.resumes:  # it may not have looked at the stored state yet
                    accepted = before.order.accepted_schema_changes | order.accepted_schema_changes
                    before.order = replace(before.order, resumes=True, accepted_schema_changes=accepted)
                return False
            hosted = self._hosted[name] = Hosted(name, self._assembly, order)
            self._runner.failures.pop(name, None)
            self.board.lines(name).clear()
            self.board.update(
                name, state=StreamState.RUNNING, phase=Phase.CONNECTING, message="", blocked=None, is_at_head=False
            )
            hosted.thread = threading.Thread(
                target=self._runner.run, args=(hosted,), name=f"player:{self.workflow}/{name}"
            )
            hosted.thread.start()
        return True

    def stop(self, streams: Sequence[str] | None = None) -> tuple[str, ...]:
        """Stop streams for good: they stay stopped when the daemon starts again. Return the names of the stopped.

        A stream that is in error stays so: nothing runs in it, and its reason is worth keeping.

        Raises:
            StopTimeout: a thread did not end within the bound.
            TargetError: the threads ended, but the state could not be stored.
            Fenced: likewise, for good: another daemon has taken a stream over, and its state is that daemon's.
        """
        with self._ordered(streams) as names:
            self._end(names)
            ended = tuple(name for name in names if self.board.progress(name).state is StreamState.RUNNING)
            self._within_bound(lambda: self._store_stopped(ended))
            return ended

    def stop_at(self, stream: str, stops_at: GtidSet) -> None:
        """Let a stream that runs go on until it has applied all of ``stops_at``, and stop there by itself.

        It begins anew for that, so that nothing is under way that would pass the position.

        Raises:
            OrderRefused: it does not run, has passed that, or can never come there; it goes on as it was.
            StopTimeout: its thread did not end within the bound.
            TargetError, SourceError: the order could not be examined or stored; the stream goes on as it was.
        """
        with self._ordered([stream]) as names:
            hosted = self._hosted[stream]
            self._require_running(stream)
            self._assembly.require_reachable(stream, stops_at)  # an order that is wrong shall interrupt nothing
            self._end(names)
            self._require_running(stream)
            try:
                self._assembly.require_reachable(stream, stops_at)  # from where it stands now
                self._assembly.write(hosted.claim_by(self._assembly), StreamState.RUNNING, "", stops_at)
            except Fenced as error:
                self._runner.fail(hosted, error)
                raise
            except VmergeError:
                self._start(names, AS_STORED)
                raise
            self._start(names, AS_STORED)

    def _require_running(self, stream: str) -> None:
        if self.board.progress(stream).state is not StreamState.RUNNING:
            raise OrderRefused(
                f"stream {stream} does not run",
                hint="To start it up to a position: `vmerge start WORKFLOW STREAM --stop-at GTID-SET`.",
            )

    def skip(self, stream: str, gtid: Gtid, reason: str) -> GtidSet:
        """Move a stream that stands still past its next transaction, which must be this one; return its position.

        Raises:
            OrderRefused: it runs, or another transaction is next; nothing was changed.
            Fenced: another daemon has it.
            TargetError, SourceError: a server cannot be asked.
        """
        with self._ordered([stream]):
            hosted = self._hosted[stream]
            if hosted.is_alive:
                raise OrderRefused(
                    f"stream {stream} runs, so nothing of it is skipped", hint="Stop it first: `vmerge stop`."
                )
            position = self._assembly.skip(hosted.claim_by(self._assembly), gtid, reason)
            self.board.update(stream, applied=position)
            logger.warning("skipped transaction %s: %s", gtid, reason, extra=self._runner.about(stream))
            return position

    def restart(self, streams: Sequence[str] | None = None) -> tuple[str, ...]:
        """End threads of streams and start others, also of stopped and failed streams; return their names.

        Nothing is stored in between: whatever happens to this process, what ran runs on with the next one.

        Raises:
            StopTimeout: a thread did not end within the bound; the others run again.
            DaemonError: the process is ending.
        """
        with self._ordered(streams) as names:
            try:
                self._end(names)
            finally:
                ended = [name for name in names if not self._hosted[name].is_alive]
                started = self._start(ended, Order(resumes=True))
            return started

    def reread_quarantine(self, stream: str) -> None:
        """Let a stream know that an operator has settled a row of its quarantine."""
        with self._lock:
            parts = self._hosted[stream].parts if stream in self._hosted else None
        if parts is not None:
            parts.player.reread_quarantine()

    def shut_down(self) -> None:
        """End all threads, for good: nothing can be started any more. The durable states stay as they are.

        Raises:
            StopTimeout: a thread did not end within the bound.
        """
        try:
            self._end_all()
        finally:
            self._gate_keeper.let_go(self.stop_timeout_seconds * STORE_SHARE / 2)

    def hand_over(self) -> None:
        """As ``shut_down``, but others are kept from the workflow: the gate goes on with a successor.

        Raises:
            StopTimeout: a thread did not end within the bound.
        """
        try:
            self._end_all()
        finally:
            self._gate_keeper.hand_over(self.stop_timeout_seconds * STORE_SHARE / 2)

    def _end_all(self) -> None:
        with self._lock:
            self._is_closed = True
        self._end(self.streams)
        self._aside_stop.set()
        if self._log_keeper is not None:
            # What is left of the log is worth the time that storing states may take, which it shares with the gate.
            self._log_keeper.join(self.stop_timeout_seconds * STORE_SHARE / 2)

    # The gate

    def _surrender(self) -> None:
        """End all streams, as another daemon runs them: for good, or until its end, in threads that wait for it."""
        refusal = self._gate.refusal
        with self._ordered(None) as names:
            try:
                self._end(names)
            except StopTimeout as error:
                logger.warning("%s", error.message)
            if refusal is None:
                with contextlib.suppress(DaemonError):  # the process is ending
                    self._start([name for name in names if not self._hosted[name].is_alive], AS_STORED)
                return
            for name in names:
                if self.board.progress(name).state is StreamState.RUNNING:
                    self._runner.fail(self._hosted[name], refusal)

    # Beside the streams

    def _begin_aside(self) -> None:
        """Start what is nobody's stream, once: who writes the board's journal into the log, and who asks sources."""
        with self._lock:
            if self._log_keeper is not None or self._is_closed:
                return
            self._log_keeper = self._aside("log", self._keep_log)
            self._aside("watch", self._watch_sources)

    def _keep_log(self) -> None:
        self.board.journal.keep(self._assembly.append_conflicts, self._clock, self._aside_stop)

    def _watch_sources(self) -> None:
        SourceWatch(self.workflow, self._assembly, self.board, self._clock).run(self._aside_stop)

    def _aside(self, name: str, work: Callable[[], None]) -> threading.Thread:
        # A daemon thread: neither a log nor a figure is worth a process that does not end.
        thread = threading.Thread(target=work, name=f"{name}:{self.workflow}", daemon=True)
        thread.start()
        return thread

    def read_log(self, streams: Sequence[str] | None, limit: int) -> Sequence[StoredEntry]:
        """Return the last entries of the log about streams, or all, the oldest first.

        Raises:
            TargetError: the target cannot be reached, or has no log.
        """
        return self._assembly.read_log(self.streams if streams is None else streams, limit)

    @contextlib.contextmanager
    def _ordered(self, streams: Sequence[str] | None) -> Iterator[tuple[str, ...]]:
        """Keep other orders to these streams off, always in the same order of streams."""
        names = tuple(name for name in self._hosted if streams is None or name in streams)
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(self._orders[name])
            yield names

    # Ending threads

    def _end(self, names: Sequence[str]) -> None:
        with self._lock:
            hosted = [self._hosted[name] for name in names]
        self._ending.end(hosted)

    def _within_bound(self, action: Callable[[], None]) -> None:
        """Do something that may hang; after its share of the bound it is left to itself, and may still come true."""
        outcome: list[VmergeError] = []

        def run() -> None:
            try:
                action()
            except VmergeError as error:
                outcome.append(error)

        thread = threading.Thread(target=run, name=f"storing:{self.workflow}", daemon=True)
        thread.start()
        thread.join(self.stop_timeout_seconds * STORE_SHARE)
        if thread.is_alive():
            self._late = thread
            outcome.append(TargetError("the target has not answered yet"))
        if outcome and isinstance(outcome[0], Fenced):
            raise outcome[0]
        if outcome:
            raise TargetError(
                f"the streams have ended, but that they are stopped could not be stored: {outcome[0].message}",
                hint="Stop them again when the target answers; or they run again with the next daemon.",
            ) from outcome[0]

    def _store_stopped(self, names: Iterable[str]) -> None:
        fenced: list[Fenced] = []
        for name in names:
            hosted = self._hosted[name]
            try:
                claim = hosted.claim_by(self._assembly)
                if hosted.is_entered is None:
                    hosted.is_entered = self._assembly.find(claim) is not None
                if hosted.is_entered:
                    self._assembly.write(claim, StreamState.STOPPED, _BY_OPERATOR, NOWHERE)
            except Fenced as error:
                fenced.append(error)
                self._runner.fail(hosted, error)
                continue
            self.board.update(name, state=StreamState.STOPPED, message=_BY_OPERATOR, stops_at=NOWHERE)
            logger.info("%s", _BY_OPERATOR, extra=self._runner.about(name))
        if fenced:
            raise Fenced(
                f"the streams have ended, but {'; '.join(error.message for error in fenced)}",
                hint="Stop them there, if they are to stay stopped.",
            ) from fenced[0]
