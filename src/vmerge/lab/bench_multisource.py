"""What MySQL itself does with the same load: multi-source replication, one channel a shard.

Knows: channels. Never knows: vmerge. Used by the benchmark as the measure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from vmerge.errors import VmergeError
from vmerge.lab.bench_cpu import CpuMeter, CpuUse
from vmerge.lab.bench_load import DATABASE, SERVER_OPTIONS, TABLES, LoadedShard, count_between
from vmerge.lab.comparison import Comparison, Shard, compare
from vmerge.lab.servers import Lab, Server

TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class ReplicationResult:
    """One run."""

    workers: int
    transactions: int
    seconds: float
    cpu_use: CpuUse
    comparison: Comparison

    @property
    def transactions_per_second(self) -> float:
        """Throughput from START REPLICA until every channel applied everything."""
        return self.transactions / self.seconds


def measure_replication(lab: Lab, shards: Sequence[LoadedShard], *, workers: int) -> ReplicationResult:
    """Replay the shards into a fresh server through one channel each."""
    options = {**SERVER_OPTIONS, "replica-parallel-workers": workers, "skip-replica-start": ""}
    target = lab.start(f"replica-{workers}", options=options)
    try:
        # Not in the binlog: the position that the channels start from is all that this server has executed.
        target.execute_script(f"SET sql_log_bin = 0; {TABLES}")
        seconds, use = _replay(target, shards)
        sides = [Shard(shard.server, {DATABASE: DATABASE}) for shard in shards]
        comparison = compare(sides, target)
    finally:
        lab.remove(target)
    return ReplicationResult(workers, sum(count_between(s.start, s.end) for s in shards), seconds, use, comparison)


def _replay(target: Server, shards: Sequence[LoadedShard]) -> tuple[float, CpuUse]:
    start = ",".join(str(shard.start) for shard in shards)
    target.query(f"SET GLOBAL gtid_purged = '+{start}'")
    for shard in shards:
        target.query(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{shard.server.host}', SOURCE_PORT = {shard.server.port}, "
            "SOURCE_USER = 'replica', SOURCE_PASSWORD = 'replica', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 0, "
            f"GET_SOURCE_PUBLIC_KEY = 1 FOR CHANNEL '{shard.name}'"
        )
    end = ",".join(str(shard.end) for shard in shards)
    meter = CpuMeter(target.pid, [shard.server.pid for shard in shards])
    began_at = time.monotonic()
    target.query("START REPLICA")
    ((timed_out,),) = target.query("SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", end, TIMEOUT_SECONDS)
    seconds = time.monotonic() - began_at
    use = meter.read()
    if timed_out:
        errors = target.query("SELECT last_error_message FROM performance_schema.replication_applier_status_by_worker")
        raise VmergeError(f"multi-source replication did not end within {TIMEOUT_SECONDS} s: {errors}")
    return seconds, use


def create_replication_account(server: Server) -> None:
    """Make the account that the channels log in with."""
    server.execute_script("CREATE USER replica IDENTIFIED BY 'replica'; GRANT REPLICATION SLAVE ON *.* TO replica")
