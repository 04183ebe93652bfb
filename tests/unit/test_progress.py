"""How long work says that it goes on."""

from __future__ import annotations

import io
import os

from vmerge.progress import ProgressLine
from vmerge.stopping import SystemClock


class HandClock(SystemClock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_terminal_has_one_line_that_goes_away() -> None:
    """On a terminal short work says nothing; long work rewrites one line, cut to the width, and removes it."""
    master, slave = os.openpty()
    clock = HandClock()
    with open(slave, "w") as terminal:  # noqa: PTH123  # a descriptor has no path
        line = ProgressLine(terminal, clock)
        line.show("too early")
        clock.now = 1.5
        line.show("first line")
        line.show("too soon")
        clock.now = 2.0
        line.show("second")
        line.end()
        line.end()
        assert os.read(master, 1000).decode() == "\rfirst line\rsecond    \r      \r"
        clock.now = 3.0
        line.show("x" * 500)
        assert len(os.read(master, 1000)) < 500
    os.close(master)


def test_elsewhere_whole_lines_come_now_and_then() -> None:
    """In a log there is a line each ten seconds, without anything that only a terminal understands."""
    clock, log = HandClock(), io.StringIO()
    line = ProgressLine(log, clock)
    for clock.now in (1.0, 9.0, 11.0, 12.0, 22.0):
        line.show(f"at {clock.now:g}")
    line.end()
    assert log.getvalue() == "at 11\nat 22\n"
