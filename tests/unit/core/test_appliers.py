"""Which applier a table gets, and the reason that an operator reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmerge.core.appliers import ApplierKind, ApplierPolicy, ApplierSetting, Choice, NoApplier
from vmerge.core.schema import Column, TableSchema

TABLE = TableSchema("shop", "t", "InnoDB", (Column("a", 1, "int", False),))
WIDER = replace(TABLE, columns=(replace(TABLE.columns[0], type_text="bigint"),))
REFUSED = "the account lacks REPLICATION_APPLIER"


@pytest.mark.parametrize(
    ("setting", "refusal", "target", "kind", "reason"),
    [
        (ApplierSetting.AUTO, None, TABLE, ApplierKind.EVENTS, "equal"),
        (ApplierSetting.AUTO, None, WIDER, ApplierKind.STATEMENTS, "bigint"),
        (ApplierSetting.AUTO, REFUSED, TABLE, ApplierKind.STATEMENTS, REFUSED),
        (ApplierSetting.STATEMENTS, None, TABLE, ApplierKind.STATEMENTS, "workflow file"),
        (ApplierSetting.EVENTS, None, TABLE, ApplierKind.EVENTS, "equal"),
    ],
)
def test_the_choice_and_its_reason(
    setting: ApplierSetting, refusal: str | None, target: TableSchema, kind: ApplierKind, reason: str
) -> None:
    """Events wherever they may be, else statements, and the reason says why."""
    choice = ApplierPolicy(setting, refusal).choose(TABLE, target)
    assert isinstance(choice, Choice)
    assert choice.kind is kind
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("policy", "source", "target", "id"),
    [
        (ApplierPolicy(ApplierSetting.EVENTS), TABLE, WIDER, "columns-differ"),
        (ApplierPolicy(ApplierSetting.EVENTS, REFUSED), TABLE, TABLE, "privilege"),
        (ApplierPolicy(), WIDER, TABLE, "columns-differ"),
        (ApplierPolicy(), TABLE, replace(WIDER, has_triggers=True), "triggers"),
        (ApplierPolicy(unseen=frozenset({"shop"})), TABLE, WIDER, "privilege"),
    ],
)
def test_what_no_applier_may_have(policy: ApplierPolicy, source: TableSchema, target: TableSchema, id: str) -> None:
    """Columns that lose values, triggers that would fire, and triggers that nobody could see are refused."""
    unfit = policy.choose(source, target)
    assert isinstance(unfit, NoApplier)
    assert unfit.id == id


def test_triggers_do_not_matter_to_events() -> None:
    """Row events fire no trigger, so such a table keeps its applier, seen or not."""
    policy = ApplierPolicy(unseen=frozenset({"shop"}))
    choice = policy.choose(TABLE, replace(TABLE, has_triggers=True))
    assert choice == Choice(ApplierKind.EVENTS, "the columns are equal")
