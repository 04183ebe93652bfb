"""Plans: which rows are let through, and which statements concern a stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmerge.core.appliers import ANY_APPLIER, ApplierKind, ApplierPolicy, ApplierSetting
from vmerge.core.column_types import ColumnType
from vmerge.core.events import SchemaChange, TableMap
from vmerge.core.plan import Plan
from vmerge.core.position import Gtid
from vmerge.core.proof import expected_shape
from vmerge.core.rules import StreamRules, TablePattern, TableRule
from vmerge.core.schema import Column, ForeignKey, Generation, GenerationKind, KeyPart, TableSchema, UniqueKey
from vmerge.errors import SchemaMismatch, TargetError

RULES = StreamRules.build({"shop_0": "shop", "café_0": "café"}, ["shop.customer", "shop.order_*", "café.*"])

COLUMNS = (
    Column("id", 1, "bigint unsigned", nullable=False),
    Column("email", 2, "varchar(100)", True, 400, "utf8mb4", "utf8mb4_0900_ai_ci", 255),
    Column("backup", 3, "varchar(100)", True, 400, "utf8mb4", "utf8mb4_0900_ai_ci", 255),
    Column("size", 4, "enum", True, 4, "utf8mb4", "utf8mb4_0900_ai_ci", 255, ("s", "m"), (b"s", b"m")),
    Column("place", 5, "point", nullable=True),
)


def schema(columns: tuple[Column, ...] = COLUMNS, database: str = "shop", table: str = "customer") -> TableSchema:
    return TableSchema(database, table, "InnoDB", columns, UniqueKey("PRIMARY", (KeyPart("id"),)))


def with_column(number: int, **changes: Any) -> tuple[Column, ...]:
    columns = list(COLUMNS)
    columns[number] = replace(columns[number], **changes)
    return tuple(columns)


def swapped(columns: tuple[Column, ...], first: int, second: int) -> tuple[Column, ...]:
    mixed = list(columns)
    mixed[first], mixed[second] = mixed[second], mixed[first]
    return tuple(replace(column, position=number) for number, column in enumerate(mixed, 1))


def rows_of(
    columns: Iterable[Column] = COLUMNS, *, full: bool = True, database: str = "shop_0", table: str = "customer"
) -> TableMap:
    """Make the table map that a server sends for rows of such columns."""
    columns = tuple(columns)
    shapes = [expected_shape(column) for column in columns]
    types, metadata = bytearray(), bytearray()
    for shape in shapes:
        assert shape is not None
        is_hidden = shape.type in (ColumnType.ENUM, ColumnType.SET)
        types.append(ColumnType.STRING if is_hidden else shape.type)
        metadata += (bytes((shape.type,)) if is_hidden else b"") + shape.metadata
    nullable = sum(1 << index for index, column in enumerate(columns) if column.nullable)
    return TableMap(
        database,
        table,
        1,
        bytes(types),
        bytes(metadata),
        nullable.to_bytes((len(columns) + 7) // 8, "little"),
        b"",
        tuple(column.name for column in columns) if full else (),
        tuple(column.is_unsigned for column in columns),
        tuple(column.collation_id if full or not column.labels else None for column in columns),
        tuple(column.label_bytes if column.labels else None for column in columns) if full else None,
        None,
        tuple(not column.invisible for column in columns) if full else None,
        tuple(1 if column.family == "point" else None for column in columns),
    )


def plan(
    target: tuple[Column, ...] | None = COLUMNS,
    source: tuple[Column, ...] | None = COLUMNS,
    policy: ApplierPolicy = ANY_APPLIER,
) -> Plan:
    sources = () if source is None else (schema(source, "shop_0"),)
    targets = () if target is None else (schema(target),)
    return Plan(RULES, sources, targets, policy)


@pytest.mark.parametrize("full", [True, False])
def test_rows_of_equal_tables_are_wanted_and_named(full: bool) -> None:
    """Rows go to the table that the rules name, once it is proven equal."""
    rows = rows_of(full=full)
    assert plan().carriage(rows)
    assert plan().target_name(rows) == ("shop", "customer")


@pytest.mark.parametrize(
    ("database", "table"), [("shop_0", "invoice"), ("shop", "customer"), ("other", "customer"), ("SHOP_0", "customer")]
)
def test_rows_outside_of_the_rules_are_not_wanted(database: str, table: str) -> None:
    """What no rule names is left out without a look at its columns."""
    assert not plan(target=None).carriage(rows_of(database=database, table=table))


def test_a_missing_target_table_stops_its_first_rows() -> None:
    """Rows of a table that a pattern takes in are never dropped because the target lacks the table."""
    with pytest.raises(SchemaMismatch, match=r"shop_0\.order_line came, but the target had no table shop\.order_line"):
        plan().carriage(rows_of(table="order_line"))


def test_a_mismatch_is_an_error_of_the_target_with_a_hint() -> None:
    """The message names both tables, the column and both sides; the hint says what to do."""
    with pytest.raises(SchemaMismatch) as raised:
        plan(with_column(1, type_text="varchar(50)", octet_length=200)).carriage(rows_of())
    assert raised.value.message == (
        "rows of shop_0.customer do not fit shop.customer on the target: column 2 (`email` in shop.customer on the "
        "target): is a varchar or varbinary of 400 bytes in the rows, varchar(50) in the table"
    )
    assert "SHOW CREATE TABLE" in raised.value.hint
    assert isinstance(raised.value, TargetError)


ALTERED = {
    "a column less": (COLUMNS[:4], "the rows have 5 columns"),
    "a column more": ((*COLUMNS, replace(COLUMNS[0], name="x", position=6)), "the rows have 5 columns"),
    "swapped columns of one type": (swapped(COLUMNS, 1, 2), "`email`"),
    "swapped columns": (swapped(COLUMNS, 0, 1), "in the rows"),
    "signed": (with_column(0, type_text="bigint"), "is unsigned in the rows"),
    "another collation": (with_column(1, collation="utf8mb4_bin", collation_id=46), "collation"),
    "not null": (with_column(1, nullable=False), "may be NULL in the rows"),
    "labels in another order": (with_column(3, labels=("m", "s"), label_bytes=(b"m", b"s")), "label 1 is 's'"),
    "a label more": (with_column(3, labels=("s", "m", "l"), label_bytes=(b"s", b"m", b"l")), "2 labels"),
    "another geometry": (with_column(4, type_text="polygon"), "is point in the rows, polygon"),
    "invisible": (with_column(1, invisible=True), "visible"),
    "generated": (with_column(1, generated=Generation(GenerationKind.STORED, "1")), "generation none at the source"),
    "bound to a reference system": (with_column(4, srid=4326), "spatial reference system"),
}


@pytest.mark.parametrize("full", [True, False])
def test_a_column_that_keeps_every_value_takes_the_rows_as_statements(full: bool) -> None:
    """Where the choice is free, rows of a wider column go as statements; those of a source that was altered do not."""
    rows = rows_of(full=full)
    wider = with_column(1, type_text="varchar(200)", octet_length=800)
    tables = plan(wider)
    assert tables.carriage(rows) is not None
    assert tables.applier(rows) is ApplierKind.STATEMENTS
    assert [choice.kind for choice in tables.choices().values()] == [ApplierKind.STATEMENTS]
    assert plan().applier(rows) is ApplierKind.EVENTS
    with pytest.raises(SchemaMismatch):
        plan(wider, source=with_column(1, type_text="varchar(50)", octet_length=200)).carriage(rows)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("case", ALTERED)
def test_every_difference_of_columns_stops_the_rows(case: str, full: bool) -> None:
    """With full metadata and without, no difference gets through to the events applier."""
    columns, text = ALTERED[case]
    with pytest.raises(SchemaMismatch) as raised:
        plan(columns, policy=ApplierPolicy(ApplierSetting.EVENTS)).carriage(rows_of(full=full))
    assert text in raised.value.message


@pytest.mark.parametrize("case", [case for case in ALTERED if case not in ("generated", "bound to a reference system")])
def test_full_metadata_needs_no_schema_of_the_source(case: str) -> None:
    """When the source's table was altered after the rows, their own description decides."""
    columns, _ = ALTERED[case]
    assert plan(source=None).carriage(rows_of())
    assert plan(source=COLUMNS[:3]).carriage(rows_of())
    with pytest.raises(SchemaMismatch):
        plan(columns, source=None).carriage(rows_of())


