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
    takes_rows: bool = False
    """Whether rows go away, or into another table: TRUNCATE, DROP, RENAME and their like for partitions."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, name, text or sign of a statement; comments and blanks are none."""

    text: str
    is_name: bool
    """Whether it can be an identifier."""
    is_word: bool = False
    """Whether it stands without quotes, so that it may be a keyword."""
    start: int = 0
    end: int = 0
    """Where it stands in the statement."""

    @property
    def keyword(self) -> str:
        """The word in upper case, or the sign; empty for a name in quotes."""
        return self.text.upper() if self.is_word or not self.is_name else ""


_LAST = Token("", is_name=False)


@dataclass(slots=True)
class _Reader:
    """Walks the tokens of one statement."""

    tokens: list[Token]
    database: str
    place: int = field(default=0)

    def peek(self) -> Token:
        return self.tokens[self.place] if self.place < len(self.tokens) else _LAST

    def next(self) -> Token:
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
    reader = _Reader(tokenize(statement), database)
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


def first_word(statement: str) -> str:
    """Return the first word of a statement in upper case, comments aside."""
    return _Reader(tokenize(statement), "").peek().keyword


def made_table(statement: str, database: str) -> TableName | None:
    """Return the table that a CREATE TABLE makes; None for any other statement."""
    reader = _Reader(tokenize(statement), database)
    if not reader.accept("CREATE", "TABLE"):
        return None
    reader.accept("IF", "NOT", "EXISTS")
    try:
        return reader.table()
    except _Unreadable:
        return None


def tokenize(statement: str) -> list[Token]:
    """Cut a statement into its words, names, texts and signs."""
    tokens = []
    for match in _TOKEN.finditer(statement):
        kind, (start, end) = match.lastgroup, match.span()
        if kind == "quoted":
            tokens.append(Token(match["quoted"].replace("``", "`"), is_name=True, start=start, end=end))
        elif kind == "doubly":
            tokens.append(Token(match["doubly"].replace('""', '"'), is_name=True, start=start, end=end))
        elif kind == "word":
            tokens.append(Token(match["word"], is_name=True, is_word=True, start=start, end=end))
        elif kind != "skip":
            tokens.append(Token(match[0], is_name=False, start=start, end=end))
    return tokens


def _truncate(reader: _Reader) -> Change:
    reader.accept("TABLE")
    table = reader.table()
    reader.end()
    return Change((table,), takes_rows=True)


def _drop(reader: _Reader) -> Change:
    if reader.accept("DATABASE") or reader.accept("SCHEMA"):
        reader.accept("IF", "EXISTS")
        return Change(databases=(reader.identifier(),), is_drop=True, takes_rows=True)
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
    return Change(tables, is_drop=True, takes_rows=True)


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
    return Change(tuple(tables), takes_rows=True)


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
    table = reader.table()
    others, takes_rows = _rest_of_alter(reader)
    return Change((table, *others), takes_rows=takes_rows)


_ROW_TAKERS = ("DROP", "PARTITION"), ("TRUNCATE", "PARTITION"), ("DISCARD",), ("IMPORT",)


def _rest_of_alter(reader: _Reader) -> tuple[list[TableName], bool]:
    """Find the names behind RENAME and EXCHANGE PARTITION, and whether rows go.

    RENAME is reserved: unquoted it is that word. A column may be called IMPORT; taking that for more stops a stream
    that could have gone on, no more.
    """
    tables = []
    takes_rows = False
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
        elif any(reader.accept(*words) for words in _ROW_TAKERS):
            takes_rows = True
        else:
            reader.next()
    return tables, takes_rows or bool(tables)


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
