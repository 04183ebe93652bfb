"""Constant columns keep streams apart in the keys that have them, exactly if no column finds their values equal."""

from __future__ import annotations

import pytest

from vmerge.core.constant_keys import constants_of, meeting_streams
from vmerge.core.rules import Constant, StreamRules, TableRule
from vmerge.core.schema import Column, KeyPart, TableSchema, UniqueKey
from vmerge.core.table_checks import StreamTables

COLUMNS = (
    Column("Id", 1, "int", nullable=False),
    Column("number", 2, "int", nullable=True),
    Column("loose", 3, "varchar(9)", nullable=False, charset="utf8mb4", collation_id=255),
    Column("padded", 4, "varchar(9)", nullable=False, charset="utf8mb4", collation_id=46),
    Column("octets", 5, "varbinary(9)", nullable=False),
    Column("label", 6, "enum", nullable=False, charset="utf8mb4", collation_id=255, labels=("a", "á")),
)
TABLE = TableSchema("shop", "t", "InnoDB", COLUMNS)


def streams(*constants: dict[str, Constant]) -> list[StreamTables]:
    rules = [
        StreamRules.build({"s": "shop"}, table_rules={("shop", "t"): TableRule(constants=one)}) for one in constants
    ]
    return [StreamTables("abc"[index], one, {}, logs_cascades=False) for index, one in enumerate(rules)]


def groups(column: str, *values: Constant) -> tuple[tuple[str, ...], ...]:
    key = UniqueKey("k", (KeyPart("Id"), KeyPart(column)))
    return meeting_streams(key, TABLE, streams(*({column.upper(): value} for value in values)))


@pytest.mark.parametrize(
    ("column", "values", "together"),
    [
        ("number", (1, 1, 2), (("a", "b"),)),
        ("number", (1, 2, 3), ()),
        ("number", (None, None, None), ()),  # NULL meets nothing
        ("number", (1, None, 1), (("a", "c"),)),
        ("loose", ("a", "Á ", "b"), (("a", "b"),)),
        ("padded", ("a", "A", "a  "), (("a", "c"),)),
        ("octets", ("a", "A", "a "), ()),
        ("label", ("a", "á", "a"), (("a", "c"),)),
    ],
)
def test_who_meets(column: str, values: tuple[Constant, ...], together: tuple[tuple[str, ...], ...]) -> None:
    """Streams meet in a key whose constants the column may find equal, as its type and collation compare."""
    assert groups(column, *values) == together


def test_keys_without_constants() -> None:
    """All streams meet in a key without constants, whatever other columns are; a single stream meets nobody."""
    key = UniqueKey("k", (KeyPart("Id"), KeyPart(None, expression="lower(`loose`)")))
    assert meeting_streams(key, TABLE, streams({"number": 1}, {"number": 2})) == (("a", "b"),)
    assert meeting_streams(key, TABLE, streams({})) == ()
    assert constants_of(key, None) == {}
