"""How soon a blocked stream goes on when its sibling has released the key.

Knows: how to make one stream wait for another, and the target's own clock. Never knows: what vmerge does about it. Used
by the benchmark.

Each round, one after the other: the target's gate row is locked from outside; shard A changes the gate row and
releases an e-mail address in one transaction, shard B then takes the address. A's stream hangs at the gate, B's meets
the address and waits. When B's stream says that it is blocked, and a random while later, so that rounds do not fall
in step with its retries, the gate is opened.

Both commits are in the target's binlog with the instants at which the server wrote them. The latency is the difference;
nothing of this program is in it.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from vmerge.core.binlog import Surroundings
from vmerge.core.events import Heartbeat, Transaction
from vmerge.core.position import GtidSet
from vmerge.core.projection import Carried
from vmerge.lab.bench_load import SERVER_OPTIONS, executed
from vmerge.lab.comparison import Comparison, Shard, compare
from vmerge.lab.merge import Merge, Stream
from vmerge.lab.processes import ProgramFailed
from vmerge.lab.servers import Lab, Server
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.source import DumpSource, decompress
from vmerge.mysql.spool import SpooledRows
from vmerge.mysql.tls import Tls, TlsMode

DATABASE = "bench_latency"
TABLE = f"""
CREATE DATABASE {DATABASE};
CREATE TABLE {DATABASE}.account (
  id BIGINT NOT NULL PRIMARY KEY, email VARCHAR(60) NOT NULL, round INT NOT NULL, UNIQUE KEY email (email)
)
"""
GATE = 0
TAKEN_FROM = 1_000_000
ROUND_SECONDS = 20.0
POLL_SECONDS = 0.002
HELD_SECONDS = (0.02, 0.15)
"""How long a stream stays blocked after it said so: below the second for which it may wait for a lock."""


@dataclass(frozen=True)
class LatencyResult:
    """All rounds."""

    seconds: tuple[float, ...]
    comparison: Comparison

    @property
    def median(self) -> float:
        """In seconds."""
        return statistics.median(self.seconds)

    @property
    def percentile_95(self) -> float:
        """In seconds."""
        return statistics.quantiles(self.seconds, n=20)[-1] if len(self.seconds) > 1 else self.seconds[0]


def measure_latency(lab: Lab, shards: Sequence[Server], rounds: int) -> LatencyResult:
    """Block a stream so many times and measure how soon it goes on."""
    first, second = shards
    target = lab.start("blocked", options=SERVER_OPTIONS)
    try:
        for server in (first, second, target):
            server.execute_script(TABLE)
        for server in (first, target):
            _seed(server, rounds)
        streams = [Stream(server.name, server, {DATABASE: DATABASE}, executed(server)) for server in shards]
        with Merge(lab, "bench-latency", streams, target, tls="disabled") as merge:
            merge.wait_until_streaming()
            begin = executed(target)
            chance = random.Random(1)
            for number in range(1, rounds + 1):
                _play_round(merge, first, second, number, chance)
            merge.wait_until_applied({server.name: executed(server) for server in shards}, ROUND_SECONDS)
            merge.end()
        latencies = tuple(_latencies(target, begin, rounds))
        comparison = compare([Shard(stream.server, stream.databases) for stream in streams], target)
    finally:
        lab.remove(target)
    return LatencyResult(latencies, comparison)


def _seed(server: Server, rounds: int) -> None:
    rows = ", ".join(f"({number}, 'key{number}@example.com', 0)" for number in range(GATE, rounds + 1))
    server.query(f"INSERT INTO {DATABASE}.account VALUES {rows}")


def _play_round(merge: Merge, first: Server, second: Server, number: int, chance: random.Random) -> None:
    with _locked_gate(merge.target):
        first.execute_script(
            f"BEGIN; UPDATE account SET round = {number} WHERE id = {GATE};"
            f"UPDATE account SET email = 'free{number}@example.com' WHERE id = {number}; COMMIT",
            DATABASE,
        )
        take = f"INSERT INTO account VALUES ({TAKEN_FROM + number}, 'key{number}@example.com', {number})"
        second.execute_script(take, DATABASE)
        _wait(merge, lambda: merge.progress()[second.name]["blocked"] is not None)
        time.sleep(chance.uniform(*HELD_SECONDS))
    taken = f"SELECT COUNT(*) FROM {DATABASE}.account WHERE id = {TAKEN_FROM + number}"
    _wait(merge, lambda: merge.target.query(taken) == [(1,)])


@contextlib.contextmanager
def _locked_gate(target: Server) -> Iterator[Connection[Cursor]]:
    with target.connect(DATABASE) as connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute("SELECT * FROM account WHERE id = %s FOR UPDATE", (GATE,))
        yield connection
        connection.commit()


def _wait(merge: Merge, is_true: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + ROUND_SECONDS
    while not is_true():
        if time.monotonic() > give_up_at:
            raise ProgramFailed(f"a round of the latency measurement did not end: {merge.progress()}")
        time.sleep(POLL_SECONDS)


def _latencies(target: Server, begin: GtidSet, rounds: int) -> Iterator[float]:
    """Pair the commits: each round has A's, which releases, and then B's, which takes."""
    commits = list(_commits(target, begin))
    if len(commits) != 2 * rounds:
        raise ProgramFailed(f"{rounds} rounds left {len(commits)} transactions on the target instead of two each")
    for release, take in zip(commits[::2], commits[1::2], strict=True):
        yield (take - release) / 1e6


def _commits(target: Server, begin: GtidSet) -> Iterator[int]:
    """Return when the target committed each transaction with rows of the table, in microseconds."""
    endpoint = Endpoint("target", target.host, target.port, "root", "", str(target.socket_path), Tls(TlsMode.DISABLED))
    surroundings = Surroundings(
        carriage=lambda table: Carried(table) if table.database == DATABASE else None,
        open_store=lambda: SpooledRows(None),
        decompress=decompress,
        spool_above_bytes=1 << 20,
    )
    uuid = f"00000000-0000-4000-8000-{zlib.crc32(DATABASE.encode()):012x}"
    source = DumpSource(endpoint, server_id=1, replica_uuid=uuid, surroundings=surroundings)
    source.open(begin)
    try:
        is_at_head = False
        while not is_at_head:
            items: Sequence[Any] = source.read()
            yield from (item.committed_at_microseconds for item in items if _has_rows(item))
            is_at_head = any(isinstance(item, Heartbeat) for item in items)
    finally:
        source.close()


def _has_rows(item: object) -> bool:
    return isinstance(item, Transaction) and item.byte_count > 0
