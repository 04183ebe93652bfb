"""Values that a wider column of the target must keep, carried as statements between real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.applying import Carrier

from vmerge.core.appliers import ApplierKind, ApplierSetting
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

WIDENED = {
    "i": ("TINYINT", "BIGINT", ["-128", "127", "0"]),
    "u": ("INT UNSIGNED", "BIGINT", ["0", "4294967295", "1"]),
    "n": ("DECIMAL(5,2)", "DECIMAL(10,4)", ["-999.99", "999.99", "0.01"]),
    "f": ("FLOAT", "DOUBLE", ["0.1", "3.4028234e38", "-0.0"]),
    "b": ("BIT(3)", "BIT(60)", ["0", "7", "1"]),
    "t": ("TIME(1)", "TIME(6)", ["'-838:59:58.9'", "'-00:00:00.1'", "0"]),
    "d": ("DATETIME(1)", "DATETIME(6)", ["'2020-00-00 10:00:00.5'", "'9999-12-31 23:59:59.9'", "0"]),
    "s": ("TIMESTAMP NULL", "TIMESTAMP(3) NULL", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "0"]),
    "c": ("CHAR(4)", "VARCHAR(9)", ["'é'", "'a b'", "''"]),
    "v": ("VARCHAR(4) CHARACTER SET latin1", "VARCHAR(4) CHARACTER SET utf8mb4", ["'é€'", "'a '", "''"]),
    "x": ("TEXT CHARACTER SET utf8mb3", "LONGTEXT CHARACTER SET utf8mb4", ["REPEAT('€', 21000)", "'x'", "''"]),
    "y": ("VARBINARY(4)", "BLOB", ["X'00FF0000'", "X'20'", "''"]),
    "e": ("ENUM('a','b')", "ENUM('a','b','c')", ["'b'", "0", "'a'"]),
    "z": ("SET('a','b')", "SET('a','b','c')", ["'a,b'", "''", "'b'"]),
}
"""Of each column: its type at the source, that on the target, and values."""


@pytest.fixture
def carrier(shard_a: Server, target: Server, database: str) -> Iterator[Carrier]:
    """Carries a table whose columns are all wider on the target, which chooses statements by itself."""
    for server, name, side in ((shard_a, database, 0), (target, f"{database}_merged", 1)):
        columns = ", ".join(f"{column} {widened[side]}" for column, widened in WIDENED.items())
        server.execute_script(f"CREATE DATABASE {name}; CREATE TABLE {name}.t (id VARCHAR(5) PRIMARY KEY, {columns})")
    carrier = Carrier(shard_a, target, database)
    yield carrier
    carrier.close()


def test_wider_columns_keep_every_value(carrier: Carrier) -> None:
    """Rows that are inserted, changed one by one and together, and deleted have the source's values."""
    rows = [f"('{number}', {', '.join(values[number] for _, _, values in WIDENED.values())})" for number in range(3)]
    nulls = f"('n', {', '.join(['NULL'] * len(WIDENED))})"
    session = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    statements = [
        f"INSERT IGNORE INTO t VALUES {', '.join([*rows, nulls])}",
        "UPDATE t SET i = 5, v = 'ü' WHERE id = '1'",
    ]
    for statement in (*statements, "UPDATE t SET u = 9", "DELETE FROM t WHERE id IN ('0', 'n')", "DELETE FROM t"):
        carrier.carry(session, statement)
        assert read(carrier.source, carrier.source_database) == read(carrier.target, carrier.target_database)


def read(server: Server, database: str) -> list[tuple[object, ...]]:
    """The rows, as numbers and texts that two types of one value have in common."""
    numbers = [f"CAST({column} AS UNSIGNED)" for column in "bez"]
    exact = [*(f"{column} + 0e0" for column in "f"), *(f"{column} + 0" for column in "iun")]
    times = [f"CAST({column} AS DATETIME(6))" for column in "ds"] + ["CAST(t AS TIME(6))"]
    texts = [f"HEX(CONVERT({column} USING utf8mb4))" for column in "cvx"] + ["HEX(y)"]
    columns = ", ".join(["id", *numbers, *[f"CAST({one} AS CHAR)" for one in times], *texts, *exact])
    return server.query(f"SELECT {columns} FROM {database}.t ORDER BY id")


def test_the_choice(carrier: Carrier) -> None:
    """Without a word about it, the tables' columns choose statements, and the policy can forbid them."""
    kinds = {choice.kind for choice in carrier.plan().choices().values()}
    assert kinds == {ApplierKind.STATEMENTS}
    assert not carrier.plan(ApplierSetting.EVENTS).choices()
