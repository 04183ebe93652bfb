"""What can stand in a row filter: kinds of values, made of columns and literals.

Knows: types, and what each column and literal is. Never knows: how two values are compared
(``core/filter_comparisons.py``). Used by ``core/predicate_binding.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from vmerge.core.column_types import ColumnShape, ColumnType
from vmerge.core.column_values import (
    CHARACTERS,
    WIDTHS,
    bit_count,
    bytes_reader,
    datetime_reader,
    decimal_reader,
    read_date,
    read_index,
    timestamp_reader,
    whole_reader,
)
from vmerge.core.filter_collations import BINARY, SORTS, TextSort, charset_of
from vmerge.core.filter_column import FilterColumn
from vmerge.core.predicate import (
    Bytes,
    Expression,
    Null,
    Number,
    Text,
    Truth,
    to_sql,
)
from vmerge.core.rowimage import Slices
from vmerge.errors import FilterRefused

Evaluate = Callable[[Slices], Any]
"""What a part of a condition gives for a row; None for NULL."""

SIGNED = -(1 << 63), (1 << 63) - 1
UNSIGNED = 0, (1 << 64) - 1

YEARS = range(1901, 2156)
"""What a column of years holds besides 0."""

_DIGITS, _SCALE = 65, 30
"""Of MySQL's DECIMAL; a literal beyond that is changed without a word."""


def refused(part: Expression, why: str, hint: str) -> FilterRefused:
    """Make the error that names a part of a filter."""
    return FilterRefused(f"the filter's part {to_sql(part)} cannot be decided exactly: {why}", hint=hint)


@dataclass(frozen=True, slots=True)
class Value:
    """Some part of a condition; ``what`` is how a message calls it. As itself: one that can only be NULL or not."""

    what: str
    evaluate: Evaluate

    def as_bytes(self, part: Expression) -> Value:
        """Return what CAST(… AS BINARY) gives."""
        raise refused(part, f"{self.what} is no text", "Cast only columns of text and literals.")

    def for_null(self, part: Expression) -> Evaluate:
        """Return what IS NULL looks at."""
        return self.evaluate


@dataclass(frozen=True, slots=True)
class Absent(Value):
    """NULL."""


@dataclass(frozen=True, slots=True)
class Whole(Value):
    """A whole number between two bounds; ``unsigned`` is what MySQL computes it as."""

    low: int
    high: int
    unsigned: bool


@dataclass(frozen=True, slots=True)
class Year(Whole):
    """A column of years: to MySQL a literal of two digits that it meets is one of four."""


@dataclass(frozen=True, slots=True)
class WholeLiteral(Whole):
    """A whole number that was written; it is its own bounds."""


@dataclass(frozen=True, slots=True)
class Fraction(Value):
    """A DECIMAL."""


@dataclass(frozen=True, slots=True)
class Octets(Value):
    """Bytes, compared as such. ``charset`` is what a text literal beside them is written in; None for none."""

    charset: str | None

    def as_bytes(self, part: Expression) -> Value:
        """Return itself."""
        return self


@dataclass(frozen=True, slots=True)
class Characters(Value):
    """A text in a collation; ``sort`` is None if what that finds equal is not known here."""

    charset: str | None
    sort: TextSort | None

    def as_bytes(self, part: Expression) -> Value:
        """Return the bytes of the text."""
        return Octets("bytes", self.evaluate, self.charset)


class Clock(Enum):
    """The kinds of times."""

    DATE = "DATE"
    DATETIME = "DATETIME"
    TIMESTAMP = "TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Moment(Value):
    """A time, as a number that grows with it."""

    clock: Clock
    nullable: bool

    def for_null(self, part: Expression) -> Evaluate:
        """Refuse what MySQL turns into a comparison with the zero date: IS NULL of a column that is NOT NULL."""
        if not self.nullable and self.clock is not Clock.TIMESTAMP:
            raise refused(
                part,
                "MySQL takes the zero date of a NOT NULL column for NULL here",
                "The column is never NULL, so leave this part out.",
            )
        return self.evaluate


@dataclass(frozen=True, slots=True)
class Choice(Value):
    """An ENUM, as the number of its label."""

    labels: tuple[bytes, ...] | None
    charset: str | None
    is_binary: bool


@dataclass(frozen=True, slots=True)
class TextLiteral(Value):
    """A text between quotes."""

    text: str

    def as_bytes(self, part: Expression) -> Value:
        """Return its bytes."""
        return Octets("bytes", constant(self.text.encode("utf-8")), BINARY)


