"""The soak: sysbench writes on two shards for half an hour, and one daemon merges them all the while.

Knows: what is sampled, and when a run counts as passed. Never knows: how a load is made. Used by ``scripts/soak``.

A run passes when the daemon's memory stays flat, no stream restarted, the lag is back at zero once nobody writes, and
the target is the union of the shards.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vmerge.core.position import GtidSet
from vmerge.errors import VerificationFailed, VmergeError
from vmerge.lab.arguments import above_zero, count
from vmerge.lab.comparison import Comparison, Shard, compare
from vmerge.lab.merge import Merge, Stream
from vmerge.lab.processes import resident_memory_bytes
from vmerge.lab.servers import Lab, Server
from vmerge.lab.sysbench import DATABASE, LOADS, Load, Sysbench, create_tables, fill_tables, find_sysbench

NAMES = ("-80", "80-")
FIRST_IDS = (0, 1_000_000_000)
"""What the ids of each shard begin behind: far more than a table has rows."""
SAMPLE_SECONDS = 10.0
CATCH_UP_SECONDS = 300.0
WARM_UP_SHARE = 0.2
"""Of the run: connections, plans and the interpreter's own store of memory grow at first, and are not judged."""
SHORTEST_JUDGED_SECONDS = 600.0
"""A shorter run says what memory did, and judges nothing: a page more or less would be a steep slope."""
FLAT_SHARE = 0.05
"""Memory is flat when it grew by less than this share of itself, by its slope."""
EXIT_INTERRUPTED = 130
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Sample:
    """The daemon at one moment."""

    seconds: float
    """Since the load began."""
    memory_bytes: int
    lag_seconds: float
    """The larger one of both streams."""
    threads: int
    open_files: int


@dataclass
class Soak:
    """What was seen."""

    seconds: float
    samples: list[Sample] = field(default_factory=list)
    transactions: int = 0
    """Committed by sysbench."""
    lag_at_end_seconds: float = 0.0
    catch_up_seconds: float = 0.0
    cpu_seconds: float = 0.0
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    comparison: Comparison | None = None

    @property
    def judged(self) -> list[Sample]:
        """The samples behind the warm-up."""
        return [sample for sample in self.samples if sample.seconds >= self.seconds * WARM_UP_SHARE]

    @property
    def slope(self) -> float:
        """By how many bytes a second the memory grew behind the warm-up."""
        judged = self.judged
        if len(judged) < 2:
            return 0.0
        times, sizes = [one.seconds for one in judged], [one.memory_bytes for one in judged]
        return statistics.linear_regression(times, sizes).slope

    @property
    def faults(self) -> list[str]:
        """What keeps the run from having passed."""
        faults = []
        if self.seconds >= SHORTEST_JUDGED_SECONDS and self.growth_share > FLAT_SHARE:
            faults.append(f"memory grew by {self.growth_share:.1%} behind the warm-up")
        if self.lag_at_end_seconds > 0:
            faults.append(f"a lag of {self.lag_at_end_seconds:.1f} s is left")
        if restarts := sum(int(stream["restarts"]) for stream in self.streams.values()):
            faults.append(f"streams restarted {restarts} times")
        if self.comparison is None or not self.comparison.is_equal:
            faults.append("the target is not the union of the shards")
        return faults

    @property
    def growth_share(self) -> float:
        """By which share of itself the memory grew behind the warm-up, by its slope."""
        judged = self.judged
        if len(judged) < 2:
            return 0.0
        grown = self.slope * (judged[-1].seconds - judged[0].seconds)
        return grown / statistics.mean(sample.memory_bytes for sample in judged)


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    minutes: float
    rate: float
    load: str
    tables: int
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.load}: {self.rate:g} transactions/s on each of {len(NAMES)} shards for {self.minutes:g} min, "
            f"{self.tables} tables of {self.rows:,} rows"
        )

    def load_of(self, shard: int) -> Load:
        """Return what runs on a shard, by its number."""
        return Load(self.load, self.tables, self.rows, FIRST_IDS[shard], self.rate, self.minutes * 60)


def soak(wanted: Wanted) -> Soak:
    """Make servers, load and daemon, and return what was seen. Everything is gone afterwards."""
    find_sysbench()
    with Lab() as lab:
        *shards, target = servers = lab.start_many([*NAMES, "target"])
        for server in servers:
            create_tables(server, wanted.tables)
        streams = [Stream(shard.name, shard, {DATABASE: DATABASE}, _executed(shard)) for shard in shards]
        for number, shard in enumerate(shards):
            fill_tables(shard, wanted.load_of(number))
        with Merge(lab, "soak", streams, target) as merge:
            _wait_until_level(merge)
            _tell(f"MySQL {lab.distribution.version}, daemon {merge.pid}, {wanted}")
            seen = Soak(wanted.minutes * 60)
            _run_load(lab, merge, wanted, seen)
            seen.comparison = compare([Shard(stream.server, stream.databases) for stream in streams], target)
            seen.cpu_seconds = merge.cpu_seconds
    return seen


