"""What a daemon can be asked and told: the paths of its control API.

Knows: paths, JSON and status codes. Never knows: sockets, or how a request is carried out (``ControlledDaemon`` does
that). Used by the control server. docs/control.md tells what each path takes and answers.

An error is ``{"error": message, "hint": …, "exit_code": …}`` with status 4xx or 5xx.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qs

from vmerge.core.seldom import Seldom
from vmerge.errors import DaemonError, VmergeError
from vmerge.hosting import metrics
from vmerge.hosting.answers import Answer, StartResponse, json_answer, send
from vmerge.hosting.feed import Feed
from vmerge.hosting.status import Snapshot, unready_streams
from vmerge.stopping import SystemClock
from vmerge.unexpected import name_of

logger = logging.getLogger(__name__)

EVENTS = "/v1/events"
LOG_ENTRIES = 20
"""How many entries of the log are shown unless the question says otherwise."""

TOLD_AGAIN_SECONDS = 60.0
"""The log has an error that repeats at most this often."""

_MAX_BODY_BYTES = 1024 * 1024


class ControlledDaemon(Protocol):
    """What requests ask of a daemon. Called from the server's threads."""

    def status(self) -> Snapshot:
        """Return everything ``GET /v1/status`` tells."""

    def show(self, workflow: str, streams: Sequence[str] | None) -> Snapshot:
        """Return everything ``GET /v1/show`` tells."""

    def overview(self, after: float | None) -> Snapshot:
        """Return everything the status page shows, and lags after a time."""

    def log(self, workflow: str, streams: Sequence[str] | None, limit: int) -> Snapshot:
        """Return the last entries of the log about some streams, or all."""

    def start(
        self, workflow: str, streams: Sequence[str] | None, past_schema_change: str | None, stop_at: str | None
    ) -> Sequence[str]:
        """Start streams, also stopped and failed ones; return the names of those that did not run already."""

    def stop(self, workflow: str, streams: Sequence[str] | None, at: str | None) -> Sequence[str]:
        """Stop streams and keep them stopped, or one when it has come to a position; return the names."""

    def skip(self, workflow: str, stream: str, gtid: str, reason: str) -> Snapshot:
        """Move a stream that stands still past its next transaction, which must be this one."""

    def restart(self, workflow: str, streams: Sequence[str] | None) -> Sequence[str]:
        """Stop streams and start them anew, also stopped and failed ones; return their names."""

    def quarantine(self, workflow: str, order: str, id: int | None) -> Snapshot:
        """Carry out an order about rows in quarantine."""

    def events(self, workflow: str | None) -> Feed:
        """Return whom a connection is handed to that follows the events; raises when it may not follow."""

    def changes(self) -> Snapshot:
        """Compare the folder with what is hosted."""

    def reload(self) -> Snapshot:
        """Host what the folder has now; return what has changed."""

    def shut_down(self) -> None:
        """End; return when all streams have ended."""


class Application:
    """The WSGI application."""

    def __init__(self, daemon: ControlledDaemon) -> None:
        self._daemon = daemon
        self._clock = SystemClock()
        self._told = Seldom()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        return send(self._answer(environ), start_response)

    def _answer(self, environ: dict[str, Any]) -> Answer:
        try:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            if method == "GET" and path in _PROBES:
                return _PROBES[path](self._daemon)
            body = _query_of(environ) if method == "GET" else _body_of(environ)
            return json_answer("200 OK", self._carry_out(method, path, body))
        except VmergeError as error:
            body = {"error": error.message, "hint": error.hint, "exit_code": error.exit_code}
            return json_answer("409 Conflict", body)
        except Exception as error:
            telling = self._told.tell(name_of(error), self._clock.monotonic(), TOLD_AGAIN_SECONDS)
            if telling is not None:
                logger.exception("internal error in the control server%s", telling)
            body = {"error": f"internal error: {name_of(error)}", "hint": "See the daemon's log.", "exit_code": 1}
            return json_answer("500 Internal Server Error", body)

    def _carry_out(self, method: str, path: str, body: dict[str, Any]) -> Snapshot:
        order = _PATHS.get((method, path))
        if order is None:
            raise DaemonError(f"the daemon does not know {method} {path}", hint="Use the same version on both sides.")
        return order(self._daemon, body)


def _health(_daemon: ControlledDaemon) -> Answer:
    return json_answer("200 OK", {"status": "ok"})


def _readiness(daemon: ControlledDaemon) -> Answer:
    unready = unready_streams(daemon.status())
    status = "503 Service Unavailable" if unready else "200 OK"
    return json_answer(status, {"ready": not unready, "not_ready": unready})


