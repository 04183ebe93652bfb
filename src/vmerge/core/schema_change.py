"""Schema change statements: which tables and databases one changes.

Knows: as much of MySQL's grammar as stands in front of, and names, the changed tables. Never knows: which tables a
stream carries. Used by ``core/plan.py``.

Statements that change no rows of an existing table are told apart from those that are not understood: the first
change nothing, for the second ``read_change`` returns None, and the caller assumes the worst. CREATE TABLE changes
nothing that exists; should rows follow, they are proven like all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from vmerge.core.rules import TableName

_TOKEN = re.compile(
    r"""
      (?P<skip> [ \t\n\v\f\r]+ | --(?:[\s][^\n]*|$) | \#[^\n]* | /\*(?!M?!)(?:.*?\*/|.*) | /\*M?!\d* | \*/ )
    | `(?P<quoted>(?:[^`]|``)*)`
    | "(?P<doubly>(?:[^"\\]|\\.|"")*)"
    | '(?P<text>(?:[^'\\]|\\.|'')*)'
    | (?P<word>[0-9A-Za-z_$\\\u0080-\U0010ffff]+)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
"""A comment that a server executes (``/*!40005 TEMPORARY */``) is read as what stands in it. A backslash outside of
quotes is part of a name: the decoder writes so what it cannot decode."""

_NO_ROWS = frozenset(
    {
        "ANALYZE",
        "CHECK",
        "CHECKSUM",
        "CLONE",
        "FLUSH",
        "GRANT",
        "INSTALL",
        "OPTIMIZE",
        "REPAIR",
        "RESTART",
        "REVOKE",
        "SET",
        "SHUTDOWN",
        "UNINSTALL",
    }
)
"""First words of statements that change no rows of any table that a stream could carry."""

_END = frozenset({"", ";"})


class _Unreadable(Exception):
    """The statement is not one that this module understands."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a statement changes: these tables, and all tables of these databases."""

    tables: tuple[TableName, ...] = ()
    databases: tuple[str, ...] = ()
    is_drop: bool = False
    """Whether they are gone afterwards."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_name: bool
    """Whether it can be an identifier."""
    is_word: bool = False
    """Whether it stands without quotes, so that it may be a keyword."""

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.is_word or not self.is_name else ""


_LAST = _Token("", is_name=False)


@dataclass(slots=True)
class _Reader:
    """Walks the tokens of one statement."""

    tokens: list[_Token]
    database: str
    place: int = field(default=0)

    def peek(self) -> _Token:
        return self.tokens[self.place] if self.place < len(self.tokens) else _LAST

    def next(self) -> _Token:
        token = self.peek()
        self.place += 1
        return token

    def accept(self, *words: str) -> bool:
        """Step over these words if they come next, all of them."""
        found = [token.keyword for token in self.tokens[self.place : self.place + len(words)]]
        if found != list(words):
            return False
        self.place += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise _Unreadable

    def identifier(self) -> str:
        token = self.next()
        if not token.is_name or not token.text:
            raise _Unreadable
        return token.text

    def table(self) -> TableName:
        first = self.identifier()
        if self.accept("."):
            return first, self.identifier()
        if not self.database:
            raise _Unreadable
        return self.database, first

    def end(self) -> None:
        if self.peek().keyword not in _END:
            raise _Unreadable


def read_change(statement: str, database: str) -> Change | None:
    """Return what a statement changes; ``database`` is the session's. None when that cannot be told.

    With ANSI_QUOTES in its sql_mode a session may write names in double quotes, so those count as names.
    """
    reader = _Reader(_tokenize(statement), database)
    first = reader.next().keyword
    if first in _NO_ROWS:
        return Change()
    read = _STATEMENTS.get(first)
    if read is None:
        return None
    try:
        return read(reader)
    except _Unreadable:
        return None


def _tokenize(statement: str) -> list[_Token]:
    tokens = []
    for match in _TOKEN.finditer(statement):
        kind = match.lastgroup
        if kind == "quoted":
            tokens.append(_Token(match["quoted"].replace("``", "`"), is_name=True))
        elif kind == "doubly":
            tokens.append(_Token(match["doubly"].replace('""', '"'), is_name=True))
        elif kind == "word":
            tokens.append(_Token(match["word"], is_name=True, is_word=True))
        elif kind != "skip":
            tokens.append(_Token(match[0], is_name=False))
    return tokens


