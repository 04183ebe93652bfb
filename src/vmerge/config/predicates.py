"""Row filters as text: reads what an operator wrote into the tree of ``core/predicate.py``.

Knows: sqlglot, and nobody else does; which spellings are read, and where MySQL needs parentheses. Never knows: columns
of tables, or what a condition gives. Used by ``config``.

Why the tree is MySQL's
-----------------------
sqlglot reads for dozens of dialects, and puts some right without a word: it reorders, adds parentheses, and takes what
MySQL would refuse. So its tree is only a proposal. It is walked from left to right, and every word of the text must be
met in its place (``filter_words.py``), while no part may stand unparenthesised where MySQL's grammar would not have it
(``_Level``; rules expr, bool_pri, predicate, bit_expr and simple_expr of sql/sql_yacc.yy). MySQL's grammar reads a text
in one way only; so what passes is what MySQL reads. Spellings that depend on a server's sql_mode are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from vmerge.config.filter_words import SPACE, SUPPORTED, UNREADABLE, Kind, Piece, Words
from vmerge.core.predicate import (
    Arithmetic,
    ArithmeticOperator,
    AsBytes,
    Between,
    Bytes,
    ColumnName,
    Comparison,
    ComparisonOperator,
    Connective,
    Expression,
    Is,
    Joined,
    Minus,
    Not,
    Null,
    Number,
    OneOf,
    Predicate,
    State,
    Text,
    Truth,
)
from vmerge.errors import FilterRefused

LONGEST = 16_384
DEEPEST = 100

_DIALECT = "mysql"
_KINDS = {
    TokenType.STRING: Kind.TEXT,
    TokenType.NUMBER: Kind.NUMBER,
    TokenType.HEX_STRING: Kind.BYTES,
    TokenType.IDENTIFIER: Kind.NAME,
}


class _Level(IntEnum):
    """How tightly a part holds together, after MySQL's grammar."""

    OR = 0
    XOR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    SUM = 5
    PRODUCT = 6
    SIGN = 7
    UNIT = 8


_COMPARISONS: dict[type[exp.Expr], ComparisonOperator] = {
    exp.EQ: ComparisonOperator.EQUAL,
    exp.NEQ: ComparisonOperator.UNEQUAL,
    exp.LT: ComparisonOperator.LESS,
    exp.LTE: ComparisonOperator.AT_MOST,
    exp.GT: ComparisonOperator.MORE,
    exp.GTE: ComparisonOperator.AT_LEAST,
    exp.NullSafeEQ: ComparisonOperator.SAME,
}
_ARITHMETIC: dict[type[exp.Expr], tuple[ArithmeticOperator, _Level]] = {
    exp.Add: (ArithmeticOperator.ADD, _Level.SUM),
    exp.Sub: (ArithmeticOperator.SUBTRACT, _Level.SUM),
    exp.Mul: (ArithmeticOperator.MULTIPLY, _Level.PRODUCT),
    exp.IntDiv: (ArithmeticOperator.DIVIDE, _Level.PRODUCT),
    exp.Mod: (ArithmeticOperator.REMAINDER, _Level.PRODUCT),
}
_CONNECTIVES: dict[type[exp.Expr], tuple[Connective, _Level]] = {
    exp.And: (Connective.AND, _Level.AND),
    exp.Or: (Connective.OR, _Level.OR),
    exp.Xor: (Connective.XOR, _Level.XOR),
}
_HINTS: tuple[tuple[type[exp.Expr], str, str], ...] = (
    (exp.Query, "a subquery looks at other rows", "Filter by columns of the row alone."),
    (exp.Parameter, "a variable has no value of the row's", "Write the value itself."),
    (exp.SessionParameter, "a variable has no value of the row's", "Write the value itself."),
    (exp.Collate, "collations are not given by filters", "Compare bytes: CAST(… AS BINARY) = 'text'."),
    (exp.Concat, "texts side by side are not joined here", "Write one text."),
    (exp.Cast, "only CAST(… AS BINARY) is read", "Write a time as text, such as '2024-12-31', and a number as number."),
    (exp.Tuple, "rows are not compared", "Compare column by column, joined with AND."),
    (exp.Div, *UNREADABLE["/"]),
    (exp.Func, "functions are not evaluated", "Compare the column itself; for MOD(a, b) write a % b."),
)


