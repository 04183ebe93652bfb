"""HTTP over a Unix socket: what a daemon can be asked, and the client that the command line uses.

Knows: paths, JSON and status codes. Never knows: how a request is carried out (``ControlledDaemon`` does that). Used by
the daemon (server) and the command line (client).

    GET  /v1/status                                     → {"pid": …, "workflows": [{…}, …]}
    GET  /v1/show?workflow=…&stream=…                   → {"workflow": …, "streams": [{…}, …], "graph": {…}}
    GET  /v1/log?workflow=…&stream=…&limit=…            → {"workflow": …, "entries": [{…}, …]}, the oldest first
    POST /v1/start    {"workflow": …, "streams": […] or null, "past_schema_change": gtid or null}
                                                        → {"streams": [names of those that did not run already]}
    POST /v1/stop     {"workflow": …, "streams": […] or null}
                                                        → {"streams": [names of those that ran]}, once they have ended
    POST /v1/quarantine {"workflow": …, "order": "list"}
                                                        → {"rows": [{…}, …]}
    POST /v1/quarantine {"workflow": …, "order": "show", "retry" or "drop", "id": number}
                                                        → {"row": {…}}
    POST /v1/shutdown                                   → {}, once all streams have ended; states stay as they are

An error is ``{"error": message, "hint": …, "exit_code": …}`` with status 4xx or 5xx.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode

from waitress.server import create_server

from vmerge.errors import DaemonError, VmergeError
from vmerge.status import Snapshot
from vmerge.stopping import StopToken, SystemClock

logger = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
_MAX_PATH_BYTES = 107  # Linux has 108 bytes, one of them for the end
_MAX_BODY_BYTES = 1024 * 1024
_ANSWER_SECONDS = 5.0
_TARGET_ANSWER_SECONDS = 30.0
"""Longer than a target that hangs keeps the daemon waiting."""
_STOP_ANSWER_SECONDS = 700.0
"""Longer than any stop may take."""
_ORDER_ANSWER_SECONDS = 60.0
"""Longer than the few short sessions that an order about a row opens."""
_DRAIN_SECONDS = 2.0
LOG_ENTRIES = 20
"""How many entries of the log are shown unless the question says otherwise."""
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


StartResponse = Callable[[str, list[tuple[str, str]]], object]


class ControlledDaemon(Protocol):
    """What requests ask of a daemon. Called from the server's threads."""

    def status(self) -> Snapshot:
        """Return everything ``GET /v1/status`` tells."""

    def show(self, workflow: str, streams: Sequence[str] | None) -> Snapshot:
        """Return everything ``GET /v1/show`` tells."""

    def log(self, workflow: str, streams: Sequence[str] | None, limit: int) -> Snapshot:
        """Return the last entries of the log about some streams, or all."""

    def start(self, workflow: str, streams: Sequence[str] | None, past_schema_change: str | None) -> Sequence[str]:
        """Start streams, also stopped and failed ones; return the names of those that did not run already."""

    def stop(self, workflow: str, streams: Sequence[str] | None) -> Sequence[str]:
        """Stop streams and keep them stopped; return the names of those that ran."""

    def quarantine(self, workflow: str, order: str, id: int | None) -> Snapshot:
        """Carry out an order about rows in quarantine."""

    def shut_down(self) -> None:
        """End; return when all streams have ended."""


class ControlServer:
    """Serves one daemon on a Unix socket that only its owner may open. Owner: the daemon; ``run`` is its thread's."""

    def __init__(self, folder: Path, daemon: ControlledDaemon) -> None:
        self._path = control_socket(folder)
        self._path.unlink(missing_ok=True)  # the daemon holds the folder's lock, so it is a dead one's
        self._server = create_server(
            _Application(daemon), unix_socket=str(self._path), unix_socket_perms="600", threads=_THREADS
        )

    def run(self) -> None:
        """Serve until closed."""
        self._server.run()

    def close(self) -> None:
        """End ``run``, once those who asked have got their answers; nobody is waited for longer than a moment."""
        drained = StopToken()
        until = SystemClock().monotonic() + _DRAIN_SECONDS
        while self._server.active_channels and SystemClock().monotonic() < until:
            drained.wait(0.01)
        self._path.unlink(missing_ok=True)
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
            body = _query_of(environ) if environ["REQUEST_METHOD"] == "GET" else _body_of(environ)
            return "200 OK", self._carry_out(environ["REQUEST_METHOD"], environ["PATH_INFO"], body)
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
            case "GET", "/v1/show":
                return self._daemon.show(*_names_of(body))
            case "GET", "/v1/log":
                return self._daemon.log(*_names_of(body), body["limit"])
            case "POST", "/v1/start":
                workflow, streams = _names_of(body)
                return {"streams": list(self._daemon.start(workflow, streams, body.get("past_schema_change")))}
            case "POST", "/v1/stop":
                return {"streams": list(self._daemon.stop(*_names_of(body)))}
            case "POST", "/v1/quarantine":
                return self._daemon.quarantine(*_order_of(body))
            case "POST", "/v1/shutdown":
                self._daemon.shut_down()
            case _:
                raise DaemonError(
                    f"the daemon does not know {method} {path}", hint="Use the same version on both sides."
                )
        return {}


