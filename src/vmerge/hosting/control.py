"""HTTP over a Unix socket, and over TCP for those with a token: what a daemon can be asked and told.

Knows: paths, JSON and status codes. Never knows: how a request is carried out (``ControlledDaemon`` does that). Used by
the daemon; ``vmerge.hosting.control_client`` is the other side.

    GET  /healthz                                       → {"status": "ok"}: the process serves
    GET  /readyz                                        → {"ready": true, "not_ready": []}, or with status 503 and the
                                                        streams that shall run and do not reach both their servers
    GET  /metrics                                       → Prometheus' text format (``vmerge.hosting.metrics``)
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
    GET  /v1/changes                                    → {"added": […], "removed": […], "changed": {name: [line, …]}}:
                                                        how the folder differs from what is hosted
    POST /v1/reload                                     → the same, once the folder is hosted as it is now
    POST /v1/shutdown                                   → {}, once all streams have ended; states stay as they are

An error is ``{"error": message, "hint": …, "exit_code": …}`` with status 4xx or 5xx.

Over TCP there are the questions (GET) only, each with the header ``Authorization: Bearer TOKEN``; a probe may ask for
``/healthz`` and ``/readyz`` without. A token that stands in the settings of a monitoring system must not stop a merge.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs

from waitress.server import create_server

from vmerge.errors import DaemonError, VmergeError
from vmerge.hosting import metrics
from vmerge.hosting.status import Snapshot, unready_streams
from vmerge.stopping import StopToken, SystemClock

logger = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
_MAX_PATH_BYTES = 107  # Linux has 108 bytes, one of them for the end
_MAX_BODY_BYTES = 1024 * 1024
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

    def changes(self) -> Snapshot:
        """Compare the folder with what is hosted."""

    def reload(self) -> Snapshot:
        """Host what the folder has now; return what has changed."""

    def shut_down(self) -> None:
        """End; return when all streams have ended."""


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """Where a daemon listens beside its socket, and what whoever asks there must know."""

    host: str
    port: int
    token: str


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
        application = _Application(daemon)
        return cls(create_server(application, unix_socket=str(path), unix_socket_perms="600", threads=_THREADS), path)

    @classmethod
    def over_tcp(cls, address: TcpAddress, daemon: ControlledDaemon) -> ControlServer:
        """Listen on a TCP port, for questions only.

        Raises:
            DaemonError: nothing can listen there.
        """
        application = _Questions(_Application(daemon), address.token)
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


class _Answer(NamedTuple):
    """What is sent back."""

    status: str
    content: bytes
    content_type: str = "application/json"


def _json(status: str, body: Snapshot) -> _Answer:
    return _Answer(status, json.dumps(body).encode())


def _refusal(status: str, message: str, hint: str) -> _Answer:
    return _json(status, {"error": message, "hint": hint, "exit_code": DaemonError.exit_code})


class _Application:
    """The WSGI application."""

    def __init__(self, daemon: ControlledDaemon) -> None:
        self._daemon = daemon

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        return _send(self._answer(environ), start_response)

    def _answer(self, environ: dict[str, Any]) -> _Answer:
        try:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            if method == "GET" and path in _PROBES:
                return _PROBES[path](self._daemon)
            body = _query_of(environ) if method == "GET" else _body_of(environ)
            return _json("200 OK", self._carry_out(method, path, body))
        except VmergeError as error:
            body = {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
            return _json("409 Conflict", body)
        except Exception as error:
            logger.exception("internal error in the control server")
            body = {"error": f"internal error: {error}", "hint": "", "exit_code": 1}
            return _json("500 Internal Server Error", body)

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
            case "GET", "/v1/changes":
                return self._daemon.changes()
            case "POST", "/v1/reload":
                return self._daemon.reload()
            case "POST", "/v1/shutdown":
                self._daemon.shut_down()
            case _:
                raise DaemonError(
                    f"the daemon does not know {method} {path}", hint="Use the same version on both sides."
                )
        return {}


class _Questions:
    """Lets only questions through, and only from those who know the token; it never tells which part was wrong."""

    def __init__(self, application: _Application, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        refusal = self._refuse(environ)
        return self._application(environ, start_response) if refusal is None else _send(refusal, start_response)

    def _refuse(self, environ: dict[str, Any]) -> _Answer | None:
        if environ["PATH_INFO"] in _FOR_EVERYBODY and environ["REQUEST_METHOD"] == "GET":
            return None
        given = environ.get("HTTP_AUTHORIZATION", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, self._expected):
            return _refusal("401 Unauthorized", "the token is missing or wrong", "Send `Authorization: Bearer TOKEN`.")
        if environ["REQUEST_METHOD"] != "GET":
            return _refusal(
                "403 Forbidden", "orders are taken on the control socket only", "Use `vmerge` on the daemon's machine."
            )
        return None


def _send(answer: _Answer, start_response: StartResponse) -> Iterable[bytes]:
    start_response(answer.status, [("Content-Type", answer.content_type)])
    return [answer.content]


def _health(_daemon: ControlledDaemon) -> _Answer:
    return _json("200 OK", {"status": "ok"})


def _readiness(daemon: ControlledDaemon) -> _Answer:
    unready = unready_streams(daemon.status())
    status = "503 Service Unavailable" if unready else "200 OK"
    return _json(status, {"ready": not unready, "not_ready": unready})


def _metrics(daemon: ControlledDaemon) -> _Answer:
    return _Answer("200 OK", metrics.exposition(daemon.status()), metrics.CONTENT_TYPE)


_PROBES: dict[str, Callable[[ControlledDaemon], _Answer]] = {
    "/healthz": _health,
    "/readyz": _readiness,
    "/metrics": _metrics,
}
"""What other programs than vmerge ask for, by its usual path."""

_FOR_EVERYBODY = frozenset({"/healthz", "/readyz"})


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
