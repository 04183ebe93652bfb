"""When a soak counts as passed."""

from __future__ import annotations

import pytest

from vmerge.lab.comparison import Comparison, TableComparison
from vmerge.lab.soak import Sample, Soak

MINUTES = 30
MEGABYTES = 80_000_000


def seen(growth_an_hour: float, *, minutes: float = MINUTES, warm_up_bytes: int = 0) -> Soak:
    """A run with equal tables whose memory grew evenly, after a jump in its first minute."""
    samples = [
        Sample(at, MEGABYTES + int(growth_an_hour * at / 3600) + (warm_up_bytes if at > 60 else 0), 0.0, 10, 10)
        for at in range(10, int(minutes * 60), 10)
    ]
    streams = {"a": {"restarts": 0}, "b": {"restarts": 0}}
    return Soak(minutes * 60, samples, streams=streams, comparison=Comparison((TableComparison("t", 1),)))


@pytest.mark.parametrize("growth", [-1e6, 0, 1e6])
def test_level_memory_passes(growth: float) -> None:
    """Memory that changes by little has passed, and its slope is what it changed by."""
    run = seen(growth)
    assert run.slope * 3600 == pytest.approx(growth, rel=0.01, abs=10)
    assert run.faults == []


def test_growing_memory_fails() -> None:
    """Memory that grows by 20 MB an hour does not pass."""
    assert "memory grew by" in " ".join(seen(20e6).faults)


def test_the_warm_up_is_not_judged() -> None:
    """What the daemon takes in its first minutes is no leak."""
    assert seen(0, warm_up_bytes=30_000_000).faults == []


def test_a_short_run_judges_no_memory() -> None:
    """A minute says nothing about a slope; tables, lag and restarts count all the same."""
    run = seen(20e6, minutes=1)
    assert run.faults == []
    run.streams["a"]["restarts"] = 2
    run.lag_at_end_seconds = 1.5
    run.comparison = None
    assert len(run.faults) == 3
