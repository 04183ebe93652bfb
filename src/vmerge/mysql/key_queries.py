"""Questions about rows by their unique keys, as SQL.

Knows: how rows of two tables of one definition are matched by a key as the key's own index would, and how a row is
found by its primary key. Never knows: servers, or why it is asked. Used by ``mysql/probe.py`` and ``mysql/lookup.py``.

A table is read through a view of its own, ``(SELECT … AS k0, … FROM table) AS t``, which the server merges into the
query. So expressions of keys name their columns without more ado, and identifiers meet nowhere.

What is equal is said by the server: whole columns by ``=`` in their collation; ENUM and SET by label and number; the
first characters of a column by ``LEFT``; expressions by ``=`` of the expressions. NULL matches nothing. A join uses an
index on whole columns. The other keys use theirs for one row at a time:

- an index on an expression serves a comparison with a constant only, so the value comes from a subquery;
- an index on the first characters of a column serves no condition that means equal as far as the index goes. A LIKE on
  these characters, or equality, is near to it: it finds the same rows but in collations where texts of different
  characters are equal. So it may be left out, and then the table is read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from vmerge.core.rules import TableName
from vmerge.core.schema import KeyPart, TableSchema, UniqueKey
from vmerge.errors import UnsupportedEvent
from vmerge.mysql import sql
from vmerge.mysql.key_values import Form, KeyValue, column_value, expression_text
from vmerge.mysql.source_views import quoted_name

SHOWN_CHARACTERS = 80
"""Of a value: every number is shown whole."""
MATCHES = 3
"""Read for each key."""
SIGHTINGS = 3
"""Read for each row that is looked for; one is the rule."""

Literals = tuple[str, ...]
"""The parts of a primary key, as SQL."""

KeyTexts = tuple[str, ...]
"""The parts of a key, exactly, as text; two are equal exactly if the values' bytes are."""

_PROBE, _TARGET, _OTHER, _SOURCE = "p", "t", "o", "s"
_ARRAY = re.compile(r"\barray\)$")


class Search(Enum):
    """What a match by a key on the first characters of a column is made with."""

    INDEXED = "indexed"
    """With an index; it may miss rows."""
    THOROUGH = "thorough"
    """Without, if need be."""


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One row of a match."""

    shown: str
    """Its primary key, for the operator."""
    identity: Literals
    key: KeyTexts


@dataclass(frozen=True, slots=True)
class Match:
    """A row of the probe table, a row of the target, and the key that both have."""

    query: KeyQuery
    own: FoundRow
    holder: FoundRow
    shown_key: tuple[str, ...]
    shares_primary_key: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a key, and its name in the views."""

    name: str
    value: KeyValue
    whole: str | None = None
    """The column's whole value, where the part has only its first characters."""
    is_expression: bool = False
    is_labelled: bool = False

    @property
    def is_column(self) -> bool:
        return self.whole is None and not self.is_expression

    @property
    def columns(self) -> list[str]:
        columns = [f"{self.value.expression} AS {self.name}"]
        if self.whole is not None:
            columns.append(f"{self.whole} AS {self.name}w")
        return columns

    def read(self, alias: str) -> str:
        """Return the SQL of the exact text."""
        if self.is_expression:
            return f"HEX(CONCAT({alias}.{self.name}))"
        return self._placed(alias).read

    def shown(self, alias: str) -> str:
        """Return the SQL of the text for the operator."""
        if self.is_expression:
            place = f"CONCAT({alias}.{self.name})"
            return f"COALESCE(CONVERT({place} USING utf8mb4), HEX({place}))"
        return self._placed(alias).shown

    def _placed(self, alias: str) -> KeyValue:
        place = f"{alias}.{self.name}"
        if self.value.form is Form.NUMBER:
            place = f"({place} + 0)"  # one side may be ZEROFILL
        return replace(self.value, expression=place)

    def show(self, text: str) -> str:
        """Return a text for the operator, as it was read, as part of a sentence."""
        text = text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
        if self.is_expression or self.is_labelled or self.value.form in (Form.TEXT, Form.QUOTED):
            return "'" + text.replace("'", "''") + "'"
        return text

    def equals(self, alias: str, value: str, *, in_a_range: bool = False) -> str:
        """Return the condition that this part of a row is that value.

        For an equality the server looks up by whole columns and reads all that is behind them, however many rows; IN
        makes it think of ranges, which also go by the first characters of the next column.
        """
        place = f"{alias}.{self.name}"
        condition = f"{place} IN ({value}, {value})" if in_a_range and self.is_column else f"{place} = {value}"
        return condition + (f" AND {place} + 0 = {value} + 0" if self.is_labelled else "")

    def resembles(self, alias: str, value: str) -> str:
        """Return a condition that an index on the first characters serves."""
        pattern = value
        for character in "!%_":
            pattern = f"REPLACE({pattern}, '{character}', '!{character}')"
        place = f"{alias}.{self.name}w"
        return f"({place} LIKE CONCAT({pattern}, '%') ESCAPE '!' OR {place} = {value})"