@pytest.mark.parametrize("source", [None, COLUMNS[:3], with_column(0, type_text="int unsigned")])
def test_without_full_metadata_an_altered_source_stops_the_rows(source: tuple[Column, ...] | None) -> None:
    """A schema that no longer agrees with the rows proves nothing about names."""
    with pytest.raises(SchemaMismatch, match="names cannot be compared"):
        plan(source=source).carriage(rows_of(full=False))


def test_generated_columns_need_the_schema_of_the_source() -> None:
    """No table map says that a column is generated, so an altered source with one stops the rows."""
    columns = with_column(1, generated=Generation(GenerationKind.VIRTUAL, "upper(`backup`)"))
    assert plan(columns, columns).carriage(rows_of(columns))
    with pytest.raises(SchemaMismatch, match="generated columns cannot be compared"):
        plan(columns, None).carriage(rows_of(columns))


def test_labels_that_the_schema_cannot_show_are_counted() -> None:
    """Labels of bytes are compared by number, and by the text that both servers print."""
    columns = with_column(3, label_bytes=None)
    assert plan(columns, columns).carriage(rows_of())
    with pytest.raises(SchemaMismatch, match="2 labels in the rows"):
        plan(with_column(3, labels=("s",), label_bytes=None), columns).carriage(rows_of())