@dataclass(frozen=True, slots=True)
class BytesLiteral(Value):
    """A hexadecimal literal."""

    data: bytes

    def as_bytes(self, part: Expression) -> Value:
        """Return its bytes."""
        return Octets("bytes", self.evaluate, BINARY)


def literal_value(literal: Expression) -> Value:
    """Return what a literal is."""
    match literal:
        case Null():
            return Absent("NULL", constant(None))
        case Truth(value):
            return Whole("a truth value", constant(int(value)), int(value), int(value), unsigned=False)
        case Text(value):
            return TextLiteral("a text literal", constant(value), value)
        case Bytes(value):
            return BytesLiteral("a hexadecimal literal", constant(value), value)
        case Number(value):
            return _number_literal(literal, value)
    raise AssertionError(literal)


def _number_literal(literal: Expression, value: int | Decimal) -> Value:
    if isinstance(value, int) and SIGNED[0] <= value <= UNSIGNED[1]:
        return WholeLiteral("a whole number", constant(value), value, value, unsigned=value > SIGNED[1])
    _, digits, exponent = Decimal(value).as_tuple()
    scale = -int(exponent)
    if scale > _SCALE or max(len(digits), scale) > _DIGITS:
        raise refused(literal, "MySQL keeps 65 digits, 30 of them behind the point", "Write fewer digits.")
    return Fraction("a decimal number", constant(Decimal(value)))


def constant(value: Any) -> Evaluate:
    """Return what gives one value for every row."""
    return lambda _slices: value


def column_value(column: FilterColumn, place: int) -> Value:
    """Return what a column is; ``place`` is where it stands in the slices."""
    name, shape = f"column `{column.name}`", column.shape
    if shape is None:
        return Value(f"{name}, of a type that is not known here,", lambda slices: slices[place])
    read = _reading(place)
    if shape.type in CHARACTERS:
        return _character_column(name, shape, column, read)
    match shape.type:
        case ColumnType.NEWDECIMAL:
            return Fraction(name, read(decimal_reader(shape)))
        case ColumnType.DATE:
            return Moment(name, read(read_date), Clock.DATE, column.nullable)
        case ColumnType.DATETIME2:
            return Moment(name, read(datetime_reader(shape)), Clock.DATETIME, column.nullable)
        case ColumnType.TIMESTAMP2:
            return Moment(name, read(timestamp_reader(shape)), Clock.TIMESTAMP, column.nullable)
        case ColumnType.ENUM:
            charset = charset_of(column.collation_id)
            is_binary = column.collation_id in SORTS or charset == BINARY
            return Choice(name, read(read_index), column.label_bytes, charset, is_binary)
    return _whole_column(name, shape, column, read)


def _whole_column(
    name: str, shape: ColumnShape, column: FilterColumn, read: Callable[[Callable[[bytes], Any]], Evaluate]
) -> Value:
    match shape.type:
        case ColumnType.YEAR:
            return Year(name, read(whole_reader(shape, unsigned=True)), 0, YEARS[-1], unsigned=True)
        case ColumnType.BIT:
            evaluate = read(whole_reader(shape, unsigned=True))
            return Whole(name, evaluate, 0, (1 << bit_count(shape)) - 1, unsigned=True)
    width, unsigned = WIDTHS.get(shape.type), column.unsigned
    if width is None:
        return Value(f"{name} ({shape})", read(bytes))
    if unsigned is None:
        return Value(f"{name}, whose sign the source does not tell,", read(bytes))
    bits = 8 * width
    low, high = (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return Whole(name, read(whole_reader(shape, unsigned=unsigned)), low, high, unsigned=unsigned)


def _character_column(
    name: str, shape: ColumnShape, column: FilterColumn, read: Callable[[Callable[[bytes], Any]], Evaluate]
) -> Value:
    if column.collation_id is None:
        return Value(f"{name}, whose collation the source does not tell,", read(bytes))
    charset = charset_of(column.collation_id)
    if charset == BINARY:
        return Octets(name, read(bytes_reader(shape, is_text=False)), BINARY)
    evaluate = read(bytes_reader(shape, is_text=True))
    return Characters(name, evaluate, charset, SORTS.get(column.collation_id))


def _reading(place: int) -> Callable[[Callable[[bytes], Any]], Evaluate]:
    def reading(read: Callable[[bytes], Any]) -> Evaluate:
        def evaluate(slices: Slices) -> Any:
            data = slices[place]
            return None if data is None else read(data)

        return evaluate

    return reading
