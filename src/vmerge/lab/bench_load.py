"""The benchmark's transactions: many small ones, written fast; and one very large one.

Knows: the tables and how to fill a shard's binlog quickly. Never knows: who reads it. Used by the benchmark.

Half inserts, four tenths updates, one tenth deletes, one row each, on a table with a secondary unique key. Several
connections write a shard at once, as an application does, so that a replica with several workers has something to do
in parallel.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pymysql.constants import CLIENT

from vmerge.core.position import GtidSet
from vmerge.lab.servers import Options, Server

DATABASE = "bench"
LARGE_DATABASE = "bench_large"
CONNECTIONS = 4
STATEMENTS_A_PACKET = 200

SERVER_OPTIONS: Options = {
    "sync-binlog": 0,
    "innodb-flush-log-at-trx-commit": 2,
    "innodb-buffer-pool-size": "256M",
    "innodb-redo-log-capacity": "512M",
}

TABLES = f"""
CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4;
CREATE TABLE {DATABASE}.customer (
  id BIGINT NOT NULL PRIMARY KEY,
  email VARCHAR(60) NOT NULL,
  visits INT,
  note VARCHAR(100),
  UNIQUE KEY email (email)
);
"""
LARGE_TABLES = f"""
CREATE DATABASE {LARGE_DATABASE};
CREATE TABLE {LARGE_DATABASE}.document (id BIGINT NOT NULL PRIMARY KEY, body VARBINARY(4096) NOT NULL);
"""
DOCUMENT_BYTES = 4096


@dataclass(frozen=True)
class LoadedShard:
    """A shard with the positions around what was written to it."""

    name: str
    server: Server
    start: GtidSet
    end: GtidSet


def executed(server: Server) -> GtidSet:
    """Return everything that a server has."""
    return GtidSet.parse(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])


def load_shards(servers: Sequence[Server], transactions: int) -> list[LoadedShard]:
    """Write so many transactions to each server, all servers and connections at once; no key is on two shards."""
    starts = [executed(server) for server in servers]
    failures: list[BaseException] = []
    threads = [
        threading.Thread(
            target=_load,
            args=(
                server,
                index * CONNECTIONS + part,
                len(servers) * CONNECTIONS,
                transactions // CONNECTIONS,
                failures,
            ),
            daemon=True,
        )
        for index, server in enumerate(servers)
        for part in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [
        LoadedShard(server.name, server, start, executed(server)) for server, start in zip(servers, starts, strict=True)
    ]


def _load(server: Server, first_id: int, id_step: int, transactions: int, failures: list[BaseException]) -> None:
    try:
        statements = islice(_statements(first_id, id_step), transactions)
        with (
            server.connect(DATABASE, client_flag=CLIENT.MULTI_STATEMENTS) as connection,
            connection.cursor() as cursor,
        ):
            while packet := ";".join(islice(statements, STATEMENTS_A_PACKET)):
                cursor.execute(packet)
                while cursor.nextset():
                    pass
    except Exception as error:
        failures.append(error)


def _statements(first_id: int, id_step: int) -> Iterator[str]:
    """One transaction each, on rows that no other connection touches."""
    chance = random.Random(first_id)
    alive: list[int] = []
    next_id = first_id
    for number in range(1_000_000_000):
        kind = chance.random()
        if kind < 0.5 or not alive:
            alive.append(next_id)
            yield f"INSERT INTO customer VALUES ({next_id}, 'user{next_id}@example.com', 0, 'some note text {number}')"
            next_id += id_step
        elif kind < 0.9:
            yield f"UPDATE customer SET visits = {number}, note = 'changed {number}' WHERE id = {chance.choice(alive)}"
        else:
            index = chance.randrange(len(alive))
            alive[index], alive[-1] = alive[-1], alive[index]
            yield f"DELETE FROM customer WHERE id = {alive.pop()}"


def write_large_transaction(server: Server, size_bytes: int) -> int:
    """Write one transaction with about so many bytes of rows; return the number of rows."""
    rows = max(1, size_bytes // DOCUMENT_BYTES)
    with server.connect(LARGE_DATABASE) as connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute("INSERT INTO document VALUES (1, RANDOM_BYTES(1024))")
        cursor.execute("UPDATE document SET body = REPEAT(body, 4)")
        count = 1
        while count < rows:
            more = min(count, rows - count)
            cursor.execute("INSERT INTO document SELECT id + %s, body FROM document WHERE id <= %s", (count, more))
            count += more
        connection.commit()
    return rows


def count_between(start: GtidSet, end: GtidSet) -> int:
    """Return how many transactions are behind one position up to another."""
    return end.subtract(start).count()
