"""The long-lived process: hosts the workflows of a folder.

Knows: signals, the lock of a state folder, and which supervisor runs which workflow. Never knows: players, rows or SQL.
Used by the command line (``vmerge daemon start`` and ``vmerge run``).
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from vmerge import __version__
from vmerge.config import FolderChanges, Workflow, compare_folders, load_folder
from vmerge.errors import ConfigError, DaemonError, StopTimeout, VmergeError
from vmerge.hosting.assembly import WorkflowAssembly
from vmerge.hosting.control import ControlServer, TcpAddress
from vmerge.hosting.feed import Feed
from vmerge.hosting.overview import SAMPLE_SECONDS, LagHistory, overview_snapshot
from vmerge.hosting.quarantine_desk import QuarantineDesk
from vmerge.hosting.service import ServiceManager
from vmerge.hosting.showing import evidence_of_log, lacks_evidence, show_snapshot
from vmerge.hosting.status import Snapshot, workflow_snapshot
from vmerge.hosting.stream_orders import StreamOrders
from vmerge.hosting.supervisor import Supervisor
from vmerge.hosting.tenure import Approach, Tenure
from vmerge.hosting.wiring import make_supervisor, make_tenure
from vmerge.stopping import StopToken, SystemClock

logger = logging.getLogger(__name__)

LOG_NAME = "daemon.log"
FIRST_LOOK_SECONDS = 8.0
"""At the start, to see whether other daemons run the workflows: longer than one that is dead keeps its lock."""
LAST_EVENTS_SECONDS = 1.0
"""For the last events to leave; nobody is waited for, so it takes no time."""
SEARCHED_ENTRIES = 100
"""Of the log, for the conflict that an earlier process met: it was the last thing its stream did."""


@contextmanager
def stop_signals(on_stop: Callable[[], None]) -> Iterator[None]:
    """Call ``on_stop`` on SIGTERM or SIGINT; a second one ends the process at once. Main thread only.

    A signal's handler runs in the main thread between any two of its steps, also where it holds the very lock that
    ``on_stop`` wants to take. So another thread calls it; the signal reaches that thread as a byte.
    """
    receiver, sender = socket.socketpair()
    sender.setblocking(False)

    def handle(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def watch() -> None:
        while number := receiver.recv(1):
            logger.info("%s received, stopping", signal.Signals(number[0]).name)
            on_stop()

    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    watcher.start()
    before_wakeup = signal.set_wakeup_fd(sender.fileno())
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_wakeup)
        sender.close()
        watcher.join()
        receiver.close()


class Daemon:
    """Hosts several workflows. Promise: it ends within the longest stop bound of its workflows once told to.

    Owner: the main thread runs it; the control server's threads call ``status``, ``start``, ``stop``,
    ``quarantine`` and ``shut_down``.
    """

    def __init__(
        self,
        workflows: Iterable[Workflow],
        folder: Path,
        state_folder: Path,
        tcp: TcpAddress | None = None,
        approach: Approach = Approach.REFUSE,
    ) -> None:
        """``approach`` is to workflows that another daemon runs."""
        self._tcp = tcp
        self._manager = ServiceManager(os.environ)
        self._clock = SystemClock()
        self._begun_at = self._clock.monotonic()
        """Tells this process from its predecessor, which has the same pid in a container."""
        self._folder = folder
        self._state_folder = state_folder
        self._stop = StopToken()
        self._has_ended = StopToken()
        self._overdue: StopTimeout | None = None
        self._workflows = {workflow.workflow: workflow for workflow in workflows}
        self._approach = approach
        self._tenures: dict[str, Tenure] = {}
        """One of a workflow that is gone has let go of its lock, and stays: a status may still look at it."""
        self._feed = Feed(self._clock)
        self._tell_decisions()  # before those of each workflow
        self._supervisors = {name: self._make_supervisor(one) for name, one in self._workflows.items()}
        self._reloading = threading.Lock()
        """Held by one reload, and for as long as it takes."""
        self._lags = LagHistory()
        self._hosting = threading.Lock()
        """Held for a moment: by who begins to host, and by the end, after which nothing begins."""

    def run(self) -> None:
        """Host the workflows until told to stop.

        Raises:
            StopTimeout: something hung and was left behind; the process should exit.
            DaemonError: it cannot listen where it shall, or other daemons run all of the workflows.
        """
        servers = self._listen()
        with stop_signals(self._stop.set):
            try:
                self._begin()
            except DaemonError:
                shut_down_all(self._supervisors.values())
                for server in servers:
                    server.close()
                raise
            events = threading.Thread(target=self._feed.run, name="events", daemon=True)
            events.start()
            for server in servers:
                threading.Thread(target=server.run, name="control", daemon=True).start()
            self._manager.ready(self._summary())
            self._wait_for_stop()
            self._manager.stopping()
            try:
                with self._hosting:
                    supervisors = list(self._supervisors.values())
                shut_down_all(supervisors)
            except StopTimeout as error:
                self._overdue = error
                raise
            finally:
                self._has_ended.set()
                for server in servers:
                    server.close()
                self._feed.close()
                events.join(LAST_EVENTS_SECONDS)
        logger.info("stopped")

    def _listen(self) -> list[ControlServer]:
        servers = [ControlServer.on_socket(self._state_folder, self)]
        if self._tcp is not None:
            servers.append(ControlServer.over_tcp(self._tcp, self))
            logger.info("questions are answered on %s:%d", self._tcp.host, self._tcp.port)
        return servers

    def _tell_decisions(self) -> None:
        files = ", ".join(f"{name} ({one.path.name})" for name, one in self._workflows.items())
        logger.info(
            "vmerge %s, Python %s, process %d; state folder %s; %s hosts %s",
            __version__,
            platform.python_version(),
            os.getpid(),
            self._state_folder,
            self._folder,
            files or "no workflows",
        )

    def _begin(self) -> None:
        """Start all streams, and see whose the workflows are. Raises ``DaemonError`` when all are another daemon's."""
        for supervisor in self._supervisors.values():
            supervisor.start()
        until = self._clock.monotonic() + FIRST_LOOK_SECONDS
        for tenure in self._tenures.values():
            tenure.first_look(self._stop, until - self._clock.monotonic())
        refusals = [refusal for tenure in self._tenures.values() if (refusal := tenure.refusal) is not None]
        if len(refusals) == len(self._tenures):
            raise DaemonError(
                "; ".join(refusal.message for refusal in refusals),
                hint="Stop it there first. Or start this one with --standby, to wait for the other's end, or with "
                "--take-over, to fence it.",
            )

    def _summary(self) -> str:
        """Return what is hosted, and for whom a standby waits."""
        hosted = f"hosts {', '.join(self._supervisors) or 'no workflows'}"
        waits = [f"{name} for {one.standby_for}" for name, one in self._tenures.items() if one.standby_for is not None]
        return f"{hosted}; in standby: {', '.join(waits)}" if waits else hosted

    def _wait_for_stop(self) -> None:
        """Wait, record lags, and tell the service manager that the daemon lives as long as its locks can be had."""
        told = self._summary()
        pause, recorded_at = min(self._manager.pause_seconds or SAMPLE_SECONDS, SAMPLE_SECONDS), -SAMPLE_SECONDS
        while not self._stop.wait(pause):
            workflows, now = self.status()["workflows"], self._clock.monotonic()
            if now - recorded_at >= SAMPLE_SECONDS:
                self._lags.record(now, workflows)
                recorded_at = now
            self._manager.alive()
            if told != self._summary():
                told = self._summary()
                self._manager.tell(told)

    # Called by the control server

    def status(self) -> Snapshot:
        """Return what is hosted and what it does."""
        workflows = [
            workflow_snapshot(name, one.board, self._clock, self._tenures[name].standby_for)
            for name, one in self._supervisors.items()
        ]
        events = {"followers": self._feed.followers, "dropped": self._feed.dropped}
        about = {"pid": os.getpid(), "version": __version__, "folder": str(self._folder), "events": events}
        return {**about, "workflows": workflows}

    def overview(self, after: float | None) -> Snapshot:
        """Return what the status page shows; lags after a time, or of the last hour."""
        boards = {name: one.board for name, one in self._supervisors.items()}
        status = self.status()
        shown = overview_snapshot(status["workflows"], boards, self._lags, after, self._clock.monotonic())
        return {**status, "begun_at": self._begun_at, **shown}

    def show(self, workflow: str, streams: Sequence[str] | None) -> Snapshot:
        """Return all evidence about some streams' conflicts, or all, and who waits for whom.

        Raises:
            DaemonError: unknown workflow or stream.
        """
        supervisor = self._find(workflow, streams)
        snapshot = show_snapshot(workflow, supervisor.board, streams or supervisor.streams, self._clock)
        for stream in snapshot["streams"]:
            if lacks_evidence(stream):
                try:
                    entries = supervisor.read_log([stream["stream"]], SEARCHED_ENTRIES)
                except VmergeError as error:
                    stream["evidence_missing"] = error.message
                else:
                    stream["evidence"] = evidence_of_log(stream, entries)
        return snapshot

    def log(self, workflow: str, streams: Sequence[str] | None, limit: int) -> Snapshot:
        """Return the last entries of the log about streams, or all, the oldest first.

        Raises:
            DaemonError: unknown workflow or stream.
            TargetError: the target cannot be reached.
        """
        entries = self._find(workflow, streams).read_log(streams, limit)
        return {"workflow": workflow, "entries": [asdict(entry) for entry in entries]}

    def start(
        self,
        workflow: str,
        streams: Sequence[str] | None,
        past_schema_change: str | None = None,
        stop_at: str | None = None,
    ) -> Sequence[str]:
        """Start streams, also stopped and failed ones; return the names of those that did not run already.

        Where they were to stop is forgotten, unless ``stop_at`` says where one stream shall.

        Raises:
            DaemonError: unknown workflow or stream, or one that cannot be started now.
            ConfigError: the GTID or GTID set is none.
        """
        orders = StreamOrders(self._find_for_order(workflow, streams))
        self._tenures[workflow].ask()
        return orders.start(streams, past_schema_change, stop_at)

    def stop(self, workflow: str, streams: Sequence[str] | None, at: str | None = None) -> Sequence[str]:
        """Stop streams and keep them stopped; return the names of those that ran.

        With a GTID set the one stream that is named goes on until it has applied all of that.
        """
        return StreamOrders(self._find_for_order(workflow, streams)).stop(streams, at)

    def skip(self, workflow: str, stream: str, gtid: str, reason: str) -> Snapshot:
        """Move a stream that stands still past its next transaction, which must be this one.

        Raises:
            DaemonError: unknown workflow or stream, or the stream runs, or another transaction is next.
            ConfigError: the GTID is none, or there is no reason.
        """
        skipped, position = StreamOrders(self._find_for_order(workflow, [stream])).skip(stream, gtid, reason)
        return {"gtid": str(skipped), "applied": str(position)}

    def restart(self, workflow: str, streams: Sequence[str] | None) -> Sequence[str]:
        """Stop streams and start them anew, also stopped and failed ones; return their names."""
        supervisor = self._find_for_order(workflow, streams)
        self._tenures[workflow].ask()
        return supervisor.restart(streams)

    def quarantine(self, workflow: str, order: str, id: int | None) -> Snapshot:
        """Carry out an operator's order about rows in quarantine; see ``QuarantineDesk``."""
        supervisor = self._find_for_order(workflow, None)
        assembly = WorkflowAssembly(self._workflows[workflow], clock=self._clock)
        return QuarantineDesk(assembly.quarantine_orders(), supervisor).carry_out(order, id)

    def events(self, workflow: str | None) -> Feed:
        """Return the feed of what happens, for who may follow it.

        Raises:
            DaemonError: an unknown workflow, or as many follow as may.
        """
        if workflow is not None:
            self._find(workflow, None)
        self._feed.require_room()
        return self._feed

    def changes(self) -> Snapshot:
        """Return what a reload would change.

        Raises:
            ConfigError: a file of the folder cannot be used.
        """
        return asdict(compare_folders(self._workflows, self._load()))

    def reload(self) -> Snapshot:
        """Read the folder anew and host it as it is now; return what has changed.

        Workflows that are as they were go on. The streams of one that has changed end and begin again, each from its
        checkpoint and in its stored state, as with a new daemon. Those of one that is gone end.

        Raises:
            ConfigError: a file cannot be used; nothing has changed then.
            DaemonError: another reload is under way.
        """
        if not self._reloading.acquire(blocking=False):
            raise DaemonError("another reload is under way", hint="Ask again when it has ended.")
        try:
            workflows = self._load()
            changes = compare_folders(self._workflows, workflows)
            self._host(changes, workflows)
        finally:
            self._reloading.release()
        return asdict(changes)

    def _load(self) -> dict[str, Workflow]:
        return {one.workflow: one for one in load_workflows(self._folder)}

    def _host(self, changes: FolderChanges, workflows: Mapping[str, Workflow]) -> None:
        ending = [*changes.removed, *changes.changed]
        try:
            end_all(
                [self._supervisors[name].shut_down for name in changes.removed]
                + [self._supervisors[name].hand_over for name in changes.changed]
            )
        except StopTimeout as error:  # what hangs is fenced by its successor, or nobody's any more
            logger.warning("a reload leaves behind what does not end: %s", error.message)
        for name in ending:
            logger.info("workflow %s is %s", name, "removed" if name in changes.removed else "read anew")
        with self._hosting:
            supervisors = {name: one for name, one in self._supervisors.items() if name not in ending}
            begun = (
                {}
                if self._stop.is_set()
                else {name: self._make_supervisor(workflows[name]) for name in (*changes.changed, *changes.added)}
            )
            self._workflows = dict(workflows)
            self._supervisors = {**supervisors, **begun}
            for supervisor in begun.values():
                supervisor.start()

    def _make_supervisor(self, workflow: Workflow) -> Supervisor:
        name = workflow.workflow
        tenure = make_tenure(workflow, self._clock, self._approach, self._tenures.get(name))
        self._tenures[name] = tenure
        supervisor = make_supervisor(workflow, self._clock, tenure, self._state_folder)
        supervisor.board.watcher = self._feed.watcher(name)
        return supervisor

    def shut_down(self) -> None:
        """End, and return when all streams have ended.

        Raises:
            StopTimeout: something hung; the process ends all the same.
        """
        self._stop.set()
        self._has_ended.wait(max((one.stop_timeout_seconds for one in self._supervisors.values()), default=0.0) + 1.0)
        if self._overdue is not None:
            raise self._overdue

    def _find_for_order(self, workflow: str, streams: Sequence[str] | None) -> Supervisor:
        """As ``_find``. Raises ``DaemonError`` in a standby, too: another daemon's streams are not touched."""
        supervisor = self._find(workflow, streams)
        self._tenures[workflow].require_orders()
        return supervisor

    def _find(self, workflow: str, streams: Sequence[str] | None) -> Supervisor:
        supervisor = self._supervisors.get(workflow)
        if supervisor is None:
            known = ", ".join(self._supervisors) or "none"
            raise DaemonError(f"the daemon hosts no workflow `{workflow}`", hint=f"It hosts: {known}.")
        for stream in streams or ():
            if stream not in supervisor.streams:
                known = ", ".join(supervisor.streams)
                raise DaemonError(f"workflow `{workflow}` has no stream `{stream}`", hint=f"Its streams: {known}.")
        return supervisor


def load_workflows(folder: Path) -> list[Workflow]:
    """Return the workflows of a folder that a daemon shall host.

    Raises:
        ConfigError: a file cannot be used, or there is none: an empty folder is rather a wrong one.
    """
    workflows = load_folder(folder)
    if not workflows:
        raise ConfigError(f"there is no workflow file (*.yaml, *.yml) in {folder}", hint="Put one there.")
    return workflows


def shut_down_all(supervisors: Iterable[Supervisor]) -> None:
    """Shut supervisors down; see ``end_all``."""
    end_all([supervisor.shut_down for supervisor in supervisors])


def end_all(ends: Iterable[Callable[[], None]]) -> None:
    """Do what ends supervisors side by side, so that the longest bound counts and not their sum.

    Raises:
        StopTimeout: naming everything that hung.
    """
    errors: list[VmergeError] = []

    def carry_out(end: Callable[[], None]) -> None:
        try:
            end()
        except StopTimeout as error:
            errors.append(error)

    threads = [threading.Thread(target=carry_out, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise StopTimeout("; ".join(error.message for error in errors))
