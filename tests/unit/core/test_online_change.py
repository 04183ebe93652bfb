"""Tables of online schema change tools are known by name, and only beside a real table."""

from __future__ import annotations

import pytest

from vmerge.core.online_change import Role, Tool, ToolTables
from vmerge.core.rules import StreamRules

RULES = StreamRules.build({"d": "m"})
LONG = "t" * 64


@pytest.mark.parametrize(
    ("table", "tool", "role"),
    [
        ("_customer_gho", Tool.GHOST, Role.SHADOW),
        ("_customer_ghc", Tool.GHOST, Role.LOG),
        ("_customer_del", Tool.GHOST, Role.OLD),
        ("_customer_20260131120000_del", Tool.GHOST, Role.OLD),
        ("_Customer_NEW", Tool.PERCONA, Role.SHADOW),
        ("__customer_new", Tool.PERCONA, Role.SHADOW),
        ("_customer_old", Tool.PERCONA, Role.OLD),
        (f"_{LONG[:59]}_gho", Tool.GHOST, Role.SHADOW),
    ],
)
def test_tables_of_tools(table: str, tool: Tool, role: Role) -> None:
    """Each tool's names are recognised, in any case, and where the real name was cut."""
    found = ToolTables(RULES, [("m", "customer"), ("m", LONG)]).find("d", table)
    assert found is not None and (found.tool, found.role) == (tool, role)


@pytest.mark.parametrize(
    "table", ["customer", "_order_gho", "customer_gho", "_customer_backup", "_gho", "_customer_new2"]
)
def test_ordinary_tables(table: str) -> None:
    """A name that no tool gives, or without its real table, is an ordinary one."""
    assert ToolTables(RULES, [("m", "customer")]).find("d", table) is None


def test_a_table_that_the_target_has_is_ordinary() -> None:
    """Who has such a table on the target wants it carried."""
    assert ToolTables(RULES, [("m", "customer"), ("m", "_customer_new")]).find("d", "_customer_new") is None
