"""The status page: the files that a browser gets, and what it is told to keep to.

Knows: files, their paths and headers. Never knows: what a daemon does; the page asks for that itself, with the token of
whoever looks at it. Used by the control server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Any

from vmerge.hosting.answers import Answer, Application, StartResponse, send

_HOME = "home.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No text ever becomes markup or code, whatever a stream, a table or a message is called.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_MARK = b'data-needs-token="no"'
"""What the page knows of the place that it comes from: whether it must ask for a token before it asks the daemon."""


class PageInFront:
    """Serves the page's files to everybody, and hands all other requests on. No file has anything of a daemon in it."""

    def __init__(self, application: Application, *, needs_token: bool) -> None:
        self._application = application
        self._answers = _answers(needs_token)

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        answer = self._answers.get(environ["PATH_INFO"]) if environ["REQUEST_METHOD"] == "GET" else None
        return self._application(environ, start_response) if answer is None else send(answer, start_response)


@cache
def page_files() -> Mapping[str, bytes]:
    """Return the page's files by name, as they are in the package."""
    folder = resources.files("vmerge.hosting") / "page_files"
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}


def _answers(needs_token: bool) -> dict[str, Answer]:
    """Return the answer for each path: ``/`` and ``/page/NAME``."""
    answers = {}
    for name, content in page_files().items():
        path = "/" if name == _HOME else f"/page/{name}"
        shown = content.replace(_MARK, b'data-needs-token="yes"') if needs_token else content
        answers[path] = Answer("200 OK", shown, _TYPES[PurePath(name).suffix], _HEADERS)
    return answers
