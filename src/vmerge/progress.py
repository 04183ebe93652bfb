"""Tells on standard error how long work goes on.

Knows: terminals and how often a person wants to hear something. Never knows: what the work is. Used by the command
line. On a terminal one line is written over and over, and removed at the end; elsewhere, in a log for one, a whole
line comes now and then. Work that ends soon says nothing.
"""

from __future__ import annotations

import os
from typing import TextIO

from vmerge.stopping import Clock

QUIET_SECONDS = 1.0
TERMINAL_SECONDS = 0.2
PLAIN_SECONDS = 10.0
"""A complete search may last hours, and its log shall stay readable."""


class ProgressLine:
    """One line that says how far the work is. Owner: one thread."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._next_at = clock.monotonic() + (QUIET_SECONDS if self._is_terminal else PLAIN_SECONDS)
        self._width = 0

    def show(self, text: object) -> None:
        """Show how far it is, if it is time to."""
        now = self._clock.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + (TERMINAL_SECONDS if self._is_terminal else PLAIN_SECONDS)
        self._write(f"{text}")

    def _write(self, text: str) -> None:
        if not self._is_terminal:
            self._stream.write(f"{text}\n")
        else:
            line = text[: max(20, _columns(self._stream) - 1)]
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        self._stream.flush()

    def end(self) -> None:
        """Remove the line from a terminal."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def _columns(stream: TextIO) -> int:
    return os.get_terminal_size(stream.fileno()).columns
