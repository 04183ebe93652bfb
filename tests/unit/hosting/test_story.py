"""What the log says of a start."""

from __future__ import annotations

import logging

import pytest

from vmerge.core.appliers import ApplierKind, Choice
from vmerge.core.rules import StreamRules, TableRule
from vmerge.hosting.story import Story, stream_story

EVENTS = Choice(ApplierKind.EVENTS, "the columns are equal")
WIDER = Choice(ApplierKind.STATEMENTS, "column `n` is wider on the target")


def test_what_a_start_rests_on() -> None:
    """Servers, databases, tables by applier with the reason, rules and what is left out; many tables are few words."""
    rules = StreamRules.build({"shop_0": "shop"}, exclude=("shop.tmp_*",), table_rules={("shop", "item"): TableRule()})
    choices = {("shop", f"t{number}"): EVENTS for number in range(9)} | {("shop", "item"): WIDER}
    lines = list(stream_story(rules, "the source, MySQL 8.4", "the target, MySQL 9.7", choices))
    assert lines == [
        "carries shop_0 to shop, from the source, MySQL 8.4, to the target, MySQL 9.7",
        "sends 9 tables (shop.t0, shop.t1, shop.t2, shop.t3, shop.t4, …) as row events (the columns are equal)",
        "sends 1 table (shop.item) as statements (column `n` is wider on the target)",
        "changes or filters the rows of 1 table (shop.item) by rules",
        "leaves out shop.tmp_*",
    ]


def test_a_restart_repeats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """What a start rests on is told again only when it is something else."""
    caplog.set_level(logging.INFO)
    story = Story("w")
    for lines in (["one", "two"], ["one", "two"], ["one", "three"]):
        story.tell("a", lines)
    assert [record.getMessage() for record in caplog.records] == ["one", "two", "one", "three"]
    assert {record.__dict__["stream"] for record in caplog.records} == {"w/a"}
