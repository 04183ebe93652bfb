"""A table's description survives as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmerge.core.schema import Column, Generation, GenerationKind, KeyPart, TableSchema, UniqueKey
from vmerge.core.table_memory import read_table, table_text

TABLE = TableSchema(
    "shop",
    "cus`tomer",
    "InnoDB",
    (
        Column("id", 1, "bigint unsigned", False, auto_increment=True),
        Column("size", 2, "enum", True, 4, "latin1", "latin1_bin", 47, ("s", "é'"), (b"s", b"\xe9'")),
        Column("twice", 3, "bigint", True, generated=Generation(GenerationKind.STORED, "(`id` * 2)"), invisible=True),
        Column("place", 4, "point", False, srid=4326),
    ),
    UniqueKey("PRIMARY", (KeyPart("id"),)),
    (UniqueKey("by_size", (KeyPart("size", None, 3), KeyPart(None, "lower(`size`)"))),),
)


@pytest.mark.parametrize("table", [TABLE, replace(TABLE, primary_key=None, unique_keys=(), columns=())])
def test_there_and_back(table: TableSchema) -> None:
    """What is read back equals what was written, and equal tables have equal texts."""
    assert read_table(table_text(table)) == table
    assert table_text(replace(table)) == table_text(table)


@pytest.mark.parametrize(
    "other",
    [
        replace(TABLE, columns=TABLE.columns[::-1]),
        replace(TABLE, columns=(replace(TABLE.columns[0], name="number"), *TABLE.columns[1:])),
        replace(TABLE, columns=(TABLE.columns[0], replace(TABLE.columns[1], label_bytes=(b"x", b"s")))),
    ],
    ids=["order", "name", "labels"],
)
def test_what_decides_over_rows_is_in_the_text(other: TableSchema) -> None:
    """Tables whose rows would be read in another way have other texts."""
    assert table_text(other) != table_text(TABLE)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"columns": 1}', table_text(TABLE).replace("stored", "?")])
def test_another_text_is_refused(text: str) -> None:
    """A text that is no such description is told as that, and is not half a table."""
    with pytest.raises(ValueError, match=r"."):
        read_table(text)
