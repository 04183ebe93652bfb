"""Row filters on the columns of one table: what each part of a condition is, and what it gives for a row.

Knows: which comparisons and computations are sure to end as MySQL's would for every row, and how. Never knows: SQL's
text, tables or servers. Used by ``core/projection.py``.

Nothing fails for a row: what could (an overflow) is refused for the table. Which parts are refused, and why, is told in
docs/adr/0025-row-filters.md.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from vmerge.core.filter_column import FilterColumn
from vmerge.core.filter_comparisons import comparable
from vmerge.core.filter_values import (
    SIGNED,
    UNSIGNED,
    Absent,
    Evaluate,
    Fraction,
    Value,
    Whole,
    column_value,
    literal_value,
    refused,
)
from vmerge.core.predicate import (
    Arithmetic,
    ArithmeticOperator,
    AsBytes,
    Between,
    ColumnName,
    Comparison,
    ComparisonOperator,
    Connective,
    Expression,
    Is,
    Joined,
    Minus,
    Not,
    OneOf,
    Predicate,
    State,
)
from vmerge.core.rowimage import Slices

_Pairwise = Callable[[Any, Any], Any]

_COMPARE: dict[ComparisonOperator, _Pairwise] = {
    ComparisonOperator.EQUAL: operator.eq,
    ComparisonOperator.UNEQUAL: operator.ne,
    ComparisonOperator.LESS: operator.lt,
    ComparisonOperator.AT_MOST: operator.le,
    ComparisonOperator.MORE: operator.gt,
    ComparisonOperator.AT_LEAST: operator.ge,
}


class RowFilter:
    """A predicate for rows of one shape. Immutable."""

    def __init__(self, evaluate: Evaluate, columns: tuple[int, ...]) -> None:
        self._evaluate = evaluate
        self.columns = columns
        """Where, from 0, the columns stand whose values the predicate needs."""

    def decide(self, slices: Slices) -> bool | None:
        """Return what the condition gives for a row; the row is carried when that is True, not when it is None.

        ``slices`` has one entry a column: its bytes as they stand in the row image, any length in front included, or
        None for NULL. Only those of ``columns`` are looked at.
        """
        result = self._evaluate(slices)
        return None if result is None else bool(result)


def bind(predicate: Predicate, columns: Sequence[FilterColumn]) -> RowFilter:
    """Return what decides a predicate for rows with these columns.

    Raises:
        FilterRefused: the predicate names no column of these, or its outcome is not sure to be MySQL's for every row.
    """
    binder = _Binder(columns)
    value = binder.condition(predicate.condition)
    return RowFilter(value, tuple(sorted(binder.used)))


class _Binder:
    """Binds one predicate."""

    def __init__(self, columns: Sequence[FilterColumn]) -> None:
        self._columns = columns
        self._places = {column.name.lower(): place for place, column in enumerate(columns)}
        self.used: set[int] = set()

    def condition(self, expression: Expression) -> Evaluate:
        """Bind what is asked whether it is true; it gives an int, 0 for false, or None."""
        value = self.value(expression)
        if not isinstance(value, Whole | Absent):
            raise refused(
                expression,
                f"{value.what} is no condition",
                "Compare it with something, such as `… <> 0` or `… = 'text'`.",
            )
        return value.evaluate

    def value(self, expression: Expression) -> Value:
        """Bind any part."""
        match expression:
            case ColumnName(name):
                return self._column(expression, name)
            case AsBytes(operand):
                return self.value(operand).as_bytes(expression)
            case Minus(operand):
                return _minus(expression, self.value(operand))
            case Arithmetic():
                return self._arithmetic(expression)
            case Comparison() | OneOf() | Between() | Is() | Not() | Joined():
                return _truth(self._decision(expression))
        return literal_value(expression)

    def _column(self, expression: Expression, name: str) -> Value:
        place = self._places.get(name.lower())
        if place is None:
            raise refused(
                expression,
                "the source's table has no such column",
                f"Its columns are {', '.join(f'`{column.name}`' for column in self._columns)}.",
            )
        self.used.add(place)
        return column_value(self._columns[place], place)

    def _arithmetic(self, expression: Arithmetic) -> Value:
        left, right = self.value(expression.left), self.value(expression.right)
        for side in (left, right):
            if not isinstance(side, Whole):
                raise refused(
                    expression,
                    f"{side.what} is no whole number, and only these are computed with",
                    "Compute with columns and literals of whole numbers, or leave the computation out.",
                )
        assert isinstance(left, Whole)
        assert isinstance(right, Whole)
        return _compute(expression, left, right)

    def _decision(self, expression: Comparison | OneOf | Between | Is | Not | Joined) -> Evaluate:
        match expression:
            case Comparison(how, left, right):
                return _compare(expression, how, self.value(left), self.value(right))
            case OneOf(operand, items):
                return _one_of(expression, self.value(operand), [self.value(item) for item in items])
            case Between(operand, low, high):
                return self._between(expression, self.value(operand), self.value(low), self.value(high))
            case Is(operand, State.NULL):
                return _is_null(self.value(operand).for_null(expression))
            case Is(operand, state):
                return _is_truth(self.condition(operand), state is State.TRUE)
            case Not(operand):
                return _not(self.condition(operand))
            case Joined(connective, parts):
                return _JOIN[connective]([self.condition(part) for part in parts])

    def _between(self, expression: Between, value: Value, low: Value, high: Value) -> Evaluate:
        if isinstance(low, Absent) or isinstance(high, Absent):
            raise refused(expression, "BETWEEN with NULL never holds", "Write a comparison with the other end alone.")
        at_least = _compare(expression, ComparisonOperator.AT_LEAST, value, low)
        at_most = _compare(expression, ComparisonOperator.AT_MOST, value, high)
        return _all([at_least, at_most])


def _truth(evaluate: Evaluate) -> Whole:
    return Whole("a condition", evaluate, 0, 1, unsigned=False)


def _compare(expression: Expression, how: ComparisonOperator, left: Value, right: Value) -> Evaluate:
    of_left, of_right = comparable(expression, how, left, right)
    if how is ComparisonOperator.SAME:
        return lambda slices: int(of_left(slices) == of_right(slices))
    compare = _COMPARE[how]

    def decide(slices: Slices) -> int | None:
        ours, theirs = of_left(slices), of_right(slices)
        return None if ours is None or theirs is None else int(compare(ours, theirs))

    return decide


def _one_of(expression: OneOf, value: Value, items: Sequence[Value]) -> Evaluate:
    if any(_is_confused(value, item) for item in items):
        raise refused(
            expression,
            "MySQL confuses numbers of two kinds in IN: whole with decimal ones, negative with those from 2^63 on",
            "Join comparisons with OR: a = 1 OR a = 0.5.",
        )
    return _any([_compare(expression, ComparisonOperator.EQUAL, value, item) for item in items])


def _is_confused(value: Value, item: Value) -> bool:
    """Whether IN may find two numbers equal that are not, or miss equal ones; both were seen on 9.7.4."""
    if not isinstance(value, Whole):
        return False
    if not isinstance(item, Whole):
        return isinstance(item, Fraction)
    _, greatest = SIGNED
    return min(value.low, item.low) < 0 and max(value.high, item.high) > greatest


def _is_null(evaluate: Evaluate) -> Evaluate:
    return lambda slices: int(evaluate(slices) is None)


def _is_truth(evaluate: Evaluate, wanted: bool) -> Evaluate:
    def decide(slices: Slices) -> int:
        result = evaluate(slices)
        return int(result is not None and bool(result) is wanted)

    return decide


def _not(evaluate: Evaluate) -> Evaluate:
    def decide(slices: Slices) -> int | None:
        result = evaluate(slices)
        return None if result is None else int(not result)

    return decide


def _all(parts: Sequence[Evaluate]) -> Evaluate:
    def decide(slices: Slices) -> int | None:
        outcome: int | None = 1
        for part in parts:
            result = part(slices)
            if result is None:
                outcome = None
            elif not result:
                return 0
        return outcome

    return decide


def _any(parts: Sequence[Evaluate]) -> Evaluate:
    def decide(slices: Slices) -> int | None:
        outcome: int | None = 0
        for part in parts:
            result = part(slices)
            if result is None:
                outcome = None
            elif result:
                return 1
        return outcome

    return decide


def _exclusive(parts: Sequence[Evaluate]) -> Evaluate:
    def decide(slices: Slices) -> int | None:
        results = [part(slices) for part in parts]
        if None in results:
            return None
        return sum(map(bool, results)) % 2

    return decide


_JOIN = {Connective.AND: _all, Connective.OR: _any, Connective.XOR: _exclusive}


def _minus(expression: Expression, value: Value) -> Value:
    if not isinstance(value, Whole):
        raise refused(expression, f"{value.what} has no sign that is computed", "Write a negative number as a literal.")
    return _number(expression, _lifted(operator.neg, value), -value.high, -value.low, unsigned=False)


def _lifted(compute: Callable[[Any], Any], value: Value) -> Evaluate:
    def evaluate(slices: Slices) -> Any:
        result = value.evaluate(slices)
        return None if result is None else compute(result)

    return evaluate


def _compute(expression: Arithmetic, left: Whole, right: Whole) -> Whole:
    how = expression.operator
    compute = _ARITHMETIC[how]

    def evaluate(slices: Slices) -> int | None:
        ours, theirs = left.evaluate(slices), right.evaluate(slices)
        return None if ours is None or theirs is None else compute(ours, theirs)

    unsigned = left.unsigned or right.unsigned
    match how:
        case ArithmeticOperator.REMAINDER:
            # The sign is the dividend's, and nothing is further from 0 than it, or as far as the divisor.
            furthest = max(abs(right.low), abs(right.high), 1) - 1
            low, high = max(min(left.low, 0), -furthest), min(max(left.high, 0), furthest)
            return _number(expression, evaluate, low, high, unsigned=left.unsigned)
        case ArithmeticOperator.DIVIDE:
            return _number(expression, evaluate, *_quotients(left, right), unsigned=unsigned)
    corners = [compute(ours, theirs) for ours in (left.low, left.high) for theirs in (right.low, right.high)]
    return _number(expression, evaluate, min(corners), max(corners), unsigned=unsigned)


def _quotients(left: Whole, right: Whole) -> tuple[int, int]:
    """Return bounds of what DIV gives; below those of MySQL's numbers for their least one, which it does not give."""
    least = max(right.low, 1)
    low, high = -(-min(left.low, 0) // least), max(left.high, 0) // least
    if right.low < 0:  # it may change sides
        low, high = min(low, -high), max(high, -low)
    return (low - 1 if low == SIGNED[0] else low), high


def _number(expression: Expression, evaluate: Evaluate, low: int, high: int, *, unsigned: bool) -> Whole:
    """Make a computed number, if every row's fits what MySQL computes with; there it is an error for the row."""
    least, greatest = UNSIGNED if unsigned else SIGNED
    if low < least:
        what = "may fall below 0 where an unsigned number is part of it" if unsigned else "may become too small"
    elif high > greatest:
        what = "may become too large"
    else:
        return Whole("a computed number", evaluate, low, high, unsigned=unsigned)
    raise refused(
        expression,
        f"it {what}, which is an error in MySQL",
        "Compare the column itself with a number that you computed beforehand.",
    )


def _divide(ours: int, theirs: int) -> int | None:
    """MySQL cuts towards 0."""
    if not theirs:
        return None
    quotient = abs(ours) // abs(theirs)
    return quotient if (ours < 0) == (theirs < 0) else -quotient


def _remainder(ours: int, theirs: int) -> int | None:
    if not theirs:
        return None
    rest = abs(ours) % abs(theirs)
    return -rest if ours < 0 else rest


_ARITHMETIC: dict[ArithmeticOperator, _Pairwise] = {
    ArithmeticOperator.ADD: operator.add,
    ArithmeticOperator.SUBTRACT: operator.sub,
    ArithmeticOperator.MULTIPLY: operator.mul,
    ArithmeticOperator.DIVIDE: _divide,
    ArithmeticOperator.REMAINDER: _remainder,
}