def test_an_unknown_type_is_refused() -> None:
    """A column type that is not known here cannot be proven equal to anything."""
    rows = replace(rows_of(), types=b"\xc8" + rows_of().types[1:])
    with pytest.raises(SchemaMismatch, match="a type that is not known"):
        plan().carriage(rows)
    with pytest.raises(SchemaMismatch, match="column 1"):
        plan(with_column(0, type_text="uuid")).carriage(rows_of())


def test_the_planned_tables_are_the_source_s_that_the_rules_take_in() -> None:
    """A plan lists what it carries, with the sides it has."""
    sources = [
        schema(database="shop_0"),
        schema(database="shop_0", table="order_1"),
        schema(database="shop_0", table="x"),
    ]
    tables = Plan(RULES, sources, [schema()]).tables
    assert list(tables) == [("shop_0", "customer"), ("shop_0", "order_1")]
    assert tables["shop_0", "customer"].target == schema()
    assert tables["shop_0", "order_1"].target is None


def change(statement: str, database: str = "shop_0") -> SchemaChange:
    return SchemaChange(Gtid(bytes(16), "", 1), 0, database, statement)


CONCERNING = [
    "ALTER TABLE customer ADD COLUMN x INT",
    "alter table `customer` add x int",
    "ALTER TABLE `shop_0`.`customer` DROP COLUMN email",
    "ALTER TABLE shop_0 . customer ENGINE=InnoDB",
    "ALTER TABLE SHOP_0.Customer ADD x INT",
    "ALTER TABLE customer DISABLE KEYS, ADD x INT",
    "/* a comment */ ALTER /* another */ TABLE -- and one\n customer # here\n ADD x INT",
    "ALTER TABLE other RENAME TO customer",
    "ALTER TABLE other ADD x INT, RENAME AS shop_0.customer",
    "ALTER TABLE other RENAME customer",
    "ALTER TABLE other EXCHANGE PARTITION p0 WITH TABLE customer",
    "RENAME TABLE customer TO customer_old, customer_new TO customer",
    "RENAME TABLE x TO y, z TO order_1",
    "TRUNCATE customer",
    "TRUNCATE TABLE `order_9`",
    "DROP TABLE IF EXISTS x, `customer` /* generated by server */",
    "DROP TABLE x, SHOP_0.Customer",
    "DROP TABLE kaf\\xe9",
    "DROP TABLE customer CASCADE",
    'DROP TABLE "customer"',
    "DROP DATABASE shop_0",
    "DROP SCHEMA IF EXISTS `shop_0`",
    "CREATE INDEX i ON customer (email)",
    "CREATE UNIQUE INDEX i USING BTREE ON shop_0.customer (email)",
    "DROP INDEX i ON customer",
    "ALTER TABLE kaf\\xe9 ADD x INT",  # a name in another character set may be any of ours
    "UPDATE customer SET email = NULL",  # no schema change at all: never read as harmless
    "FROBNICATE customer",
    "DROP TABLE customer WITH SOMETHING NEW",
    "",
]