def _query_of(environ: dict[str, Any]) -> dict[str, Any]:
    """Return what a GET asks for, in the form of a body."""
    query = parse_qs(environ.get("QUERY_STRING", ""))
    limit = query.get("limit", [str(LOG_ENTRIES)])[-1]
    if not limit.isascii() or not limit.isdigit():
        raise DaemonError("the limit is no number")
    return {"workflow": query.get("workflow", [None])[-1], "streams": query.get("stream"), "limit": int(limit)}


def _body_of(environ: dict[str, Any]) -> dict[str, Any]:
    size = min(int(environ.get("CONTENT_LENGTH") or 0), _MAX_BODY_BYTES)
    try:
        body = json.loads(environ["wsgi.input"].read(size) or b"{}")
    except ValueError as error:
        raise DaemonError(f"the request is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise DaemonError("the request is no JSON object")
    return body


def _names_of(body: dict[str, Any]) -> tuple[str, Sequence[str] | None]:
    workflow, streams = body.get("workflow"), body.get("streams")
    if not isinstance(workflow, str) or not (streams is None or isinstance(streams, list)):
        raise DaemonError("the request names no workflow, or its streams are no list")
    return workflow, streams


def _order_of(body: dict[str, Any]) -> tuple[str, str, int | None]:
    workflow, order, id = body.get("workflow"), body.get("order"), body.get("id")
    if not (isinstance(workflow, str) and isinstance(order, str) and (id is None or isinstance(id, int))):
        raise DaemonError("the request names no workflow or no order, or its row is no number")
    return workflow, order, id


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class ControlClient:
    """Asks the daemon of a state folder. Every call raises ``DaemonError`` when none runs there, or it hangs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def status(self) -> Snapshot:
        """Return what the daemon hosts and does."""
        return self._request("GET", "/v1/status", None, _ANSWER_SECONDS)

    def show(self, workflow: str, streams: Sequence[str] | None) -> Snapshot:
        """Return all evidence about some streams' conflicts, or all, and who waits for whom."""
        return self._request("GET", _question("/v1/show", workflow, streams), None, _TARGET_ANSWER_SECONDS)

    def log(self, workflow: str, streams: Sequence[str] | None, limit: int = LOG_ENTRIES) -> Snapshot:
        """Return the last entries of the log about some streams, or all."""
        path = _question("/v1/log", workflow, streams, limit=limit)
        return self._request("GET", path, None, _TARGET_ANSWER_SECONDS)

    def start(self, workflow: str, streams: Sequence[str] | None, past_schema_change: str | None) -> Sequence[str]:
        """Start streams; return the names of those that did not run already."""
        body = {"workflow": workflow, "streams": streams, "past_schema_change": past_schema_change}
        # A start waits for the end of a stop that is under way.
        started: list[str] = self._request("POST", "/v1/start", body, _STOP_ANSWER_SECONDS)["streams"]
        return started

    def stop(self, workflow: str, streams: Sequence[str] | None) -> Sequence[str]:
        """Stop streams; return the names of those that ran, when they have ended."""
        body = {"workflow": workflow, "streams": streams}
        stopped: list[str] = self._request("POST", "/v1/stop", body, _STOP_ANSWER_SECONDS)["streams"]
        return stopped

    def quarantine(self, workflow: str, order: str, id: int | None = None) -> Snapshot:
        """Give an order about rows in quarantine: ``list``, or ``show``, ``retry``, ``drop`` with a row's number."""
        body = {"workflow": workflow, "order": order, "id": id}
        return self._request("POST", "/v1/quarantine", body, _ORDER_ANSWER_SECONDS)

    def shut_down(self) -> None:
        """Tell the daemon to end; returns when its streams have ended, a moment before the process has."""
        self._request("POST", "/v1/shutdown", None, _STOP_ANSWER_SECONDS)

    def _request(self, method: str, path: str, body: dict[str, Any] | None, timeout_seconds: float) -> Snapshot:
        connection = _UnixConnection(control_socket(self._folder), timeout_seconds)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer: Snapshot = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._explain(error) from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise _RemoteError(answer)
        return answer

    def _explain(self, error: Exception) -> DaemonError:
        match error:
            case PermissionError():
                return DaemonError(
                    f"the daemon in {self._folder} is another user's",
                    hint="Ask as that user, or name your --state-dir.",
                )
            case TimeoutError():
                return DaemonError(
                    f"the daemon in {self._folder} takes connections and does not answer",
                    hint="See whether its process is stopped or starved, and what its log says last.",
                )
            case FileNotFoundError() | ConnectionRefusedError():
                return DaemonError(
                    f"no daemon runs in {self._folder}",
                    hint="Start it with `vmerge daemon start FOLDER`, or name its --state-dir.",
                )
            case _:
                return DaemonError(f"the daemon in {self._folder} ended before it answered: {error}")


def _question(path: str, workflow: str, streams: Sequence[str] | None, **values: int) -> str:
    """Return the address of a GET about some streams."""
    pairs = [("workflow", workflow), *(("stream", stream) for stream in streams or ())]
    return f"{path}?{urlencode([*pairs, *values.items()])}"


class _RemoteError(VmergeError):
    """An error that the daemon answered with."""

    def __init__(self, answer: Snapshot) -> None:
        super().__init__(str(answer["error"]), hint=str(answer["hint"]))
        self.exit_code = int(answer["exit_code"])
