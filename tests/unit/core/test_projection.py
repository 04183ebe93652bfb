"""Projections against a slow model: rows as dictionaries of names and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.binlog_bytes import UPDATE, Dump, MemoryStore, row, summary
from tests.unit.core.test_binlog_fuzz import FUZZ
from tests.unit.core.test_plan import rows_of
from tests.unit.core.test_rowimage import TYPES, column, value

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap, Transaction
from vmerge.core.layout import Copied, Filled, Layout, lay_out
from vmerge.core.map_columns import columns_of, put_together
from vmerge.core.projection import Carried, Projection
from vmerge.core.proof import expected_shape, map_differences
from vmerge.core.rowimage import Slices
from vmerge.core.rules import TableRule
from vmerge.core.schema import Column, TableSchema
from vmerge.core.table_map import read_table_map, write_table_map
from vmerge.errors import UnsupportedEvent

CONSTANT = 258
Row = dict[str, bytes | None]
MODELLED = settings(FUZZ, max_examples=80)
KINDS = st.sampled_from([RowsKind.WRITE, RowsKind.DELETE, RowsKind.UPDATE])


@dataclass(frozen=True)
class Case:
    """A source's columns and rows, and the columns of a target: source columns under other names, and constants."""

    source: tuple[Column, ...]
    rows: list[Row]
    target: tuple[Column, ...]
    rule: TableRule
    is_full: bool

    @property
    def table_map(self) -> TableMap:
        told = rows_of(self.source, full=self.is_full)
        return put_together(told, columns_of(told))

    @property
    def schema(self) -> TableSchema:
        return TableSchema("shop", "customer", "InnoDB", self.target)

    def projection(self, keeps: Callable[[Slices], bool | None] | None = None) -> Projection:
        layout = lay_out([one.name for one in self.source], self.schema, self.rule)
        assert isinstance(layout, Layout)
        return Projection(self.table_map, layout, self.schema, keeps)

    def images(self, rows: Iterable[Row]) -> bytes:
        return b"".join(model_image([one[theirs.name] for theirs in self.source]) for one in rows)

    def projected(self, one: Row) -> bytes:
        """What the model makes of a row."""
        named = {ours.lower(): theirs for ours, theirs in self.rule.renamed.items()}
        values: list[bytes | None] = []
        for name in (theirs.name for theirs in self.target):
            if name in self.rule.constants:
                values.append(b"\2\1" if self.rule.constants[name] is not None else None)
            else:
                values.append(one[named.get(name, name)])
        return model_image(values)


def model_image(values: list[bytes | None]) -> bytes:
    bits = [one is None for one in values] + [True] * (-len(values) % 8)
    bitmap = bytes(sum(1 << bit for bit in range(8) if bits[at + bit]) for at in range(0, len(bits), 8))
    return bitmap + b"".join(one or b"" for one in values)


def full_column(position: int, type_text: str) -> Column:
    """A column of which everything is known that a table map can tell."""
    one = column(position, type_text)
    if one.family in ("char", "varchar", "tinytext", "mediumtext", "enum", "set"):
        one = replace(one, charset="utf8mb4", collation="utf8mb4_0900_ai_ci", collation_id=255)
    labels = ("a", "b") if one.family in ("enum", "set") else ()
    return replace(one, labels=labels, label_bytes=tuple(one.encode() for one in labels) or None)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    source = tuple(full_column(at, one) for at, one in enumerate(draw(st.lists(st.sampled_from(TYPES), min_size=1)), 1))
    values = {}
    for one in source:
        shape = expected_shape(one)
        assert shape is not None
        values[one.name] = st.none() | st.builds(value, st.just(shape), st.binary(max_size=9))
    kept = draw(st.lists(st.sampled_from(source), unique=True))
    renamed = {f"r{one.name}": one.name for one in kept if draw(st.booleans())}
    names = {theirs: ours for ours, theirs in renamed.items()}
    added = draw(st.lists(st.sampled_from([None, CONSTANT]), min_size=0 if kept else 1, max_size=3))
    constants = {f"k{number}": one for number, one in enumerate(added)}
    mixed: list[Column] = [replace(one, name=names.get(one.name, one.name)) for one in kept]
    mixed += [Column(name, 0, "smallint unsigned", nullable=True) for name in constants]
    target = tuple(replace(one, position=at) for at, one in enumerate(draw(st.permutations(mixed)), 1))
    dropped = tuple(one.name for one in source if one not in kept)
    rows = draw(st.lists(st.fixed_dictionaries(values), max_size=6))
    return Case(source, rows, target, TableRule(None, renamed, dropped, constants), draw(st.booleans()))


def kinds_and_images(events: Iterable[RowsEvent]) -> list[tuple[RowsKind, bytes]]:
    return [(shape.kind, images) for shape, images in events]


