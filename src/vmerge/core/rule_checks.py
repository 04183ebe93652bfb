"""Whether the rules of tables fit the tables of the shards and of the target, by their descriptions.

Knows: what a rule makes of a source's table, and what of the rules has no table. Never knows: how the descriptions were
read. Used by ``core/table_checks.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vmerge.core.filter_column import columns_of_schema
from vmerge.core.findings import Finding, error, warning
from vmerge.core.layout import Filled, Layout, Unfit, hides_rows, lay_out, projected_schema
from vmerge.core.predicate_binding import bind
from vmerge.core.rules import StreamRules, TableName, TableRule
from vmerge.core.schema import TableSchema, UniqueKey
from vmerge.errors import FilterRefused


@dataclass(frozen=True, slots=True)
class Comparable:
    """Both sides of a pair as they are to be compared: the source's in the target's shape."""

    source: TableSchema
    target: TableSchema
    """With keys as they are within one stream: a constant column tells none of its rows apart."""


def under_rule(source: TableSchema, target: TableSchema, rule: TableRule | None) -> Comparable | Unfit:
    """Return what is to be compared of a pair; why its columns do not fit if they do not."""
    if rule is None:
        return Comparable(source, target)
    layout = lay_out([column.name for column in source.columns], target, rule)
    if isinstance(layout, Unfit):
        return layout
    projected = projected_schema(source, target, layout)
    if hides_rows(source, projected, target):
        text = (
            "a part of the source's primary key is not carried, and the target's is no other unique key of the source, "
            "so its rows cannot be told apart"
        )
        return Unfit((text,))
    return Comparable(projected, _within_one_stream(target, layout))


def _within_one_stream(target: TableSchema, layout: Layout) -> TableSchema:
    filled = {
        column.name for place, column in zip(layout.places, target.columns, strict=True) if isinstance(place, Filled)
    }

    def without_filled(key: UniqueKey) -> UniqueKey:
        parts = tuple(part for part in key.parts if part.column not in filled)
        return UniqueKey(key.name, parts or key.parts)

    primary = target.primary_key
    return replace(
        target,
        primary_key=None if primary is None else without_filled(primary),
        unique_keys=tuple(map(without_filled, target.unique_keys)),
    )


def check_filter(where: str, source: TableSchema, rule: TableRule) -> Iterator[Finding]:
    """Tell a filter that cannot be decided exactly for the source's columns, or looks at none of them."""
    if rule.where is None:
        return
    try:
        row_filter = bind(rule.where, columns_of_schema(source))
    except FilterRefused as refusal:
        yield error("filter-refused", where, refusal.message, refusal.hint or "Write another filter.")
        return
    if not rule.where.columns:
        what = "every row" if row_filter.decide(()) else "no row"
        yield warning(
            "filter-constant",
            where,
            f"the filter `{rule.where.text}` names no column: it lets {what} through",
            "Remove it, or name a column; to leave a table out, put it under `exclude`.",
        )


def check_names(rules: Mapping[str, StreamRules], tables: Mapping[str, Sequence[TableName]]) -> Iterator[Finding]:
    """Tell what of the rules has no table, and which tables have lost their place; both mappings are by stream."""
    every = [(stream, name) for stream, names in tables.items() for name in names]
    carried = {rules[stream].target_name(*name) for stream, name in every}
    some = next(iter(rules.values()), None)
    for target in () if some is None else some.table_rules:
        if target not in carried:
            yield error(
                "rule-without-table",
                "workflow",
                f"no stream has a table for the rule of {'.'.join(target)}",
                "Correct its name or `source_table`, or create the table first.",
            )
    for pattern in () if some is None else some.exclude:
        if not any(pattern.matches(place) for stream, name in every if (place := rules[stream].place(*name))):
            yield warning(
                "exclude-without-table",
                "workflow",
                f"the pattern `{pattern.text}` under `exclude` matches no table of any stream",
                "Correct it if it should. Patterns are in the target's names.",
            )
    for stream, name in every:
        place = rules[stream].displaced_by(*name)
        if place is not None:
            yield warning(
                "table-displaced",
                f"stream {stream}",
                f"table {'.'.join(name)} is not carried: the rule of {'.'.join(place)} names another source table",
                "Rename it or drop it at the source if it is of no use any more.",
            )