HARMLESS = [
    "ALTER TABLE invoice ADD COLUMN customer INT",
    "ALTER TABLE invoice RENAME COLUMN a TO customer, RENAME INDEX i TO order_1",
    "ALTER TABLE invoice COMMENT 'RENAME TO customer; DROP TABLE customer'",
    "ALTER TABLE invoice ADD CONSTRAINT c FOREIGN KEY (x) REFERENCES customer (id)",
    "ALTER TABLE other.customer ADD x INT",
    "/*!40000 ALTER TABLE `customer` DISABLE KEYS */",
    "alter table shop_0.customer enable keys;",
    "ALTER TABLE `other`.`order_1` ADD x INT",
    "RENAME TABLE other.customer TO other.order_1",
    "DROP TABLE other.customer, invoice",
    "DROP TABLE order_1, `order_2`",  # the target has none of them, so no row of theirs either
    "DROP TABLE IF EXISTS order_1 /* generated by server */",
    "DROP TEMPORARY TABLE IF EXISTS customer",
    "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `customer`",
    "TRUNCATE shop.customer",
    "CREATE TABLE customer (id INT PRIMARY KEY)",
    "CREATE TEMPORARY TABLE customer (id INT)",
    "CREATE DATABASE shop_0",
    "CREATE DATABASE other",
    "DROP DATABASE other",
    "ALTER DATABASE shop_0 CHARACTER SET latin1",
    "CREATE INDEX customer ON invoice (customer)",
    "DROP INDEX customer ON invoice",
    "GRANT ALL ON shop_0.customer TO 'a'@'%'",
    "REVOKE ALL ON shop_0.* FROM a",
    "CREATE USER customer IDENTIFIED BY 'x'",
    "ALTER USER customer IDENTIFIED BY 'x'",
    "DROP USER customer",
    "RENAME USER customer TO order_1",
    "ANALYZE TABLE customer",
    "FLUSH TABLES customer",
    "OPTIMIZE TABLE customer",
    "SET PASSWORD FOR a = 'x'",
    "CREATE DEFINER=`a`@`%` TRIGGER t BEFORE INSERT ON customer FOR EACH ROW SET NEW.email = 'x'",
    "CREATE OR REPLACE VIEW v AS SELECT * FROM customer",
    "DROP VIEW customer_view",
    "CREATE PROCEDURE p() TRUNCATE customer",
    "DROP TRIGGER customer",
    "CREATE SPATIAL REFERENCE SYSTEM 4120 NAME 'x' DEFINITION 'y'",
]


@pytest.mark.parametrize("statement", CONCERNING)
def test_changes_of_a_carried_table_concern_the_stream(statement: str) -> None:
    """Every statement that changes, moves, empties or replaces a carried table is noticed."""
    assert plan().concerns(change(statement))


@pytest.mark.parametrize("statement", HARMLESS)
def test_other_changes_do_not(statement: str) -> None:
    """A statement that names only other tables, or changes no rows, never stops a stream."""
    assert not plan().concerns(change(statement))


@pytest.mark.parametrize(
    "statement", ["FROBNICATE customer", "DROP TABLE x WITH SOMETHING NEW", "UPDATE customer SET x = 1"]
)
def test_what_cannot_be_read_concerns_only_the_databases_it_can_touch(statement: str) -> None:
    """In another database, and without the name of ours, a statement cannot touch our tables."""
    assert not plan().concerns(change(statement, database="other"))
    assert plan().concerns(change(f"{statement} /* shop_0 */", database="other"))


