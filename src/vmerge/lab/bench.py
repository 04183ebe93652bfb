"""The benchmark: the same load through MySQL's multi-source replication and through vmerge, in one run.

Knows: which measurements are made, and how they are shown. Never knows: how one is made. Used by ``scripts/bench``.

All servers run on this machine with sync_binlog=0 and innodb_flush_log_at_trx_commit=2, without TLS. After every
run the target is compared with the union of the shards; a run with other rows is void and the benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vmerge.core.appliers import ApplierSetting
from vmerge.errors import VerificationFailed, VmergeError
from vmerge.lab.bench_cpu import NOTABLE_SHARE, CpuUse
from vmerge.lab.bench_latency import LatencyResult, measure_latency
from vmerge.lab.bench_load import (
    DATABASE,
    LARGE_DATABASE,
    LARGE_TABLES,
    SERVER_OPTIONS,
    TABLES,
    LoadedShard,
    executed,
    load_shards,
    write_large_transaction,
)
from vmerge.lab.bench_merge import MergeResult, measure_merge
from vmerge.lab.bench_multisource import ReplicationResult, create_replication_account, measure_replication
from vmerge.lab.comparison import Comparison
from vmerge.lab.servers import Lab, Server

MEGABYTE = 1_000_000
SHARD_NAMES = ("-40", "40-80", "80-c0", "c0-")
COMPARED_STREAMS = 2
WORKERS = (0, 4)
EXIT_INTERRUPTED = 130

Result = TypeVar("Result", ReplicationResult, MergeResult)


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    transactions: int
    """On each shard."""
    streams: tuple[int, ...]
    large_bytes: int
    rounds: int


FULL = Size(100_000, (1, 2, 4), 1000 * MEGABYTE, 100)
QUICK = Size(20_000, (1, 2), 100 * MEGABYTE, 25)


@dataclass
class Results:
    """What was measured."""

    replications: list[ReplicationResult] = field(default_factory=list)
    merges: list[MergeResult] = field(default_factory=list)
    statements: MergeResult | None = None
    """By the statements applier."""
    large: MergeResult | None = None
    large_bytes: int = 0
    latency: LatencyResult | None = None

    @property
    def ratio(self) -> float:
        """vmerge with two streams against the best of multi-source replication."""
        (merge,) = (result for result in self.merges if result.streams == COMPARED_STREAMS)
        return merge.transactions_per_second / self._best_replication

    @property
    def statements_ratio(self) -> float:
        """The same, where all rows go as statements."""
        assert self.statements is not None
        return self.statements.transactions_per_second / self._best_replication

    @property
    def _best_replication(self) -> float:
        return max(result.transactions_per_second for result in self.replications)


def measure(size: Size) -> Results:
    """Make every measurement, telling each result as it comes."""
    results = Results()
    with Lab() as lab:
        say(f"MySQL {lab.distribution.version}, {os.cpu_count()} CPUs, all servers and vmerge on this machine, no TLS")
        servers = lab.start_many(SHARD_NAMES[: max(size.streams)], options=SERVER_OPTIONS)
        shards = _load(servers, size.transactions)
        say()
        say(f"{'':34} {'':9} {'':8} {'vmerge':>10} {'vmerge':>12} {'target':>12}")
        say(f"{'':34} {'tx/s':>9} {'seconds':>8} {'CPU µs/tx':>10} {'peak memory':>12} {'CPU µs/tx':>12}")
        for workers in WORKERS:
            results.replications.append(_tell(measure_replication(lab, shards[:COMPARED_STREAMS], workers=workers)))
        for count in size.streams:
            results.merges.append(_tell(measure_merge(lab, shards[:count], database=DATABASE, tables=TABLES)))
        results.statements = _tell(
            measure_merge(
                lab,
                shards[:COMPARED_STREAMS],
                database=DATABASE,
                tables=TABLES,
                applier=ApplierSetting.STATEMENTS,
            )
        )
        results.large_bytes = size.large_bytes
        results.large = _measure_large(lab, servers[0], size.large_bytes)
        results.latency = measure_latency(lab, servers[:2], size.rounds)
        _require_equal(results.latency.comparison)
    _tell_rest(results)
    return results


def _load(servers: Sequence[Server], transactions: int) -> list[LoadedShard]:
    for server in servers:
        server.execute_script(TABLES)
        create_replication_account(server)
    began_at = time.monotonic()
    shards = load_shards(servers, transactions)
    say(f"loaded {len(shards)} x {transactions:,} transactions in {time.monotonic() - began_at:.1f} s")
    return shards


def _measure_large(lab: Lab, server: Server, size_bytes: int) -> MergeResult:
    server.execute_script(LARGE_TABLES)
    start = executed(server)
    began_at = time.monotonic()
    rows = write_large_transaction(server, size_bytes)
    seconds = time.monotonic() - began_at
    shard = LoadedShard(server.name, server, start, executed(server))
    result = measure_merge(lab, [shard], database=LARGE_DATABASE, tables=LARGE_TABLES)
    _require_equal(result.comparison)
    say(
        f"{f'vmerge, one transaction of {size_bytes // MEGABYTE:,} MB':34} {'':9} {result.seconds:8.2f} {'':10} "
        f"{result.peak_memory_bytes / MEGABYTE:9.0f} MB   {rows:,} rows, {seconds:.1f} s on the shard"
        f"{_others(result.cpu_use)}"
    )
    return result


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def _tell(result: Result) -> Result:
    _require_equal(result.comparison)
    if isinstance(result, ReplicationResult):
        name, costs = f"multi-source, 2 channels, {result.workers} workers", f"{'':10} {'':12}"
    else:
        how = ", statements" if result.applier is ApplierSetting.STATEMENTS else ""
        name = f"vmerge, {result.streams} stream{'s' if result.streams > 1 else ''}{how}"
        costs = f"{result.cpu_microseconds_per_transaction:10.1f} {result.peak_memory_bytes / MEGABYTE:9.0f} MB"
    target = result.cpu_use.target_seconds / result.transactions * 1e6
    figures = f"{result.transactions_per_second:9,.0f} {result.seconds:8.2f} {costs} {target:12.1f}"
    say(f"{name:34} {figures}{_others(result.cpu_use)}")
    return result


def _others(use: CpuUse) -> str:
    if use.others_share < NOTABLE_SHARE:
        return ""
    return f"   (other programs took {use.others_share:.0%} of the CPUs)"


def _tell_rest(results: Results) -> None:
    assert results.latency is not None
    median, tail = results.latency.median * 1000, results.latency.percentile_95 * 1000
    say()
    say(
        f"a blocked stream goes on {median:.1f} ms (median; 95 %: {tail:.1f} ms) after its sibling's commit, "
        f"{len(results.latency.seconds)} rounds"
    )
    say(f"vmerge with {COMPARED_STREAMS} streams is {results.ratio:.1f} times as fast as multi-source replication")
    say(f"and {results.statements_ratio:.1f} times where all rows go as statements")
    say("after every run the target was equal to the union of the shards, byte for byte")


def _require_equal(comparison: Comparison) -> None:
    if not comparison.is_equal:
        raise VerificationFailed(f"the run is void, the target differs:\n{comparison}")


def as_data(results: Results) -> dict[str, Any]:
    """Return the figures as one JSON-ready object."""
    assert results.large is not None
    assert results.statements is not None
    assert results.latency is not None
    (compared,) = (result for result in results.merges if result.streams == COMPARED_STREAMS)
    uses = [compared.cpu_use, results.statements.cpu_use, *(result.cpu_use for result in results.replications)]
    return {
        "ratio_to_multi_source": round(results.ratio, 2),
        "statements_ratio_to_multi_source": round(results.statements_ratio, 2),
        "statements_transactions_per_second": round(results.statements.transactions_per_second),
        "statements_cpu_microseconds_per_transaction": round(results.statements.cpu_microseconds_per_transaction, 2),
        "transactions_per_second": round(compared.transactions_per_second),
        "cpu_microseconds_per_transaction": round(compared.cpu_microseconds_per_transaction, 2),
        "peak_memory_bytes": compared.peak_memory_bytes,
        "multi_source_transactions_per_second": {
            str(result.workers): round(result.transactions_per_second) for result in results.replications
        },
        "vmerge_transactions_per_second": {
            str(result.streams): round(result.transactions_per_second) for result in results.merges
        },
        "vmerge_cpu_microseconds_per_transaction": {
            str(result.streams): round(result.cpu_microseconds_per_transaction, 2) for result in results.merges
        },
        "transactions_per_stream": results.merges[0].transactions,
        "large_transaction": {
            "bytes": results.large_bytes,
            "seconds": round(results.large.seconds, 2),
            "peak_memory_bytes": results.large.peak_memory_bytes,
        },
        "resume_latency_seconds": {
            "median": round(results.latency.median, 5),
            "percentile_95": round(results.latency.percentile_95, 5),
            "rounds": len(results.latency.seconds),
        },
        "others_cpu_share": round(max(use.others_share for use in uses), 3),
        "is_equal": True,
    }


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit codes: 0 measured, 9 a target differed, 130 interrupted, others as vmerge's own."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 x 20,000 transactions and 100 MB, within a minute")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object in the last line")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")  # a first run fetches MySQL, and says so
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        results = measure(QUICK if chosen.quick else FULL)
    except KeyboardInterrupt:
        say("\nInterrupted; all servers are gone.")
        return EXIT_INTERRUPTED
    except VmergeError as error:
        say(f"\nError: {error.message}")
        say(f"Hint: {error.hint}")
        return error.exit_code
    if chosen.json:
        say(json.dumps(as_data(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
