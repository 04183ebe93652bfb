"""A run and its diversion come to the same rows, those in quarantine aside, for every legal history of rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.unit.core.table_rules import Rules
from tests.unit.core.test_fold import Rows, histories, image, make_table, run
from tests.unit.core.test_fold import event as rows_event

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap, Transaction
from vmerge.core.fold import fold
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.quarantine import (
    Diversion,
    Entry,
    EntryState,
    Grounds,
    Quarantine,
    RowName,
    names_in,
    read_key,
    visible,
    write_key,
)
from vmerge.core.rowimage import whole_rows
from vmerge.errors import UnsupportedEvent

TABLE = ("merged", "t")
GROUNDS = Grounds("by_email", "id=1", "id=2", "b", "a duplicate")


class TargetRules(Rules):
    """Every table goes to one database."""

    def target_name(self, table_map: TableMap) -> tuple[str, str]:
        return "merged", table_map.table


RULES = TargetRules()


def gtid(number: int) -> Gtid:
    return Gtid(b"\1" * 16, "", number)


def transactions(events: list[RowsEvent]) -> list[Transaction]:
    return [Transaction(gtid(number), 0, [one], len(one.images)) for number, one in enumerate(events, 1)]


def name(key: int) -> RowName:
    return TABLE, (key.to_bytes(4, "little"),)


def entry(key: int, value: int, id: int = 1, state: EntryState = EntryState.PARKED) -> tuple[RowName, Entry]:
    table = make_table()
    return name(key), Entry(id, state, GROUNDS, table, 0, image(key, value), gtid(0))


def values(entries: dict[RowName, Entry]) -> Rows:
    """Return key and value of each entry; its name must be that of its image."""
    found = {}
    for (table, (key,)), one in entries.items():
        assert (table, key) == (TABLE, one.image[1:5])
        found[int.from_bytes(key, "little")] = int.from_bytes(one.image[5:], "little")
    return found


@st.composite
def quarantines(draw: st.DrawFn) -> tuple[Rows, list[RowsEvent], Quarantine]:
    """A shard's rows, what happens to them, and some of them in quarantine or marked."""
    start, events = draw(histories())
    parked = draw(st.sets(st.sampled_from(sorted(start)))) if start else set()
    states = st.sampled_from(EntryState)
    entries = dict(entry(key, start[key], key + 10, draw(states)) for key in parked)
    marks = dict.fromkeys(map(name, draw(st.sets(st.integers(0, 5), max_size=2))), GROUNDS)
    return start, events, Quarantine(entries, marks, gtid(99) if marks else None)


@given(quarantines())
def test_target_and_quarantine_together_are_the_shard(case: tuple[Rows, list[RowsEvent], Quarantine]) -> None:
    """At the end every row is either on the target or in quarantine, as the shard has it; never on both or none."""
    start, events, quarantine = case
    parked = values(dict(quarantine.entries))
    diversion = Diversion(quarantine, RULES)
    passed = list(diversion.rows(transactions(events)))
    # ``run`` is strict: it deletes and updates only what is on the target, exactly as it stands there.
    target = run({key: value for key, value in start.items() if key not in parked}, passed)
    kept = values(diversion.entries)
    assert not target.keys() & kept.keys()
    assert {**target, **kept} == run(start, events)
    event("diverted" if diversion.has_diverted else "passed")


@given(quarantines())
def test_the_difference_leads_from_the_stored_entries_to_the_new_ones(
    case: tuple[Rows, list[RowsEvent], Quarantine],
) -> None:
    """What is stored by number, and changed as the difference says, is what the diversion ends with."""
    _, events, quarantine = case
    diversion = Diversion(quarantine, RULES)
    list(diversion.rows(transactions(events)))
    difference = diversion.difference()
    stored = {one.id: (key, one.image, one.state) for key, one in quarantine.entries.items()}
    for key, one in difference.ended:
        assert stored.pop(one.id)[:2] == (key, one.image)
    for key, one, state in difference.changed:
        assert stored[one.id][2] is state
        stored[one.id] = (key, one.image, one.state)
    news = [(key, one.image, one.state) for key, one in difference.added]
    assert all(one.id is None for _, one in difference.added)
    ends = [(key, one.image, one.state) for key, one in diversion.entries.items()]
    assert sorted([*stored.values(), *news], key=str) == sorted(ends, key=str)
    assert difference.is_empty or diversion.has_diverted


@given(quarantines())
def test_a_run_may_be_folded_behind_its_diversion(case: tuple[Rows, list[RowsEvent], Quarantine]) -> None:
    """The net effect of what is for the target equals it: quarantined rows do not disturb a jump."""
    start, events, quarantine = case
    target = {key: value for key, value in start.items() if name(key) not in quarantine.entries}
    seen = visible(transactions(events), quarantine, RULES)
    passed = [row for one in seen for row in one.rows]
    again = [row for one in seen for row in one.rows]
    assert [one.images for one in again] == [one.images for one in passed]
    assert run(target, list(fold(passed, RULES).rows())) == run(target, passed)


@given(quarantines())
def test_a_row_given_up_stays_so_until_it_ends(case: tuple[Rows, list[RowsEvent], Quarantine]) -> None:
    """A dropped row comes back only as a row that was inserted anew."""
    _, events, quarantine = case
    gone = set()
    for one in events:
        if one.shape.kind is RowsKind.DELETE:
            gone.add(int.from_bytes(one.images[1:5], "little"))
    diversion = Diversion(quarantine, RULES)
    list(diversion.rows(transactions(events)))
    dropped = {one.id for one in quarantine.entries.values() if one.state is EntryState.DROPPED}
    if not gone:
        assert dropped == {one.id for one in diversion.entries.values() if one.state is EntryState.DROPPED}


