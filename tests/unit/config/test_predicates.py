"""What stands in a row filter's text is read as MySQL reads it, or refused by name."""

from __future__ import annotations

import pytest

from vmerge.config.predicates import DEEPEST, LONGEST, parse
from vmerge.core.predicate import Predicate
from vmerge.errors import FilterRefused


def sql(text: str) -> str:
    return parse(text).to_sql()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 OR b = 2 AND c = 3", "((`a` = 1) OR ((`b` = 2) AND (`c` = 3)))"),
        ("a XOR b OR c", "((`a` XOR `b`) OR `c`)"),
        ("a OR b XOR c AND d", "(`a` OR (`b` XOR (`c` AND `d`)))"),
        ("NOT a = 1", "(NOT (`a` = 1))"),
        ("NOT a IN (1)", "(NOT (`a` IN (1)))"),
        ("NOT a NOT IN (1)", "(NOT (NOT (`a` IN (1))))"),
        ("a IS NOT NULL AND NOT b IS NULL", "((NOT (`a` IS NULL)) AND (NOT (`b` IS NULL)))"),
        ("a BETWEEN 1 AND 2 AND b", "((`a` BETWEEN 1 AND 2) AND `b`)"),
        ("a - 2 DIV 3 = 1", "((`a` - (2 DIV 3)) = 1)"),
        ("a MOD 2 = -1", "((`a` % 2) = (-1))"),
        ("a - b - c", "((`a` - `b`) - `c`)"),
        ("-a * b--1", "(((- `a`) * `b`) - (-1))"),
        ("a && b != 1", "(`a` AND (`b` <> 1))"),
        ("a IS UNKNOWN", "(`a` IS NULL)"),
        ("BINARY a = 'x'", "(CAST(`a` AS BINARY) = 'x')"),
        ("a = 'it''s'", "(`a` = 'it''s')"),
        ("a = 'ü'", "(`a` = _utf8mb4 X'C3BC')"),
        ("a IN (0x4a, X'')", "(`a` IN (X'4A', X''))"),
        ("a = 1.50 OR a = 007", "((`a` = 1.50) OR (`a` = 7))"),
        ("`or`\n=\t`a``b`", "(`or` = `a``b`)"),
        ("((a)) = ((1))", "(`a` = 1)"),
    ],
)
def test_reading(text: str, expected: str) -> None:
    """Parts belong together as in MySQL, and our SQL says so with parentheses."""
    assert sql(text) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a < b < c", "not clear near"),
        ("a = b IS NULL", "not clear near"),
        ("a = b IN (1)", "not clear near"),
        ("a IS NULL = 1", "not clear near"),
        ("a IS NOT NULL IS TRUE", "not clear near"),
        ("a = NOT b", "not clear near"),
        ("a NOTNULL", "not clear near"),
        ("a IS NOT DISTINCT FROM b", "not clear near"),
        ("a BETWEEN SYMMETRIC 1 AND 2", "not clear near"),
        ("!a", "`!`"),
        ("a || b", r"`\|\|`"),
        ('a = "x"', "double quotes"),
        ("a = 'x\\'y'", "backslash"),
        ("a = 'x\\n'", "backslash"),
        ("a = 'x' 'y'", "side by side"),
        ("a = N'x'", "N'x'"),
        ("a = _latin1'x'", "_latin1"),
        ("a = b'101'", "b'101'"),
        ("a = 0x4", "0x4"),
        ("a = 0X41", "0X41"),
        ("a = 1e3", "1e3"),
        ("a = .5", "point"),
        ("t.a = 1", "point"),
        ("a = @x", "variable"),
        ("a / 2 = 1", "division"),
        ("a & 1", "`&`"),
        ("a = 1 -- all", "-- all"),
        ("a /*! = 1 */", r"/\*! = 1 \*/"),
        ("a = 1; SELECT 1", "one condition"),
        ("a IN (SELECT 1)", "subquery"),
        ("a IN ()", "a IN"),
        ("(a, b) = (1, 2)", "rows are not compared"),
        ("LOWER(a) = 'x'", "LOWER"),
        ("NOW() > a", "functions"),
        ("utc_date > a", "utc_date"),
        ("MOD(a, 2) = 1", "not clear near"),
        ("CASE WHEN a THEN 1 END", "CASE"),
        ("a LIKE 'x%'", "LIKE"),
        ("a REGEXP 'x'", "REGEXP"),
        ("a COLLATE utf8mb4_bin = 'x'", "COLLATE"),
        ("a->'$.x' = 1", "->"),
        ("a = DATE '2024-01-01'", "DATE"),
        ("CAST(a AS BINARY(3)) = 'x'", "BINARY"),
        ("a IS 5", "IS 5"),
        ("a = 1) OR (b = 1", "cannot be read"),
        ("a =", "cannot be read"),
        ("a = 'x", "cannot be read"),
        ("", "empty"),
        ("a = 'x\ud800'", "half a character"),
    ],
)
def test_refusal(text: str, named: str) -> None:
    """What is not read, or not read alike on every server, is refused with its name and a way out."""
    with pytest.raises(FilterRefused, match=named) as raised:
        parse(text)
    assert raised.value.hint


@pytest.mark.parametrize("text", ["(" * 200 + "a" + ")" * 200, "+".join("a" * (DEEPEST + 2)), "NOT " * 5000 + "a"])
def test_depth(text: str) -> None:
    """A text that is nested without end is refused, and breaks nothing."""
    with pytest.raises(FilterRefused, match=r"deeper|longer"):
        parse(text)


def test_length() -> None:
    """A chain of conditions may be long, a text not without bound."""
    assert len(parse(" OR ".join(["a = 1"] * 1000)).columns) == 1
    with pytest.raises(FilterRefused, match="longer"):
        parse("a = 1" + " " * LONGEST)


def test_columns() -> None:
    """A predicate tells its columns once each, in order, and keeps its text."""
    predicate = parse(" b = 1 AND `A` IN (c, B + 1) ")
    assert isinstance(predicate, Predicate)
    assert predicate.columns == ("b", "A", "c")
    assert predicate.text == "b = 1 AND `A` IN (c, B + 1)"
    assert parse(predicate.to_sql()).condition == predicate.condition
