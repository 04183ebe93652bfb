"""What can meet, by descriptions of tables, and what is said of what was found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vmerge.core.collisions import (
    COUNTED_PAIRS,
    SHOWN_PAIRS,
    CollisionMode,
    CollisionReport,
    KeyOutcome,
    Meeting,
    Pair,
    Uncompared,
    plan,
    show,
)
from vmerge.core.risk import Counter, CounterRange, Counting, TableRisk, Trait, assess, check_counters, risk_lines
from vmerge.core.rules import StreamRules
from vmerge.core.schema import Column, ForeignKey, Generation, GenerationKind, KeyPart, TableSchema, UniqueKey
from vmerge.core.table_checks import StreamTables

RULES = StreamRules.build({"shop_0": "shop"})
ID = Column("id", 1, "int", nullable=False, auto_increment=True)
EMAIL = Column("Email", 2, "varchar(20)", nullable=True, collation="utf8mb4_0900_ai_ci")
CODE = Column("code", 3, "char(4)", nullable=False, collation="latin1_bin")
SIZE = Column("size", 4, "float", nullable=False, generated=Generation(GenerationKind.STORED, "1"))
PRIMARY = UniqueKey("PRIMARY", (KeyPart("id"),))


def table(name: str = "customer", database: str = "shop_0", **changes: Any) -> TableSchema:
    return replace(TableSchema(database, name, "InnoDB", (ID, EMAIL, CODE, SIZE), PRIMARY), **changes)


def stream(name: str, *tables: TableSchema) -> StreamTables:
    return StreamTables(name, RULES, {(one.database, one.table): one for one in tables}, logs_cascades=False)


def assessed(*keys: UniqueKey, sources: tuple[TableSchema, ...] = (), **changes: Any) -> TableRisk:
    target = table(database="shop", unique_keys=keys, **changes)
    streams = [stream("-80", *(sources or (table(),))), stream("80-", table())]
    (risk,) = assess(streams, {("shop", "customer"): target})
    return risk


@pytest.mark.parametrize(
    ("part", "traits", "collations"),
    [
        (KeyPart("id"), [Trait.AUTO_INCREMENT], ()),
        (KeyPart("email"), [Trait.NULLABLE, Trait.IGNORES_CASE], ("utf8mb4_0900_ai_ci",)),
        (KeyPart("code", prefix_length=2), [Trait.PREFIX, Trait.IGNORES_TRAILING_SPACES], ("latin1_bin",)),
        (KeyPart("size"), [Trait.GENERATED, Trait.APPROXIMATE], ()),
        (KeyPart(None, expression="lower(`code`)"), [Trait.NULLABLE, Trait.EXPRESSION], ()),
    ],
)
def test_traits_of_keys(part: KeyPart, traits: list[Trait], collations: tuple[str, ...]) -> None:
    """What makes a key surprising is told, whatever the case of the column's name."""
    primary, key = assessed(UniqueKey("k", (part,))).keys
    assert primary.traits == (Trait.PRIMARY, Trait.AUTO_INCREMENT)
    assert (key.traits, key.collations) == (tuple(traits), collations)


def test_who_can_meet() -> None:
    """Keys of a table that several streams fill can meet, those of one stream's table cannot; cascades are told."""
    child = ForeignKey("fk", ("id",), ("shop", "customer"), ("id",), "CASCADE", "NO ACTION")
    targets = {
        ("shop", "customer"): table(database="shop"),
        ("shop", "order"): table("order", "shop", foreign_keys=(child,)),
        ("shop", "elsewhere"): table("elsewhere", "shop"),
    }
    tables = assess([stream("-80", table(), table("order")), stream("80-", table(), table("absent"))], targets)
    assert [(one.name[1], one.streams, one.can_meet) for one in tables] == [
        ("customer", ("-80", "80-"), True),
        ("order", ("-80",), False),
    ]
    assert tables[0].cascades_to == ("shop.order",)
    lines = list(risk_lines(tables, {}))
    assert lines[:3] == [
        "Unique keys that can meet across shards:",
        "  shop.customer, filled by -80, 80-",
        "    PRIMARY (id): the primary key; AUTO_INCREMENT",
    ]
    assert lines[-1] == "Filled by one stream alone, so that no key can meet: shop.order (-80)"
    assert list(risk_lines((), {})) == []


@pytest.mark.parametrize(
    ("ranges", "countings", "is_warned"),
    [
        (((1, 9), (9, 20)), ((1, 1), (1, 1)), True),
        (((1, 9), (10, 20)), ((1, 1), (1, 1)), False),
        (((1, 9), (None, None)), ((1, 1), (1, 1)), False),
        (((1, 9), (2, 8)), ((2, 1), (2, 2)), False),
        (((1, 9), (2, 8)), ((2, 1), (2, 1)), True),
        (((1, 9), (2, 8)), ((2, 1), (3, 2)), True),
        (((1, 9), (2, 8)), ((2, 1), (2, 5)), True),  # an offset above the increment is ignored
    ],
)
def test_counters(
    ranges: tuple[tuple[int | None, int | None], ...], countings: tuple[tuple[int, int], ...], is_warned: bool
) -> None:
    """Shards are warned of when their numbers overlap and their servers' steps do not keep them apart."""
    counter = Counter(
        "id",
        tuple(
            CounterRange(name, *numbers, Counting(*counting))
            for name, numbers, counting in zip(("-80", "80-"), ranges, countings, strict=True)
        ),
    )
    risk = assessed()
    findings = list(check_counters([risk], {risk.name: counter}))
    assert [finding.id for finding in findings] == ["auto-increment"] * is_warned


