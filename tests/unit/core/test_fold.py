"""The net effect of a run equals the run, for every legal history of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.table_rules import Rules

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.fold import fold
from vmerge.errors import UnsupportedEvent

Rows = dict[int, int]
Step = tuple[RowsKind, list[tuple[int, int]]]


def make_table(name: str = "t", tail: bytes = b"", flags: int = 0) -> TableMap:
    return TableMap("d", name, flags, b"\x03\x03", b"", b"\x00", tail, (), None)


TABLE = make_table()


def image(key: int, value: int) -> bytes:
    return b"\x00" + key.to_bytes(4, "little") + value.to_bytes(4, "little")


def event(kind: RowsKind, rows: list[tuple[int, int]], table: TableMap = TABLE) -> RowsEvent:
    shape = RowsShape(table, kind, 0, b"\x02\xff" * (2 if kind is RowsKind.UPDATE else 1))
    return RowsEvent(shape, b"".join(image(*row) for row in rows))


def run(rows: Rows, events: list[RowsEvent]) -> Rows:
    """Apply events strictly: a row must be as its before-image says."""
    result = dict(rows)
    for one in events:
        parts = [one.images[start : start + 9] for start in range(0, len(one.images), 9)]
        pairs = [(int.from_bytes(part[1:5], "little"), int.from_bytes(part[5:], "little")) for part in parts]
        match one.shape.kind:
            case RowsKind.WRITE:
                for key, value in pairs:
                    assert key not in result
                    result[key] = value
            case RowsKind.DELETE:
                for key, value in pairs:
                    assert result.pop(key) == value
            case _:
                for (key, value), (new_key, new_value) in zip(pairs[::2], pairs[1::2], strict=True):
                    assert result.pop(key) == value
                    assert new_key not in result
                    result[new_key] = new_value
    return result


ALONE = Rules()


@st.composite
def histories(draw: st.DrawFn) -> tuple[Rows, list[RowsEvent]]:
    start: Rows = draw(st.dictionaries(st.integers(0, 5), st.integers(0, 9), max_size=4))
    rows = dict(start)
    events = []
    for _ in range(draw(st.integers(0, 12))):
        absent = [key for key in range(6) if key not in rows]
        kind = draw(st.sampled_from([RowsKind.WRITE, RowsKind.UPDATE, RowsKind.DELETE]))
        if kind is RowsKind.WRITE and absent:
            key, value = draw(st.sampled_from(absent)), draw(st.integers(0, 9))
            events.append(event(kind, [(key, value)]))
            rows[key] = value
        elif kind is RowsKind.DELETE and rows:
            key = draw(st.sampled_from(sorted(rows)))
            events.append(event(kind, [(key, rows.pop(key))]))
        elif kind is RowsKind.UPDATE and rows:
            key = draw(st.sampled_from(sorted(rows)))
            new_key = draw(st.sampled_from([key, *absent]))
            old = rows.pop(key)
            rows[new_key] = draw(st.integers(0, 9))
            events.append(event(kind, [(key, old), (new_key, rows[new_key])]))
    return start, events


@given(histories())
def test_the_net_effect_equals_the_run(history: tuple[Rows, list[RowsEvent]]) -> None:
    """Applying the fold of a run gives the same rows as applying the run."""
    start, events = history
    assert run(start, list(fold(events, ALONE).rows())) == run(start, events)


@given(histories())
def test_no_row_is_touched_that_the_run_leaves_as_it_was(history: tuple[Rows, list[RowsEvent]]) -> None:
    """The fold changes exactly the rows that differ: one image a side for each."""
    start, events = history
    end = run(start, events)
    effect = list(fold(events, ALONE).rows())
    gone = sum(1 for key, value in start.items() if end.get(key) != value)
    new = sum(1 for key, value in end.items() if start.get(key) != value)
    assert [one.shape.kind for one in effect] == [RowsKind.DELETE] * gone + [RowsKind.WRITE] * new


def test_a_row_that_comes_and_goes_leaves_no_trace() -> None:
    """Insert and delete of one row fold to nothing: a DELETE could hit the row of a sibling by then."""
    events = [event(RowsKind.WRITE, [(7, 1)]), event(RowsKind.DELETE, [(7, 1)])]
    assert list(fold(events, ALONE).rows()) == []


def test_swapped_values_fold_to_deletes_before_inserts() -> None:
    """A permutation of unique values among rows comes out as all deletes, then all inserts, over all tables."""
    other = make_table("o")
    events = [
        event(RowsKind.UPDATE, [(1, 10), (1, 20), (2, 20), (2, 10)]),
        event(RowsKind.WRITE, [(1, 1)], other),
        event(RowsKind.DELETE, [(3, 3)], other),
    ]
    kinds = [one.shape.kind for one in fold(events, ALONE).rows()]
    assert kinds == [RowsKind.DELETE] * 3 + [RowsKind.WRITE] * 3


def test_what_cannot_be_followed_is_refused() -> None:
    """No primary key, partial images, or a table in two shapes: no net effect is claimed."""
    write = event(RowsKind.WRITE, [(1, 1)])
    partial = RowsEvent(RowsShape(TABLE, RowsKind.PARTIAL_UPDATE, 0, b""), b"")
    for events, keys in (
        ([write], ()),
        ([partial], (0,)),
        ([write, event(RowsKind.WRITE, [(2, 2)], replace(TABLE, metadata=b"\1"))], (0,)),
    ):
        with pytest.raises(UnsupportedEvent):
            fold(events, Rules(keys))


def test_a_contradiction_is_refused() -> None:
    """A row that appears or vanishes twice was changed by something that is not in the binlog: no effect is claimed."""
    for kind in (RowsKind.WRITE, RowsKind.DELETE):
        with pytest.raises(UnsupportedEvent):
            fold([event(kind, [(1, 1), (1, 1)])], ALONE)


@given(histories())
def test_tables_with_foreign_keys_keep_their_updates(history: tuple[Rows, list[RowsEvent]]) -> None:
    """A row that stays is updated and never deleted for a moment, as its children would forbid that."""
    start, events = history
    end = run(start, events)
    effect = list(fold(events, Rules(has_foreign_keys=True)).rows())
    assert run(start, effect) == end
    gone = sum(1 for key in start if key not in end)
    changed = sum(1 for key in start if key in end and start[key] != end[key])
    new = sum(1 for key in end if key not in start)
    kinds = [RowsKind.DELETE] * gone + [RowsKind.UPDATE] * changed + [RowsKind.WRITE] * new
    assert [one.shape.kind for one in effect] == kinds


def test_foreign_keys_are_checked_as_the_source_says() -> None:
    """The net effect has the flags of its rows; rows with other flags are not mixed with them."""
    unchecked = RowsEvent(RowsShape(TABLE, RowsKind.WRITE, 2, b""), image(1, 1))
    checked = event(RowsKind.WRITE, [(2, 2)])
    assert [one.shape.flags for one in fold([unchecked], ALONE).rows()] == [2]
    assert [one.shape.flags for one in fold([checked], ALONE).rows()] == [0]
    with pytest.raises(UnsupportedEvent):
        fold([checked, unchecked], ALONE)


def test_a_table_may_come_with_other_flags() -> None:
    """A source marks table maps of rows that refer to parents; that is no other definition."""
    events = [event(RowsKind.WRITE, [(1, 1)], make_table(flags=3)), event(RowsKind.DELETE, [(1, 1)])]
    assert list(fold(events, ALONE).rows()) == []


def test_a_source_may_begin_to_name_columns_within_a_run() -> None:
    """binlog_row_metadata may change while a source runs: a row is followed past that, and names that differ end it."""
    named = replace(TABLE, tail=b"names", names=("id", "value"), primary_key=(0,), collation_ids=(None, None))
    renamed = replace(named, tail=b"others", names=("value", "id"))
    for first, second in ((TABLE, named), (named, TABLE)):
        events = [event(RowsKind.WRITE, [(1, 1)], first), event(RowsKind.DELETE, [(1, 1)], second)]
        assert list(fold(events, ALONE).rows()) == []
    with pytest.raises(UnsupportedEvent):
        fold([event(RowsKind.WRITE, [(1, 1)], named), event(RowsKind.DELETE, [(1, 1)], renamed)], ALONE)


def test_parents_come_first_and_go_last() -> None:
    """Across tables deletes begin with children and inserts with parents, whatever order the rows came in."""
    child, parent = make_table("child"), make_table("parent")
    events = [
        event(RowsKind.WRITE, [(1, 1)], child),
        event(RowsKind.WRITE, [(1, 1)], parent),
        event(RowsKind.DELETE, [(2, 2)], parent),
        event(RowsKind.DELETE, [(2, 2)], child),
    ]
    effect = fold(events, Rules(child=1))
    assert [one.shape.table.table for one in effect.deletes] == ["child", "parent"]
    assert [one.shape.table.table for one in effect.inserts] == ["parent", "child"]
