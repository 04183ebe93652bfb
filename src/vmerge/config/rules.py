"""The models of what a workflow file says of single tables.

Knows: every key of a table's rule and of true duplicates, and which of them contradict each other. Never knows: YAML,
lines, or columns that servers have. Used by ``workflow.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from vmerge.config.problem import problem
from vmerge.config.section import Section
from vmerge.core.duplicates import DuplicatePolicy, DuplicateRules
from vmerge.core.predicate import Predicate
from vmerge.core.rules import Constant, TableName, TablePattern, TableRule
from vmerge.errors import FilterRefused

_WILDCARDS = frozenset("*?[")


def table_pattern(text: str) -> TablePattern:
    """Read a pattern; a problem if it is none."""
    try:
        return TablePattern(text)
    except ValueError as error:
        raise problem(str(error), hint='For all tables of a database write "database.*".') from error


def require_database(text: str, databases: Collection[str], key: str) -> None:
    """Refuse a pattern that no table of these target databases can match."""
    if not any(TablePattern(text).matches_database(database) for database in databases):
        raise problem(
            f"the pattern `{text}` matches no target database ({', '.join(databases)})",
            hint="Patterns are in the target's names, not in the sources'.",
            key=key,
        )


Policy = Annotated[DuplicatePolicy, Field(strict=False)]


class TrueDuplicates(Section):
    """What becomes of a row that another shard's row really shares a unique value with."""

    default: Policy = Field(
        default=DuplicatePolicy.STOP,
        description="stop or quarantine, for tables that `tables` does not name. Default stop: a duplicate is a fault "
        "of the shards, and nothing of a stream is missing on the target while somebody looks at it.",
    )
    tables: dict[str, Policy] = Field(
        default={},
        description="Pattern `database.table`, in the target's names → stop or quarantine; the first that matches "
        "counts. With quarantine the stream sets its own row aside and goes on; the table needs a primary key, and no "
        "foreign key to or from it.",
    )

    @field_validator("tables")
    @classmethod
    def _are_patterns(cls, value: dict[str, DuplicatePolicy]) -> dict[str, DuplicatePolicy]:
        for text in value:
            table_pattern(text)
        return value

    @property
    def rules(self) -> DuplicateRules:
        """The policy of each table."""
        return DuplicateRules(self.default, tuple((TablePattern(text), one) for text, one in self.tables.items()))


def _name(value: object) -> object:
    if isinstance(value, str) and not (1 <= len(value) <= 64 and value.isprintable()):
        raise problem(f"{value!r} is no name of a table or column", hint="Names have 1 to 64 characters.")
    return value


def _one_constant(value: object) -> Constant:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | str | None):
        raise problem(
            f"YAML reads {value!r} as {type(value).__name__}, and constants are whole numbers, texts or null",
            hint="Put a text in quotes.",
        )
    if isinstance(value, str) and not value.isprintable() and any("\ud800" <= one <= "\udfff" for one in value):
        raise problem("holds half of a character", hint="Write the whole character.")
    return value


def _constant(value: object) -> object:
    """Read a value for all streams, or a mapping of streams to values."""
    if isinstance(value, dict):
        return {stream: _one_constant(one) for stream, one in value.items()}
    return _one_constant(value)


def _filter(value: object) -> object:
    if value is None:
        return None
    if not isinstance(value, str):
        raise problem(f"{value!r} is no condition", hint='Write it as text in quotes, such as "region = 1".')
    try:
        from vmerge.config.predicates import parse  # it loads a whole parser, which most workflows have no use for

        return parse(value)
    except FilterRefused as refusal:
        raise problem(refusal.message, hint=refusal.hint or "") from refusal


Name = Annotated[str, BeforeValidator(_name)]
ConstantSetting = Annotated[int | str | dict[str, int | str | None] | None, BeforeValidator(_constant)]


