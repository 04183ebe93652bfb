"""One measured run of vmerge: the real daemon, over TCP, with everything it promises switched on.

Knows: when a run begins and ends, and what it cost. Never knows: how the shards were loaded. Used by the benchmark.

A run begins when the first stream has taken its place in the control table, as START REPLICA begins when the server
is long up; it ends with the last checkpoint, at the instant that the target noted in it. The benchmark looks at that
table seldom while streams run, for its looks cost the target time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from vmerge.core.appliers import ApplierSetting
from vmerge.core.position import GtidSet
from vmerge.lab.bench_cpu import CpuMeter, CpuUse
from vmerge.lab.bench_load import SERVER_OPTIONS, LoadedShard, count_between
from vmerge.lab.comparison import Comparison, Shard, compare
from vmerge.lab.merge import CONTROL_DATABASE, Merge, Stream
from vmerge.lab.processes import ProgramFailed
from vmerge.lab.servers import Lab

START_SECONDS = 60.0
RUN_SECONDS = 1200.0
BEGIN_POLL_SECONDS, END_POLL_SECONDS = 0.005, 0.05
READ_STREAMS = f"SELECT position, epoch, state, message, updated_at FROM {CONTROL_DATABASE}.stream"
NOT_YET = (1049, 1146)
"""The control database or its table is not made yet."""


@dataclass(frozen=True)
class MergeResult:
    """One run."""

    streams: int
    applier: ApplierSetting
    transactions: int
    seconds: float
    cpu_seconds: float
    """Of the daemon, user and system."""
    peak_memory_bytes: int
    """Of the daemon, from its start to the end of the run."""
    cpu_use: CpuUse
    comparison: Comparison

    @property
    def transactions_per_second(self) -> float:
        """Throughput of all streams together."""
        return self.transactions / self.seconds

    @property
    def cpu_microseconds_per_transaction(self) -> float:
        """CPU time of the daemon per source transaction."""
        return self.cpu_seconds / self.transactions * 1e6


def measure_merge(
    lab: Lab,
    shards: Sequence[LoadedShard],
    *,
    database: str,
    tables: str,
    applier: ApplierSetting = ApplierSetting.AUTO,
) -> MergeResult:
    """Merge the shards into a fresh server, from their starts to their ends."""
    target = lab.start("merged", options=SERVER_OPTIONS)
    try:
        target.execute_script(tables)
        streams = [Stream(shard.name, shard.server, {database: database}, shard.start) for shard in shards]
        with (
            Merge(
                lab,
                f"bench-{len(shards)}-{database}-{applier.value}",
                streams,
                target,
                tls="disabled",
                applier=applier,
            ) as merge,
            target.connect() as connection,
        ):
            began_at = _wait_for_begin(merge, connection)
            cpu_before = merge.cpu_seconds
            meter = CpuMeter(target.pid, [merge.pid, *(shard.server.pid for shard in shards)])
            seconds = _wait_for_end(merge, connection, [shard.end for shard in shards]) - began_at
            use = meter.read()
            cpu_seconds, peak = merge.cpu_seconds - cpu_before, merge.peak_memory_bytes
            if merge.end() != 0:
                raise merge.failure()
        comparison = compare([Shard(stream.server, stream.databases) for stream in streams], target)
    finally:
        lab.remove(target)
    transactions = sum(count_between(shard.start, shard.end) for shard in shards)
    return MergeResult(len(shards), applier, transactions, seconds, cpu_seconds, peak, use, comparison)


def _wait_for_begin(merge: Merge, connection: Connection[Cursor]) -> float:
    give_up_at = time.monotonic() + START_SECONDS
    while not any(epoch for _, epoch, *_ in _read(connection)):
        _require_progress(merge, give_up_at)
        time.sleep(BEGIN_POLL_SECONDS)
    return time.time()


def _wait_for_end(merge: Merge, connection: Connection[Cursor], ends: Sequence[GtidSet]) -> float:
    give_up_at = time.monotonic() + RUN_SECONDS
    texts = sorted(map(str, ends))
    while True:
        rows = _read(connection)
        if sorted(row[0] for row in rows) == texts:
            return max(float(row[-1].replace(tzinfo=UTC).timestamp()) for row in rows)
        for _, _, state, message, _ in rows:
            if state == "error":
                raise ProgramFailed(f"{merge.name}: {message}")
        _require_progress(merge, give_up_at)
        time.sleep(END_POLL_SECONDS)


def _require_progress(merge: Merge, give_up_at: float) -> None:
    merge.require_running()
    if time.monotonic() > give_up_at:
        raise ProgramFailed(f"{merge.name}: not done in time\n{merge.errors[-2000:]}")


def _read(connection: Connection[Cursor]) -> list[tuple[Any, ...]]:
    try:
        with connection.cursor() as cursor:
            cursor.execute(READ_STREAMS)
            return list(cursor.fetchall())
    except pymysql.MySQLError as error:
        if error.args[0] in NOT_YET:
            return []
        raise
