"""Orders to streams by a real supervisor and real players: stop at a position, skip, and what words they may have."""

from __future__ import annotations

import pytest
from tests.unit.hosting.test_supervisor import UUID, Stage, position, stage

from vmerge.core.position import Gtid, GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.errors import ConfigError, CorruptEvent, Fenced, OrderRefused, TargetLost, VmergeError
from vmerge.hosting.hosted import NOWHERE
from vmerge.hosting.stream_orders import StreamOrders

__all__ = ["stage"]

FUTURE = position(9)


@pytest.fixture
def orders(stage: Stage) -> StreamOrders:
    """Orders to the stage's stream, which runs at its first transaction."""
    stage.supervisor.start()
    stage.assembly.next_parts()
    stage.wait_for(phase=Phase.STREAMING)
    return StreamOrders(stage.supervisor)


def stops_at(stage: Stage) -> tuple[GtidSet, GtidSet]:
    """Return where stream ``a`` shall stop: as stored, as shown."""
    return stage.assembly.stored["a"].stops_at, stage.supervisor.board.progress("a").stops_at


def test_a_stop_position_is_stored_before_the_order_is_answered(stage: Stage, orders: StreamOrders) -> None:
    """The stream begins anew with its stop position, which outlives this process and its players."""
    assert orders.stop(["a"], str(FUTURE)) == ("a",)
    assert stage.assembly.stored["a"].stops_at == FUTURE
    parts = stage.assembly.next_parts()
    stage.wait_for(phase=Phase.STREAMING, stops_at=FUTURE)
    parts.source.words.put(TargetLost("gone"))
    stage.assembly.next_parts()
    stage.wait_for(phase=Phase.STREAMING)
    assert stops_at(stage) == (FUTURE, FUTURE)


def test_a_stream_that_is_just_there_stops(stage: Stage, orders: StreamOrders) -> None:
    """A stream that stands at its stop position is stopped durably, says why, and the order is done with."""
    orders.stop(["a"], str(position(1)))
    stage.wait_for(state=StreamState.STOPPED, phase=Phase.IDLE)
    stored = stage.assembly.stored["a"]
    assert (stored.state, stored.stops_at) == (StreamState.STOPPED, NOWHERE)
    assert stored.message == f"stopped as ordered, with all of {UUID}:1 applied and nothing behind it"
    assert stops_at(stage) == (NOWHERE, NOWHERE)


def test_start_and_stop_forget_it_and_restart_keeps_it(stage: Stage, orders: StreamOrders) -> None:
    """``start`` lets a running stream go on beyond its stop position, ``stop`` ends it; ``restart`` changes nothing."""
    orders.stop(["a"], str(FUTURE))
    stage.supervisor.restart()
    stage.wait_for(phase=Phase.STREAMING, stops_at=FUTURE)
    assert orders.start(["a"], None, None) == ("a",)
    stage.wait_for(phase=Phase.STREAMING, stops_at=NOWHERE)
    assert stage.assembly.stored["a"].stops_at == NOWHERE
    assert orders.start(["a"], None, None) == ()
    assert orders.start(["a"], None, str(FUTURE)) == ("a",)
    stage.wait_for(phase=Phase.STREAMING, stops_at=FUTURE)
    orders.stop(None, None)
    assert stops_at(stage) == (NOWHERE, NOWHERE)
    with pytest.raises(OrderRefused, match="stream a does not run"):
        orders.stop(["a"], str(FUTURE))


def test_an_order_that_does_not_fit_changes_nothing(stage: Stage, orders: StreamOrders) -> None:
    """A position that cannot be reached interrupts nothing; one that is found passed afterwards lets it go on."""
    thread = stage.threads

    def refuse(stops_at: GtidSet) -> None:
        raise OrderRefused("passed")

    stage.assembly.on_reach = refuse
    with pytest.raises(OrderRefused, match="passed"):
        orders.stop(["a"], str(FUTURE))
    assert stage.threads == thread

    def refuse_the_next(stops_at: GtidSet) -> None:
        stage.assembly.on_reach = refuse

    stage.assembly.on_reach = refuse_the_next
    with pytest.raises(OrderRefused, match="passed"):
        orders.stop(["a"], str(FUTURE))
    stage.wait_for(phase=Phase.STREAMING, state=StreamState.RUNNING)
    assert stops_at(stage) == (NOWHERE, NOWHERE)


def test_an_order_to_a_stream_that_was_taken_over(stage: Stage, orders: StreamOrders) -> None:
    """A stream that another daemon has is not taken back by an order to stop somewhere, and not skipped in."""

    def take_over(stream: str, state: StreamState) -> None:
        raise Fenced("taken over")

    stage.assembly.on_write = take_over
    with pytest.raises(Fenced):
        orders.stop(["a"], str(FUTURE))
    stage.wait_for(state=StreamState.ERROR, message="taken over — " + Fenced.default_hint)
    assert not stage.threads


def test_skip_needs_a_stream_that_stands_still(stage: Stage, orders: StreamOrders) -> None:
    """A running stream is not skipped in; in a failed one the checkpoint moves, and it stays failed."""
    with pytest.raises(OrderRefused, match="stream a runs"):
        orders.skip("a", f"{UUID}:2", "broken by hand")
    parts = stage.supervisor._hosted["a"].parts
    assert parts is not None
    parts.source.words.put(CorruptEvent("broken", hint=""))  # type: ignore[attr-defined]  # it is a FakeSource
    stage.wait_for(state=StreamState.ERROR)
    assert orders.skip("a", f"{UUID}:2", "broken\n by  hand")[0] == Gtid.parse(f"{UUID}:2")
    assert stage.assembly.calls[-1] == f"skip {UUID}:2: broken by hand"
    stage.wait_for(state=StreamState.ERROR, message="broken", applied=GtidSet.parse(f"{UUID}:2"))


@pytest.mark.parametrize("reason", ["", "  \n", "x" * 1001])
def test_skip_needs_a_reason(stage: Stage, orders: StreamOrders, reason: str) -> None:
    """A reason that is empty or endless is refused."""
    with pytest.raises(ConfigError, match="a skip needs a reason"):
        orders.skip("a", f"{UUID}:2", reason)


@pytest.mark.parametrize(
    ("streams", "at", "says"),
    [
        (None, str(FUTURE), "one stream's"),
        (["a", "b"], str(FUTURE), "one stream's"),
        (["a"], "nonsense", "'nonsense' is not a uuid"),
        (["a"], " ", "is empty"),
    ],
)
def test_words_that_are_no_position(
    stage: Stage, orders: StreamOrders, streams: list[str] | None, at: str, says: str
) -> None:
    """What is no position, or nobody's, is told before anything is done."""
    with pytest.raises(VmergeError, match=says):
        orders.stop(streams, at)
    with pytest.raises(VmergeError, match=says):
        orders.start(streams, None, at)
    assert len(stage.threads) == 1