class Rule(Section):
    """What becomes of the rows of one target table on their way. Names of columns are compared without case."""

    source_table: Name | None = Field(
        default=None, description="The table's name at the sources. Default: its name on the target."
    )
    rename_columns: dict[Name, Name] = Field(
        default={}, description="Target column → source column, for columns that are called differently."
    )
    drop_columns: Annotated[tuple[Name, ...], Field(strict=False)] = Field(
        default=(), description="Source columns that are not carried. Every other one must have its place."
    )
    constant_columns: dict[Name, ConstantSetting] = Field(
        default={},
        description="Target column → its value in all rows: a whole number, a text, null, or {stream: value} that "
        "names every stream. For columns of integers, text, bytes and ENUM (a label).",
    )
    where: Annotated[Predicate | None, BeforeValidator(_filter)] = Field(
        default=None,
        description="Which rows are carried: a condition as in SQL's WHERE, in the source's names of columns. An "
        "update that takes a row into it inserts the row, one that takes it out deletes it.",
    )

    @model_validator(mode="after")
    def _one_way_each(self) -> Self:
        """Refuse a column with two ways."""
        _require_once(self.rename_columns, "rename_columns", "the target's column")
        _require_once(self.rename_columns.values(), "rename_columns", "the source's column")
        _require_once(self.drop_columns, "drop_columns", "the source's column")
        _require_once(self.constant_columns, "constant_columns", "the target's column")
        _require_apart(self.rename_columns.values(), self.drop_columns, "drop_columns", "both renamed and dropped")
        _require_apart(self.rename_columns, self.constant_columns, "constant_columns", "both a constant and renamed")
        return self

    def of_stream(self, stream: str) -> TableRule:
        """Return the rule as one stream has it."""
        constants = {
            name: value[stream] if isinstance(value, dict) else value for name, value in self.constant_columns.items()
        }
        return TableRule(self.source_table, self.rename_columns, self.drop_columns, constants, self.where)


def _require_once(names: Iterable[str], key: str, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise problem(
                f"names {what} `{name}` twice", hint="Case does not count in names of columns: remove one.", key=key
            )
        seen.add(name.lower())


def _require_apart(names: Iterable[str], others: Iterable[str], key: str, what: str) -> None:
    folded = {name.lower() for name in names}
    for name in others:
        if name.lower() in folded:
            raise problem(f"column `{name}` is {what}", hint="Each column has one way: remove one of them.", key=key)


def require_rules_fit(
    rules: Mapping[str, Rule],
    databases: Collection[str],
    streams: Collection[str],
    tables: Iterable[str],
    exclude: Iterable[str],
) -> None:
    """Refuse rules that can never count, or that contradict what the rest of the file says."""
    patterns, excluded = [TablePattern(text) for text in tables], [TablePattern(text) for text in exclude]
    sources: dict[TableName, str] = {}
    for text, rule in rules.items():
        key = f"rules/{text}"
        name = ruled_table(text, databases)
        if name is None or not name[1]:
            raise problem(
                f"`{text}` is no table of a target database ({', '.join(databases)})",
                hint="Write `database.table` in the target's names, one table each.",
                key=key,
            )
        if _WILDCARDS & set(name[1]):
            raise problem(f"`{text}` is a pattern", hint="A rule is for one table: name it.", key=key)
        if not any(pattern.matches(name) for pattern in patterns):
            raise problem(f"no pattern of `tables` takes `{text}` in", hint="Add it to `tables`.", key=key)
        if any(pattern.matches(name) for pattern in excluded):
            raise problem(f"`{text}` is excluded", hint="Remove the rule, or the pattern under `exclude`.", key=key)
        source = name[0], rule.source_table or name[1]
        other = sources.setdefault(source, text)
        if other != text:
            raise problem(
                f"`{other}` and `{text}` have the same source table `{source[1]}`",
                hint="A source's table goes to one table of the target; correct `source_table`.",
                key=key,
            )
        _require_streams(rule, streams, key)


def _require_streams(rule: Rule, streams: Collection[str], key: str) -> None:
    for column, value in rule.constant_columns.items():
        if not isinstance(value, dict) or value.keys() == set(streams):
            continue
        unknown = sorted(value.keys() - set(streams))
        missing = sorted(set(streams) - value.keys())
        found = f"names no stream of this workflow: {', '.join(unknown)}" if unknown else f"lacks {', '.join(missing)}"
        raise problem(
            f"the constant column `{column}` {found}",
            hint=f"Give a value to each stream: {', '.join(sorted(streams))}.",
            key=f"{key}/constant_columns",
        )


def ruled_table(text: str, databases: Iterable[str]) -> TableName | None:
    """Return the table that a rule names, in one of these databases; None when it is in none of them."""
    for database in databases:
        if text.startswith(f"{database}."):
            return database, text.removeprefix(f"{database}.")
    return None
