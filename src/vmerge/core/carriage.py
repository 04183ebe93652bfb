"""How rows of one shape of a source's table get into a target's table, proven or refused.

Knows: both tables' schemas as read at start, and the rule of the table. Never knows: servers or rows, or which tables
a stream carries. Used by ``core/plan.py``.

The proof
---------
Rows are applied by position, and the server that applies them is silent about most that can go wrong (see
``core/proof.py``). So the first rows of every shape of every table are let through only when the target's table is
proven equal, or wide enough for statements: first by the table map that came with the rows, which is the truth about
them; then by the source's schema as read at start, for what a table map does not say. That second part counts only when
the schema still agrees with the table map. When the table was altered in between, full metadata
(binlog_row_metadata=FULL) is proof enough, unless the target's table has generated columns, about which no table map
says anything, or other columns, about which only a schema tells whether they keep every value.

Under a rule the same is proven of what the rule makes of the rows: the table map and the source's schema are projected
first. For that the names of the rows' columns must be known, by full metadata or by a schema that still agrees.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmerge.core.appliers import ApplierKind, ApplierPolicy, Choice, NoApplier
from vmerge.core.events import TableMap
from vmerge.core.filter_column import columns_of_map, columns_of_schema
from vmerge.core.layout import Copied, Layout, Unfit, hides_rows, lay_out, projected_schema
from vmerge.core.map_columns import told_in_full
from vmerge.core.predicate import Predicate
from vmerge.core.predicate_binding import bind
from vmerge.core.projection import Carried, Keeps, Projection
from vmerge.core.proof import map_differences
from vmerge.core.rules import TableName, TableRule
from vmerge.core.schema import TableSchema, differences
from vmerge.core.widening import losses
from vmerge.errors import FilterRefused, SchemaMismatch

_ALTERED = "the source's table was made or altered after these rows or after the start, so"


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table that the rules take in: its names and schemas; None for a side that lacked it at start."""

    source_name: TableName
    target_name: TableName
    source: TableSchema | None
    target: TableSchema | None
    rule: TableRule | None = None
    has_changed: bool = False
    """Whether the source's table is another one by now than that of the rows that come next."""
    earlier: TableSchema | None = None
    """If so: what it was, as far as that is known."""

    def source_of(self, table_map: TableMap) -> TableSchema | None:
        """Return the source's table for rows of this shape; rows that name their columns are told apart by that."""
        return self.earlier if self.has_changed and not table_map.names else self.source


def carry(table_map: TableMap, table: TablePlan, policy: ApplierPolicy) -> tuple[Carried, ApplierKind]:
    """Return how rows of this shape are carried, and which applier brings them to the target.

    Raises:
        SchemaMismatch: the target's table is missing or not proven equal.
    """
    target = _require_target(table_map, table)
    source = _agreeing(table_map, table.source_of(table_map))
    if table.rule is None:
        return Carried(table_map), _choose(table_map, source, target, policy)
    layout = _lay_out(table_map, source, target, table.rule)
    _require_told_apart(table_map, layout, source, target)
    keeps = None if table.rule.where is None else _bind(table_map, source, table.rule.where)
    projection = Projection(table_map, layout, target, keeps)
    projected = None if source is None else projected_schema(source, target, layout)
    applier = _choose(projection.table, projected, target, policy)
    is_same = keeps is None and layout.keeps_rows and len(layout.places) == table_map.column_count
    return Carried(projection.table, None if is_same else projection), applier


def require_kept(table_map: TableMap, table: TablePlan, policy: ApplierPolicy) -> ApplierKind:
    """Return the applier of rows that were carried and then kept, if they still fit the target's table.

    The table map is the one that they were carried with.

    Raises:
        SchemaMismatch: the target's table is missing or not proven equal.
    """
    target = _require_target(table_map, table)
    return _choose(table_map, _carried_schema(table_map, table, target), target, policy)


def in_full(table_map: TableMap, table: TablePlan) -> TableMap:
    """Return the table map of rows that are carried, with the names of their columns if it lacks them.

    A row that is kept for later needs them: by then the table may have others in their places.
    """
    if table_map.names:
        return table_map
    schema = _carried_schema(table_map, table, _require_target(table_map, table))
    return table_map if schema is None else told_in_full(table_map, schema.columns)


def _carried_schema(table_map: TableMap, table: TablePlan, target: TableSchema) -> TableSchema | None:
    """Return the source's table in the target's shape, if it still is the one of rows that are carried."""
    return _agreeing(table_map, _as_carried(table.source_of(table_map), table.rule, target))