def test_names_without_a_database_are_the_session_s() -> None:
    """The same statement means another table in another database."""
    assert not plan().concerns(change("TRUNCATE customer", database="other"))
    assert plan().concerns(change("TRUNCATE shop_0.customer", database="other"))
    assert plan().concerns(change("TRUNCATE anything", database="caf\\xe9_0"))


@given(st.text(alphabet="ALTERDOPNMTBX `'\"\\/*!-#;.,()customer_0", max_size=40))
def test_a_planned_name_never_hides(text: str) -> None:
    """Whatever stands in front, reading ends and answers; a whole ALTER TABLE behind comments is found."""
    plan().concerns(change(text))
    comment = text.replace("*/", "").replace("!", "")
    assert plan().concerns(change(f"/*{comment} */ ALTER TABLE customer ADD x INT"))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.*", ("a", "b"), True),
        ("shop.order_*", ("shop", "order_"), True),
        ("shop.order_*", ("shop", "Order_1"), False),
        ("sh?p.[cd]*", ("shop", "customer"), True),
        ("shop.a.b", ("shop", "a.b"), True),
        ("shop.*", ("shopx", "a"), False),
        ("shop.a", ("shop", "a\n"), False),
    ],
)
def test_patterns(pattern: str, name: tuple[str, str], matches: bool) -> None:
    """Patterns are shell wildcards over database and table, each by itself."""
    assert TablePattern(pattern).matches(name) is matches


def child(table: str, *parents: tuple[str, str]) -> TableSchema:
    """Return a table whose backup column refers to columns of other tables."""
    keys = tuple(
        ForeignKey(f"{table}_{parent}", ("backup",), ("shop", parent), (column,), "NO ACTION", "NO ACTION")
        for parent, column in parents
    )
    return replace(schema(table=table), foreign_keys=keys)


def test_relations_of_tables_are_known() -> None:
    """What children refer to, how deep a table stands, and which tables are their own ancestors."""
    tables = [
        child("customer"),
        child("order_1", ("customer", "ID"), ("customer", "email")),
        child("order_2", ("order_2", "id"), ("order_1", "id")),
        child("order_3", ("order_4", "id")),
        child("order_4", ("order_3", "id")),
    ]
    relations = Plan(RULES, (), tables)
    maps = {table.table: rows_of(table=table.table) for table in tables}
    assert {name: relations.referenced_columns(one) for name, one in maps.items()} == {
        "customer": (0, 1),
        "order_1": (0,),
        "order_2": (0,),
        "order_3": (0,),
        "order_4": (0,),
    }
    assert [name for name, one in maps.items() if relations.is_in_circle(one)] == ["order_2", "order_3", "order_4"]
    depths = [relations.depth(maps[name]) for name in ("customer", "order_1", "order_2")]
    assert depths == sorted(set(depths))


@pytest.mark.parametrize(
    ("statement", "concerned"),
    [
        ("ALTER TABLE customers ADD x INT", True),
        ("ALTER TABLE CUSTOMERS ADD x INT", True),
        ("ALTER TABLE invoice ADD x INT", True),
        ("ALTER TABLE tmp_1 ADD x INT", False),
        ("ALTER TABLE temporary ADD x INT", False),
    ],
)
def test_schema_changes_are_judged_by_names_under_rules(statement: str, concerned: bool) -> None:
    """A table that is carried under another name counts, one that is excluded under its name on the target does not."""
    rules = StreamRules.build(
        {"shop_0": "shop"},
        ["shop.customer", "shop.invoice", "shop.tmp_*"],
        exclude=["shop.tmp_*"],
        table_rules={
            ("shop", "customer"): TableRule(source_table="customers"),
            ("shop", "tmp_0"): TableRule(source_table="temporary"),
        },
    )
    assert Plan(rules, (), ()).concerns(change(statement)) == concerned
