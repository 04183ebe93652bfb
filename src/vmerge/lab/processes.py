"""Programs that run beside the lab's servers: each is ended on every path, and what it used is known.

Knows: processes, their output, CPU time and memory. Never knows: what they do. Used by the demo, the benchmark and the
tests. A program is in the process group of its lab, so that the lab's watchdog ends it when the owner is killed; and
the terminal's Ctrl-C reaches the owner alone, which then ends things in order.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from vmerge.errors import VmergeError
from vmerge.lab.servers import Lab

END_SECONDS = 30.0
"""How long a program may take to end after SIGTERM before it is killed."""

_TICKS = os.sysconf("SC_CLK_TCK")


class ProgramFailed(VmergeError):
    """A program ended with an error, or did not end."""

    default_hint = "These are its own last words."


class Program:
    """A running program. Use it as a context manager: at the end it has ended, in whatever way was needed."""

    def __init__(
        self, lab: Lab, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._output = lab.folder / f"{name}.out"
        self._errors = lab.folder / f"{name}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                tuple(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=lab.folder,
                env={**os.environ, **(environment or {})},
                process_group=lab.process_group,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def end(self, timeout_seconds: float = END_SECONDS) -> int:
        """Ask it to end, insist after a while, and return its exit code."""
        if self.is_running:
            self._process.terminate()
        return self.wait(timeout_seconds)

    def wait(self, timeout_seconds: float) -> int:
        """Return the exit code; kill what has not ended by then."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def ends_within(self, seconds: float) -> bool:
        """Wait so long at most, and return whether it has ended; it is left alone otherwise."""
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End it without a chance to clean up."""
        self._process.kill()
        self._process.wait()

    def require_running(self) -> None:
        """Raise what it said if it ended by itself."""
        if not self.is_running:
            raise self.failure()

    def failure(self) -> ProgramFailed:
        """Return the error that tells how it ended."""
        words = (self.errors or self.output).strip()[-2000:]
        return ProgramFailed(f"{self.name} ended with exit code {self._process.poll()}:\n{words}")

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._output.read_text(errors="replace")

    @property
    def errors(self) -> str:
        """What it printed to standard error so far."""
        return self._errors.read_text(errors="replace")

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far, user and system; for a running program."""
        return cpu_seconds(self.pid)

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory it ever had resident; for a running program."""
        return peak_memory_bytes(self.pid)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    # The name, the second field, may hold blanks and parentheses.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_memory_bytes(pid: int) -> int:
    """Return the largest resident size of a process so far."""
    return _memory_bytes(pid, "VmHWM")


def resident_memory_bytes(pid: int) -> int:
    """Return the resident size of a process now."""
    return _memory_bytes(pid, "VmRSS")


def _memory_bytes(pid: int, name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) * 1024 if match else 0