def choose(table: TablePlan, policy: ApplierPolicy) -> Choice | NoApplier | None:
    """Choose the applier of a table by both schemas; None while one of them is not known, or does not fit the rule."""
    source = None if table.target is None else _as_carried(table.source, table.rule, table.target)
    return None if source is None or table.target is None else policy.choose(source, table.target)


def _as_carried(source: TableSchema | None, rule: TableRule | None, target: TableSchema) -> TableSchema | None:
    """Return the source's schema in the target's shape."""
    if source is None or rule is None:
        return source
    layout = lay_out([column.name for column in source.columns], target, rule)
    return projected_schema(source, target, layout) if isinstance(layout, Layout) else None


def _require_target(table_map: TableMap, table: TablePlan) -> TableSchema:
    if table.target is None:
        raise SchemaMismatch(
            f"rows of {table_map.name} came, but the target had no table {'.'.join(table.target_name)} "
            "when the stream started",
            hint="Create it on the target with the source's definition, then start the stream again.",
        )
    return table.target


def _agreeing(table_map: TableMap, source: TableSchema | None) -> TableSchema | None:
    """Return the source's schema if it still is the one of the rows."""
    return None if source is None or map_differences(table_map, source, source.name) else source


def _choose(table_map: TableMap, source: TableSchema | None, target: TableSchema, policy: ApplierPolicy) -> ApplierKind:
    """Compare rows in the target's shape, and the schema that they have so, with the target's table.

    Only the schema tells whether a column that differs keeps every value.
    """
    found = map_differences(table_map, target, f"{target.name} on the target")
    if not found:
        found = _unsaid_differences(table_map, source, target)
    is_wide_enough = source is not None and not losses(source, target)
    choice = policy.judge(found, () if is_wide_enough else found, target)
    if isinstance(choice, NoApplier):
        text = "; ".join(choice.reasons)
        raise SchemaMismatch(f"rows of {table_map.name} do not fit {target.name} on the target: {text}")
    return choice.kind


def _unsaid_differences(table_map: TableMap, source: TableSchema | None, target: TableSchema) -> tuple[str, ...]:
    """Compare what the table map does not say."""
    if source is not None:
        return differences(source, target)
    if not table_map.names:
        return (f"{_ALTERED} names cannot be compared",)
    if any(column.generated is not None for column in target.columns):
        return (f"{_ALTERED} generated columns cannot be compared",)
    return ()


def _lay_out(table_map: TableMap, source: TableSchema | None, target: TableSchema, rule: TableRule) -> Layout:
    names = table_map.names
    if not names:
        if source is None:
            raise SchemaMismatch(
                f"rows of {table_map.name} have no names of columns, which the rule of {target.name} needs: {_ALTERED} "
                "it does not tell them",
                hint="Set binlog_row_metadata=FULL on the source.",
            )
        names = tuple(column.name for column in source.columns)
    layout = lay_out(names, target, rule)
    if isinstance(layout, Unfit):
        raise SchemaMismatch(
            f"rows of {table_map.name} do not fit {target.name} on the target under its rule: "
            f"{'; '.join(layout.problems)}",
            hint=f"Correct `rules` for {target.name} in the workflow file, or the tables.",
        )
    return layout


def _bind(table_map: TableMap, source: TableSchema | None, where: Predicate) -> Keeps:
    """Bind a filter to rows with these columns, whose names are known by now."""
    columns = columns_of_map(table_map) if source is None else columns_of_schema(source)
    try:
        return bind(where, columns).decide
    except FilterRefused as refusal:
        raise SchemaMismatch(
            f"rows of {table_map.name} cannot be filtered: {refusal.message}", hint=refusal.hint
        ) from refusal


def _require_told_apart(table_map: TableMap, layout: Layout, source: TableSchema | None, target: TableSchema) -> None:
    if source is not None:
        is_hidden = hides_rows(source, projected_schema(source, target, layout), target)
    else:
        copied = {place.index for place in layout.places if isinstance(place, Copied)}
        is_hidden = not copied.issuperset(table_map.primary_key or ())
    if is_hidden:
        raise SchemaMismatch(
            f"rows of {table_map.name} cannot be told apart on the target: a part of their primary key is not carried, "
            f"and the primary key of {target.name} is no other unique key of theirs",
            hint="Carry the source's primary key too, or give the target's the columns of a unique key that is "
            "NOT NULL at the source.",
        )
