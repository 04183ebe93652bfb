"""A schema change of a source, as the statement that does the same on the target.

Knows: which statements do the same to the union of all shards as to each of them, and where tables are named in them.
Never knows: which tables there are, or who runs a statement. Used by ``core/plan.py``.

The target's table is the union of the shards' at the barrier, so a change may run there only if what it does to a row
depends on that row alone, and takes none away. That is a short list: columns and indexes added, dropped, renamed and
modified. A column that is added with a value of its own for each row (AUTO_INCREMENT, CURRENT_TIMESTAMP, UUID()) has
another one for the same row on the target, so it is refused; and so is one that is modified to have it, as rows with
NULL may take it then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vmerge.core.rules import TableName
from vmerge.core.schema_change import Token, tokenize

Rename = Callable[[TableName], TableName | None]
"""A source table's name on the target; None when it is not carried."""

_CLAUSES = frozenset({"ADD", "DROP", "MODIFY", "CHANGE", "ALTER", "RENAME"})
"""First words of the clauses of ALTER TABLE that change columns and indexes."""

_OPTIONS = frozenset(
    {"ALGORITHM", "AUTO_INCREMENT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "CONVERT", "DEFAULT", "ENGINE"}
    | {"FORCE", "LOCK", "ROW_FORMAT"}
)
"""First words of those that change no row, or each in the same way."""

_EACH_ROW_ITS_OWN = frozenset(
    {"AUTO_INCREMENT", "CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP", "SERIAL", "DEFAULT_GENERATED"}
)
"""Words by which the rows that are there get values that no other execution gives them."""

_INDEX_WORDS = frozenset({"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "PRIMARY", "CONSTRAINT", "FOREIGN", "CHECK"})


@dataclass(frozen=True, slots=True)
class TargetStatement:
    """What may run on the target."""

    table: TableName
    """The target's."""
    texts: tuple[str, ...]
    """One after the other. Every table in them has its database in front, and is in the target's names."""
    normal: str
    """The same for statements that differ in blanks, comments and the case of words only."""
    is_create: bool
    """Whether it makes the table."""

    @property
    def text(self) -> str:
        """All of it, to be shown."""
        return "; ".join(self.texts)


class Refused(Exception):
    """A statement does not do the same on the target; the text says why, for operators."""


def target_statement(statement: str, database: str, rename: Rename) -> TargetStatement:
    """Translate a source's statement; ``database`` is the session's. Raises ``Refused``."""
    if statement.startswith("?"):
        raise Refused("its text cannot be read in its character set")
    if "/*!" in statement or "/*M!" in statement:
        raise Refused("a comment in it is executed by some servers only")
    names = _Names(tokenize(statement), database, rename)
    words = [token.keyword for token in names.tokens]
    table, is_create = names.find_table(words)
    _require_rows_alone(names.tokens[names.place :], is_alter=words[0] == "ALTER")
    names.find_references()
    return TargetStatement(table, (names.text(statement),), names.normal(), is_create)


def altered_instead(statements: Sequence[str], shadow: TableName, real: TableName, rename: Rename) -> TargetStatement:
    """Return the changes that were made to a shadow table, as those of the real one, in one text with ``;`` between.

    Names are the source's. Raises ``Refused``.
    """

    def to_target(name: TableName) -> TableName | None:
        return rename(real if _folded(name) == _folded(shadow) else name)

    found = [target_statement(statement, shadow[0], to_target) for statement in statements]
    if not found:
        raise Refused("what was changed in the tool's table was not seen")
    texts = tuple(text for one in found for text in one.texts)
    return TargetStatement(found[0].table, texts, "; ".join(one.normal for one in found), is_create=False)


class _Names:
    """The tables that a statement names, and where."""

    def __init__(self, tokens: list[Token], database: str, rename: Rename) -> None:
        self.tokens = [token for token in tokens if token.text != ";"]
        self._database = database
        self._rename = rename
        self._found: list[tuple[int, int, TableName]] = []
        """First and last token of each name, and what stands there on the target."""
        self.place = 0

    def find_table(self, words: Sequence[str]) -> tuple[TableName, bool]:
        """Return the table that the statement changes, and whether it makes it; ``place`` is behind its name."""
        match words[:2]:
            case ["ALTER", "TABLE"]:
                return self._take(2), False
            case ["CREATE", "TABLE"]:
                if words[2:5] == ["IF", "NOT", "EXISTS"]:
                    return self._take(5), True
                return self._take(2), True
            case ["CREATE", "INDEX" | "UNIQUE" | "FULLTEXT" | "SPATIAL"] | ["DROP", "INDEX"] if "ON" in words:
                return self._take(words.index("ON") + 1), False
            case _:
                raise Refused("it is none of ALTER TABLE, CREATE INDEX, DROP INDEX and CREATE TABLE")

    def find_references(self) -> None:
        """Translate the tables of foreign keys too. REFERENCES is reserved: unquoted it is that word."""
        for place in range(self.place, len(self.tokens)):
            if self.tokens[place].keyword == "REFERENCES":
                self._take(place + 1)

    def _take(self, place: int) -> TableName:
        parts = self.tokens[place : place + 3]
        has_database = len(parts) == 3 and parts[1].text == "." and not parts[1].is_name
        last = place + 2 if has_database else place
        if not parts or not parts[0].is_name or not self.tokens[last].is_name:
            raise Refused("a table's name in it cannot be read")
        name = (parts[0].text, parts[2].text) if has_database else (self._database, parts[0].text)
        target = self._rename(name)
        if target is None:
            raise Refused(f"it names table {'.'.join(name)}, which the stream does not carry")
        self._found.append((place, last, target))
        self.place = max(self.place, last + 1)
        return target

    def text(self, statement: str) -> str:
        """Return the statement with the target's names."""
        pieces, offset = [], 0
        for first, last, name in sorted(self._found):
            pieces += [statement[offset : self.tokens[first].start], _quoted(name)]
            offset = self.tokens[last].end
        return "".join([*pieces, statement[offset:]]).strip().rstrip(";").rstrip()

    def normal(self) -> str:
        """Return the tokens with single blanks between them."""
        names = {first: (last, _quoted(name)) for first, last, name in self._found}
        parts, place = [], 0
        while place < len(self.tokens):
            if place in names:
                last, text = names[place]
                parts.append(text)
                place = last + 1
                continue
            token = self.tokens[place]
            parts.append(_normal(token))
            place += 1
        return " ".join(parts)


def _normal(token: Token) -> str:
    if token.is_word:
        return token.text.upper()
    return f"`{token.text.upper()}`" if token.is_name else token.text


def _quoted(name: TableName) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in name)


def _folded(name: TableName) -> TableName:
    return name[0].lower(), name[1].lower()


def _require_rows_alone(tokens: Sequence[Token], *, is_alter: bool) -> None:
    words = [token.keyword for token in tokens]
    if "SELECT" in words or "LIKE" in words[:2]:
        raise Refused("it takes columns or rows from other tables")
    if "TABLESPACE" in words or "UNION" in words:
        raise Refused("it says where rows are kept, which is the target's business")
    for clause in _clauses(tokens) if is_alter else ():
        _require_known(clause)


def _clauses(tokens: Sequence[Token]) -> list[list[Token]]:
    """Cut ALTER TABLE's clauses at the commas outside of brackets."""
    clauses: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.text, 0) if not token.is_name else 0
        if token.text == "," and not token.is_name and not depth:
            clauses.append([])
        else:
            clauses[-1].append(token)
    return clauses


def _require_known(clause: Sequence[Token]) -> None:
    words = [token.keyword for token in clause]
    if not words or words[0] not in _CLAUSES | _OPTIONS or "PARTITION" in words[:2]:
        raise Refused(f"`{' '.join(words[:2])}` is no change that vmerge runs")
    if words[0] in _OPTIONS and not _keeps_engine(words):
        raise Refused("it keeps the rows in another storage engine")
    if words[0] == "RENAME" and words[1:2] not in (["COLUMN"], ["INDEX"], ["KEY"]):
        raise Refused("it gives the table another name")
    if words[0] not in ("ADD", "MODIFY", "CHANGE") or (len(words) > 1 and words[1] in _INDEX_WORDS):
        return
    own = next((word for at, word in enumerate(words) if word in _EACH_ROW_ITS_OWN), None)
    has_call = any(word == "DEFAULT" and words[at + 1 : at + 2] == ["("] for at, word in enumerate(words))
    if own is not None or has_call:
        raise Refused("it gives each row that is there a value which another execution would not give it")


def _keeps_engine(words: Sequence[str]) -> bool:
    """Whether options of a table leave it in InnoDB: ENGINE=InnoDB rebuilds it, and changes no row."""
    engines = [words[at + 1 : at + 3] for at, word in enumerate(words) if word == "ENGINE"]
    return all(engine[:1] == ["INNODB"] or engine == ["=", "INNODB"] for engine in engines)
