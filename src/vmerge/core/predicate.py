"""Row filters: the tree of a condition on one row, and its SQL.

Knows: the parts a condition may have, and how MySQL is told each. Never knows: how a text is read
(``vmerge/predicates.py``), what a column holds, or whether a condition can be decided exactly
(``core/predicate_binding.py``). Used by ``core/rules.py`` and by whoever reads a source's rows under rules.

Every part is a value of SQL: a condition is a whole number, 0, 1 or NULL, as in MySQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column of the row, by its name at the source. Case does not count."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number, or a decimal one with as many digits as were written."""

    value: int | Decimal


@dataclass(frozen=True, slots=True)
class Text:
    """A text between quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """A hexadecimal literal."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE or FALSE; to MySQL 1 and 0."""

    value: bool


@dataclass(frozen=True, slots=True)
class Null:
    """NULL."""


@dataclass(frozen=True, slots=True)
class AsBytes:
    """CAST(… AS BINARY): the bytes of a text, compared as bytes."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Minus:
    """A sign in front."""

    operand: Expression


class ArithmeticOperator(Enum):
    """What is computed of two whole numbers."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "DIV"
    REMAINDER = "%"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two whole numbers and what is computed of them."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


class ComparisonOperator(Enum):
    """How two values are compared."""

    EQUAL = "="
    UNEQUAL = "<>"
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    SAME = "<=>"
    """Equal, or both NULL; never NULL itself."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values and how they are compared."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class OneOf:
    """… IN (…)."""

    operand: Expression
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """… BETWEEN … AND …, both ends included."""

    operand: Expression
    low: Expression
    high: Expression


class State(Enum):
    """What IS asks for."""

    NULL = "NULL"
    TRUE = "TRUE"
    FALSE = "FALSE"


@dataclass(frozen=True, slots=True)
class Is:
    """… IS NULL, … IS TRUE, … IS FALSE: never NULL itself."""

    operand: Expression
    state: State


@dataclass(frozen=True, slots=True)
class Not:
    """NOT."""

    operand: Expression


class Connective(Enum):
    """What joins conditions."""

    AND = "AND"
    OR = "OR"
    XOR = "XOR"


@dataclass(frozen=True, slots=True)
class Joined:
    """Two or more conditions, from left to right."""

    connective: Connective
    parts: tuple[Expression, ...]


Expression = (
    ColumnName
    | Number
    | Text
    | Bytes
    | Truth
    | Null
    | AsBytes
    | Minus
    | Arithmetic
    | Comparison
    | OneOf
    | Between
    | Is
    | Not
    | Joined
)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A row filter: the condition that a row must fulfil to be carried. One that gives NULL is not fulfilled."""

    text: str
    """As it stands in the workflow; for messages only."""
    condition: Expression

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition names, each once, in the order and spelling in which they first stand."""
        found: dict[str, str] = {}
        for name in _columns(self.condition):
            found.setdefault(name.lower(), name)
        return tuple(found.values())

    def to_sql(self) -> str:
        """Return the condition for a WHERE on the source's table.

        Every server reads it alike, whatever its sql_mode, and within any other condition.
        """
        return to_sql(self.condition)


def to_sql(expression: Expression) -> str:
    """Return an expression as SQL, in parentheses unless it is one word.

    Columns stand without their table, so no other table of the query may have columns of these names. Times are
    compared rightly in a session whose time_zone is +00:00.
    """
    match expression:
        case ColumnName(name):
            return _quoted(name)
        case Number(value):
            digits = format(Decimal(value), "f")
            return f"({digits})" if value < 0 else digits
        case Text(value):
            return _text(value)
        case Bytes(value):
            return f"X'{value.hex().upper()}'"
        case Truth(value):
            return "TRUE" if value else "FALSE"
        case Null():
            return "NULL"
        case AsBytes(operand):
            return f"CAST({to_sql(operand)} AS BINARY)"
        case Minus(operand):
            return f"(- {to_sql(operand)})"
        case Not(operand):
            return f"(NOT {to_sql(operand)})"
    return f"({_infix(expression)})"


def _infix(expression: Arithmetic | Comparison | OneOf | Between | Is | Joined) -> str:
    match expression:
        case Arithmetic(operator, left, right) | Comparison(operator, left, right):
            return f"{to_sql(left)} {operator.value} {to_sql(right)}"
        case OneOf(operand, items):
            return f"{to_sql(operand)} IN ({', '.join(map(to_sql, items))})"
        case Between(operand, low, high):
            return f"{to_sql(operand)} BETWEEN {to_sql(low)} AND {to_sql(high)}"
        case Is(operand, state):
            return f"{to_sql(operand)} IS {state.value}"
        case Joined(connective, parts):
            return f" {connective.value} ".join(map(to_sql, parts))


def _text(value: str) -> str:
    """A text that could be read in two ways, by sql_mode or character set, is written by its bytes."""
    if value.isascii() and value.isprintable() and "\\" not in value:
        return "'" + value.replace("'", "''") + "'"
    return f"_utf8mb4 X'{value.encode('utf-8').hex().upper()}'"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns(expression: Expression) -> Iterator[str]:
    if isinstance(expression, ColumnName):
        yield expression.name
    for part in operands(expression):
        yield from _columns(part)


def operands(expression: Expression) -> tuple[Expression, ...]:
    """Return the parts that an expression is made of, from left to right."""
    match expression:
        case AsBytes(operand) | Minus(operand) | Not(operand) | Is(operand):
            return (operand,)
        case Arithmetic(_, left, right) | Comparison(_, left, right):
            return left, right
        case OneOf(operand, items):
            return operand, *items
        case Between(operand, low, high):
            return operand, low, high
        case Joined(_, parts):
            return parts
    return ()
