"""The long-lived process: hosts the workflows of a folder.

Knows: signals, the lock of a state folder, and which supervisor runs which workflow. Never knows: players, rows or SQL.
Used by the command line (``vmerge daemon start`` and ``vmerge run``).
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

from vmerge import __version__
from vmerge.assembly import WorkflowAssembly
from vmerge.config import Workflow
from vmerge.control import ControlServer, TcpAddress
from vmerge.core.position import Gtid
from vmerge.errors import ConfigError, DaemonError, StopTimeout, VmergeError
from vmerge.quarantine_desk import QuarantineDesk
from vmerge.service import ServiceManager
from vmerge.showing import evidence_of_log, lacks_evidence, show_snapshot
from vmerge.status import Snapshot, workflow_snapshot
from vmerge.stopping import Clock, StopToken, SystemClock
from vmerge.supervisor import Supervisor

logger = logging.getLogger(__name__)

LOCK_NAME = "daemon.lock"
LOG_NAME = "daemon.log"
SEARCHED_ENTRIES = 100
"""Of the log, for the conflict that an earlier process met: it was the last thing its stream did."""


def open_private(path: Path) -> IO[str]:
    """Open a file to read and append, closed to other users, making it if need be."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+")


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a state folder, so that one daemon at most uses it; it is made if missing, closed to other users.

    Raises:
        DaemonError: another process holds it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = open_private(folder / LOCK_NAME)
    except OSError as error:
        raise DaemonError(
            f"the state folder {folder} cannot be used: {error.strerror}",
            hint="Name one that you may write with --state-dir or VMERGE_STATE_DIR.",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise DaemonError(
                f"a daemon runs already with the state folder {folder} (pid {lock.read().strip() or 'unknown'})",
                hint="Stop it with `vmerge daemon stop`, or give this one another --state-dir.",
            ) from error
        try:
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        except OSError as error:
            raise DaemonError(
                f"the state folder {folder} cannot be written: {error.strerror}",
                hint="Make room on its disk, or name another with --state-dir.",
            ) from error
        yield


def is_locked(folder: Path) -> bool:
    """Whether a daemon runs with a state folder. A dead process that nobody has waited for yet holds no lock."""
    try:
        with (folder / LOCK_NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


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


def make_supervisor(workflow: Workflow, clock: Clock, spool_folder: Path | None = None) -> Supervisor:
    """Return the supervisor of one workflow; nothing runs yet."""
    assembly = WorkflowAssembly(workflow, clock=clock, spool_folder=spool_folder)
    return Supervisor(
        workflow.workflow,
        workflow.streams,
        assembly,
        clock=clock,
        stop_timeout_seconds=workflow.limits.stop_timeout_seconds,
    )


class Daemon:
    """Hosts several workflows. Promise: it ends within the longest stop bound of its workflows once told to.

    Owner: the main thread runs it; the control server's threads call ``status``, ``start``, ``stop``,
    ``quarantine`` and ``shut_down``.
    """

    def __init__(
        self, workflows: Iterable[Workflow], folder: Path, state_folder: Path, tcp: TcpAddress | None = None
    ) -> None:
        self._tcp = tcp
        self._manager = ServiceManager(os.environ)
        self._clock = SystemClock()
        self._folder = folder
        self._state_folder = state_folder
        self._stop = StopToken()
        self._has_ended = StopToken()
        self._overdue: StopTimeout | None = None
        self._workflows = {workflow.workflow: workflow for workflow in workflows}
        self._supervisors = {
            name: make_supervisor(workflow, self._clock, state_folder) for name, workflow in self._workflows.items()
        }

    def run(self) -> None:
        """Host the workflows until told to stop.

        Raises:
            StopTimeout: something hung and was left behind; the process should exit.
            DaemonError: it cannot listen where it shall.
        """
        servers = [ControlServer.on_socket(self._state_folder, self)]
        if self._tcp is not None:
            servers.append(ControlServer.over_tcp(self._tcp, self))
            logger.info("questions are answered on %s:%d", self._tcp.host, self._tcp.port)
        with stop_signals(self._stop.set):
            for server in servers:
                threading.Thread(target=server.run, name="control", daemon=True).start()
            logger.info("vmerge %s hosts %s", __version__, ", ".join(self._supervisors) or "no workflows")
            for supervisor in self._supervisors.values():
                supervisor.start()
            self._manager.ready(f"hosts {', '.join(self._supervisors) or 'no workflows'}")
            self._wait_for_stop()
            self._manager.stopping()
            try:
                shut_down_all(self._supervisors.values())
            except StopTimeout as error:
                self._overdue = error
                raise
            finally:
                self._has_ended.set()
                for server in servers:
                    server.close()
        logger.info("stopped")

    def _wait_for_stop(self) -> None:
        """Wait, and tell the service manager that the daemon lives as long as its locks can be had."""
        pause = self._manager.pause_seconds
        while not self._stop.wait(3600 if pause is None else pause):
            self.status()
            self._manager.alive()

    # Called by the control server

    def status(self) -> Snapshot:
        """Return what is hosted and what it does."""
        workflows = [workflow_snapshot(name, one.board, self._clock) for name, one in self._supervisors.items()]
        return {"pid": os.getpid(), "version": __version__, "folder": str(self._folder), "workflows": workflows}

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

    def start(self, workflow: str, streams: Sequence[str] | None, past_schema_change: str | None) -> Sequence[str]:
        """Start streams, also stopped and failed ones; return the names of those that did not run already.

        Raises:
            DaemonError: unknown workflow or stream, or one that cannot be started now.
            ConfigError: the GTID is none.
        """
        supervisor = self._find(workflow, streams)
        accepted: frozenset[Gtid] = frozenset()
        if past_schema_change is not None:
            try:
                accepted = frozenset({Gtid.parse(past_schema_change)})
            except ValueError as error:
                raise ConfigError(str(error), hint="Copy the GTID from the stream's message.") from error
        return supervisor.start(streams, resumes=True, accepted_schema_changes=accepted)

    def stop(self, workflow: str, streams: Sequence[str] | None) -> Sequence[str]:
        """Stop streams and keep them stopped; return the names of those that ran."""
        return self._find(workflow, streams).stop(streams)

    def quarantine(self, workflow: str, order: str, id: int | None) -> Snapshot:
        """Carry out an operator's order about rows in quarantine; see ``QuarantineDesk``."""
        supervisor = self._find(workflow, None)
        assembly = WorkflowAssembly(self._workflows[workflow], clock=self._clock)
        return QuarantineDesk(assembly.quarantine_orders(), supervisor).carry_out(order, id)

    def shut_down(self) -> None:
        """End, and return when all streams have ended.

        Raises:
            StopTimeout: something hung; the process ends all the same.
        """
        self._stop.set()
        self._has_ended.wait(max((one.stop_timeout_seconds for one in self._supervisors.values()), default=0.0) + 1.0)
        if self._overdue is not None:
            raise self._overdue

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


def shut_down_all(supervisors: Iterable[Supervisor]) -> None:
    """Shut supervisors down side by side, so that the longest bound counts and not their sum.

    Raises:
        StopTimeout: naming everything that hung.
    """
    errors: list[VmergeError] = []

    def shut_down(supervisor: Supervisor) -> None:
        try:
            supervisor.shut_down()
        except StopTimeout as error:
            errors.append(error)

    threads = [threading.Thread(target=shut_down, args=(supervisor,)) for supervisor in supervisors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise StopTimeout("; ".join(error.message for error in errors))
