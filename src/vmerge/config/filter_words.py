"""The words of a row filter's text: which spellings are read, and each in one form.

Knows: how MySQL writes names, literals and operators, and which of them mean the same on every server. Never knows:
grammar, or who cut the text into pieces. Used by ``vmerge/predicates.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from vmerge.errors import FilterRefused

SPACE = " \t\r\n"
"""What may stand between words."""

_NAME = re.compile(r"[^\W\d][\w$]*")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_HEX = re.compile(r"0x([0-9A-Fa-f]{2})+|[xX]'([0-9A-Fa-f]{2})*'")
_WORDS = {
    **{word: word for word in ("=", "<>", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "%", "(", ")", ",", "DIV")},
    **{word: word for word in ("AND", "OR", "XOR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE")},
    **{word: word for word in ("CAST", "AS", "BINARY")},
    **{"!=": "<>", "&&": "AND", "MOD": "%", "UNKNOWN": "NULL"},
}
_FUNCTIONS_WITHOUT_PARENTHESES = frozenset(
    [
        "CURRENT_DATE",
        "CURRENT_TIME",
        "CURRENT_TIMESTAMP",
        "CURRENT_USER",
        "LOCALTIME",
        "LOCALTIMESTAMP",
        "UTC_DATE",
        "UTC_TIME",
        "UTC_TIMESTAMP",
        "DEFAULT",
    ]
)

_PARENTHESES = "Put parentheses around each part, such as (a = 1) IS TRUE or NOT (a IN (1, 2))."
SUPPORTED = (
    "Filters have columns, literals, comparisons, IN, BETWEEN, IS, AND, OR, XOR, NOT, "
    "and +, -, *, %, DIV of whole numbers."
)
"""What can be written; a hint."""

UNREADABLE: dict[str, tuple[str, str]] = {
    "||": ("|| is OR or concatenation, as the server is set", "Write OR."),
    "!": ("! binds tighter than NOT", "Write NOT (…)."),
    "/": ("division gives rounded numbers", "Compare products of whole numbers instead, or use DIV."),
    ".": (
        "a point is read inside a number only, and columns stand without their table",
        "Write 0.5 for .5, and `column` for `table`.`column`.",
    ),
    "@": ("a variable has no value of the row's", "Write the value itself."),
    ";": ("a filter is one condition", "Join conditions with AND."),
}


class Kind(Enum):
    """What a piece of text is, as far as its spelling tells."""

    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    NAME = "name"
    """Between quotes."""
    WORD = "word"
    """A name without quotes, a keyword or an operator."""


class Piece(NamedTuple):
    """One piece of a filter's text."""

    kind: Kind
    text: str
    """What it stands for, without its quotes."""
    start: int
    end: int
    """Behind its last character."""


class Words:
    """The words of a text, in order, each in one spelling: `name, 'text, #number, X'bytes, or an upper-case word."""

    def __init__(self, text: str, pieces: Iterable[Piece]) -> None:
        self._words: list[str] = []
        self._place = 0
        end = 0
        for piece in pieces:
            self._skip(text[end : piece.start])
            end = piece.end
            self._words.append(_word(piece, text[piece.start : end]))
        self._skip(text[end:])
        if not self._words:
            raise FilterRefused("the filter is empty", hint="Write a condition, or leave `where` out.")

    def _skip(self, gap: str) -> None:
        rest = gap.strip(SPACE)
        if rest:
            raise FilterRefused(
                f"the filter has `{rest[:40]}`, which is no part of a condition",
                hint="Leave comments out; the workflow file has its own.",
            )

    def follows(self, word: str) -> bool:
        """Whether this word is next."""
        return self._place < len(self._words) and self._words[self._place] == word

    def take(self, *words: str) -> None:
        """Step over the next words, which must be these."""
        for word in words:
            if not self.follows(word):
                raise self.misread()
            self._place += 1

    def end(self) -> None:
        """See that nothing is left."""
        if self._place < len(self._words):
            raise self.misread()

    def misread(self) -> FilterRefused:
        """Make the error for a text that could be read in more than one way."""
        near = " ".join(word.lstrip("`#'") for word in self._words[max(self._place - 3, 0) : self._place + 3])
        return FilterRefused(f"the filter is not clear near `{near}`", hint=_PARENTHESES)


def _word(piece: Piece, raw: str) -> str:
    match piece.kind:
        case Kind.TEXT:
            return _string_word(piece.text, raw)
        case Kind.NUMBER if _NUMBER.fullmatch(raw):
            return f"#{raw}"
        case Kind.BYTES if _HEX.fullmatch(raw):
            return f"X'{piece.text.upper()}"
        case Kind.NAME if raw.startswith("`"):
            return f"`{piece.text}"
    word = _WORDS.get(raw.upper())
    if word is not None:
        return word
    if _NAME.fullmatch(raw) and raw.upper() not in _FUNCTIONS_WITHOUT_PARENTHESES:
        return f"`{raw}"
    why, hint = UNREADABLE.get(raw) or UNREADABLE.get(raw[:1]) or ("it is not read in filters", SUPPORTED)
    raise FilterRefused(f"the filter has `{raw[:40]}`: {why}", hint=hint)


def _string_word(text: str, raw: str) -> str:
    if not raw.startswith("'"):
        raise FilterRefused(
            f"the filter has {raw[:40]}: double quotes are for texts or for names, as the server is set",
            hint="Write texts in single quotes, and names in backticks.",
        )
    if "\\" in raw or raw[1:-1].replace("''", "'") != text:
        raise FilterRefused(
            f"the filter has {raw[:40]}: what a backslash means depends on the server's sql_mode",
            hint="Write '' for a quote; write other characters as they are, or compare bytes with X'…'.",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FilterRefused("the filter has half a character", hint="Write whole characters.") from error
    return f"'{text}"