def test_untouched_tables_pass_uncut() -> None:
    """Events of tables without entries are the same objects, whatever their images hold."""
    strange = RowsEvent(RowsShape(make_table("other"), RowsKind.PARTIAL_UPDATE, 0, b""), b"no image at all")
    diversion = Diversion(Quarantine(dict([entry(1, 1)])), RULES)
    assert next(diversion.rows(transactions([strange]))) is strange
    assert not diversion.has_diverted


def test_neighbours_in_one_event_pass() -> None:
    """Rows of other keys in an event go to the target in their order, around the old version of a marked row."""
    updates = rows_event(RowsKind.UPDATE, [(1, 1), (1, 5), (2, 2), (2, 9), (3, 3), (3, 2)])
    diversion = Diversion(Quarantine().marked([name(2)], GROUNDS, gtid(1)), RULES)
    passed = [(one.shape.kind, one.images) for one in diversion.rows(transactions([updates]))]
    assert passed == [
        (RowsKind.UPDATE, image(1, 1) + image(1, 5)),
        (RowsKind.DELETE, image(2, 2)),
        (RowsKind.UPDATE, image(3, 3) + image(3, 2)),
    ]
    assert values(diversion.entries) == {2: 9}


def test_a_row_that_ends_and_comes_again_in_one_run_stays_one_entry() -> None:
    """Delete and insert of a quarantined row, as REPLACE writes them, keep its number; a later run knows nothing."""
    run_of_two = [rows_event(RowsKind.DELETE, [(1, 1)]), rows_event(RowsKind.WRITE, [(1, 7)])]
    diversion = Diversion(Quarantine(dict([entry(1, 1, id=4, state=EntryState.DROPPED)])), RULES)
    assert list(diversion.rows(transactions(run_of_two))) == []
    ((kept_name, kept, before),) = diversion.difference().changed
    assert before is EntryState.DROPPED
    assert (kept_name, kept.id, kept.state, kept.image) == (name(1), 4, EntryState.PARKED, image(1, 7))


def test_partial_images_of_a_watched_table_are_refused() -> None:
    """What cannot be followed stops the stream instead of passing a quarantined row's change on."""
    partial = RowsEvent(RowsShape(make_table(), RowsKind.PARTIAL_UPDATE, 0, b""), b"")
    with pytest.raises(UnsupportedEvent):
        list(Diversion(Quarantine(dict([entry(1, 1)])), RULES).rows(transactions([partial])))


def test_an_altered_primary_key_is_refused() -> None:
    """Bytes of a key of another type name other rows, so the stream stops."""
    longer = replace(make_table(tail=b"altered"), types=b"\x08\x03")
    write = RowsEvent(RowsShape(longer, RowsKind.WRITE, 0, b""), b"\0" * 13)
    with pytest.raises(UnsupportedEvent):
        list(Diversion(Quarantine(dict([entry(1, 1)])), RULES).rows(transactions([write])))


def test_marks_last_until_their_run_is_through() -> None:
    """A commit before the end of the run keeps the marks, the one that reaches it takes them away."""
    quarantine = Quarantine().marked([name(1)], GROUNDS, gtid(3))
    before = quarantine.at(GtidSet().advanced([gtid(1), gtid(2)]), {})
    assert before.marks == quarantine.marks
    assert before.at(GtidSet().advanced([gtid(1), gtid(2), gtid(3)]), {}).is_empty


@given(st.lists(st.binary(max_size=300), max_size=3).map(tuple))
def test_a_key_is_read_as_it_was_written(key: tuple[bytes, ...]) -> None:
    """Parts of any length and content come back."""
    assert read_key(write_key(key)) == key


def test_names_follow_a_row_through_its_keys() -> None:
    """All keys that updates connect are one row's, whichever was first; others are not."""
    events = [
        rows_event(RowsKind.UPDATE, [(1, 1), (2, 1)]),
        rows_event(RowsKind.UPDATE, [(2, 1), (3, 1)]),
        rows_event(RowsKind.UPDATE, [(4, 1), (4, 2)]),
        rows_event(RowsKind.WRITE, [(5, 1)]),
    ]
    for key in (1, 2, 3):
        assert names_in(transactions(events), name(key), RULES) == {name(1), name(2), name(3)}
    assert names_in(transactions(events), name(4), RULES) == {name(4)}


def named(*names: str) -> TableMap:
    return replace(make_table(tail="".join(names).encode()), names=names)


@pytest.mark.parametrize(
    ("then", "now", "key"), [(("id", "v"), ("v", "id"), (1,)), (("old_id", "v"), ("id", "v"), (0,))]
)
def test_a_primary_key_that_has_moved_or_is_renamed_is_followed(
    then: tuple[str, ...], now: tuple[str, ...], key: tuple[int, ...]
) -> None:
    """A row in quarantine is found by its key, wherever the key's column stands by now, and under any name."""
    before = {name(1): replace(entry(1, 9)[1], table=named(*then))}
    ours = image(7, 1) if key == (1,) else image(1, 7)
    delete = RowsEvent(whole_rows(named(*now), RowsKind.DELETE, 0), ours)
    diversion = Diversion(Quarantine(before), TargetRules(key))
    assert list(diversion.rows(transactions([delete]))) == []
    assert diversion.entries == {}


def test_a_primary_key_whose_columns_changed_places_is_refused() -> None:
    """Keys of two columns of one type would be compared crosswise, and the row not be found."""
    before = {name(1): replace(entry(1, 9)[1], table=named("a", "b"))}
    delete = RowsEvent(whole_rows(named("b", "a"), RowsKind.DELETE, 0), image(1, 7))
    with pytest.raises(UnsupportedEvent, match="altered"):
        list(Diversion(Quarantine(before), TargetRules((0, 1))).rows(transactions([delete])))