def test_keys_are_matched_by_what_they_are_made_of() -> None:
    """A shard takes part with its key of the same parts, whatever its name; a shard without it is named."""
    own = table(unique_keys=(UniqueKey("other_name", (KeyPart("EMAIL"),)),))
    streams = [stream("a", own), stream("b", own), stream("c", table())]
    targets = {("shop", "customer"): table(database="shop", unique_keys=(UniqueKey("k", (KeyPart("Email"),)),))}
    comparisons, uncompared = plan(assess(streams, targets), streams, targets)
    assert [(one.key.name, [(side.stream, side.key.name) for side in one.sides]) for one in comparisons] == [
        ("PRIMARY", [("a", "PRIMARY"), ("b", "PRIMARY"), ("c", "PRIMARY")]),
        ("k", [("a", "other_name"), ("b", "other_name")]),
    ]
    assert [(one.key, one.streams) for one in uncompared] == [("k", ("c",))]


def test_tables_that_do_not_fit_are_not_compared() -> None:
    """Other columns, no primary key, and many values a row are reasons, and leave nobody to compare with."""
    many = UniqueKey("k", (KeyPart(None, expression="cast(`a` as unsigned array)"),))
    streams = [
        stream("a", table(columns=(ID,))),
        stream("b", table(primary_key=None, unique_keys=(many,))),
        stream("c", table(unique_keys=(many,))),
    ]
    targets = {("shop", "customer"): table(database="shop", unique_keys=(many,))}
    comparisons, uncompared = plan(assess(streams, targets), streams, targets)
    assert comparisons == ()
    assert [(one.key, one.reason) for one in uncompared] == [
        ("PRIMARY", "stream a has other columns than the target"),
        ("PRIMARY", "stream b has no primary key"),
        ("k", "stream a has other columns than the target"),
        ("k", "stream b has no primary key"),
        ("k", "stream c has many values a row in this key, which are not looked up"),
    ]


def test_pairs_are_kept_and_counted_up_to_a_bound() -> None:
    """However many rows collide, few pairs are kept and counting ends."""
    pair = Pair(((("id", "1"),), (("id", "2"),)), ((("v", "a"),), (("v", "A"),)))
    meeting = Meeting(("-80", "80-"))
    for _ in range(COUNTED_PAIRS):
        assert meeting.is_counted
        meeting.add(pair)
    assert (meeting.count, len(meeting.pairs), meeting.is_counted) == (COUNTED_PAIRS, SHOWN_PAIRS, False)


def test_findings_name_rows_and_lines_show_values() -> None:
    """A finding has both primary keys and no value of the key; what was left out is one line a reason."""
    streams = [stream("-80", table()), stream("80-", table())]
    targets = {("shop", "customer"): table(database="shop")}
    (comparison,), _ = plan(assess(streams, targets), streams, targets)
    outcome = KeyOutcome(comparison, rows={"-80": 5}, is_whole=True)
    outcome.meetings["-80", "80-"] = Meeting(("-80", "80-"))
    outcome.meetings["-80", "80-"].add(Pair(((("id", "1"),), (("id", "2"),)), ((("v", "a b"),), (("v", None),))))
    left_out = [Uncompared(("shop", name), "k", ("80-",), "it is away") for name in ("a", "a", "b")]
    report = CollisionReport(CollisionMode.COMPLETE, [outcome], left_out)
    (finding,) = report.findings()
    assert finding.where == "-80 and 80-, shop.customer"
    assert finding.text == "1 pair of rows hold the same PRIMARY (id) now, such as -80 (id=1) and 80- (id=2)"
    assert list(report.lines()) == [
        "Rows that collide across shards now: 1 found, 5 values of 1 key looked up",
        "  shop.customer, PRIMARY (id): 1 pair",
        '    -80 (id=1) and 80- (id=2): v="a b" and v=NULL',
        "  not compared: shop.a (k), shop.b (k): it is away",
    ]
    assert list(CollisionReport(CollisionMode.NONE, [outcome]).lines()) == []


def test_values_are_harmless_on_a_terminal() -> None:
    """Whatever a value or a name holds, what is printed is one line of printable characters."""
    text = show((("a\nb", "x\x1b[2J\u202e\x9b"), ("n", "-12"), ("h", "0xFF\n")))
    assert text.isprintable()
    assert text == 'a\\nb="x\\u001b[2J\\u202e\\x9b", n=-12, h=0xFF\\n'
