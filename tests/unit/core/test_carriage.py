"""Rows under a rule: which columns go where, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.core.test_plan import COLUMNS, rows_of, schema, swapped

from vmerge.config.predicates import parse
from vmerge.core.appliers import ApplierPolicy, ApplierSetting
from vmerge.core.carriage import TablePlan, carry, in_full, require_kept
from vmerge.core.events import TableMap
from vmerge.core.map_columns import columns_of
from vmerge.core.projection import Carried
from vmerge.core.rules import TableRule
from vmerge.core.schema import Column, Generation, GenerationKind, KeyPart, TableSchema, UniqueKey
from vmerge.errors import SchemaMismatch

ORIGIN = Column("origin", 6, "int", nullable=False)
EQUAL = ApplierPolicy(ApplierSetting.EVENTS)
"""With it columns must be equal to the last detail."""
Columns = tuple[Column, ...]


def numbered(*columns: Column) -> Columns:
    return tuple(replace(column, position=at) for at, column in enumerate(columns, 1))


def table(target: Columns, rule: TableRule, source: Columns | None = COLUMNS) -> TablePlan:
    theirs = None if source is None else schema(source, "shop_0")
    return TablePlan(("shop_0", "customer"), ("shop", "customer"), theirs, schema(target), rule)


def carried(rows: TableMap, plan: TablePlan) -> Carried:
    return carry(rows, plan, EQUAL)[0]


@pytest.mark.parametrize("full", [True, False])
def test_a_rule_that_changes_no_image_costs_nothing(full: bool) -> None:
    """With the same columns in the same order, under whatever names, images pass as they came."""
    renamed = (COLUMNS[0], replace(COLUMNS[1], name="mail"), *COLUMNS[2:])
    found = carried(rows_of(full=full), table(renamed, TableRule(renamed={"mail": "EMAIL"})))
    assert found.projection is None
    assert found.table.names == (("id", "mail", "backup", "size", "place") if full else ())


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize(
    ("target", "rule"),
    [
        (numbered(*COLUMNS[:4]), TableRule(dropped=("place",))),
        (numbered(*COLUMNS, ORIGIN), TableRule(constants={"ORIGIN": 7})),
        (swapped(COLUMNS, 1, 2), TableRule()),
        (
            numbered(COLUMNS[0], COLUMNS[2], replace(COLUMNS[1], name="x"), *COLUMNS[3:]),
            TableRule(renamed={"x": "email"}),
        ),
        (COLUMNS, TableRule(where=parse("id > 5"))),
    ],
)
def test_every_other_rule_is_projected(full: bool, target: Columns, rule: TableRule) -> None:
    """Dropped, added, reordered and filtered rows are projected, with names in the binlog and without."""
    assert carried(rows_of(full=full), table(target, rule)).projection is not None


REFUSED: dict[str, tuple[Columns, TableRule, str]] = {
    "forgotten": (numbered(*COLUMNS[:4]), TableRule(), "source's column `place` has no place"),
    "not filled": (numbered(*COLUMNS, ORIGIN), TableRule(), "nothing fills the target's column `origin`"),
    "renamed away": (COLUMNS, TableRule(renamed={"backup": "email"}, dropped=("backup",)), "nothing fills .*`email`"),
    "no such source column": (COLUMNS, TableRule(dropped=("x",)), "the source has no column `x`"),
    "no such target column": (COLUMNS, TableRule(constants={"x": 1}), "the target has no column `x`"),
    "constant that does not fit": (
        numbered(*COLUMNS, ORIGIN),
        TableRule(constants={"origin": "x"}),
        "`origin` is int, and takes no text",
    ),
    "another type": (
        numbered(*COLUMNS[:4], replace(COLUMNS[4], type_text="polygon"), ORIGIN),
        TableRule(constants={"origin": 1}),
        "is point in the rows, polygon",
    ),
    "a filter on what is not there": (COLUMNS, TableRule(where=parse("x = 1")), "cannot be filtered: .*no such column"),
    "a hidden key": (
        numbered(replace(ORIGIN, name="id", type_text="bigint unsigned"), *COLUMNS[1:]),
        TableRule(constants={"id": 1}, dropped=("id",)),
        "cannot be told apart",
    ),
}


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_stops_the_rows(case: str, full: bool) -> None:
    """A column without a way or with two, a value that does not fit, and rows that lose their key are refused."""
    target, rule, says = REFUSED[case]
    with pytest.raises(SchemaMismatch, match=says):
        carried(rows_of(full=full), table(target, rule))


def test_names_come_from_the_rows_or_from_a_schema_that_agrees() -> None:
    """Without both nothing is matched."""
    target, rule = numbered(*COLUMNS, ORIGIN), TableRule(constants={"origin": 1})
    assert carried(rows_of(), table(target, rule, None)).projection is not None
    assert carried(rows_of(), table(target, rule, COLUMNS[:3])).projection is not None
    for source in (None, COLUMNS[:3]):
        with pytest.raises(SchemaMismatch, match="have no names of columns"):
            carried(rows_of(full=False), table(target, rule, source))


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        ("upper(`backup`)", "upper(`spare`)", True),
        ("concat(`backup`,_utf8mb4\\' \\',`id`)", "concat(`spare`,_utf8mb4\\' \\',`id`)", True),
        ("upper(`backup`)", "upper(`backup`)", False),
        ("upper(`size`)", "upper(`size`)", False),
        ("concat(_utf8mb4\\'`\\',`backup`)", "concat(_utf8mb4\\'`\\',`spare`)", False),
    ],
)
def test_generated_columns_are_the_sources_own(ours: str, theirs: str, fits: bool) -> None:
    """The expression must be the source's, in the target's names of columns that are carried."""
    id_, email, backup, size, place = COLUMNS
    source = (id_, replace(email, generated=Generation(GenerationKind.VIRTUAL, ours)), backup, size, place)
    made = replace(email, generated=Generation(GenerationKind.VIRTUAL, theirs))
    target = numbered(id_, made, replace(backup, name="spare"), place)
    plan = table(target, TableRule(renamed={"spare": "backup"}, dropped=("size",)), source)
    if fits:
        assert carried(rows_of(source), plan).projection is not None
        return
    with pytest.raises(SchemaMismatch, match="generation"):
        carried(rows_of(source), plan)


@pytest.mark.parametrize(("nullable", "fits"), [(False, True), (True, False)])
def test_another_unique_key_may_stand_in_for_a_dropped_primary_key(nullable: bool, fits: bool) -> None:
    """The target's primary key may be a unique key of the source in which nothing may be NULL."""
    email = replace(COLUMNS[1], nullable=nullable)
    keys = {"unique_keys": (UniqueKey("mail", (KeyPart("email"),)),)}
    source = replace(schema((COLUMNS[0], email), "shop_0"), **keys)  # type: ignore[arg-type]
    primary = UniqueKey("PRIMARY", (KeyPart("mail"),))
    target = TableSchema(
        "shop", "customer", "InnoDB", numbered(replace(email, name="mail", nullable=nullable)), primary
    )
    rule = TableRule(renamed={"mail": "email"}, dropped=("id",))
    plan = TablePlan(("shop_0", "customer"), ("shop", "customer"), source, target, rule)
    if fits:
        assert carried(rows_of(source.columns), plan).projection is not None
        return
    with pytest.raises(SchemaMismatch, match="cannot be told apart"):
        carried(rows_of(source.columns), plan)