class KeyQuery:
    """One unique key of a table of the target, beside the table's primary key. Immutable."""

    def __init__(self, schema: TableSchema, key: UniqueKey) -> None:
        """Look at what the keys are made of.

        Raises:
            UnsupportedEvent: the table has no primary key, or one of a type that is not known here.
        """
        if schema.primary_key is None:
            raise UnsupportedEvent(f"rows of {schema.name} cannot be looked up: it has no primary key")
        self.schema = schema
        self.table: TableName = (schema.database, schema.table)
        self.key = key
        self._identity = _parts(schema, schema.primary_key, "i")
        self._parts = _parts(schema, key, "k")

    @property
    def is_joinable(self) -> bool:
        """Whether an index serves a match of many rows at once."""
        return all(part.is_column for part in self._parts)

    def match(self, probe: str, own: Literals | None, search: Search) -> str:
        """Return the query that matches rows of a probe table, all or one, with the target's."""
        has_prefix = any(part.whole is not None for part in self._parts)
        conditions = []
        for part in self._parts:
            value = f"{_PROBE}.{part.name}"
            if part.is_expression and own is not None:
                value = sql.READ_VALUE.format(
                    value=f"{_OTHER}.{part.name}", probe=self._view(probe, _OTHER), own=self._is(_OTHER, own)
                )
            conditions.append(part.equals(_TARGET, value, in_a_range=own is not None and has_prefix))
            if part.whole is not None and search is Search.INDEXED:
                conditions.append(part.resembles(_TARGET, value))
        return sql.MATCH_ROWS.format(
            columns=", ".join(self._columns()),
            probe=self._view(probe, _PROBE),
            table=self._view(quoted_name(self.table), _TARGET),
            conditions=" AND ".join(conditions),
            own="TRUE" if own is None else self._is(_PROBE, own),
            limit=MATCHES,
        )

    def _columns(self) -> list[str]:
        same = " AND ".join(part.equals(_PROBE, f"{_TARGET}.{part.name}") for part in self._identity)
        columns = [same]
        for part in self._identity:
            columns += [part.shown(_PROBE), part.read(_PROBE), part.shown(_TARGET), part.read(_TARGET)]
        for part in self._parts:
            columns += [part.shown(_PROBE), part.read(_PROBE), part.read(_TARGET)]
        return columns

    def read_match(self, row: Sequence[Any]) -> Match:
        """Make a match of a row that ``match`` gave."""
        identity = [row[start : start + 4] for start in range(1, 1 + 4 * len(self._identity), 4)]
        key = [row[start : start + 3] for start in range(1 + 4 * len(self._identity), len(row), 3)]
        own_key = tuple(read for _, read, _ in key)
        holder_key = tuple(read for _, _, read in key)
        return Match(
            query=self,
            own=self._found([(shown, read) for shown, read, _, _ in identity], own_key),
            holder=self._found([(shown, read) for _, _, shown, read in identity], holder_key),
            shown_key=tuple(part.show(shown) for part, (shown, _, _) in zip(self._parts, key, strict=True)),
            shares_primary_key=bool(row[0]),
        )

    def _found(self, texts: Sequence[tuple[str, str]], key: KeyTexts) -> FoundRow:
        pairs = list(zip(self._identity, texts, strict=True))
        shown = ", ".join(f"{part.value.name}={part.show(text)}" for part, (text, _) in pairs)
        return FoundRow(shown, self.literals([read for _, read in texts]), key)

    def literals(self, texts: Sequence[str]) -> Literals:
        """Return the SQL of a primary key that ``identities`` gave."""
        return tuple(part.value.literal(text) for part, text in zip(self._identity, texts, strict=True))

    def identities(self, probe: str) -> str:
        """Return the query for the primary key of a row of a probe table."""
        return sql.READ_ROWS.format(
            alias=_PROBE,
            columns=", ".join(part.read(_PROBE) for part in self._identity),
            table=self._view(probe, _PROBE),
            conditions="TRUE",
            limit=1,
        )

    def sightings(self, rows: str, identity: Literals) -> str:
        """Return the query for the key of the rows with a primary key, among rows in the shape of the target's."""
        return sql.READ_ROWS.format(
            alias=_SOURCE,
            columns=", ".join(part.read(_SOURCE) for part in self._parts),
            table=self._view(rows, _SOURCE),
            conditions=self._is(_SOURCE, identity),
            limit=SIGHTINGS,
        )

    def _view(self, table: str, alias: str) -> str:
        columns = [column for part in (*self._identity, *self._parts) for column in part.columns]
        return f"(SELECT {', '.join(columns)} FROM {table}) AS {alias}"

    def _is(self, alias: str, identity: Literals) -> str:
        """Return the condition that a row has this primary key."""
        conditions = []
        for part, literal in zip(self._identity, identity, strict=True):
            conditions.append(f"{alias}.{part.name} = {literal}")
            if part.whole is not None:
                conditions.append(part.resembles(alias, literal))
        return " AND ".join(conditions)


def key_queries(schema: TableSchema) -> list[KeyQuery]:
    """Return a query for each unique key of a table that can be compared. Raises as ``KeyQuery`` does."""
    keys = (schema.primary_key, *schema.unique_keys)
    return [KeyQuery(schema, key) for key in keys if key is not None and not any(map(_is_array, key.parts))]


def _is_array(part: KeyPart) -> bool:
    """Whether a part has many values for one row: no comparison of two rows does what that index does."""
    return part.expression is not None and _ARRAY.search(part.expression) is not None


def _parts(schema: TableSchema, key: UniqueKey, letter: str) -> tuple[_Part, ...]:
    return tuple(_part(schema, part, f"{letter}{number}") for number, part in enumerate(key.parts))


def _part(schema: TableSchema, part: KeyPart, name: str) -> _Part:
    if part.column is None:
        return _Part(name, KeyValue(str(part), expression_text(part), Form.BYTES), is_expression=True)
    column = next(column for column in schema.columns if column.name == part.column)
    value = column_value(column, part.prefix_length)
    if value is None:
        raise UnsupportedEvent(f"rows of {schema.name} cannot be looked up by {part}: a key of an unknown type")
    whole = None if part.prefix_length is None else sql.quoted(column.name)
    return _Part(name, value, whole, is_labelled=column.family in ("enum", "set"))