def parse(text: str) -> Predicate:
    """Read a filter as it stands in a workflow file.

    Raises:
        FilterRefused: it is no condition, or has a part that is not read; the message names it.
    """
    if len(text) > LONGEST:
        raise FilterRefused(f"the filter is longer than {LONGEST:,} characters", hint="Write a shorter one.")
    try:
        return Predicate(text.strip(SPACE), _read(text))
    except RecursionError as error:
        raise _too_deep() from error


def _too_deep() -> FilterRefused:
    return FilterRefused(f"the filter is nested deeper than {DEEPEST} parts", hint="Use IN, or fewer parentheses.")


def _read(text: str) -> Expression:
    try:
        tokens = sqlglot.tokenize(text, dialect=_DIALECT)
        words = Words(text, map(_piece, tokens))
        tree = sqlglot.parse_one(text, into=exp.Condition, dialect=_DIALECT)
    except ParseError as error:
        found = error.errors[0] if error.errors else {}
        near = f"{found.get('start_context') or ''}{found.get('highlight') or ''}"[-40:].strip()
        raise FilterRefused(f"the filter cannot be read near `{near}`", hint=SUPPORTED) from error
    except SqlglotError as error:
        raise FilterRefused("the filter cannot be read as SQL", hint="See that every quote is closed.") from error
    condition = _Reader(words).read(tree, _Level.OR)
    words.end()
    return condition


def _piece(token: Token) -> Piece:
    return Piece(_KINDS.get(token.token_type, Kind.WORD), token.text, token.start, token.end + 1)


