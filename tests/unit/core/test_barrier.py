"""Who may pass a schema change together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmerge.core.barrier import Arrival, Crossed, Hindered, Hindrance, Missing, Together, meeting
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.target_statement import TargetStatement

ALL = frozenset("ABC")


def arrival(stream: str, change: str = "add", carriers: frozenset[str] = ALL, sql_mode: int = 0) -> Arrival:
    statement = TargetStatement(("shop", "t"), (change,), change, is_create=False)
    gtid = Gtid(b"\1" * 16, "", ord(stream))
    return Arrival(stream, gtid, 0, statement, (("sql_mode", sql_mode),), carriers, GtidSet(), None)


def met(own: str, *arrivals: Arrival) -> Together | Missing | Crossed:
    found = {one.stream: one for one in arrivals}
    return meeting(found[own], found)


def test_all_that_fill_the_table_go_together_in_the_order_of_names() -> None:
    """The first of the names leads, whoever came last."""
    together = met("B", arrival("C"), arrival("B"), arrival("A"))
    assert isinstance(together, Together)
    assert [one.stream for one in together.members] == ["A", "B", "C"]


def test_who_has_not_come_is_waited_for() -> None:
    """A stream that waits nowhere may still come."""
    assert met("A", arrival("A"), arrival("B")) == Missing(("C",))


def test_a_stream_of_other_tables_is_not_waited_for() -> None:
    """Only those that fill the table count."""
    two = frozenset("AB")
    assert isinstance(met("A", arrival("A", carriers=two), arrival("B", carriers=two), arrival("C")), Together)


@pytest.mark.parametrize("other", [arrival("B", "drop"), arrival("B", sql_mode=1)])
def test_another_statement_or_mode_is_another_change(other: Arrival) -> None:
    """Streams that wait at different changes of one table wait in vain, and each learns of the other."""
    two = frozenset("AB")
    mine, theirs = arrival("A", carriers=two), replace(other, carriers=two)
    assert met("A", mine, theirs) == Crossed((theirs,))
    assert met("B", mine, theirs) == Crossed((mine,))


def test_a_change_behind_another_one_is_no_dead_end() -> None:
    """B waits elsewhere for C, which is on its way, so A's change may still be met."""
    assert met("A", arrival("A"), arrival("B", "other", frozenset("BC"))) == Missing(("B", "C"))


def test_a_stream_that_has_left_is_waited_for() -> None:
    """Where it stood does not count as having come, but it is no dead end for those at the same change."""
    left = replace(arrival("B"), has_left=True)
    assert met("A", arrival("A"), left, arrival("C")) == Missing(("B",))
    crossed = replace(arrival("B", "drop"), has_left=True)
    assert met("A", arrival("A"), crossed, arrival("C")) == Crossed((crossed,))


@given(st.dictionaries(st.sampled_from("ABC"), st.tuples(st.sampled_from(["add", "drop"]), st.booleans()), min_size=1))
def test_streams_that_go_together_agree(places: dict[str, tuple[str, bool]]) -> None:
    """If one of them goes, all that fill the table stand at the same change and have not left."""
    arrivals = {
        stream: replace(arrival(stream, change), has_left=has_left) for stream, (change, has_left) in places.items()
    }
    for own in (one for one in arrivals.values() if not one.has_left):
        match meeting(own, arrivals):
            case Together(members):
                assert {one.stream for one in members} == ALL
                assert all(one.is_same == own.is_same and not one.has_left for one in members)
            case Missing(streams):
                assert streams
            case Crossed(others):
                assert others
                assert all(one.is_same != own.is_same or one.has_left for one in others)


@pytest.mark.parametrize("hindrance", list(Hindrance))
def test_a_hindrance_is_a_sentence(hindrance: Hindrance) -> None:
    """It begins with the stream and has the reason; what lasts has what to do about it."""
    sentence = Hindered("-80", hindrance, "the reason").sentence()
    assert sentence.startswith("-80 ")
    assert "the reason" in sentence
    assert hindrance.lasts == ("vmerge start -- WORKFLOW -80" in sentence or "docs/schema-changes.md" in sentence)
