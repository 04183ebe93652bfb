"""Constants as they stand in row images."""

from __future__ import annotations

import pytest

from vmerge.core.constants import NotTaken, constant_image
from vmerge.core.rules import Constant
from vmerge.core.schema import Column, Generation, GenerationKind


def number(type_text: str) -> Column:
    return Column("c", 1, type_text, nullable=True)


def text(type_text: str, size: int, charset: str | None = "utf8mb4") -> Column:
    return Column("c", 1, type_text, True, size, charset, None if charset is None else f"{charset}_bin", 46)


SIZES = Column("c", 1, "enum", True, 4, "utf8mb4", "utf8mb4_bin", 46, ("s", "m"), (b"s", b"m"))
MANY = tuple(f"l{at}" for at in range(300))
WIDE = Column("c", 1, "enum", True, 4, "utf8mb4", "utf8mb4_bin", 46, MANY, tuple(one.encode() for one in MANY))


@pytest.mark.parametrize(
    ("value", "column", "image"),
    [
        (-1, number("tinyint"), b"\xff"),
        (255, number("tinyint unsigned"), b"\xff"),
        (258, number("smallint"), b"\2\1"),
        (-2, number("mediumint"), b"\xfe\xff\xff"),
        (1, number("int unsigned"), b"\1\0\0\0"),
        (2**64 - 1, number("bigint unsigned"), b"\xff" * 8),
        ("ä€", text("varchar(63)", 252), b"\5\xc3\xa4\xe2\x82\xac"),
        ("x", text("varchar(64)", 256), b"\1\0x"),
        ("x ", text("varchar(64)", 256), b"\2\0x "),
        ("x ", text("char(2)", 8), b"\1x"),
        ("x", text("char(255)", 1020), b"\1\0x"),
        ("\U0001f600", text("char(1)", 4), b"\4\xf0\x9f\x98\x80"),
        ("ab", text("varchar(2)", 2, "latin1"), b"\2ab"),
        ("ab", text("char(2)", 2, "ascii"), b"\2ab"),
        ("ä", text("text", 65535, "utf8mb3"), b"\2\0\xc3\xa4"),
        ("", text("longtext", 2**32 - 1), bytes(4)),
        ("a\0", text("binary(3)", 3, None), b"\1a"),
        ("a\0", text("varbinary(3)", 3, None), b"\2a\0"),
        ("a", text("tinyblob", 255, None), b"\1a"),
        ("m", SIZES, b"\2"),
        ("l299", WIDE, b"\x2c\1"),
        (None, number("int"), None),
    ],
)
def test_a_constant_stands_as_a_server_would_write_it(value: Constant, column: Column, image: bytes | None) -> None:
    """Integers, texts, bytes and labels have the bytes that MySQL writes for them; scenarios try them on servers."""
    assert constant_image(value, column) == image


@pytest.mark.parametrize(
    ("value", "column", "says"),
    [
        (128, number("tinyint"), "which 128 is out of the range of"),
        (-1, number("int unsigned"), "out of the range"),
        ("1", number("int"), "takes no text"),
        (1, text("varchar(5)", 20), "takes no number"),
        ("abcdef", text("varchar(5)", 20), "too long"),
        ("abc", text("binary(2)", 2, None), "too long"),
        ("ä" * 128, text("tinytext", 255), "too long"),
        ("ä", text("varchar(5)", 5, "latin1"), "plain ASCII"),
        ("\U0001f600", text("varchar(5)", 15, "utf8mb3"), "lacks a character"),
        ("x", text("varchar(5)", 10, "ucs2"), "the character set ucs2"),
        ("l", SIZES, "no label 'l'"),
        (1, SIZES, "not a number"),
        (1, number("year"), "is year: constants are for"),
        ("2020-01-01", number("date"), "is date"),
        (None, Column("c", 1, "int", nullable=False), "NOT NULL"),
        (1, Column("c", 1, "int", True, generated=Generation(GenerationKind.STORED, "1")), "is generated"),
    ],
)
def test_what_a_column_does_not_take_is_refused(value: Constant, column: Column, says: str) -> None:
    """A value that a server would cut, convert or refuse is never written."""
    with pytest.raises(NotTaken, match=says):
        constant_image(value, column)
