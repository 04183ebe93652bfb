"""Comparisons of a row filter: which values MySQL compares as is done here, and how.

Knows: what makes two values comparable, and literals of times and texts beside columns. Never knows: what conditions
are made of comparisons. Used by ``core/predicate_binding.py``; the reasons are in docs/adr/0025-row-filters.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from vmerge.core.column_values import pack_date, pack_datetime, pack_timestamp
from vmerge.core.filter_collations import BINARY, could_be_equal
from vmerge.core.filter_values import (
    YEARS,
    Absent,
    BytesLiteral,
    Characters,
    Choice,
    Clock,
    Evaluate,
    Fraction,
    Moment,
    Octets,
    TextLiteral,
    Value,
    Whole,
    WholeLiteral,
    Year,
    constant,
    refused,
)
from vmerge.core.predicate import ComparisonOperator, Expression
from vmerge.core.rowimage import Slices

_EQUALITIES = frozenset({ComparisonOperator.EQUAL, ComparisonOperator.UNEQUAL, ComparisonOperator.SAME})

_PACK = {Clock.DATE: pack_date, Clock.DATETIME: pack_datetime, Clock.TIMESTAMP: pack_timestamp}
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?", re.ASCII)
_DATE_LENGTH = len("2024-12-31")
_TIMESTAMPS = datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7, 999_999)


def comparable(part: Expression, how: ComparisonOperator, left: Value, right: Value) -> tuple[Evaluate, Evaluate]:
    """Return what gives both sides of a comparison such that Python's operators end as MySQL's.

    Raises:
        FilterRefused: that is not sure for every row.
    """
    if isinstance(left, Absent) or isinstance(right, Absent):
        return left.evaluate, right.evaluate
    for ours, theirs, is_turned in ((left, right, False), (right, left, True)):
        pair = _pair(part, how, ours, theirs)
        if pair is not None:
            return (pair[1], pair[0]) if is_turned else pair
    raise refused(part, f"{left.what} beside {right.what} is not compared here", _hint(left, right))


def _hint(left: Value, right: Value) -> str:
    for value in (left, right):
        match value:
            case Whole() | Fraction():
                return "Compare numbers with numbers; write them without quotes."
            case Moment(clock=clock):
                form = "2024-12-31" if clock is Clock.DATE else "2024-12-31 23:59:59"
                return f"Compare it with a literal such as '{form}', or with another {clock.value} column."
            case Octets() | Characters():
                return "Compare bytes with bytes: write CAST(… AS BINARY) on both sides, or X'…' on one."
    return "Of such a column only IS NULL and IS NOT NULL can be asked."


def _pair(part: Expression, how: ComparisonOperator, ours: Value, theirs: Value) -> tuple[Evaluate, Evaluate] | None:
    match ours, theirs:
        case Year(), _:
            return _year_pair(part, ours, theirs)
        case ((Whole() | Fraction()), (Whole() | Fraction())) if not isinstance(theirs, Year):
            return ours.evaluate, theirs.evaluate
        case Moment(clock=clock), TextLiteral(text=text):
            return ours.evaluate, constant(_packed(part, clock, text))
        case Moment(clock=clock), Moment(clock=other) if clock is other:
            return ours.evaluate, theirs.evaluate
        case Octets(charset=charset), TextLiteral(text=text):
            return ours.evaluate, constant(_encoded(part, charset, text))
        case Octets(), (Octets() | BytesLiteral()):
            return ours.evaluate, theirs.evaluate
        case Characters(), (Characters() | TextLiteral()):
            return _text_pair(part, how, ours, theirs)
        case Choice(), TextLiteral(text=text):
            return _choice_pair(part, how, ours, text)
    return None


def _year_pair(part: Expression, year: Year, other: Value) -> tuple[Evaluate, Evaluate] | None:
    if isinstance(other, Year):
        return year.evaluate, other.evaluate
    if isinstance(other, WholeLiteral) and other.low in YEARS:
        return year.evaluate, other.evaluate
    raise refused(part, f"MySQL reads other numbers as years, too, beside {year.what}", "Write a year of four digits.")


def _packed(part: Expression, clock: Clock, text: str) -> int:
    form = "'2024-12-31'" if clock is Clock.DATE else "'2024-12-31 23:59:59.123456' (a TIMESTAMP in UTC)"
    hint = f"Write it as {form}, with a day that exists."
    match = _TIME.fullmatch(text)
    if match is None or (clock is Clock.DATE and len(text) > _DATE_LENGTH):
        raise refused(part, f"'{text}' is not in the form that is read for a {clock.value}", hint)
    year, month, day, hour, minute, second = map(int, match.groups("0")[:6])
    microsecond = int((match[7] or "").ljust(6, "0"))
    try:
        at = datetime(year, month, day, hour, minute, second, microsecond)
    except ValueError as error:
        raise refused(part, f"'{text}' does not exist", hint) from error
    if clock is Clock.TIMESTAMP and not datetime(1970, 1, 1, 0, 0, 1) <= at < datetime(2038, 1, 19, 3, 14, 8):
        raise refused(
            part, "no TIMESTAMP reaches so far", "Write a time from 1970-01-01 00:00:01 to 2038-01-19 03:14:07."
        )
    return _PACK[clock](at)


def _encoded(part: Expression, charset: str | None, text: str) -> bytes:
    """Return a text literal in a character set, where that is the same to everybody."""
    try:
        if charset in (BINARY, "utf8mb4"):
            return text.encode("utf-8")
        if charset == "utf8mb3" and max(text, default="") <= "\uffff":
            return text.encode("utf-8")
        if charset in ("ascii", "latin1"):
            return text.encode("ascii")
    except UnicodeEncodeError:
        pass
    raise refused(
        part,
        f"the text '{text}' is not written here in the column's character set",
        "Compare bytes: CAST(… AS BINARY) = X'…'.",
    )


def _text_pair(
    part: Expression, how: ComparisonOperator, ours: Characters, theirs: Characters | TextLiteral
) -> tuple[Evaluate, Evaluate]:
    sort = ours.sort
    if sort is None or (isinstance(theirs, Characters) and theirs.sort is not sort):
        other = theirs if isinstance(theirs, Characters) and sort is not None else ours
        raise refused(
            part,
            f"what {other.what}'s collation finds equal is not known here",
            "Compare the bytes, CAST(… AS BINARY) = 'text', where case, accents and trailing spaces count; "
            "or give the column the binary collation of its character set.",
        )
    if isinstance(theirs, TextLiteral):
        of_theirs = constant(_encoded(part, ours.charset, theirs.text))
    else:
        of_theirs = theirs.evaluate
    if not sort.pads:
        return ours.evaluate, of_theirs
    wrap = _stripped if how in _EQUALITIES else _Padded
    return _wrapped(ours.evaluate, wrap), _wrapped(of_theirs, wrap)


def _wrapped(evaluate: Evaluate, wrap: Callable[[bytes], Any]) -> Evaluate:
    def wrapped(slices: Slices) -> Any:
        text = evaluate(slices)
        return None if text is None else wrap(text)

    return wrapped


def _stripped(text: bytes) -> bytes:
    return text.rstrip(b" ")


class _Padded:
    """A text that goes on with spaces for ever, as MySQL sees it in a PAD SPACE collation."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def _compare(self, other: _Padded) -> int:
        width = max(len(self._text), len(other._text))
        ours, theirs = self._text.ljust(width), other._text.ljust(width)
        return (ours > theirs) - (ours < theirs)

    def __lt__(self, other: _Padded) -> bool:
        return self._compare(other) < 0

    def __le__(self, other: _Padded) -> bool:
        return self._compare(other) <= 0

    def __gt__(self, other: _Padded) -> bool:
        return self._compare(other) > 0

    def __ge__(self, other: _Padded) -> bool:
        return self._compare(other) >= 0


def _choice_pair(part: Expression, how: ComparisonOperator, choice: Choice, text: str) -> tuple[Evaluate, Evaluate]:
    if how not in _EQUALITIES:
        raise refused(part, "the order of ENUM values is not compared here", "Name the labels: … IN ('a', 'b').")
    if choice.labels is None or choice.charset is None:
        raise refused(part, f"the labels of {choice.what} are not known here", "Leave this part out.")
    label = _encoded(part, choice.charset, text)
    if label not in choice.labels:
        raise refused(part, f"'{text}' is no label of {choice.what}", "Write a label exactly as it is defined.")
    if not choice.is_binary and could_be_equal(choice.labels, label):
        raise refused(part, f"another label of {choice.what} may be equal in its collation", "Leave this part out.")
    numbers = {choice.labels.index(label) + 1} | ({0} if not label else set())

    def evaluate(slices: Slices) -> bool | None:
        number = choice.evaluate(slices)
        return None if number is None else number in numbers

    return evaluate, constant(True)
