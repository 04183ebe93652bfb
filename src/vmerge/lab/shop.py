"""The shop: the tables that the demo's workload writes, and the rows they begin with.

Knows: two tables with secondary unique keys and values of many types, and how to fill shards and target alike. Never
knows: what happens to the rows later, or vmerge. Used by ``workload.py``, the demo and the tests.

Primary keys say where a row was born: seeded rows count from 1, shard by shard in turn; rows born under the workload
have ids far above (``workload.py``).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from vmerge.lab.servers import Server

TABLES = """
CREATE DATABASE {database} CHARACTER SET utf8mb4;
CREATE TABLE {database}.customer (
  id BIGINT NOT NULL PRIMARY KEY,
  email VARCHAR(120) NOT NULL,
  name VARCHAR(80) NOT NULL,
  note TEXT,
  balance DECIMAL(14, 4) NOT NULL,
  score DOUBLE,
  profile JSON,
  picture VARBINARY(64),
  may_move BOOLEAN NOT NULL DEFAULT FALSE,
  updated_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  UNIQUE KEY email (email)
);
CREATE TABLE {database}.purchase (
  id BIGINT NOT NULL PRIMARY KEY,
  customer_id BIGINT NOT NULL,
  reference CHAR(20) CHARACTER SET ascii NOT NULL,
  amount DECIMAL(10, 2) NOT NULL,
  placed_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  UNIQUE KEY reference (reference),
  KEY customer_id (customer_id)
);
"""

CUSTOMER_COLUMNS = "id, email, name, note, balance, score, profile, picture, may_move"
PURCHASE_COLUMNS = "id, customer_id, reference, amount"
# The instant is given, so that shards and target begin with equal rows.
SEED_CUSTOMERS = (
    f"INSERT INTO {{database}}.customer ({CUSTOMER_COLUMNS}, updated_at) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, '2024-02-29 12:00:00.000001')"
)
SEED_PURCHASES = (
    f"INSERT INTO {{database}}.purchase ({PURCHASE_COLUMNS}, placed_at) VALUES (%s, %s, %s, %s, '2024-02-29 12:00:00')"
)

_NAMES = ("Ada Lovelace", "Zoë Müller", "Łukasz Śmiały", "佐藤 花子", "Ирина Попова", "Grace O'Hopper 🚀", "נועה לוי")
_WORDS = ("called", "twice", "about the invoice;", "süß", "100 %", "it's 'quoted'", "back\\slash", "done", "\t", "…")


@dataclass(frozen=True)
class ShopShard:
    """One shard: a server and the shop's database on it."""

    server: Server
    database: str


def create_shop(server: Server, database: str) -> None:
    """Create the empty tables."""
    server.execute_script(TABLES.format(database=database))


def seed_shop(shards: Sequence[ShopShard], target: ShopShard, customers: int, seed: int = 1) -> None:
    """Give every shard so many customers with one purchase each, and the target the union of them.

    What a later workload moves comes from these rows alone: they are on the target before any stream starts.
    """
    for index, shard in enumerate(shards):
        chance = random.Random(seed * 1000 + index)
        ids = range(index + 1, customers * len(shards) + 1, len(shards))
        customer_rows = [(*customer_values(number, chance), True) for number in ids]
        purchase_rows = [(number, number, f"R{number}", chance.randrange(100_000) / 100) for number in ids]
        for place in (shard, target):
            with place.server.connect() as connection:
                connection.begin()
                _insert(connection, SEED_CUSTOMERS.format(database=place.database), customer_rows)
                _insert(connection, SEED_PURCHASES.format(database=place.database), purchase_rows)
                connection.commit()


def customer_values(number: int, chance: random.Random, email: str | None = None) -> tuple[object, ...]:
    """Return a customer's values, without the last one."""
    return (
        number,
        email or f"customer{number}@example.com",
        chance.choice(_NAMES),
        random_note(chance),
        f"{chance.uniform(-1e6, 1e6):.4f}",
        chance.choice((None, 0.1 + chance.random(), chance.uniform(-1e300, 1e300))),
        f'{{"visits": {chance.randrange(1000)}, "tags": ["{chance.choice(_NAMES)}", null, 1.5]}}',
        chance.choice((None, chance.randbytes(chance.randrange(65)))),
    )


def random_note(chance: random.Random) -> str | None:
    """Return some text of the kind that breaks careless quoting, or none."""
    return chance.choice((None, " ".join(chance.choices(_WORDS, k=chance.randrange(20)))))


def _insert(connection: Connection[Cursor], statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(statement, rows)
