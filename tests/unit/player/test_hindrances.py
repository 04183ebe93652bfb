"""Why streams that are waited for at a schema change do not come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmerge.core.barrier import Hindrance
from vmerge.core.blocked import Blocked
from vmerge.core.evidence import Held, Presence
from vmerge.core.states import Phase, StreamState
from vmerge.core.verdict import Finding, Permanent, Proof, Transient, Unproven
from vmerge.player.board import BarrierWait, StreamProgress
from vmerge.player.hindrances import hindrances

HELD = Held(("shop", "t"), "by_uid", ("uid",), ("25",), "id=2", "id=1", Presence.ALIVE, {"A": Presence.CHANGED})
RUNNING = StreamProgress("B", state=StreamState.RUNNING, phase=Phase.STREAMING)
WAITING = BarrierWait(0.0, "u:1", "ALTER TABLE t ADD x INT", ("B",))
A = replace(RUNNING, name="A", phase=Phase.AT_BARRIER, barrier=WAITING)


def found(*others: StreamProgress) -> list[tuple[str, Hindrance, str]]:
    """Return what A finds out about B."""
    streams = {one.name: one for one in (A, *others)}
    return [(one.stream, one.hindrance, one.reason) for one in hindrances("A", ["B"], streams)]


def blocked(finding: Finding | None, unfree: tuple[str, ...] = ("A",)) -> StreamProgress:
    return replace(RUNNING, phase=Phase.WAITING, blocked=Blocked(0.0, 3, "v:1", "t.by_uid", unfree, finding))


@pytest.mark.parametrize(
    ("progress", "hindrance", "reason"),
    [
        (StreamProgress("B", message="stopped by an operator"), Hindrance.STOPPED, "stopped by an operator"),
        (StreamProgress("B", state=StreamState.ERROR, message="two\n  lines"), Hindrance.FAILED, "two lines"),
        (replace(RUNNING, phase=Phase.BACKING_OFF, message="no server"), Hindrance.AWAY, "backing off: no server"),
        (replace(A, name="B", barrier=replace(WAITING, awaited=())), Hindrance.AT_CHANGE, WAITING.statement),
        (blocked(Transient(HELD, ("A",))), Hindrance.HELD_UP, "t.by_uid"),
    ],
    ids=lambda value: value.name if isinstance(value, Hindrance) else "",
)
def test_what_keeps_a_stream_is_told(progress: StreamProgress, hindrance: Hindrance, reason: str) -> None:
    """Each state or wait that does not end by itself has its name and its reason, in one line."""
    assert found(progress) == [("B", hindrance, reason)]


@pytest.mark.parametrize(
    "progress",
    [
        RUNNING,
        replace(RUNNING, phase=Phase.CONNECTING),
        blocked(None),
        blocked(Unproven("a source is silent")),
        blocked(Permanent(Proof.DUPLICATE, HELD, "A")),
        blocked(Transient(None, ())),
        blocked(Transient(HELD, ("A", "B"))),
        blocked(Transient(HELD, ("A", "C"))),
        blocked(Transient(HELD, ("A",)), unfree=()),
    ],
    ids=["runs", "connects", "no word yet", "unproven", "duplicate", "free", "itself", "another", "not tried since"],
)
def test_nothing_is_told_that_may_end_by_itself(progress: StreamProgress) -> None:
    """A wait that evidence, a jump, another stream or the next attempt may end is no ring of change and key."""
    assert found(progress, replace(RUNNING, name="C")) == []


def test_several_that_wait_at_the_change_are_one_ring() -> None:
    """Whoever could release the key waits for the one that wants it."""
    assert found(blocked(Transient(HELD, ("A", "C")), unfree=("A", "C")), replace(A, name="C")) == [
        ("B", Hindrance.HELD_UP, "t.by_uid")
    ]