def _metrics(daemon: ControlledDaemon) -> Answer:
    return Answer("200 OK", metrics.exposition(daemon.status()), metrics.CONTENT_TYPE)


_PROBES: dict[str, Callable[[ControlledDaemon], Answer]] = {
    "/healthz": _health,
    "/readyz": _readiness,
    "/metrics": _metrics,
}
"""What other programs than vmerge ask for, by its usual path."""


def _start(daemon: ControlledDaemon, body: dict[str, Any]) -> Snapshot:
    names = _names_of(body)
    return {"streams": list(daemon.start(*names, _text_of(body, "past_schema_change"), _text_of(body, "stop_at")))}


def _stop(daemon: ControlledDaemon, body: dict[str, Any]) -> Snapshot:
    return {"streams": list(daemon.stop(*_names_of(body), _text_of(body, "at")))}


def _restart(daemon: ControlledDaemon, body: dict[str, Any]) -> Snapshot:
    return {"streams": list(daemon.restart(*_names_of(body)))}


def _events(daemon: ControlledDaemon, body: dict[str, Any]) -> Snapshot:
    """Refuse: who may follow the events is handed over before it comes here."""
    daemon.events(body["workflow"])
    raise DaemonError("events come on a connection of their own", hint="Ask for them with the first request on it.")


def _skip(daemon: ControlledDaemon, body: dict[str, Any]) -> Snapshot:
    words = [_text_of(body, name) for name in ("workflow", "stream", "gtid", "reason")]
    if None in words:
        raise DaemonError("a skip names a workflow, a stream, a GTID and a reason")
    return daemon.skip(*(str(word) for word in words))


def _shut_down(daemon: ControlledDaemon, _body: dict[str, Any]) -> Snapshot:
    daemon.shut_down()
    return {}


_PATHS: dict[tuple[str, str], Callable[[ControlledDaemon, dict[str, Any]], Snapshot]] = {
    ("GET", "/v1/status"): lambda daemon, _: daemon.status(),
    ("GET", "/v1/show"): lambda daemon, body: daemon.show(*_names_of(body)),
    ("GET", "/v1/overview"): lambda daemon, body: daemon.overview(body["after"]),
    ("GET", "/v1/log"): lambda daemon, body: daemon.log(*_names_of(body), body["limit"]),
    ("GET", EVENTS): _events,
    ("GET", "/v1/changes"): lambda daemon, _: daemon.changes(),
    ("POST", "/v1/start"): _start,
    ("POST", "/v1/stop"): _stop,
    ("POST", "/v1/restart"): _restart,
    ("POST", "/v1/skip"): _skip,
    ("POST", "/v1/quarantine"): lambda daemon, body: daemon.quarantine(*_order_of(body)),
    ("POST", "/v1/reload"): lambda daemon, _: daemon.reload(),
    ("POST", "/v1/shutdown"): _shut_down,
}


def known_paths() -> list[tuple[str, str]]:
    """Return every method and path that is answered."""
    return [*(("GET", path) for path in _PROBES), *_PATHS]


def workflow_of(environ: dict[str, Any]) -> str | None:
    """Return the workflow that a GET is about, if it names one."""
    names = parse_qs(environ.get("QUERY_STRING", "")).get("workflow")
    return None if names is None else str(names[-1])


def _query_of(environ: dict[str, Any]) -> dict[str, Any]:
    """Return what a GET asks for, in the form of a body."""
    query = parse_qs(environ.get("QUERY_STRING", ""))
    limit = query.get("limit", [str(LOG_ENTRIES)])[-1]
    if not limit.isascii() or not limit.isdigit():
        raise DaemonError("the limit is no number")
    try:
        after = float(query["after"][-1]) if "after" in query else None
    except ValueError as error:
        raise DaemonError("`after` is no number") from error
    return {"workflow": workflow_of(environ), "streams": query.get("stream"), "limit": int(limit), "after": after}


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


def _text_of(body: dict[str, Any], name: str) -> str | None:
    text = body.get(name)
    if text is None or isinstance(text, str):
        return text
    raise DaemonError(f"`{name}` of the request is no text")


def _order_of(body: dict[str, Any]) -> tuple[str, str, int | None]:
    workflow, order, id = body.get("workflow"), body.get("order"), body.get("id")
    if not (isinstance(workflow, str) and isinstance(order, str) and (id is None or isinstance(id, int))):
        raise DaemonError("the request names no workflow or no order, or its row is no number")
    return workflow, order, id