def _truncate(reader: _Reader) -> Change:
    reader.accept("TABLE")
    table = reader.table()
    reader.end()
    return Change((table,))


def _drop(reader: _Reader) -> Change:
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        reader.accept("IF", "EXISTS")
        return Change(databases=(reader.identifier(),), is_drop=True)
    if reader.accept("INDEX"):
        reader.identifier()
        reader.expect("ON")
        return Change((reader.table(),))
    if not (reader.accept("TABLE") or reader.accept("TABLES")):
        return Change()  # views, triggers, routines, users, temporary tables …: no rows of a base table
    reader.accept("IF", "EXISTS")
    tables = _table_list(reader)
    if not (reader.accept("RESTRICT") or reader.accept("CASCADE")):
        reader.end()
    return Change(tables, is_drop=True)


def _table_list(reader: _Reader) -> tuple[TableName, ...]:
    tables = [reader.table()]
    while reader.accept(","):
        tables.append(reader.table())
    return tuple(tables)


def _rename(reader: _Reader) -> Change:
    if reader.accept("USER"):
        return Change()
    if not reader.accept("TABLES"):
        reader.expect("TABLE")
    tables = []
    while True:
        tables.append(reader.table())
        reader.expect("TO")
        tables.append(reader.table())
        if not reader.accept(","):
            break
    reader.end()
    return Change(tuple(tables))


def _create(reader: _Reader) -> Change:
    """CREATE INDEX changes a table; everything else that can be created is new."""
    if reader.accept("OR", "REPLACE") and reader.peek().keyword == "TABLE":
        raise _Unreadable
    for kind in ("UNIQUE", "FULLTEXT", "SPATIAL"):
        if reader.accept(kind):
            break
    if not reader.accept("INDEX"):
        return Change()
    reader.identifier()
    if reader.accept("USING"):
        reader.identifier()
    reader.expect("ON")
    return Change((reader.table(),))


def _alter(reader: _Reader) -> Change:
    for word in ("ONLINE", "OFFLINE", "IGNORE"):
        reader.accept(word)
    if not reader.accept("TABLE"):
        return Change()  # databases' defaults, views, routines, users …
    return Change((reader.table(), *_other_tables(reader)))


def _other_tables(reader: _Reader) -> list[TableName]:
    """Find the names behind RENAME and EXCHANGE PARTITION. RENAME is reserved: unquoted it is that word."""
    tables = []
    while reader.peek() is not _LAST:
        if reader.accept("RENAME"):
            if any(reader.accept(word) for word in ("COLUMN", "INDEX", "KEY")):
                continue
            any(reader.accept(word) for word in ("TO", "AS", "="))
            tables.append(reader.table())
        elif reader.accept("EXCHANGE", "PARTITION"):
            reader.identifier()
            reader.expect("WITH", "TABLE")
            tables.append(reader.table())
        else:
            reader.next()
    return tables


def _switch_keys_or_alter(reader: _Reader) -> Change:
    """``ALTER TABLE … DISABLE KEYS`` and ENABLE KEYS, as in each restored dump, change no row, column or unique key."""
    start = reader.place
    if reader.accept("TABLE"):
        reader.table()
        is_switch = reader.accept("DISABLE", "KEYS") or reader.accept("ENABLE", "KEYS")
        if is_switch and reader.peek().keyword in _END:
            return Change()
    reader.place = start
    return _alter(reader)


_STATEMENTS: dict[str, Callable[[_Reader], Change]] = {
    "ALTER": _switch_keys_or_alter,
    "CREATE": _create,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
}
