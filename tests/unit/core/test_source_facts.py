"""How old a target is, and how soon its source purges what is still needed."""

from __future__ import annotations

import pytest

from vmerge.core.position import GtidSet
from vmerge.core.source_facts import PurgeAlarm, PurgeUnknown, SourceFacts, as_of, head_of, purge_in

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HOUR = 3600.0


def gtids(first: int, last: int) -> GtidSet:
    """Return a GTID set."""
    return GtidSet.parse(f"{UUID}:{first}-{last}")


def facts(ahead: float = 0.0, kept: float | None = 10 * HOUR, purged: GtidSet | None = None) -> SourceFacts:
    """Return what a source says that has executed ten transactions."""
    return SourceFacts(1000.0, gtids(1, 10), purged or GtidSet(), ahead, kept)


@pytest.mark.parametrize(
    ("heard_at", "applied_at", "moved_at", "ahead", "expected"),
    [
        (None, None, None, 0.0, None),
        (100.0, None, None, 0.0, 100.0),
        (100.0, 50.0, 60.0, 0.0, 100.0),
        (100.0, 150.0, 151.0, 0.0, 150.0),
        (None, 500.0, 151.0, 0.0, 151.0),
        (None, 650.0, 151.0, 500.0, 150.0),
        (None, 50.0, 151.0, -100.0, 150.0),
        (None, 50.0, None, -100.0, 150.0),
    ],
    ids=[
        "nothing known",
        "a heartbeat",
        "the heartbeat is newer",
        "the transaction is newer",
        "no transaction is newer than its arrival",
        "the source's clock is ahead",
        "the source's clock is slow",
        "applied by an earlier daemon",
    ],
)
def test_newest_sign(
    heard_at: float | None, applied_at: float | None, moved_at: float | None, ahead: float, expected: float | None
) -> None:
    """The target is as of the newest heartbeat or transaction, by one clock."""
    assert as_of(heard_at, applied_at, moved_at, facts(ahead)) == expected


def test_commit_times_are_believed_until_the_source_was_asked() -> None:
    """Without the difference of the clocks a commit time counts as it is."""
    assert as_of(None, 50.0, 151.0, None) == 50.0


@pytest.mark.parametrize(
    ("applied", "is_at_head", "known", "head"),
    [
        (gtids(1, 4), False, None, None),
        (gtids(1, 4), True, None, gtids(1, 4)),
        (gtids(1, 4), False, facts(), gtids(1, 10)),
        (gtids(1, 12), False, facts(), gtids(1, 12)),
    ],
    ids=["not asked", "at the head", "behind", "the source was asked long ago"],
)
def test_head(applied: GtidSet, is_at_head: bool, known: SourceFacts | None, head: GtidSet | None) -> None:
    """The head is what the source said and what has come since; never less than what is applied."""
    assert head_of(applied, is_at_head, known) == head


@pytest.mark.parametrize(
    ("applied", "age", "known", "seconds"),
    [
        (gtids(1, 4), 100.0, None, PurgeUnknown.NOT_ASKED),
        (gtids(1, 4), 100.0, facts(kept=None), PurgeUnknown.NOT_BY_ITSELF),
        (gtids(1, 4), None, facts(), PurgeUnknown.NOTHING_APPLIED),
        (GtidSet(), None, facts(purged=gtids(1, 5)), PurgeUnknown.NOTHING_APPLIED),
        (gtids(1, 4), HOUR, facts(), 9 * HOUR),
        (gtids(1, 4), 11 * HOUR, facts(), 0.0),
        (gtids(1, 4), 1.0, facts(purged=gtids(1, 5)), 0.0),
        (gtids(1, 4), 1.0, facts(kept=None, purged=gtids(1, 5)), 0.0),
        (gtids(1, 5), 1.0, facts(purged=gtids(1, 5)), 10 * HOUR - 1),
    ],
)
def test_time_until_the_purge(
    applied: GtidSet, age: float | None, known: SourceFacts | None, seconds: float | PurgeUnknown
) -> None:
    """What is needed is kept for a time after the newest sign; it is gone if it is purged; or that is not known."""
    assert purge_in(applied, age, known) == seconds


def test_the_alarm_rings_once_each_time() -> None:
    """It rings below an hour, not again while the time left goes up and down about it, and again after a recovery."""
    alarm = PurgeAlarm()
    left = [5.0, 0.9, 0.8, 1.2, 0.9, 0.0, 2.0, 1.1, 0.9]
    assert [hours for hours in left if alarm.rings(hours * HOUR, 10 * HOUR)] == [0.9, 0.9]


def test_a_source_that_keeps_little_is_not_warned_of_at_the_head() -> None:
    """Where an hour is all that is kept, half of it must be used up."""
    alarm = PurgeAlarm()
    assert [seconds for seconds in (3600.0, 1801.0, 1799.0) if alarm.rings(seconds, HOUR)] == [1799.0]
