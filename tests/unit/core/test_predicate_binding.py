"""A predicate decides rows of columns that it fits, and is refused for those where its outcome is not sure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmerge.config.predicates import parse
from vmerge.core.column_types import ColumnShape, ColumnType
from vmerge.core.filter_column import FilterColumn
from vmerge.core.predicate_binding import RowFilter, bind
from vmerge.errors import FilterRefused

AI_CI, PADDED, BINARY = 255, 46, 63


def column(name: str, type: ColumnType, metadata: bytes = b"", **other: object) -> FilterColumn:
    plain = FilterColumn(name, ColumnShape(type, metadata), True, False, None, None)
    return replace(plain, **other)  # type: ignore[arg-type]  # the fields' own types


COLUMNS = (
    column("n", ColumnType.LONG),
    column("u", ColumnType.LONG, unsigned=True),
    column("big", ColumnType.LONGLONG),
    column("ubig", ColumnType.LONGLONG, unsigned=True),
    column("money", ColumnType.NEWDECIMAL, bytes((10, 2))),
    column("y", ColumnType.YEAR, unsigned=True),
    column("f", ColumnType.DOUBLE, b"\x08"),
    column("loose", ColumnType.VARCHAR, b"\x50\x00", collation_id=AI_CI),
    column("strict", ColumnType.VARCHAR, b"\x50\x00", collation_id=PADDED),
    column("german", ColumnType.VARCHAR, b"\x50\x00", collation_id=47),
    column("octets", ColumnType.VARCHAR, b"\x50\x00", collation_id=BINARY),
    column("label", ColumnType.ENUM, b"\x01", collation_id=AI_CI, label_bytes=(b"new", b"paid")),
    column("twins", ColumnType.ENUM, b"\x01", collation_id=AI_CI, label_bytes=(b"a", "á".encode())),
    column("hidden", ColumnType.ENUM, b"\x01"),
    column("day", ColumnType.DATE, nullable=False),
    column("at", ColumnType.DATETIME2, b"\x00"),
    column("stamp", ColumnType.TIMESTAMP2, b"\x00"),
    column("doc", ColumnType.JSON, b"\x04"),
    column("unsaid", ColumnType.LONG, unsigned=None),
    column("bare", ColumnType.VARCHAR, b"\x50\x00"),
    replace(column("strange", ColumnType.LONG), shape=None),
)


def bound(text: str) -> RowFilter:
    return bind(parse(text), COLUMNS)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nothing = 1", "no such column"),
        ("loose = 'a'", "collation"),
        ("strict = loose", "column `loose`'s collation"),
        ("loose IN ('a', 'b')", "collation"),
        ("strict = X'61'", "not compared"),
        ("strict = 1", "not compared"),
        ("german = 'ä'", "character set"),
        ("CAST(german AS BINARY) = 'ä'", "character set"),
        ("octets = loose", "not compared"),
        ("CAST(n AS BINARY) = '1'", "no text"),
        ("strict", "no condition"),
        ("money", "no condition"),
        ("'a' = 'A'", "not compared"),
        ("n = '1'", "not compared"),
        ("n = X'31'", "not compared"),
        ("f = 1", "not compared"),
        ("f > 0.5 OR n = 1", "not compared"),
        ("doc = 1", "not compared"),
        ("big + 1 = 2", "too large"),
        ("big - 1 = 2", "too small"),
        ("-big = 1", "too large"),
        ("big DIV n = 1", "too small"),
        ("big DIV 1 = 1", "too small"),
        ("u - 1 = 0", "below 0"),
        ("u * n = 0", "below 0"),
        ("money + 1 = 2", "whole number"),
        ("n + NULL = 2", "whole number"),
        ("n = 0.0000000000000000000000000000001", "65 digits"),
        ("n IN (1, 0.5)", "IN"),
        ("big IN (1, ubig)", "IN"),
        ("n BETWEEN NULL AND 1", "BETWEEN"),
        ("y = 99", "years"),
        ("y IN (2000, 0)", "years"),
        ("y = n", "years"),
        ("label = 'NEW'", "no label"),
        ("label = 1", "not compared"),
        ("label < 'paid'", "order"),
        ("twins = 'a'", "another label"),
        ("hidden = 'a'", "labels"),
        ("day IS NULL", "zero date"),
        ("day = '2024-12-31 00:00:00'", "form"),
        ("day = '2024-1-1'", "form"),
        ("at = '2024-02-30'", "does not exist"),
        ("at = '0000-00-00'", "does not exist"),
        ("at = '2024-12-31 24:00:00'", "does not exist"),
        ("at = 20241231", "not compared"),
        ("at = day", "not compared"),
        ("stamp = '2040-01-01'", "no TIMESTAMP"),
        ("stamp = at", "not compared"),
        ("unsaid = 1", "sign"),
        ("bare = 'a'", "collation"),
        ("strange = 1", "not known"),
    ],
)
def test_refusal(text: str, named: str) -> None:
    """What might end otherwise on a server for some row is refused: the part, the reason, and what to write."""
    with pytest.raises(FilterRefused, match=named) as raised:
        bound(text)
    assert raised.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "f IS NULL",
        "doc IS NOT NULL",
        "unsaid IS NULL",
        "bare IS NULL",
        "strange IS NULL",
        "stamp IS NULL",
        "f <=> NULL",
    ],
)
def test_null_of_anything(text: str) -> None:
    """Whether a value is NULL can be asked of every type."""
    (place,) = bound(text).columns
    is_negated = text.endswith("NOT NULL")
    some = [b"\x01\x02\x03\x04" if at == place else None for at in range(len(COLUMNS))]
    assert bound(text).decide((None,) * len(COLUMNS)) is not is_negated
    assert bound(text).decide(tuple(some)) is is_negated


def test_columns() -> None:
    """A filter tells where its columns stand, whatever their case, and looks at no other."""
    one = bound("N > 0 AND `Strict` = 'a' OR n = 5")
    assert one.columns == (0, 8)
    slices: list[bytes | None] = [b"\xff" * 99] * len(COLUMNS)
    slices[0], slices[8] = b"\x01\x00\x00\x00", b"\x02a "
    assert one.decide(tuple(slices)) is True
    slices[8] = None
    assert one.decide(tuple(slices)) is None
