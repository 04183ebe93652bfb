"""Tables of shards and target side by side, as descriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vmerge.config.predicates import parse
from vmerge.core.duplicates import DuplicatePolicy, DuplicateRules
from vmerge.core.findings import Finding, Findings, Severity
from vmerge.core.rules import StreamRules, TablePattern, TableRule
from vmerge.core.schema import Column, ForeignKey, KeyPart, TableSchema, UniqueKey
from vmerge.core.table_checks import (
    StreamTables,
    check_duplicate_patterns,
    check_pairs,
    check_quarantine,
    check_tables,
)

RULES = StreamRules.build({"shop_0": "shop"})
ID = Column("id", 1, "int", nullable=False)
PARENT = Column("parent", 2, "int", nullable=True)
PRIMARY = UniqueKey("PRIMARY", (KeyPart("id"),))


def table(name: str, database: str = "shop_0", **changes: Any) -> TableSchema:
    return replace(TableSchema(database, name, "InnoDB", (ID, PARENT), PRIMARY), **changes)


def foreign_key(database: str, on_delete: str = "CASCADE", parent: str = "customer") -> ForeignKey:
    return ForeignKey(f"{database}_fk", ("parent",), (database, parent), ("id",), on_delete, "NO ACTION")


def stream(*tables: TableSchema, name: str = "-80", rules: StreamRules = RULES, logs: bool = False) -> StreamTables:
    return StreamTables(name, rules, {(table.database, table.table): table for table in tables}, logs_cascades=logs)


def found(streams: list[StreamTables], *targets: TableSchema, **options: Any) -> list[tuple[str, str]]:
    by_name = {(table.database, table.table): table for table in targets}
    return [(finding.id, finding.where) for finding in check_tables(streams, by_name, **options)]


def test_equal_tables_have_no_findings() -> None:
    """What fits is not talked about."""
    assert found([stream(table("customer"))], table("customer", "shop")) == []


@pytest.mark.parametrize(
    ("source_rule", "target_rule", "logs", "ids"),
    [
        ("CASCADE", "CASCADE", False, []),
        ("CASCADE", "CASCADE", True, []),
        ("CASCADE", "NO ACTION", False, ["cascade-not-logged"]),
        ("CASCADE", "NO ACTION", True, []),
        ("CASCADE", "SET NULL", False, ["cascade-on-target", "cascade-not-logged"]),
        ("CASCADE", "SET NULL", True, ["cascade-on-target"]),
        ("NO ACTION", "CASCADE", False, ["cascade-on-target"]),
        ("NO ACTION", "RESTRICT", False, []),
        ("SET NULL", None, False, ["cascade-not-logged"]),
        (None, "SET NULL", True, ["cascade-on-target"]),
    ],
)
def test_cascades_must_be_the_same_unless_the_source_logs_them(
    source_rule: str | None, target_rule: str | None, logs: bool, ids: list[str]
) -> None:
    """Every way in which children change on one side only is refused; a logged cascade needs none on the target."""
    source_keys = () if source_rule is None else (foreign_key("shop_0", source_rule),)
    target_keys = () if target_rule is None else (foreign_key("shop", target_rule),)
    source = stream(table("customer"), table("child", foreign_keys=source_keys), logs=logs)
    targets = table("customer", "shop"), table("child", "shop", foreign_keys=target_keys)
    assert [id for id, _ in found([source], *targets)] == ids


def test_a_cascade_from_a_parent_that_is_not_carried_is_refused() -> None:
    """The target never sees the parent go, so it cannot know that the children went."""
    rules = StreamRules.build({"shop_0": "shop"}, ["shop.child"])
    source = stream(table("customer"), table("child", foreign_keys=(foreign_key("shop_0"),)), rules=rules)
    assert found([source], table("child", "shop")) == [("cascade-not-logged", "stream -80, shop_0.child")]


def test_a_misspelt_pattern_is_told_only_when_all_shards_were_seen() -> None:
    """A pattern counts as matched when any shard has the table, and is not judged while one cannot be read."""
    rules = StreamRules.build({"shop_0": "shop"}, ["shop.customer", "shop.invoice", "shop.ordre_*"])
    streams = [stream(table("customer"), rules=rules), stream(table("invoice"), name="80-", rules=rules)]
    targets = table("customer", "shop"), table("invoice", "shop")
    assert found(streams, *targets) == [("pattern-without-table", "workflow")]
    assert found(streams, *targets, judge_patterns=False) == []


def test_tables_of_a_database_that_cannot_be_seen_are_not_missing() -> None:
    """One finding about the database is enough."""
    assert found([stream(table("customer"))]) == [("table-missing", "stream -80, shop_0.customer")]
    assert found([stream(table("customer"))], unseen_databases={"shop"}) == []


def test_a_table_of_the_target_is_judged_once() -> None:
    """What is wrong with the target's table is told once, however many streams feed it."""
    streams = [stream(table("customer")), stream(table("customer"), name="80-")]
    target = table("customer", "shop", engine="MyISAM", primary_key=None, has_triggers=True)
    ids = found(streams, target)
    assert [id for id, where in ids if where == "target"] == ["engine", "primary-key", "triggers"]


def test_what_is_asked_at_each_start() -> None:
    """Engines, primary keys and cascades of the pairs that are there now; not columns, nor tables that have no pair."""
    unfit = table("customer", engine="MyISAM", primary_key=None, foreign_keys=(foreign_key("shop_0"),))
    source = stream(unfit, replace(unfit, table="alone"), table("wider"))
    targets = [table("customer", "shop", primary_key=None), table("wider", "shop", columns=(ID,))]
    findings = check_pairs(source, {("shop", target.table): target for target in targets})
    assert [(finding.id, finding.where) for finding in findings] == [
        ("engine", "stream -80, shop_0.customer"),
        ("primary-key", "stream -80, shop_0.customer"),
        ("cascade-not-logged", "stream -80, shop_0.customer"),
        ("primary-key", "target"),
    ]


def test_only_tables_whose_rows_can_be_followed_alone_may_set_duplicates_aside() -> None:
    """One finding names all tables with that policy that have foreign keys, in either role, or no primary key."""
    targets = [
        table("customer", "shop"),
        table("child", "shop", foreign_keys=(foreign_key("shop", "NO ACTION"),)),
        table("bare", "shop", primary_key=None),
        table("plain", "shop"),
    ]
    by_name = {(one.database, one.table): one for one in targets}
    everywhere = DuplicateRules(DuplicatePolicy.QUARANTINE)
    (finding,) = check_quarantine(everywhere, by_name, by_name)
    assert finding.id == "quarantine"
    for text in ("shop.customer (foreign keys)", "shop.child (foreign keys)", "shop.bare (no primary key)"):
        assert text in finding.text
    assert "plain" not in finding.text
    one_table = DuplicateRules(tables=((TablePattern("shop.plain"), DuplicatePolicy.QUARANTINE),))
    assert list(check_quarantine(one_table, by_name, by_name)) == []
    assert list(check_quarantine(everywhere, [("shop", "plain"), ("shop", "missing")], by_name)) == []


def test_a_policy_that_no_table_has_is_told() -> None:
    """A misspelt pattern leaves its tables with another policy than was meant."""
    patterns = (
        (TablePattern("shop.plain"), DuplicatePolicy.QUARANTINE),
        (TablePattern("shop.pl?n"), DuplicatePolicy.STOP),
    )
    (finding,) = check_duplicate_patterns(DuplicateRules(tables=patterns), [("shop", "plain")])
    assert (finding.id, finding.severity) == ("duplicates-without-table", Severity.WARNING)
    assert "`shop.pl?n`" in finding.text
    assert "`stop`" in finding.text


@pytest.mark.parametrize(
    ("where", "says"),
    [("1 = 0", "lets no row through"), ("NULL", "lets no row through"), ("1 = 1", "lets every row through")],
)
def test_a_filter_without_a_column_is_told(where: str, says: str) -> None:
    """A condition that is the same for every row is most likely not what was meant."""
    side = stream(table("customer"), rules=ruled(replace(RULE, where=parse(where))))
    (finding,) = check_tables([side], {("shop", "client"): WITH_ORIGIN})
    assert (finding.id, finding.severity) == ("filter-constant", Severity.WARNING)
    assert says in finding.text


def test_the_first_pattern_decides_the_policy() -> None:
    """Patterns count in the order of the file, and before the default."""
    patterns = (("shop.a*", DuplicatePolicy.STOP), ("shop.*", DuplicatePolicy.QUARANTINE))
    rules = DuplicateRules(tables=tuple((TablePattern(text), policy) for text, policy in patterns))
    policies = [rules.policy(("shop", name)) for name in ("abc", "bcd")]
    assert policies == [DuplicatePolicy.STOP, DuplicatePolicy.QUARANTINE]
    assert rules.policy(("other", "abc")) is DuplicatePolicy.STOP


def test_findings_as_data() -> None:
    """Findings go out as plain data; one that is found twice counts once."""
    finding = Finding("id", Severity.WARNING, "target", "is slow", "Wait.")
    findings = Findings.of([finding, finding])
    assert findings.as_data() == {
        "can_run": True,
        "findings": [{"id": "id", "severity": "warning", "where": "target", "text": "is slow", "hint": "Wait."}],
    }
    assert finding.text_for_operator() == "warning: target: is slow [id]\n  Wait."


ORIGIN = Column("origin", 1, "int", nullable=False)
UNDER = Column("above", 2, "int", nullable=True)
WITH_ORIGIN = table(
    "client",
    "shop",
    columns=(ORIGIN, replace(UNDER), ID),
    primary_key=UniqueKey("PRIMARY", (KeyPart("origin"), KeyPart("id"))),
)
RULE = TableRule("customer", {"above": "parent"}, (), {"origin": 1})


def ruled(rule: TableRule = RULE, *, exclude: tuple[str, ...] = ()) -> StreamRules:
    return StreamRules.build({"shop_0": "shop"}, exclude=exclude, table_rules={("shop", "client"): rule})


def test_tables_that_fit_under_a_rule_have_no_findings() -> None:
    """Renamed, reordered and constant columns are no difference, nor is a constant in front of the primary key."""
    assert found([stream(table("customer"), rules=ruled())], WITH_ORIGIN) == []


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (replace(RULE, renamed={}), "the source's column `parent` has no place"),
        (replace(RULE, constants={}), "nothing fills the target's column `origin`"),
        (replace(RULE, constants={"origin": "x"}), "takes no text"),
        (replace(RULE, dropped=("x",)), "the source has no column `x`"),
        (replace(RULE, where=parse("name = 'x'")), "no such column"),
    ],
)
def test_what_a_rule_leaves_open_is_told(rule: TableRule, says: str) -> None:
    """Every column without a way, value that does not fit and filter that cannot be decided is a finding."""
    side = stream(table("customer"), rules=ruled(rule))
    findings = list(check_tables([side], {("shop", "client"): WITH_ORIGIN}))
    assert {finding.severity for finding in findings} == {Severity.ERROR}
    assert any(says in finding.text for finding in findings)


def test_a_cascade_is_compared_in_the_targets_names() -> None:
    """A foreign key to a renamed table's renamed column is the target's own."""
    child = replace(foreign_key("shop_0"), parent=("shop_0", "customer"), parent_columns=("parent",))
    parent = replace(child, parent=("shop", "client"), parent_columns=("above",))
    side = stream(table("customer"), table("child", foreign_keys=(child,)), rules=ruled())
    assert found([side], WITH_ORIGIN, table("child", "shop", foreign_keys=(parent,))) == []


def test_rules_without_a_table_are_told() -> None:
    """A rule or an exclusion that no table of any shard has is most likely misspelt; a displaced table is named."""
    rules = ruled(replace(RULE, source_table="customers"), exclude=("shop.tmp_*",))
    assert found([stream(table("client"), table("other"), rules=rules)], WITH_ORIGIN, table("other", "shop")) == [
        ("rule-without-table", "workflow"),
        ("exclude-without-table", "workflow"),
        ("table-displaced", "stream -80"),
    ]
    assert found([stream(table("tmp_1"), table("customer"), rules=ruled(exclude=("shop.tmp_*",)))], WITH_ORIGIN) == []
