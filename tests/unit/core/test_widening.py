"""Which columns keep every value of another. What MySQL really keeps is tried in tests/integration/test_widening.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmerge.core.schema import Column, Generation, GenerationKind, TableSchema
from vmerge.core.widening import losses

_BYTES = {"ascii": 1, "latin1": 1, "utf8mb3": 3, "utf8mb4": 4, "utf16": 4, None: 1}
_BLOBS = {"tiny": 0xFF, "": 0xFFFF, "medium": 0xFFFFFF, "long": 0xFFFFFFFF}


def column(text: str) -> Column:
    """Make a column of a text such as ``varchar(9) latin1`` or ``enum a,b``; text is utf8mb4 unless said."""
    head, *rest = text.split(" ")
    family, _, arguments = head.partition("(")
    unsigned = " unsigned" if "unsigned" in rest else ""
    plain = Column("c", 1, head + unsigned, "null" in rest)
    if family in ("enum", "set"):
        return replace(plain, labels=tuple(rest[0].split(",")), charset="utf8mb4", collation="utf8mb4_bin")
    if family in ("char", "varchar") or family.endswith("text"):
        charset = next((one for one in rest if one in _BYTES), "utf8mb4")
        size = int(arguments[:-1]) * _BYTES[charset] if arguments else _BLOBS[family.removesuffix("text")]
        return replace(
            plain, charset=charset, collation=f"{charset}_{rest[1] if len(rest) > 1 else 'bin'}", octet_length=size
        )
    if family in ("binary", "varbinary") or family.endswith("blob"):
        size = int(arguments[:-1]) if arguments else _BLOBS[family.removesuffix("blob")]
        return replace(plain, octet_length=size)
    return plain


def table(one: Column) -> TableSchema:
    return TableSchema("shop", "t", "InnoDB", (one,))


KEPT = [
    *[("tinyint", "smallint"), ("tinyint unsigned", "smallint"), ("int", "bigint"), ("int unsigned", "bigint")],
    *[
        ("smallint unsigned", "int unsigned"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("decimal(9,2) unsigned", "decimal(9,2)"),
    ],
    *[("float", "double"), ("bit(3)", "bit(9)"), ("datetime", "datetime(6)"), ("timestamp(1)", "timestamp(3)")],
    *[("time(2)", "time(6)"), ("int", "int null"), ("enum a,b", "enum a,b,c"), ("set a,b", "set a,b,c")],
    *[("varchar(10)", "varchar(20)"), ("char(10)", "char(11)"), ("char(10)", "varchar(10)"), ("varchar(9)", "text")],
    *[("text", "mediumtext"), ("varchar(9) latin1", "varchar(9)"), ("varchar(9) ascii", "varchar(9) latin1")],
    *[("text utf8mb3", "text utf8mb4"), ("text latin1", "mediumtext utf8mb4"), ("tinytext ascii", "tinytext")],
    *[("varbinary(10)", "varbinary(20)"), ("varbinary(10)", "blob"), ("blob", "longblob"), ("json", "json null")],
]
LOST = [
    *[("smallint", "tinyint"), ("tinyint", "tinyint unsigned"), ("int unsigned", "int"), ("bigint unsigned", "bigint")],
    *[
        ("int", "decimal(20,0)"),
        ("decimal(10,2)", "decimal(12,1)"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("double", "float"),
    ],
    *[
        ("decimal(9,2)", "decimal(9,2) unsigned"),
        ("float", "double unsigned"),
        ("float(7,3)", "double"),
        ("date", "datetime"),
    ],
    *[("datetime(6)", "datetime(3)"), ("datetime", "timestamp"), ("int null", "int"), ("enum a,b", "enum b,a,c")],
    *[("enum a,b,c", "enum a,b"), ("enum a,b", "set a,b"), ("varchar(20)", "varchar(10)"), ("varchar(10)", "char(10)")],
    *[("text", "varchar(9)"), ("varchar(9)", "varchar(9) latin1"), ("varchar(9) latin1", "varchar(9) ascii")],
    *[("text latin1", "text utf8mb4"), ("varchar(20000)", "text"), ("varchar(9) utf16", "varchar(9)")],
    *[("binary(4)", "binary(8)"), ("binary(4)", "varbinary(8)"), ("blob", "varbinary(9)"), ("blob", "longtext")],
    *[
        ("varchar(9)", "varbinary(99)"),
        ("point", "polygon"),
        ("json", "longtext"),
        ("varchar(9) utf8mb4 x", "varchar(10)"),
    ],
]


@pytest.mark.parametrize(("source", "target"), KEPT)
def test_columns_that_keep_every_value(source: str, target: str) -> None:
    """A column with more room takes the rows, and the other way round loses something."""
    assert losses(table(column(source)), table(column(target))) == ()
    assert losses(table(column(target)), table(column(source)))


@pytest.mark.parametrize(("source", "target"), LOST)
def test_columns_that_may_change_a_value(source: str, target: str) -> None:
    """Everything else is refused with a sentence that names the column."""
    found = losses(table(column(source)), table(column(target)))
    assert found
    assert all("`c`" in text for text in found)


def test_generated_columns_must_be_the_same() -> None:
    """A column that only one side computes would get another value, and so would one that both compute otherwise."""
    plain = column("int")
    one, other = (replace(plain, generated=Generation(GenerationKind.STORED, text)) for text in "ab")
    assert losses(table(one), table(one)) == ()
    assert losses(table(one), table(other))
    assert losses(table(plain), table(one))
    assert losses(table(one), table(plain))


def test_names_and_their_order_must_agree() -> None:
    """Columns are matched by position, so another name is another column."""
    assert losses(table(column("int")), table(replace(column("int"), name="d")))
