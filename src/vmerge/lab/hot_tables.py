"""Tables for a few values that several shards fight over, and the rows they begin with.

Knows: two tables with several unique keys, nullable and composite ones among them. Never knows: how the values move, or
vmerge. Used by ``hot_keys.py`` and the tests.

*Seats* stay on their shard for good; what they hold (a code, a place) moves from seat to seat. *Badges* are rows that
move between shards as a whole, with their primary keys. Both belong to a *lane*: what one lane moves no other touches.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmerge.lab.servers import Server
from vmerge.lab.shop import ShopShard

SEATS_PER_SHARD = 4
"""Of each lane."""
HELD = 2
"""Seats of each lane and shard that hold a code and a place in the beginning; as many badges are there."""
COLD_IDS_FROM = 1_000_000_000
"""Above all seats; rows that never meet another shard."""

TABLES = """
CREATE DATABASE IF NOT EXISTS {database} CHARACTER SET utf8mb4;
CREATE TABLE {database}.seat (
  id BIGINT NOT NULL PRIMARY KEY,
  lane INT NOT NULL,
  code VARCHAR(40) NULL,
  area VARCHAR(20) CHARACTER SET latin1 NULL,
  number INT NULL,
  note VARCHAR(400) NULL,
  changed_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  UNIQUE KEY code (code),
  UNIQUE KEY place (area, number)
);
CREATE TABLE {database}.badge (
  id BIGINT NOT NULL PRIMARY KEY,
  lane INT NOT NULL,
  serial CHAR(12) CHARACTER SET ascii NOT NULL,
  label VARCHAR(40) NULL,
  note TEXT NULL,
  UNIQUE KEY serial (serial),
  UNIQUE KEY label (label)
);
"""
# The instant is given, so that shards and target begin with equal rows.
SEED_SEATS = (
    "INSERT INTO {database}.seat (id, lane, code, area, number, changed_at) "
    "VALUES (%s, %s, %s, %s, %s, '2024-02-29 12:00:00.000001')"
)
SEED_BADGES = "INSERT INTO {database}.badge (id, lane, serial, label) VALUES (%s, %s, %s, %s)"


def create_hot_tables(server: Server, database: str) -> None:
    """Create the empty tables."""
    server.execute_script(TABLES.format(database=database))


def seed_hot_rows(shards: Sequence[ShopShard], target: ShopShard, lanes: int) -> None:
    """Give every shard its seats and badges, and the target the union of them."""
    for index, shard in enumerate(shards):
        seats = [seat for lane in range(lanes) for seat in _seats(lane, index)]
        badges = [badge for lane in range(lanes) for badge in _badges(lane, index)]
        for place in (shard, target):
            with place.server.connect() as connection, connection.cursor() as cursor:
                connection.begin()
                cursor.executemany(SEED_SEATS.format(database=place.database), seats)
                cursor.executemany(SEED_BADGES.format(database=place.database), badges)
                connection.commit()


def _seats(lane: int, shard: int) -> list[tuple[object, ...]]:
    first = lane * 10_000 + shard * 100 + 1
    seats: list[tuple[object, ...]] = []
    for number in range(first, first + SEATS_PER_SHARD):
        is_held = number < first + HELD
        seats.append(
            (number, lane, f"code {number}", f"area {lane}", number) if is_held else (number, lane, *[None] * 3)
        )
    return seats


def _badges(lane: int, shard: int) -> list[tuple[object, ...]]:
    first = lane * 10_000 + shard * 100 + 1
    return [(number, lane, f"S{number}", f"label {number}") for number in range(first, first + HELD)]
