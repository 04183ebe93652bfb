"""Where a stream stops: what is behind it, and what can never come there."""

from __future__ import annotations

import pytest

from vmerge.core.events import Heartbeat, SchemaChange, SourceItem, Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stop_position import SourcePast, StopPosition

OWN, OTHER, FOREIGN = (f"{digit * 8}-1111-1111-1111-111111111111" for digit in "abc")
PAST = SourcePast(
    bytes.fromhex(OWN.replace("-", "")), GtidSet.parse(f"{OWN}:1-20,{OTHER}:1-5"), GtidSet.parse(f"{OWN}:1-4")
)


def transaction(number: int, prepared: int | None = None) -> Transaction:
    """Return a transaction of the source, which may end an XA transaction."""
    earlier = None if prepared is None else Gtid.parse(f"{OWN}:{prepared}")
    return Transaction(Gtid.parse(f"{OWN}:{number}"), 0, (), 0, earlier)


def numbers(items: list[SourceItem]) -> list[int]:
    """Return the transactions' numbers."""
    return [item.gtid.number for item in items if not isinstance(item, Heartbeat)]


@pytest.mark.parametrize(
    ("wanted", "position", "says"),
    [
        (f"{OWN}:1-10", f"{OWN}:1-12", "has applied all of that already"),
        (f"{OWN}:10", f"{OWN}:1-10", "has applied all of that already"),
        (f"{OWN}:1-10", f"{OWN}:3-9", "has purged transactions of that"),
        (f"{OWN}:1-10,{FOREIGN}:1", f"{OWN}:1-9", FOREIGN),
    ],
)
def test_obstacles(wanted: str, position: str, says: str) -> None:
    """A position that is passed, purged or another server's is told, with what is in the way."""
    assert says in StopPosition(GtidSet.parse(wanted)).obstacle(GtidSet.parse(position), PAST)


@pytest.mark.parametrize(
    ("wanted", "position"),
    [
        (f"{OWN}:1-10", f"{OWN}:1-9"),
        (f"{OWN}:1-10", f"{OWN}:1-10"),  # just there
        (f"{OWN}:1-99", f"{OWN}:1-20"),  # its future
        (f"{OTHER}:1-9", f"{OWN}:1-20,{OTHER}:1-5"),  # it has had some of those
        (f"{OWN}:tag:1", f"{OWN}:1-20"),
    ],
)
def test_no_obstacle(wanted: str, position: str) -> None:
    """What the source has, or may still commit, can be stopped at."""
    assert StopPosition(GtidSet.parse(wanted)).obstacle(GtidSet.parse(position), PAST) == ""


def test_nothing_behind_the_last_of_the_set_is_kept() -> None:
    """The set's last transaction in the source's order is the last that is kept, whatever came in between."""
    stop = StopPosition(GtidSet.parse(f"{OWN}:1-3:7"))
    items: list[SourceItem] = [
        transaction(1),
        transaction(3),
        transaction(5),
        Heartbeat(),
        transaction(2),
        transaction(7),
    ]
    kept, missing = stop.cut([*items, transaction(4)], stop.missing(GtidSet()))
    assert (numbers(kept), missing) == ([1, 3, 5, 2, 7], 0)
    assert stop.cut([transaction(8)], missing) == ([], 0)


def test_both_halves_of_an_xa_transaction_count() -> None:
    """The first half is done with the second one, and both may be of the set; a schema change counts as well."""
    stop = StopPosition(GtidSet.parse(f"{OWN}:1-3"))
    items: list[SourceItem] = [
        SchemaChange(Gtid.parse(f"{OWN}:2"), 0, "d", "ALTER"),
        transaction(3, prepared=1),
        transaction(4),
    ]
    kept, missing = stop.cut(items, stop.missing(GtidSet()))
    assert (numbers(kept), missing) == ([2, 3], 0)
