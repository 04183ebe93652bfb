"""What the control server sends back, and who may ask.

Knows: status lines, JSON, headers, tokens, and how a browser tells that another site has sent it. Never knows: what is
asked, or what the answer means. Used by ``control.py``,
``control_paths.py`` and ``page.py``.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from vmerge.errors import DaemonError
from vmerge.hosting.status import Snapshot
from vmerge.stopping import Clock, SystemClock

logger = logging.getLogger(__name__)

STRANGERS_SECONDS = 60.0
"""How often wrong tokens are told at most."""

Headers = list[tuple[str, str]]
StartResponse = Callable[[str, Headers], object]

_FOR_EVERYBODY = frozenset({"/healthz", "/readyz"})
_OUR_NAMES = frozenset({"", "localhost", "127.0.0.1", "[::1]"})
_FROM_OUR_PAGES = frozenset({"", "none", "same-origin"})
_ALWAYS = [("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff")]
"""What is asked about changes all the time, and no browser shall guess what it is."""


class Application(Protocol):
    """A WSGI application."""

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""


class Answer(NamedTuple):
    """What is sent back."""

    status: str
    content: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    """Beside those that every answer has."""


def json_answer(status: str, body: Snapshot) -> Answer:
    """Return data as an answer."""
    return Answer(status, json.dumps(body).encode())


def refusal(status: str, message: str, hint: str) -> Answer:
    """Return an answer to what is not carried out."""
    return json_answer(status, {"error": message, "hint": hint, "exit_code": DaemonError.exit_code})


def send(answer: Answer, start_response: StartResponse) -> Iterable[bytes]:
    """Hand an answer to the server."""
    start_response(answer.status, [("Content-Type", answer.content_type), *_ALWAYS, *answer.headers])
    return [answer.content]


Rule = Callable[[dict[str, Any]], Answer | None]
"""What refuses a request, or returns None."""


class Gate:
    """Lets through to an application what a rule does not refuse."""

    def __init__(self, application: Application, refuses: Rule) -> None:
        self._application = application
        self._refuses = refuses

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        answer = self._refuses(environ)
        return self._application(environ, start_response) if answer is None else send(answer, start_response)


def questions_with(token: str, clock: Clock | None = None) -> Rule:
    """Return the rule over TCP: questions only, from those who know the token. It never tells which part was wrong."""
    expected = f"Bearer {token}".encode()
    strangers, clock = _Strangers(), clock or SystemClock()

    def refuse(environ: dict[str, Any]) -> Answer | None:
        if environ["PATH_INFO"] in _FOR_EVERYBODY and environ["REQUEST_METHOD"] == "GET":
            return None
        given = environ.get("HTTP_AUTHORIZATION", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, expected):
            strangers.came(str(environ.get("REMOTE_ADDR", "")), clock.monotonic())
            return refusal("401 Unauthorized", "the token is missing or wrong", "Send `Authorization: Bearer TOKEN`.")
        if environ["REQUEST_METHOD"] != "GET":
            return refusal(
                "403 Forbidden", "orders are taken on the control socket only", "Use `vmerge` on the daemon's machine."
            )
        return None

    return refuse


class _Strangers:
    """Tells of those who ask without the token, at most once an interval: who guesses must not fill the log."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told_at: float | None = None
        self._untold = 0

    def came(self, address: str, now: float) -> None:
        """Count one, and tell if it is time."""
        with self._lock:
            self._untold += 1
            if self._told_at is not None and now < self._told_at + STRANGERS_SECONDS:
                return
            count, self._untold, self._told_at = self._untold, 0, now
        logger.warning("%d questions over TCP without the right token, the last from %s", count, address)


def from_this_machine(environ: dict[str, Any]) -> Answer | None:
    """Refuse on the socket what a browser sends in the name of a foreign site; the rule of the control socket.

    The socket's mode keeps other users out, but not what a forwarded port brings: any site that its user's browser has
    open can send requests there. It would say so in ``Origin`` or ``Sec-Fetch-Site``, or come under its own name, which
    then leads to this machine.
    """
    host = environ.get("HTTP_HOST", "").lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name not in _OUR_NAMES:
        return refusal("403 Forbidden", f"this is not `{name}`", "Ask for `localhost` on the control socket.")
    is_question = environ["REQUEST_METHOD"] == "GET"
    if environ.get("HTTP_SEC_FETCH_SITE", "") not in _FROM_OUR_PAGES or (not is_question and "HTTP_ORIGIN" in environ):
        return refusal("403 Forbidden", "no other site may ask here, and no browser give orders", "Use `vmerge`.")
    return None
