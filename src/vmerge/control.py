"""HTTP over a Unix socket: what a daemon can be asked, and the client that the command line uses.

Knows: paths, JSON and status codes. Never knows: how a request is carried out (``ControlledDaemon`` does that). Used by
the daemon (server) and the command line (client).

    GET  /v1/status                                     → {"pid": …, "workflows": [{…}, …]}
    POST /v1/start    {"workflow": …, "streams": […] or null, "past_schema_change": gtid or null}
    POST /v1/stop     {"workflow": …, "streams": […] or null}
    POST /v1/shutdown                                   → the daemon ends; states stay as they are

An error is ``{"error": message, "hint": …, "exit_code": …}`` with status 4xx or 5xx.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from waitress.server import create_server

from vmerge.errors import DaemonError, VmergeError
from vmerge.status import Snapshot

logger = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
_MAX_PATH_BYTES = 100  # a Unix socket's path has 108 bytes in Linux, a temporary suffix included
_MAX_BODY_BYTES = 1024 * 1024
_CLIENT_TIMEOUT_SECONDS = 700  # longer than any stop may take

StartResponse = Callable[[str, list[tuple[str, str]]], object]


class ControlledDaemon(Protocol):
    """What requests ask of a daemon. Called from the server's threads."""

    def status(self) -> Snapshot:
        """Return everything ``GET /v1/status`` tells."""

    def start(self, workflow: str, streams: Sequence[str] | None, past_schema_change: str | None) -> None:
        """Start streams, also stopped and failed ones."""

    def stop(self, workflow: str, streams: Sequence[str] | None) -> None:
        """Stop streams and keep them stopped."""

    def shut_down(self) -> None:
        """Begin to end."""


class ControlServer:
    """Serves one daemon on a Unix socket that only its owner may open. Owner: the daemon; ``run`` is its thread's."""

    def __init__(self, folder: Path, daemon: ControlledDaemon) -> None:
        path = folder / SOCKET_NAME
        if len(str(path).encode()) > _MAX_PATH_BYTES:
            raise DaemonError(f"the path of the control socket is too long: {path}", hint="Use a shorter --state-dir.")
        path.unlink(missing_ok=True)  # the daemon holds the folder's lock, so it is a dead one's
        self._server = create_server(_Application(daemon), unix_socket=str(path), unix_socket_perms="600", threads=4)

    def run(self) -> None:
        """Serve until closed."""
        self._server.run()

    def close(self) -> None:
        """End ``run``."""
        self._server.close()


class _Application:
    """The WSGI application."""

    def __init__(self, daemon: ControlledDaemon) -> None:
        self._daemon = daemon

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        status, body = self._answer(environ)
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(body).encode()]

    def _answer(self, environ: dict[str, Any]) -> tuple[str, Snapshot]:
        try:
            return "200 OK", self._carry_out(environ["REQUEST_METHOD"], environ["PATH_INFO"], _body_of(environ))
        except VmergeError as error:
            body = {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
            return "409 Conflict", body
        except Exception as error:
            logger.exception("internal error in the control server")
            return "500 Internal Server Error", {"error": f"internal error: {error}", "hint": "", "exit_code": 1}

    def _carry_out(self, method: str, path: str, body: dict[str, Any]) -> Snapshot:
        match method, path:
            case "GET", "/v1/status":
                return self._daemon.status()
            case "POST", "/v1/start":
                self._daemon.start(body["workflow"], body.get("streams"), body.get("past_schema_change"))
            case "POST", "/v1/stop":
                self._daemon.stop(body["workflow"], body.get("streams"))
            case "POST", "/v1/shutdown":
                self._daemon.shut_down()
            case _:
                raise DaemonError(
                    f"the daemon does not know {method} {path}", hint="Use the same version on both sides."
                )
        return {}


def _body_of(environ: dict[str, Any]) -> dict[str, Any]:
    size = min(int(environ.get("CONTENT_LENGTH") or 0), _MAX_BODY_BYTES)
    try:
        body = json.loads(environ["wsgi.input"].read(size) or b"{}")
    except ValueError as error:
        raise DaemonError(f"the request is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise DaemonError("the request is no JSON object")
    return body


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_CLIENT_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_CLIENT_TIMEOUT_SECONDS)
        self.sock.connect(str(self._path))


class ControlClient:
    """Asks the daemon of a state folder. Every call raises ``DaemonError`` when none runs there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def status(self) -> Snapshot:
        """Return what the daemon hosts and does."""
        return self._request("GET", "/v1/status", None)

    def start(self, workflow: str, streams: Sequence[str] | None, past_schema_change: str | None) -> None:
        """Start streams."""
        body = {"workflow": workflow, "streams": streams, "past_schema_change": past_schema_change}
        self._request("POST", "/v1/start", body)

    def stop(self, workflow: str, streams: Sequence[str] | None) -> None:
        """Stop streams; returns when they have ended."""
        self._request("POST", "/v1/stop", {"workflow": workflow, "streams": streams})

    def shut_down(self) -> None:
        """Tell the daemon to end; returns before it has."""
        self._request("POST", "/v1/shutdown", None)

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> Snapshot:
        connection = _UnixConnection(self._folder / SOCKET_NAME)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer: Snapshot = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise DaemonError(
                f"no daemon answers in {self._folder}",
                hint="Start it with `vmerge daemon start FOLDER`, or name its --state-dir.",
            ) from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise _RemoteError(answer)
        return answer


class _RemoteError(VmergeError):
    """An error that the daemon answered with."""

    def __init__(self, answer: Snapshot) -> None:
        super().__init__(str(answer["error"]), hint=str(answer["hint"]))
        self.exit_code = int(answer["exit_code"])