def test_rows_that_were_kept_are_in_the_targets_shape_already() -> None:
    """Rows from the quarantine are proven as they are; those from before a change of the rule are refused."""
    target, rule = numbered(ORIGIN, *COLUMNS), TableRule(constants={"origin": 1})
    plan = table(target, rule)
    require_kept(carried(rows_of(), plan).table, plan, EQUAL)
    with pytest.raises(SchemaMismatch):
        require_kept(rows_of(), plan, EQUAL)


def test_rows_are_kept_with_what_full_metadata_says() -> None:
    """Of rows without names, their table's as the rows come are kept: the same as a source with full metadata sends."""
    plan = table(COLUMNS, TableRule())
    assert columns_of(in_full(rows_of(full=False), plan)) == columns_of(rows_of())
    named = rows_of()
    assert in_full(named, plan) is named


def test_kept_rows_are_refused_where_their_columns_have_changed_places() -> None:
    """Rows that came without names do not fit once two columns of one type, or labels, have changed places."""
    kept = in_full(rows_of(full=False), table(COLUMNS, TableRule()))
    require_kept(kept, table(COLUMNS, TableRule()), EQUAL)
    relabelled = (*COLUMNS[:3], replace(COLUMNS[3], labels=("m", "s"), label_bytes=(b"m", b"s")), COLUMNS[4])
    for columns in (swapped(COLUMNS, 1, 2), relabelled):
        with pytest.raises(SchemaMismatch):
            require_kept(kept, table(columns, TableRule(), source=columns), EQUAL)


def test_rows_of_an_altered_table_are_kept_with_what_it_was() -> None:
    """Rows from before a change of their table are kept with the names of that time, also under a rule."""
    rule = TableRule(renamed={"mail": "email"})
    target = (COLUMNS[0], replace(COLUMNS[1], name="mail"), *COLUMNS[2:])
    changed = replace(
        table(target, rule, source=swapped(COLUMNS, 1, 2)), has_changed=True, earlier=schema(COLUMNS, "shop_0")
    )
    rows = carried(rows_of(full=False), changed).table
    assert in_full(rows, changed).names == ("id", "mail", "backup", "size", "place")
