"""HTTP over a Unix socket, and over TCP for those with a token: where a daemon can be asked and told.

Knows: sockets and the library that serves them. Never knows: what can be asked (``control_paths.py``). Used by the
daemon; ``vmerge.hosting.control_client`` is the other side.

Over TCP there are the questions (GET) only, each with the header ``Authorization: Bearer TOKEN``. Without it a probe
may ask for ``/healthz`` and ``/readyz``, and a browser for the page, which then asks with the token that it is given. A
token that stands in the settings of a monitoring system must not stop a merge.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, MultiSocketServer, create_server
from waitress.task import WSGITask

from vmerge.errors import DaemonError, VmergeError
from vmerge.hosting.answers import Gate, Rule, from_this_machine, questions_with
from vmerge.hosting.control_paths import EVENTS, Application, ControlledDaemon, workflow_of
from vmerge.hosting.page import PageInFront
from vmerge.stopping import StopToken, SystemClock

SOCKET_NAME = "control.sock"
_MAX_PATH_BYTES = 107  # Linux has 108 bytes, one of them for the end
_DRAIN_SECONDS = 2.0
_THREADS = 8
"""Stops wait for threads to end; a few of them must not keep a status waiting."""


def control_socket(folder: Path) -> Path:
    """Return where the daemon of a state folder listens.

    Raises:
        DaemonError: the system cannot have a socket there.
    """
    path = folder.absolute() / SOCKET_NAME
    excess = len(os.fsencode(path)) - _MAX_PATH_BYTES
    if excess > 0:
        raise DaemonError(
            f"the path of the control socket is {excess} bytes too long: {path}",
            hint="Name a shorter folder with --state-dir or VMERGE_STATE_DIR.",
        )
    return path


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Where a daemon listens beside its socket, and what whoever asks there must know."""

    host: str
    port: int
    token: str = field(repr=False)


class _EventsDoor:
    """Who may follow the events over one server; see ``_Channel``."""

    HEAD = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nCache-Control: no-store\r\n"
        b"X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )

    def __init__(self, daemon: ControlledDaemon, refuses: Rule) -> None:
        self._daemon = daemon
        self._refuses = refuses

    def admits(self, environ: dict[str, Any]) -> Callable[[socket.socket], None] | None:
        """Return what a connection is handed to; None if it is to have an ordinary answer, such as a refusal."""
        if (environ["REQUEST_METHOD"], environ["PATH_INFO"]) != ("GET", EVENTS) or self._refuses(environ) is not None:
            return None
        workflow = workflow_of(environ)
        try:
            feed = self._daemon.events(workflow)
        except VmergeError:
            return None
        return lambda sock: feed.follow(sock, workflow, self.HEAD)


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress ships no type information
    """A connection, which leaves the server when its request is to follow the events.

    The server has a few threads, and would keep one busy for each follower, and its buffers full for each that does not
    read. So the feed gets a descriptor of its own for the connection, and the server closes the one it has.
    """

    requests: list[Any]

    def service(self) -> None:
        """Answer one request, in one of the server's threads."""
        request = self.requests[0]
        if request.error or self.total_outbufs_len or len(self.requests) > 1:
            super().service()
            return
        follow = self.server.door.admits(WSGITask(self, request).get_environment())
        if follow is None:
            super().service()
            return
        sock = self.socket.dup()
        with self.requests_lock:
            self.close_when_flushed = True
            self.requests = []
        request.close()
        self.server.pull_trigger()
        follow(sock)


class ControlServer:
    """Serves one daemon: on a Unix socket that only its owner may open, or over TCP. Owner: the daemon.

    ``run`` is its thread's; the other methods are for the daemon's own thread.
    """

    def __init__(self, server: Any, door: _EventsDoor, path: Path | None = None) -> None:
        self._server = server
        # A name that stands for several addresses has one server for each, below one that has no connections.
        parts = server.map.values() if isinstance(server, MultiSocketServer) else [server]
        self._listening = [one for one in parts if isinstance(one, BaseWSGIServer)]
        for one in self._listening:
            one.channel_class = _Channel
            one.door = door
        self._path = path

    @classmethod
    def on_socket(cls, folder: Path, daemon: ControlledDaemon) -> ControlServer:
        """Listen on the control socket of a state folder."""
        path = control_socket(folder)
        path.unlink(missing_ok=True)  # the daemon holds the folder's lock, so it is a dead one's
        application = PageInFront(Gate(Application(daemon), from_this_machine), needs_token=False)
        server = create_server(application, unix_socket=str(path), unix_socket_perms="600", threads=_THREADS)
        return cls(server, _EventsDoor(daemon, from_this_machine), path)

    @classmethod
    def over_tcp(cls, address: TcpAddress, daemon: ControlledDaemon) -> ControlServer:
        """Listen on a TCP port, for questions only.

        Raises:
            DaemonError: nothing can listen there.
        """
        rule = questions_with(address.token)
        application = PageInFront(Gate(Application(daemon), rule), needs_token=True)
        try:
            server = create_server(application, host=address.host, port=address.port, threads=_THREADS, ident=None)
        except (OSError, ValueError) as error:
            raise DaemonError(
                f"nothing can listen on {address.host}:{address.port}: {error}",
                hint="Name an address of this machine and a free port with --listen.",
            ) from error
        return cls(server, _EventsDoor(daemon, rule))

    def run(self) -> None:
        """Serve until closed."""
        self._server.run()

    def close(self) -> None:
        """End ``run``, once those who asked have got their answers; nobody is waited for longer than a moment."""
        drained = StopToken()
        until = SystemClock().monotonic() + _DRAIN_SECONDS
        while any(one.active_channels for one in self._listening) and SystemClock().monotonic() < until:
            drained.wait(0.01)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._server.close()
