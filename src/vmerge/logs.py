"""Logging set-up.

Knows: formats. Never knows: what is worth a line. INFO tells an operator's story; row values and secrets never
reach a log. Used by the command line and the daemon; every module logs through its own ``logging`` logger.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO


class _OperatorFormatter(logging.Formatter):
    """One line a record: time, level, stream if there is one, message."""

    def format(self, record: logging.LogRecord) -> str:
        thread = record.threadName or ""
        # A player's thread is named for its workflow and stream.
        stream = thread.removeprefix("player:") if thread.startswith("player:") else getattr(record, "stream", "")
        record.where = f" {stream}:" if stream else ""
        return super().format(record)


def set_up(level: int = logging.INFO, output: TextIO | None = None) -> None:
    """Send the log of vmerge to one place, replacing what was set up before."""
    handler = logging.StreamHandler(output or sys.stderr)
    handler.setFormatter(_OperatorFormatter("%(asctime)s %(levelname)s%(where)s %(message)s"))
    logger = logging.getLogger("vmerge")
    logger.handlers[:] = [handler]
    logger.setLevel(level)
    logger.propagate = False
