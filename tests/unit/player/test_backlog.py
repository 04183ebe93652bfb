"""A backlog and the stop position: whatever way transactions are taken, none behind it comes out."""

from __future__ import annotations

import pytest
from tests.sim.ends import Fault, SimSource
from tests.sim.world import gtid_of, prefix_of, transaction_of

from vmerge.core.position import GtidSet
from vmerge.core.stop_position import StopPosition
from vmerge.player.backlog import Backlog, Reach

ALL = 12


def backlog_of(chunk: int, stop: int, kept: int) -> tuple[Backlog, SimSource]:
    """Return a backlog that begins behind nothing, stops behind so many transactions and keeps so many."""
    source = SimSource([transaction_of(0, number, ()) for number in range(1, ALL + 1)], chunk)
    backlog = Backlog(source, Reach(transactions=kept), lambda change: True, StopPosition(prefix_of(0, stop)))
    backlog.open(GtidSet())
    return backlog, source


def read_on_to_the_end(backlog: Backlog, kept: int) -> list[int]:
    """Return the numbers of all that is read on behind so many transactions."""
    numbers: list[int] = []
    for _ in range(2 * ALL):
        reached = prefix_of(0, kept + len(numbers))
        numbers += [one.gtid.number for one in backlog.read_on(reached)]
    return numbers


@pytest.mark.parametrize("chunk", [1, 5, 100])
@pytest.mark.parametrize("stop", [1, 2, 3, 7])
@pytest.mark.parametrize("kept", [2, 100])
def test_nothing_behind_the_stop_is_kept_or_read_on(chunk: int, stop: int, kept: int) -> None:
    """Looking ahead and reading on both end with the last transaction of the stop position, each time anew."""
    backlog, source = backlog_of(chunk, stop, kept)
    ahead = [one.gtid.number for one in backlog.look_ahead(ALL, GtidSet())]
    assert ahead == list(range(1, min(stop, kept) + 1))
    assert ahead + read_on_to_the_end(backlog, len(ahead)) == list(range(1, stop + 1))
    reads = source.reads
    assert backlog.read_on(prefix_of(0, stop)) == []
    assert source.reads == reads, "the source is not read past what is wanted"


def test_a_source_that_is_lost_begins_anew_in_front_of_the_stop() -> None:
    """What is missing up to the stop position is counted anew wherever the source is opened again."""
    backlog, source = backlog_of(chunk=2, stop=7, kept=100)
    backlog.read(GtidSet())
    source.fault = Fault.SOURCE
    assert len(backlog.look_ahead(ALL, GtidSet())) == 2
    assert [one.gtid.number for one in backlog.look_ahead(ALL, GtidSet())] == list(range(1, 8))
    backlog.open(prefix_of(0, 5))
    assert [one.gtid for one in backlog.look_ahead(ALL, prefix_of(0, 5))] == [gtid_of(0, 6), gtid_of(0, 7)]
