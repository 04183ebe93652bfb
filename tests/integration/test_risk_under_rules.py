"""What collides under rules: rows as they come to the target, by its keys, if the filter lets them through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.test_risk import STREAMS, Shards, pairs

from vmerge.check import collision_search
from vmerge.config.predicates import parse
from vmerge.core.rules import Constant, TableRule
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

SOURCE = """
CREATE TABLE {db}.people (
  id INT PRIMARY KEY AUTO_INCREMENT, mail VARCHAR(20) NOT NULL, login VARCHAR(20), note INT, is_live INT,
  UNIQUE KEY by_mail (mail), UNIQUE KEY by_login (login, id), UNIQUE KEY by_text ((LOWER(login))), UNIQUE KEY (note)
)
"""
TARGET = """
CREATE TABLE {db}.customer (
  origin TINYINT, id INT, `e mail` VARCHAR(20) NOT NULL, login VARCHAR(20), PRIMARY KEY (origin, id),
  UNIQUE KEY by_email (`e mail`), UNIQUE KEY by_origin (origin, `e mail`), UNIQUE KEY by_text ((LOWER(login)))
)
"""


@pytest.fixture
def shards(
    database: str, shard_a: Server, shard_b: Server, target: Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shards]:
    monkeypatch.setattr(collision_search, "SEEN_AGAIN_AFTER_SECONDS", 0.0)
    made = Shards(database, shard_a, shard_b, target)
    for name in STREAMS:
        made.at(name, SOURCE)
    made.run(target, TARGET)
    yield made
    made.close()


def set_rules(shards: Shards, *origins: Constant, where: str = "is_live = 1") -> None:
    for name, origin in zip(STREAMS, origins, strict=True):
        shards.rules[name][shards.database, "customer"] = TableRule(
            source_table="people",
            renamed={"E Mail": "mail"},
            dropped=("note", "is_live"),
            constants={"origin": origin},
            where=parse(where),
        )


def test_collisions_in_renamed_and_constant_columns(shards: Shards) -> None:
    """Equal keys collide where constants agree, by renamed columns and expressions, and only within the filter."""
    set_rules(shards, 7, 7)
    shards.at(
        "-80",
        "INSERT INTO {db}.people VALUES (1, 'x', 'Ann', 5, 1), (2, 'y', 'bob', 6, 1), (3, 'z', 'carl', 7, 0), "
        "(4, 'q', 'dora', 8, 1)",
    )
    shards.at(
        "80-",
        "INSERT INTO {db}.people VALUES (11, 'X', 'tim', 5, 1), (2, 'b', 'BOB', 9, 1), (13, 'z', 'tom', 7, 1), "
        "(14, 'q', 'max', 8, NULL)",
    )
    found = shards.check()
    mails = [({"id": "1"}, {"id": "11"})]
    both = [({"id": "2"}, {"id": "2"})]
    assert pairs(found.collisions) == {"PRIMARY": both, "by_email": mails, "by_origin": mails, "by_text": both}


def test_constants_keep_streams_apart(shards: Shards) -> None:
    """Constants that differ keep a key's streams apart: it is not searched, and the operator is told."""
    set_rules(shards, 7, 8)
    for name in STREAMS:
        shards.at(name, "INSERT INTO {db}.people VALUES (1, 'x', 'ann', 5, 1), (2, 'z', 'bob', 6, 0)")
    found = shards.check()
    assert pairs(found.collisions) == {
        "by_email": [({"id": "1"}, {"id": "1"})],
        "by_text": [({"id": "1"}, {"id": "1"})],
    }
    (table,) = found.tables
    assert [(key.key.name, bool(key.groups)) for key in table.keys] == [
        ("PRIMARY", False),
        ("by_email", True),
        ("by_origin", False),
        ("by_text", True),
    ]
    assert "constants keep all streams apart" in "\n".join(found.lines())
