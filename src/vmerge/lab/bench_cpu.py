"""Who used the machine's CPUs while something was measured.

Knows: CPU time by process and of the whole machine. Never knows: what is measured. Used by the benchmark: what other
programs took falsifies a throughput, and the reader must know.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmerge.lab.processes import cpu_seconds

_TICKS = os.sysconf("SC_CLK_TCK")
NOTABLE_SHARE = 0.1
"""Of the machine's CPU time; more than this by others is told."""


@dataclass(frozen=True)
class CpuUse:
    """CPU seconds of one measurement."""

    target_seconds: float
    """Of the server that was merged into."""
    others_share: float
    """What programs outside of the benchmark took, as a share of all CPU time there was."""


class CpuMeter:
    """Counts from its creation to ``read``; all processes must live that long."""

    def __init__(self, target: int, others: Sequence[int]) -> None:
        self._target = target
        self._ours = (target, os.getpid(), *others)
        self._began_at = time.monotonic()
        self._before = self._count()

    def read(self) -> CpuUse:
        """Return what was used since the creation."""
        available = (time.monotonic() - self._began_at) * (os.cpu_count() or 1)
        target, ours, everybody = (now - before for now, before in zip(self._count(), self._before, strict=True))
        return CpuUse(target, max(0.0, everybody - ours) / max(available, 0.001))

    def _count(self) -> tuple[float, float, float]:
        return cpu_seconds(self._target), sum(map(cpu_seconds, self._ours)), _busy_seconds()


def _busy_seconds() -> float:
    """Return the CPU time that the machine spent on anything, and that its host kept from it."""
    # user, nice, system, idle, iowait, irq, softirq, steal
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS
