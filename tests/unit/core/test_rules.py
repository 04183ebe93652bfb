"""Which tables a stream carries, and under which names."""

from __future__ import annotations

import pytest

from vmerge.core.rules import StreamRules, TableName, TableRule

DATABASES = {"shop_0": "shop", "log_0": "log"}
RULES = StreamRules.build(
    DATABASES,
    ["shop.*"],
    exclude=["shop.tmp_*"],
    table_rules={
        ("shop", "customer"): TableRule(source_table="customers"),
        ("shop", "invoice"): TableRule(constants={"origin": 1}),
        ("shop", "left"): TableRule(source_table="right"),
        ("shop", "right"): TableRule(source_table="left"),
        ("shop", "tmp_file"): TableRule(source_table="file"),
    },
)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (("shop_0", "product"), ("shop", "product")),
        (("shop_0", "invoice"), ("shop", "invoice")),
        (("shop_0", "customers"), ("shop", "customer")),
        (("shop_0", "left"), ("shop", "right")),
        (("shop_0", "right"), ("shop", "left")),
    ],
)
def test_a_table_goes_where_patterns_and_rules_say(source: TableName, target: TableName) -> None:
    """A source table has one target table, and that one names it as its source."""
    assert RULES.target_name(*source) == target
    assert RULES.source_names(target) == [source]
    assert RULES.may_fill(target)


@pytest.mark.parametrize(
    "source",
    [
        ("shop_1", "product"),  # a database that is not named
        ("log_0", "product"),  # no pattern
        ("shop_0", "tmp_product"),  # excluded
        ("shop_0", "file"),  # excluded under its name on the target
        ("shop_0", "customer"),  # another table is the target's customer
    ],
)
def test_all_other_tables_are_not_carried(source: TableName) -> None:
    """What is not taken in, is excluded, or has its place taken by another table is not carried."""
    assert RULES.target_name(*source) is None


@pytest.mark.parametrize("target", [("shop", "customers"), ("shop", "tmp_file"), ("log", "product"), ("x", "product")])
def test_a_table_that_nothing_goes_to_may_not_be_filled(target: TableName) -> None:
    """A target table without any source table has no names at the source."""
    assert RULES.source_names(target) == []
    assert not RULES.may_fill(target)


def test_two_databases_may_fill_one_table() -> None:
    """A target table has a name in each source database that goes to its database."""
    rules = StreamRules.build({"a": "shop", "b": "shop"}, table_rules={("shop", "x"): TableRule(source_table="y")})
    assert rules.source_names(("shop", "x")) == [("a", "y"), ("b", "y")]


def test_only_a_table_with_a_rule_has_one() -> None:
    """Rules are found by the target's name of a table."""
    assert RULES.rule(("shop", "invoice")) == TableRule(constants={"origin": 1})
    assert RULES.rule(("shop", "product")) is None
