"""Logging set-up.

Knows: formats. Never knows: what is worth a line. INFO tells an operator's story; row values and secrets never
reach a log. Used by the command line and the daemon; every module logs through its own ``logging`` logger.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from enum import Enum
from typing import TextIO


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
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


_FORMATTERS: dict[LogFormat, type[logging.Formatter]] = {LogFormat.TEXT: _TextFormatter, LogFormat.JSON: _JsonFormatter}


def _stream_of(record: logging.LogRecord) -> str:
    """Return the stream that a record is about; a player's thread is named for its workflow and stream."""
    thread = record.threadName or ""
    return thread.removeprefix("player:") if thread.startswith("player:") else str(getattr(record, "stream", ""))


def set_up(level: int = logging.INFO, output: TextIO | None = None, log_format: LogFormat = LogFormat.TEXT) -> None:
    """Send the log of vmerge to one place, replacing what was set up before."""
    handler = logging.StreamHandler(output or sys.stderr)
    handler.setFormatter(_FORMATTERS[log_format]())
    logger = logging.getLogger("vmerge")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
