"""Where each column of a target table comes from, under the table's rule, and what that makes of the source's table.

Knows: how columns are matched by name, and what of a source's description still holds of the columns that are left.
Never knows: rows or table maps. Used by ``core/projection.py``, ``core/plan.py`` and ``core/table_checks.py``.

Every column has one way: a column of the source is carried under its own name or the one that ``rename_columns``
gives it, or it is named in ``drop_columns``; a column of the target is a column of the source or a constant. What has
no way, or two, does not fit: nothing is left out because nobody thought of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vmerge.core.constants import NotTaken, constant_image
from vmerge.core.rules import TableRule
from vmerge.core.schema import Column, ForeignKey, Generation, KeyPart, TableSchema, UniqueKey

_IDENTIFIER = re.compile(r"`((?:[^`]|``)+)`")


@dataclass(frozen=True, slots=True)
class Copied:
    """A column that is the source's at this index, from 0."""

    index: int


@dataclass(frozen=True, slots=True)
class Filled:
    """A column that is the same in all rows: its bytes in their images, None for NULL."""

    image: bytes | None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each of a target table's columns comes from, in their order."""

    places: tuple[Copied | Filled, ...]

    @property
    def keeps_rows(self) -> bool:
        """Whether the columns of both sides are the same in the same order, so that images need no change.

        That holds only for a source table with as many columns.
        """
        return self.places == tuple(map(Copied, range(len(self.places))))


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why the columns do not fit: a sentence each."""

    problems: tuple[str, ...]


def lay_out(names: Sequence[str], target: TableSchema, rule: TableRule) -> Layout | Unfit:
    """Find where a target table's columns come from in rows whose columns have these names at the source."""
    matching = _Matching(names, target, rule)
    places = tuple(matching.place(column) for column in target.columns)
    problems = (*matching.problems, *matching.leftovers())
    return Unfit(problems) if problems else Layout(tuple(place for place in places if place is not None))


class _Matching:
    """One look at two lists of columns."""

    def __init__(self, names: Sequence[str], target: TableSchema, rule: TableRule) -> None:
        self._names = names
        self._target = target
        self._rule = rule
        self._indexes = {name.lower(): index for index, name in enumerate(names)}
        self._renamed = {ours.lower(): theirs.lower() for ours, theirs in rule.renamed.items()}
        self._renamed_away = set(self._renamed.values())
        self._dropped = {name.lower() for name in rule.dropped}
        self._constants = {name.lower(): value for name, value in rule.constants.items()}
        self._used: set[int] = set()
        self.problems: list[str] = []

    def place(self, column: Column) -> Copied | Filled | None:
        """Find where a target's column comes from; None, and a problem, if from nowhere."""
        name = column.name.lower()
        if name in self._constants:
            try:
                return Filled(constant_image(self._constants[name], column))
            except NotTaken as error:
                self.problems.append(f"the target's column `{column.name}` {error}")
                return None
        wanted = self._renamed.get(name, name)
        is_free = name in self._renamed or wanted not in self._renamed_away
        if wanted not in self._indexes or wanted in self._dropped or not is_free:
            self.problems.append(f"nothing fills the target's column `{column.name}`")
            return None
        index = self._indexes[wanted]
        self._used.add(index)
        return Copied(index)

    def leftovers(self) -> Iterator[str]:
        """Yield what the rule names in vain, and the source's columns that have no place."""
        theirs = {column.name.lower() for column in self._target.columns}
        for name in (*self._rule.renamed, *self._rule.constants):
            if name.lower() not in theirs:
                yield f"the target has no column `{name}`"
        for name in (*self._rule.renamed.values(), *self._rule.dropped):
            if name.lower() not in self._indexes:
                yield f"the source has no column `{name}`"
        for index, name in enumerate(self._names):
            if index not in self._used and name.lower() not in self._dropped:
                yield f"the source's column `{name}` has no place on the target, and is not dropped"


