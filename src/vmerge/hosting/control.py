"""HTTP over a Unix socket, and over TCP for those with a token: where a daemon can be asked and told.

Knows: sockets and the library that serves them. Never knows: what can be asked (``control_paths.py``). Used by the
daemon; ``vmerge.hosting.control_client`` is the other side.

Over TCP there are the questions (GET) only, each with the header ``Authorization: Bearer TOKEN``. Without it a probe
may ask for ``/healthz`` and ``/readyz``, and a browser for the page, which then asks with the token that it is given. A
token that stands in the settings of a monitoring system must not stop a merge.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waitress.server import create_server

from vmerge.errors import DaemonError
from vmerge.hosting.answers import Gate, from_this_machine, questions_with
from vmerge.hosting.control_paths import Application, ControlledDaemon
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


class ControlServer:
    """Serves one daemon: on a Unix socket that only its owner may open, or over TCP. Owner: the daemon.

    ``run`` is its thread's; the other methods are for the daemon's own thread.
    """

    def __init__(self, server: Any, path: Path | None = None) -> None:
        self._server = server
        self._path = path

    @classmethod
    def on_socket(cls, folder: Path, daemon: ControlledDaemon) -> ControlServer:
        """Listen on the control socket of a state folder."""
        path = control_socket(folder)
        path.unlink(missing_ok=True)  # the daemon holds the folder's lock, so it is a dead one's
        application = PageInFront(Gate(Application(daemon), from_this_machine), needs_token=False)
        return cls(create_server(application, unix_socket=str(path), unix_socket_perms="600", threads=_THREADS), path)

    @classmethod
    def over_tcp(cls, address: TcpAddress, daemon: ControlledDaemon) -> ControlServer:
        """Listen on a TCP port, for questions only.

        Raises:
            DaemonError: nothing can listen there.
        """
        questions = Gate(Application(daemon), questions_with(address.token))
        application = PageInFront(questions, needs_token=True)
        try:
            return cls(create_server(application, host=address.host, port=address.port, threads=_THREADS, ident=None))
        except (OSError, ValueError) as error:
            raise DaemonError(
                f"nothing can listen on {address.host}:{address.port}: {error}",
                hint="Name an address of this machine and a free port with --listen.",
            ) from error

    def run(self) -> None:
        """Serve until closed."""
        self._server.run()

    def close(self) -> None:
        """End ``run``, once those who asked have got their answers; nobody is waited for longer than a moment."""
        drained = StopToken()
        until = SystemClock().monotonic() + _DRAIN_SECONDS
        while self._server.active_channels and SystemClock().monotonic() < until:
            drained.wait(0.01)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        self._server.close()
