"""Many seeded cases in a row, each within bounds of time and memory, counted by how they end."""

from __future__ import annotations

import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

from vmerge.errors import VmergeError

Case = Callable[[Random], str]
"""Runs one case; says in a word or two what came out. May raise one of our errors instead."""

CASE_SECONDS = 5.0
"""CPU time after which a case counts as hanging: the slowest takes some milliseconds."""

MEMORY_BYTES = 256 << 20
"""What all cases together may add to the process: no length that an event claims is believed."""


class Hung(BaseException):
    """A case does not end. No Exception, so that no code under test takes it for its own."""


def run_cases(case: Case, *, seconds: float = 0, count: int = 0, first_seed: int = 0) -> Counter[str]:
    """Run cases with rising seeds for so much CPU time, or so many of them; return how they ended.

    A failure names its seed, which alone repeats it.
    """
    outcomes: Counter[str] = Counter()
    seed = first_seed
    until = time.process_time() + seconds
    with bounded_memory(MEMORY_BYTES):
        while seed < first_seed + count if count else time.process_time() < until:
            outcomes[run_case(case, seed)] += 1
            seed += 1
    return outcomes


def run_case(case: Case, seed: int) -> str:
    """Run the case of one seed."""
    try:
        with bounded_time(CASE_SECONDS):
            return case(Random(seed))
    except VmergeError as error:
        assert error.message
        assert error.hint
        return type(error).__name__
    except (Exception, Hung) as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error


@contextmanager
def bounded_time(seconds: float) -> Iterator[None]:
    """Raise ``Hung`` in what uses more CPU time."""

    def hang(number: int, frame: FrameType | None) -> None:
        raise Hung(f"no end after {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def bounded_memory(size: int) -> Iterator[None]:
    """Let the process have so many bytes of address space more than it has: what asks for more fails."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
