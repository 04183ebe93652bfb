"""Logging set-up.

Knows: formats. Never knows: what is worth a line. INFO tells an operator's story; row values and secrets never
reach a log. Used by the command line and the daemon; every module logs through its own ``logging`` logger.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from enum import Enum
from types import TracebackType
from typing import TextIO

from vmerge.unexpected import traceback_of

ExceptionFacts = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
"""As records of the log have them."""


class LogFormat(Enum):
    """What a line of the log looks like."""

    TEXT = "text"
    """For a person: time, level, stream if there is one, message."""
    JSON = "json"
    """For a machine: one object a line; ``at`` is UTC. See the operator's guide for the keys."""


class _TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s%(where)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        stream = _stream_of(record)
        record.where = f" {stream}:" if stream else ""
        return super().format(record)

    def formatException(self, ei: ExceptionFacts) -> str:  # noqa: N802  # as the library calls it
        return _traceback(ei)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        entry = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "stream": _stream_of(record) or None,
            "message": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            entry["traceback"] = _traceback(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _traceback(facts: ExceptionFacts) -> str:
    return traceback_of(facts[1]) if facts[1] is not None else ""


_FORMATTERS: dict[LogFormat, type[logging.Formatter]] = {LogFormat.TEXT: _TextFormatter, LogFormat.JSON: _JsonFormatter}


def _stream_of(record: logging.LogRecord) -> str:
    """Return the stream that a record is about; threads are named for workflow and stream."""
    thread = record.threadName or ""
    stream = str(getattr(record, "stream", ""))
    if thread.startswith("player:"):
        return thread.removeprefix("player:")
    return f"{thread.removeprefix('log:')}/{stream}" if stream and thread.startswith("log:") else stream


def set_up(level: int = logging.INFO, output: TextIO | None = None, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Send the log of vmerge to one place, replacing what was set up before."""
    handler = logging.StreamHandler(output or sys.stderr)
    handler.setFormatter(_FORMATTERS[log_format]())
    logger = logging.getLogger("vmerge")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
    _take_in_waitress(handler)
    threading.excepthook = lambda facts: _tell_unexpected(facts.exc_value)
    sys.excepthook = lambda _type, error, _traceback: _tell_unexpected(error)


def _take_in_waitress(handler: logging.Handler) -> None:
    """Let the HTTP server's log come out in the same place and form; that askers queue for a moment is no news."""
    logger = logging.getLogger("waitress")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.ERROR)
    logger.propagate = False


def _tell_unexpected(error: BaseException | None) -> None:
    """Log an error that ends a thread or the process: the usual way prints its text, which may hold values."""
    if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
        logging.getLogger(__name__).critical("internal error", exc_info=error)
