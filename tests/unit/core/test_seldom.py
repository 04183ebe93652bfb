"""What repeats is told once in a while, with a count."""

from __future__ import annotations

from vmerge.core.seldom import Seldom, kind_of


def test_told_once_an_interval_with_a_count() -> None:
    """The first line of a kind is told at once, then one an interval, which says how many were left out."""
    seldom = Seldom()
    told = [(second, str(telling)) for second in range(25) if (telling := seldom.tell("lost", float(second), 10.0))]
    assert told == [
        (0, ""),
        (10, " (as 9 times since this was last told)"),
        (20, " (as 9 times since this was last told)"),
    ]


def test_kinds_are_told_apart() -> None:
    """A line of another kind is news; one that differs in numbers alone is not."""
    seldom = Seldom()
    lines = ["port 3306 is closed", "access denied", "port 3307 is closed", "access denied"]
    assert [line for line in lines if seldom.tell(kind_of(line), 0.0, 10.0)] == lines[:2]


def test_memory_is_bounded() -> None:
    """Of very many kinds the oldest are forgotten."""
    seldom = Seldom()
    assert all(seldom.tell(f"{letter}", 0.0, 10.0) for letter in map(chr, range(5000)))
    assert len(seldom._told) <= 100
    assert seldom.tell(chr(4999), 0.0, 10.0) is None
