"""How far a joint commit reaches into each offer."""

from __future__ import annotations

from vmerge.core.events import Transaction
from vmerge.core.joint import Offer, candidates
from vmerge.core.position import Gtid, GtidSet


def offer(stream: str, *times: int) -> Offer:
    """Return a stream's offer of transactions that were committed at these times."""
    source = stream.encode() * 16
    run = tuple(Transaction(Gtid(source, "", number), at, (), 1) for number, at in enumerate(times, 1))
    return Offer(stream, 0, 0.0, 0.0, GtidSet(), run, None, None)


def lengths(*offers: Offer) -> list[dict[str, int]]:
    """Return the candidates as lengths by stream."""
    return [{part.stream: part.stretch.count for part in parts} for parts in candidates(offers)]


def test_runs_are_cut_at_the_last_instant_that_all_know() -> None:
    """Nothing of any run lies behind the earliest end of them; whole runs are the last choice."""
    assert lengths(offer("a", 10, 20, 50), offer("b", 15, 30)) == [{"a": 2, "b": 2}, {"a": 3, "b": 2}]


def test_a_run_that_begins_later_takes_no_part_in_the_cut() -> None:
    """With only one run before an instant there is nothing to join at it."""
    assert lengths(offer("a", 10), offer("b", 15, 30)) == [{"a": 1, "b": 2}]
    assert lengths(offer("a", 10), offer("b", 15), offer("c", 5, 30)) == [
        {"a": 1, "c": 1},
        {"a": 1, "b": 1, "c": 1},
        {"a": 1, "b": 1, "c": 2},
    ]


def test_runs_are_cut_at_each_end() -> None:
    """Two streams that fit at an instant do so also beside a third one whose run ends long before."""
    runs = offer("a", 10, 20, 70), offer("b", 15, 30, 60), offer("c", 11, 12)
    assert lengths(*runs) == [{"a": 1, "c": 2}, {"a": 2, "b": 3, "c": 2}, {"a": 3, "b": 3, "c": 2}]


def test_equal_candidates_are_tried_once() -> None:
    """When all runs end at one instant the cut is the whole."""
    assert lengths(offer("a", 10, 20), offer("b", 15, 20)) == [{"a": 2, "b": 2}]


def test_a_part_knows_its_position() -> None:
    """The member's position behind the part is what was offered and the part's transactions."""
    first, _ = next(candidates([offer("a", 10, 20), offer("b", 20, 30)]))
    assert first.position == GtidSet().advanced([one.gtid for one in first.run])
    assert first.stretch.committed_at_microseconds == 20