def projected_schema(source: TableSchema, target: TableSchema, layout: Layout) -> TableSchema:
    """Return a source's table as its rows come to the target: with the target's columns, and keys over them.

    Keys and foreign keys with a column that is not carried are left out.
    """
    renaming = _Renaming(source, target, layout)
    columns = []
    for position, (place, theirs) in enumerate(zip(layout.places, target.columns, strict=True), 1):
        if isinstance(place, Filled):
            columns.append(replace(theirs, position=position))
        else:
            ours = source.columns[place.index]
            generated = renaming.generation(ours.generated)
            columns.append(replace(ours, name=theirs.name, position=position, generated=generated))
    keys = [renaming.key(key) for key in source.unique_keys]
    foreign_keys = [renaming.foreign_key(key) for key in source.foreign_keys]
    return replace(
        source,
        columns=tuple(columns),
        primary_key=renaming.key(source.primary_key) if source.primary_key is not None else None,
        unique_keys=tuple(key for key in keys if key is not None),
        foreign_keys=tuple(key for key in foreign_keys if key is not None),
    )


class _Renaming:
    """The target's names of the source's columns, as far as they are carried."""

    def __init__(self, source: TableSchema, target: TableSchema, layout: Layout) -> None:
        self._columns = {column.name.lower() for column in source.columns}
        self._names = {
            source.columns[place.index].name.lower(): theirs.name
            for place, theirs in zip(layout.places, target.columns, strict=True)
            if isinstance(place, Copied)
        }

    def key(self, key: UniqueKey) -> UniqueKey | None:
        parts = [self._part(part) for part in key.parts]
        known = tuple(part for part in parts if part is not None)
        return UniqueKey(key.name, known) if len(known) == len(parts) else None

    def _part(self, part: KeyPart) -> KeyPart | None:
        if part.column is not None:
            name = self._names.get(part.column.lower())
            return None if name is None else replace(part, column=name)
        expression = self._expression(part.expression or "")
        return None if expression is None else replace(part, expression=expression)

    def foreign_key(self, key: ForeignKey) -> ForeignKey | None:
        names = [self._names.get(column.lower()) for column in key.columns]
        known = tuple(name for name in names if name is not None)
        return replace(key, columns=known) if len(known) == len(names) else None

    def generation(self, generation: Generation | None) -> Generation | None:
        """One that rests on a column that is not carried has no equal on any target."""
        if generation is None:
            return None
        expression = self._expression(generation.expression)
        if expression is None:
            expression = f"{generation.expression} of columns not carried by these names"
        return replace(generation, expression=expression)

    def _expression(self, expression: str) -> str | None:
        """Put the target's names into an expression of the source; None where that is not sure to keep its meaning.

        Servers print every column's name in backticks. Within a text between quotes there may be some, too, and where
        such a text begins and ends depends on how the schema views escape it: so with backticks from the first quote
        to the last, no column may have another name.
        """
        found = {name.replace("``", "`") for name in _IDENTIFIER.findall(expression)}
        ours = {name: self._names.get(name.lower()) for name in found if name.lower() in self._columns}
        if None in ours.values():
            return None
        begin, end = expression.find("'"), expression.rfind("'")
        if "`" in expression[begin:end] and any(theirs != name for name, theirs in ours.items()):
            return None
        return _IDENTIFIER.sub(self._quoted, expression)

    def _quoted(self, match: re.Match[str]) -> str:
        name = self._names.get(match[1].replace("``", "`").lower())
        return match[0] if name is None else "`" + name.replace("`", "``") + "`"


def hides_rows(source: TableSchema, projected: TableSchema, target: TableSchema) -> bool:
    """Whether a part of a source's primary key is not carried, and the target's cannot tell its rows apart without.

    It can where it has all columns of another unique key of the source in which nothing may be NULL.
    """
    if source.primary_key is None or projected.primary_key is not None or target.primary_key is None:
        return False
    own = {part.column for part in target.primary_key.parts if part.prefix_length is None}
    never_null = {column.name for column in projected.columns if not column.nullable}
    return not any(
        all(part.prefix_length is None and part.column in own & never_null for part in key.parts)
        for key in projected.unique_keys
    )