@MODELLED
@given(cases(), KINDS, st.integers(0, 31))
def test_rows_come_as_the_model_says(case: Case, kind: RowsKind, flags: int) -> None:
    """Columns chosen, renamed, reordered and added are the bytes of the source's, of the same kind and flags."""
    rows = case.rows[: len(case.rows) // 2 * 2]
    event = RowsEvent(RowsShape(case.table_map, kind, flags, b""), case.images(rows))
    expected = b"".join(map(case.projected, rows))
    projection = case.projection()
    events = list(projection.rows(event))
    assert kinds_and_images(events) == ([(kind, expected)] if rows else [])
    assert all(one.shape.table is projection.table and one.shape.flags == flags for one in events)


@MODELLED
@given(cases(), KINDS, st.lists(st.booleans() | st.none()))
def test_a_filter_lets_through_what_the_model_says(case: Case, kind: RowsKind, answers: list[bool | None]) -> None:
    """Each row goes or stays as the filter says of it before and after; neighbours of one kind stand in one event."""
    rows = case.rows[: len(case.rows) // 2 * 2]
    given_answers = (answers + [True] * len(rows))[: len(rows)]
    script = iter(given_answers)
    event = RowsEvent(RowsShape(case.table_map, kind, 0, b""), case.images(rows))
    changes: list[tuple[RowsKind, bytes]] = []
    if kind is not RowsKind.UPDATE:
        changes = [(kind, case.projected(one)) for one, answer in zip(rows, given_answers, strict=True) if answer]
    else:
        for at in range(0, len(rows), 2):
            was, is_now = given_answers[at] is True, given_answers[at + 1] is True
            before, after = case.projected(rows[at]), case.projected(rows[at + 1])
            if was and is_now:
                changes.append((RowsKind.UPDATE, before + after))
            elif was:
                changes.append((RowsKind.DELETE, before))
            elif is_now:
                changes.append((RowsKind.WRITE, after))
    expected = [(one, b"".join(image for _, image in group)) for one, group in groupby(changes, lambda one: one[0])]
    assert kinds_and_images(case.projection(lambda _: next(script)).rows(event)) == expected


@MODELLED
@given(cases())
def test_the_table_map_is_that_of_the_target(case: Case) -> None:
    """The projected table map fits the target's table, tells as much as the source's, and is read as it is written."""
    table = case.projection().table
    assert map_differences(table, case.schema, "the target") == ()
    assert table.names == (tuple(one.name for one in case.target) if case.is_full else ())
    told = rows_of(case.target, full=case.is_full)
    assert (table.types, table.metadata, table.nullable) == (told.types, told.metadata, told.nullable)
    assert (table.unsigned or (False,) * len(case.target)) == told.unsigned
    assert (table.collation_ids or (None,) * len(case.target)) == told.collation_ids
    assert (table.labels is not None and any(table.labels)) == (case.is_full and any(one.labels for one in case.target))
    assert table.visible == told.visible
    assert asdict(read_table_map(write_table_map(table))) == asdict(table)


def test_partial_images_are_refused() -> None:
    """An image with parts of documents only is never projected."""
    case = Case((column(1, "int"),), [], (column(1, "int"),), TableRule(), is_full=True)
    event = RowsEvent(RowsShape(case.table_map, RowsKind.PARTIAL_UPDATE, 0, b""), b"")
    with pytest.raises(UnsupportedEvent, match="partial images"):
        list(case.projection().rows(event))


def carriage(table: TableMap) -> Carried:
    """Of d.t the second column and a constant, of rows whose first column is below 3; other tables as they are."""
    if table.table != "t":
        return Carried(table)
    target = TableSchema("d", "t", "InnoDB", (Column("k", 1, "tinyint", False), Column("b", 2, "int", True)))
    layout = Layout((Filled(b"\x07"), Copied(1)))
    projection = Projection(table, layout, target, lambda slices: (slices[0] or b"\xff") < b"\3")
    return Carried(projection.table, projection)


def projected(number: int) -> bytes:
    return b"\xfc\x07" + number.to_bytes(4, "little")


def test_every_way_through_the_decoder_projects() -> None:
    """Usual, compressed, spooled and XA transactions come out projected; the decoder is the same with its fast lane."""
    dump = Dump().insert(1, row(1, 10) + row(5, 50))
    dump.gtid(2).begin().table_map().rows(row(1, 10) + row(5, 50), kind=UPDATE).rows(row(9, 9)).xid()
    dump.gtid(3).begin().table_map("u", number=8).rows(row(9, 9)).table_map().rows(row(9, 9)).xid()
    dump.gtid(4)
    with dump.payload():
        dump.begin().table_map().rows(row(2, 20)).xid()
    dump.gtid(5).query("XA START X'78',X'',1").table_map().rows(row(2, 21)).query("XA END X'78',X'',1")
    dump.xa_prepare(b"x").gtid(6).query("XA COMMIT X'78',X'',1")
    assert summary(dump.decode(carriage=carriage)) == [
        (1, [("WRITE", "t", projected(10))]),
        (2, [("DELETE", "t", projected(10))]),
        (3, [("WRITE", "u", row(9, 9))]),
        (4, [("WRITE", "t", projected(20))]),
        (6, [("WRITE", "t", projected(21))]),
    ]


def test_what_counts_for_spooling_is_what_is_left() -> None:
    """A transaction of which little passes stays in memory, one of which much does is spooled."""
    passed, left_out = row(1, 1), row(9, 9)
    dump = Dump().insert(1, left_out * 100 + passed).insert(2, passed * 100).insert(3, left_out * 100)
    items = dump.decode(carriage=carriage, spool_above_bytes=50)
    assert [isinstance(item.rows, MemoryStore) for item in items if isinstance(item, Transaction)] == [
        False,
        True,
        False,
    ]
    assert [item.byte_count for item in items if isinstance(item, Transaction)] == [6, 600, 0]