def _run_load(lab: Lab, merge: Merge, wanted: Wanted, seen: Soak) -> None:
    loads = [Sysbench(lab, stream.server, wanted.load_of(number)) for number, stream in enumerate(merge.streams)]
    try:
        began_at = time.monotonic()
        for number in itertools.count(1):
            if _end_within(loads, began_at + number * SAMPLE_SECONDS):
                break
            seen.samples.append(_sample(merge, time.monotonic() - began_at))
            _tell_sample(seen.samples[-1])
        seen.transactions = sum(load.transactions() for load in loads)
    finally:
        for load in loads:
            load.end()
    ended_at = time.monotonic()
    _wait_until_level(merge)
    seen.catch_up_seconds = time.monotonic() - ended_at
    seen.streams = merge.progress()
    seen.lag_at_end_seconds = _lag(seen.streams)


def _end_within(loads: Sequence[Sysbench], until: float) -> bool:
    return all([load.ends_within(until - time.monotonic()) for load in loads])


def _wait_until_level(merge: Merge) -> None:
    """Return when the target has all that the shards have, and every source has said that this is all."""
    merge.wait_until_applied({stream.name: _executed(stream.server) for stream in merge.streams}, CATCH_UP_SECONDS)
    merge.wait_until_at_heads(CATCH_UP_SECONDS)


def _executed(server: Server) -> GtidSet:
    return GtidSet.parse(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])


def _sample(merge: Merge, seconds: float) -> Sample:
    process = Path(f"/proc/{merge.pid}")
    return Sample(
        seconds,
        resident_memory_bytes(merge.pid),
        _lag(merge.progress()),
        len(list((process / "task").iterdir())),
        len(list((process / "fd").iterdir())),
    )


def _lag(streams: dict[str, dict[str, Any]]) -> float:
    return max(float(stream["lag_seconds"] or 0.0) for stream in streams.values())


# What is told


def _tell(text: str = "") -> None:
    print(text, flush=True)


def _tell_sample(sample: Sample) -> None:
    _tell(
        f"{sample.seconds:6.0f} s   {sample.memory_bytes / MEGABYTE:6.2f} MB   lag {sample.lag_seconds:5.2f} s   "
        f"{sample.threads} threads   {sample.open_files} files"
    )


def _tell_result(seen: Soak) -> None:
    carried = sum(int(stream["transactions"]) for stream in seen.streams.values())
    _tell()
    _tell(f"load      {seen.transactions:,} transactions by sysbench in {seen.seconds / 60:g} min")
    _tell(f"carried   {carried:,} transactions, those that filled the tables among them")
    _tell(f"memory    {_memory_text(seen)}")
    _tell(f"lag       {_lag_text(seen)}")
    _tell(f"CPU       {seen.cpu_seconds:.1f} s of the daemon, {seen.cpu_seconds / max(carried, 1) * 1e6:.0f} µs each")
    for line in str(seen.comparison).splitlines():
        _tell(f"          {line}")
    _tell("PASSED" if not seen.faults else f"FAILED: {'; '.join(seen.faults)}")


def _memory_text(seen: Soak) -> str:
    judged = seen.judged
    if not judged:
        return "not sampled: the run was too short"
    sizes, threads, files = zip(*((one.memory_bytes, one.threads, one.open_files) for one in judged), strict=True)
    return (
        f"{min(sizes) / MEGABYTE:.2f} to {max(sizes) / MEGABYTE:.2f} MB behind the warm-up; slope "
        f"{seen.slope * 3600 / MEGABYTE:+.2f} MB an hour, {seen.growth_share:+.2%} in all; "
        f"{min(threads)} to {max(threads)} threads, {min(files)} to {max(files)} open files"
    )


def _lag_text(seen: Soak) -> str:
    lags = [sample.lag_seconds for sample in seen.samples] or [0.0]
    return (
        f"{statistics.median(lags):.2f} s (median), {max(lags):.2f} s at most; {seen.lag_at_end_seconds:.2f} s "
        f"when level, {seen.catch_up_seconds:.2f} s after the load's end"
    )


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak. Exit codes: 0 passed, 9 not passed, 130 interrupted, others as vmerge's own."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=above_zero, default=30.0, help="how long sysbench writes (default 30)")
    parser.add_argument(
        "--rate", type=above_zero, default=200.0, help="transactions a second on each shard (default 200)"
    )
    parser.add_argument("--load", choices=LOADS, default=LOADS[0], help=f"sysbench's load (default {LOADS[0]})")
    parser.add_argument("--tables", type=count, default=2, help="how many tables (default 2)")
    parser.add_argument("--rows", type=count, default=20_000, help="rows of each table on each shard (default 20000)")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # a first run fetches MySQL, and says so
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        seen = soak(Wanted(chosen.minutes, chosen.rate, chosen.load, chosen.tables, chosen.rows))
    except KeyboardInterrupt:
        _tell("Interrupted; servers, daemon and load are gone.")
        return EXIT_INTERRUPTED
    except VmergeError as error:
        _tell(f"Error: {error.message}")
        _tell(f"Hint: {error.hint}")
        return error.exit_code
    _tell_result(seen)
    return 0 if not seen.faults else VerificationFailed.exit_code


if __name__ == "__main__":
    sys.exit(main())
