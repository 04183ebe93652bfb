"""Descriptions of tables and the sentences about their differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vmerge.core.schema import (
    Column,
    ForeignKey,
    Generation,
    GenerationKind,
    KeyPart,
    TableSchema,
    UniqueKey,
    differences,
    key_differences,
    normal_charset,
    normal_type,
    read_labels,
)

ID = Column("id", 1, "bigint", nullable=False)
EMAIL = Column("email", 2, "varchar(100)", True, 400, "utf8mb4", "utf8mb4_0900_ai_ci", 255)
SIZE = Column("size", 3, "enum", True, 4, "utf8mb4", "utf8mb4_0900_ai_ci", 255, ("s", "m"), (b"s", b"m"))
PLACE = Column("place", 4, "point", nullable=True)
COLUMNS = (ID, EMAIL, SIZE, PLACE)
PRIMARY = UniqueKey("PRIMARY", (KeyPart("id"),))


def table(columns: tuple[Column, ...] = COLUMNS, **changes: Any) -> TableSchema:
    return TableSchema("shop", "customer", "InnoDB", columns, PRIMARY, **changes)


def with_column(number: int, **changes: Any) -> TableSchema:
    columns = list(COLUMNS)
    columns[number] = replace(columns[number], **changes)
    return table(tuple(columns))


def test_equal_tables_have_no_differences() -> None:
    """Names of tables, engines, keys and case of column names do not matter to values."""
    other = replace(with_column(1, name="Email"), database="elsewhere", engine="MyISAM", primary_key=None)
    assert differences(table(), other) == ()


@pytest.mark.parametrize(
    ("number", "changes", "text"),
    [
        (0, {"type_text": "int"}, "column `id`: type bigint at the source, int on the target"),
        (0, {"type_text": "bigint unsigned"}, "column `id`: type bigint at the source, bigint unsigned on the target"),
        (1, {"type_text": "varchar(50)"}, "column `email`: type varchar(100) at the source, varchar(50) on the target"),
        (1, {"charset": "latin1"}, "column `email`: character set utf8mb4 at the source, latin1 on the target"),
        (
            1,
            {"collation": "utf8mb4_bin"},
            "column `email`: collation utf8mb4_0900_ai_ci at the source, utf8mb4_bin on the target",
        ),
        (1, {"nullable": False}, "column `email`: may be NULL at the source, NOT NULL on the target"),
        (1, {"invisible": True}, "column `email`: visibility visible at the source, invisible on the target"),
        (
            1,
            {"generated": Generation(GenerationKind.STORED, "upper(`id`)")},
            "column `email`: generation none at the source, stored as upper(`id`) on the target",
        ),
        (2, {"labels": ("m", "s")}, "column `size`: label 1 is 's' at the source, 'm' on the target"),
        (2, {"labels": ("s", "m", "l")}, "column `size`: 2 labels at the source, 3 on the target"),
        (3, {"srid": 4326}, "column `place`: spatial reference system none at the source, 4326 on the target"),
    ],
)
def test_each_difference_is_one_sentence(number: int, changes: dict[str, Any], text: str) -> None:
    """Whatever would change a value on its way is told, with both sides."""
    assert differences(table(), with_column(number, **changes)) == (text,)


def test_a_looser_target_is_no_difference() -> None:
    """A target's column may be nullable where the source's is not: it takes every value as it is."""
    assert differences(with_column(1, nullable=False), table()) == ()


def test_missing_and_additional_columns_are_named() -> None:
    """A count that differs is told by the names of the columns, not by what then stands at each place."""
    assert differences(table(), table(COLUMNS[:2])) == ("the target lacks columns `size`, `place`",)
    assert differences(table(COLUMNS[1:]), table()) == ("only the target has column `id`",)
    renamed = replace(EMAIL, name="mail")
    assert differences(table((ID, EMAIL)), table((ID, renamed))) == (
        "the target lacks column `email`",
        "only the target has column `mail`",
    )


def test_another_order_is_told_by_place() -> None:
    """Swapped columns are a difference even when their types are equal."""
    swapped = (ID, replace(SIZE, position=2), replace(EMAIL, position=3), PLACE)
    assert differences(table(), table(swapped)) == (
        "column 2 is `email` at the source and `size` on the target",
        "column 3 is `size` at the source and `email` on the target",
    )


def test_keys_are_compared_by_their_parts() -> None:
    """A unique key on one side only is told whatever its name is; the primary key is one of them."""
    email = UniqueKey("email", (KeyPart("email"),))
    prefix = UniqueKey("email", (KeyPart("email", prefix_length=10),))
    same = UniqueKey("mail_again", (KeyPart("email"),))
    assert key_differences(table(unique_keys=(email,)), table(unique_keys=(same,))) == ()
    assert key_differences(table(unique_keys=(email,)), table(unique_keys=(prefix,))) == (
        "unique key email (email) is missing on the target",
        "unique key email (email(10)) is on the target only",
    )
    assert key_differences(table(), replace(table(), primary_key=None)) == (
        "unique key PRIMARY (id) is missing on the target",
    )
    expression = UniqueKey("low", (KeyPart(None, "lower(`email`)"),))
    assert key_differences(table(), table(unique_keys=(expression,))) == (
        "unique key low ((lower(`email`))) is on the target only",
    )


@pytest.mark.parametrize(
    ("printed", "normal"),
    [
        ("int(11)", "int"),
        ("int(10) unsigned", "int unsigned"),
        ("int(5) unsigned zerofill", "int unsigned"),
        ("tinyint(1)", "tinyint"),
        ("year(4)", "year"),
        ("float(7,3)", "float(7,3)"),
        ("decimal(10,2) unsigned zerofill", "decimal(10,2) unsigned"),
        ("varchar(20)", "varchar(20)"),
        ("enum('a','(b)')", "enum"),
        ("SET('A')", "set"),
        ("geometrycollection", "geomcollection"),
        ("point", "point"),
    ],
)
def test_types_are_normalised(printed: str, normal: str) -> None:
    """How a number is displayed, and how a version spells a type, is no difference."""
    assert normal_type(printed) == normal


@pytest.mark.parametrize(
    ("printed", "labels"),
    [
        ("enum('a','b')", ("a", "b")),
        ("enum('a,b','c''d','')", ("a,b", "c'd", "")),
        (r"set('x\\y','new\nline','nul\0','tab\t')", (r"x\y", "new\nline", "nul\0", "tabt")),
        ("enum('(é)')", ("(é)",)),
        ("varchar(20)", ()),
    ],
)
def test_labels_are_read_from_the_type(printed: str, labels: tuple[str, ...]) -> None:
    """Labels come out as they are, whatever they hold."""
    assert read_labels(printed) == labels


def test_old_names_of_utf8_are_the_new_ones() -> None:
    """Versions before 8.0.30 say utf8 for utf8mb3."""
    assert [normal_charset(name) for name in ("utf8", "utf8_bin", "utf8mb4_bin", None)] == [
        "utf8mb3",
        "utf8mb3_bin",
        "utf8mb4_bin",
        None,
    ]


@pytest.mark.parametrize(
    ("text", "family", "is_unsigned"),
    [("int unsigned", "int", True), ("year", "year", True), ("varchar(3)", "varchar", False), ("int", "int", False)],
)
def test_family_and_sign(text: str, family: str, is_unsigned: bool) -> None:
    """The family is the type's first word; YEAR has no sign, as the binlog says."""
    column = replace(ID, type_text=text)
    assert (column.family, column.is_unsigned) == (family, is_unsigned)


@pytest.mark.parametrize(
    ("on_delete", "on_update", "cascades"),
    [("NO ACTION", "RESTRICT", False), ("CASCADE", "NO ACTION", True), ("RESTRICT", "SET NULL", True)],
)
def test_cascading_foreign_keys(on_delete: str, on_update: str, cascades: bool) -> None:
    """Every rule but the refusing ones changes rows of the child."""
    key = ForeignKey("fk", ("a",), ("shop", "parent"), ("id",), on_delete, on_update)
    assert key.cascades is cascades


def test_parts_of_keys_read_as_they_were_written() -> None:
    """A prefix stands behind its column; an expression is shown without the escapes that the schema views add."""
    parts = KeyPart("a"), KeyPart("a", prefix_length=3), KeyPart(None, "concat(`a`,_utf8mb4\\'\\\\n\\')")
    assert [str(part) for part in parts] == ["a", "a(3)", "(concat(`a`,_utf8mb4'\\n'))"]