class _Reader:
    """Turns sqlglot's tree into ours, word by word."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._depth = 0

    def read(self, node: Any, least: _Level) -> Expression:
        """Read a part that must hold together at least as tightly as ``least``, or stand in parentheses."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise _too_deep()
        expression, level = self._part(node)
        if level < least:
            raise self._words.misread()
        self._depth -= 1
        return expression

    def _part(self, node: Any) -> tuple[Expression, _Level]:
        kind = type(node)
        if kind in _CONNECTIVES:
            return self._joined(node, *_CONNECTIVES[kind])
        if kind in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[kind]), _Level.COMPARISON
        if kind in _ARITHMETIC:
            how, level = _ARITHMETIC[kind]
            left = self.read(node.this, level)
            self._words.take(how.value)
            return Arithmetic(how, left, self.read(node.expression, _Level(level + 1))), level
        read = _PARTS.get(kind)
        if read is None:
            raise _unsupported(node)
        return read(self, node)

    def _joined(self, node: exp.Expr, connective: Connective, level: _Level) -> tuple[Expression, _Level]:
        operands = []
        first: Any = node
        while type(first) is type(node):
            operands.append(first.args["expression"])
            first = first.this
        parts = [self.read(first, level)]
        for operand in reversed(operands):
            self._words.take(connective.value)
            parts.append(self.read(operand, _Level(level + 1)))
        return Joined(connective, tuple(parts)), level

    def _comparison(self, node: exp.Expr, how: ComparisonOperator) -> Expression:
        left = self.read(node.this, _Level.SUM)
        self._words.take(how.value)
        return Comparison(how, left, self.read(node.args["expression"], _Level.SUM))

    def _parenthesised(self, node: exp.Paren) -> tuple[Expression, _Level]:
        self._words.take("(")
        inner = self.read(node.this, _Level.OR)
        self._words.take(")")
        return inner, _Level.UNIT

    def _not(self, node: exp.Not) -> tuple[Expression, _Level]:
        inner = node.this
        if type(inner) in (exp.In, exp.Between, exp.Is) and not self._words.follows("NOT"):
            return Not(self._postfix(inner, is_negated=True)), _Level.COMPARISON
        self._words.take("NOT")
        return Not(self.read(inner, _Level.NOT)), _Level.NOT

    def _plain_postfix(self, node: exp.Expr) -> tuple[Expression, _Level]:
        return self._postfix(node, is_negated=False), _Level.COMPARISON

    def _postfix(self, node: exp.Expr, *, is_negated: bool) -> Expression:
        """Read what stands behind its operand; NOT is within it."""
        operand = self.read(node.this, _Level.SUM)
        if isinstance(node, exp.Is):
            return self._is(operand, node, is_negated=is_negated)
        if is_negated:
            self._words.take("NOT")
        if isinstance(node, exp.Between):
            self._words.take("BETWEEN")
            low = self.read(node.args["low"], _Level.SUM)
            self._words.take("AND")
            return Between(operand, low, self.read(node.args["high"], _Level.SUM))
        items = node.expressions
        if not items:
            raise _unsupported(node.args.get("query") or node)
        self._words.take("IN", "(")
        read = [self.read(items[0], _Level.OR)]
        for item in items[1:]:
            self._words.take(",")
            read.append(self.read(item, _Level.OR))
        self._words.take(")")
        return OneOf(operand, tuple(read))

    def _is(self, operand: Expression, node: exp.Is, *, is_negated: bool) -> Expression:
        self._words.take("IS", *(["NOT"] if is_negated else []))
        state = node.args["expression"]
        match state:
            case exp.Null():
                wanted = State.NULL
            case exp.Boolean():
                wanted = State.TRUE if state.this else State.FALSE
            case _:
                raise _unsupported(node)
        self._words.take(wanted.value)
        return Is(operand, wanted)

    def _minus(self, node: exp.Neg) -> tuple[Expression, _Level]:
        self._words.take("-")
        operand = self.read(node.this, _Level.SIGN)
        if isinstance(operand, Number) and not isinstance(node.this, exp.Neg):
            return Number(-operand.value), _Level.SIGN
        return Minus(operand), _Level.SIGN

    def _cast(self, node: exp.Cast) -> tuple[Expression, _Level]:
        if node.to.sql(dialect=_DIALECT).upper() != "BINARY":
            raise _unsupported(node)
        if self._words.follows("BINARY"):
            self._words.take("BINARY")
            return AsBytes(self.read(node.this, _Level.SIGN)), _Level.SIGN
        self._words.take("CAST", "(")
        operand = self.read(node.this, _Level.OR)
        self._words.take("AS", "BINARY", ")")
        return AsBytes(operand), _Level.UNIT

    def _column(self, node: exp.Column) -> tuple[Expression, _Level]:
        if not isinstance(node.this, exp.Identifier) or len(node.parts) > 1:
            raise _unsupported(node)
        self._words.take(f"`{node.name}")
        return ColumnName(node.name), _Level.UNIT

    def _literal(self, node: exp.Literal) -> tuple[Expression, _Level]:
        if node.is_string:
            self._words.take(f"'{node.this}")
            return Text(node.this), _Level.UNIT
        self._words.take(f"#{node.this}")
        return Number(Decimal(node.this) if "." in node.this else int(node.this)), _Level.UNIT

    def _bytes(self, node: exp.HexString) -> tuple[Expression, _Level]:
        self._words.take(f"X'{node.this.upper()}")
        return Bytes(bytes.fromhex(node.this)), _Level.UNIT

    def _null(self, node: exp.Null) -> tuple[Expression, _Level]:
        self._words.take("NULL")
        return Null(), _Level.UNIT

    def _truth(self, node: exp.Boolean) -> tuple[Expression, _Level]:
        self._words.take("TRUE" if node.this else "FALSE")
        return Truth(node.this), _Level.UNIT


def _unsupported(node: exp.Expr) -> FilterRefused:
    why, hint = next(
        ((why, hint) for kind, why, hint in _HINTS if isinstance(node, kind)), ("it is not read in filters", SUPPORTED)
    )
    return FilterRefused(f"the filter has `{node.sql(dialect=_DIALECT)[:80]}`: {why}", hint=hint)


_PARTS: dict[type[exp.Expr], Callable[[_Reader, Any], tuple[Expression, _Level]]] = {
    exp.Paren: _Reader._parenthesised,
    exp.Not: _Reader._not,
    exp.In: _Reader._plain_postfix,
    exp.Between: _Reader._plain_postfix,
    exp.Is: _Reader._plain_postfix,
    exp.Neg: _Reader._minus,
    exp.Cast: _Reader._cast,
    exp.Column: _Reader._column,
    exp.Literal: _Reader._literal,
    exp.HexString: _Reader._bytes,
    exp.Null: _Reader._null,
    exp.Boolean: _Reader._truth,
}
