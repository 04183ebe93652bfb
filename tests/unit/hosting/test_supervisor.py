"""The supervisor with real players between small fakes of source, target and assembly."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from tests.sim.database import SimDatabase
from tests.sim.ledger import PlainInterpreter, SimLedger

from vmerge.core import evidence
from vmerge.core.blocked import Blocked, Ended, Outcome
from vmerge.core.conflict_terms import Limits
from vmerge.core.events import SourceItem, Transaction
from vmerge.core.fold import Fold
from vmerge.core.joint import Offer, Part
from vmerge.core.log_entry import LogEntry, StoredEntry
from vmerge.core.ownership import Claim
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.quarantine import Grounds, Quarantine, RowName
from vmerge.core.source_facts import SourceFacts
from vmerge.core.states import Phase, StreamState
from vmerge.core.stop_position import StopPosition
from vmerge.errors import (
    CorruptEvent,
    DaemonError,
    Fenced,
    PreflightError,
    ServersUnreachable,
    SourceLost,
    SourceRejected,
    StopTimeout,
    TargetError,
    TargetLost,
    VmergeError,
)
from vmerge.hosting.hosted import NOWHERE, Order
from vmerge.hosting.supervisor import Supervisor
from vmerge.player.board import Board
from vmerge.player.player import Player
from vmerge.stopping import StopToken, SystemClock

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
PATIENCE = 10.0
HOUR = 3600.0


def position(last: int) -> GtidSet:
    """Return a position behind so many transactions."""
    return GtidSet.parse(f"{UUID}:1-{last}")


class FakeSource:
    """Says what it is told to say; an interrupt ends the read that waits."""

    def __init__(self) -> None:
        self.words: queue.SimpleQueue[VmergeError] = queue.SimpleQueue()

    def open(self, position: GtidSet) -> None:
        """Nothing to do."""

    def read(self) -> Sequence[SourceItem]:
        """Raise the next word."""
        raise self.words.get(timeout=PATIENCE)

    def poll(self) -> Sequence[SourceItem]:
        """Nothing has arrived."""
        return ()

    def close(self) -> None:
        """Nothing to do."""


class FakeTarget:
    """Opens at a position, after a gate if there is one."""

    def __init__(self, at: GtidSet, gate: threading.Event | None) -> None:
        self._at = at
        self._gate = gate
        self.is_closed = False

    def open(self) -> GtidSet:
        """Hang until the gate opens."""
        if self._gate is not None:
            self._gate.wait(PATIENCE)
        return self._at

    def apply(self, batch: Sequence[Transaction]) -> None:
        """Nothing comes."""

    def apply_net_effect(self, run: Sequence[Transaction]) -> None:
        """Nothing comes."""

    def begin_fold(self) -> Fold:
        """Nobody asks."""
        raise AssertionError("nobody jumps")

    def apply_effect(self, effect: Fold, first: Transaction) -> None:
        """Nothing comes."""

    quarantine = Quarantine()

    def reload_quarantine(self) -> None:
        """Nothing is in it."""

    def visible(self, run: Sequence[Transaction]) -> Sequence[Transaction]:
        """Nothing is kept off."""
        return run

    def mark(self, run: Sequence[Transaction], name: RowName, grounds: Grounds, until: Gtid) -> None:
        """Nothing comes."""

    def bring_back(self, name: RowName, at_microseconds: int) -> None:
        """Nothing comes."""

    def membership(self) -> object:
        """Nobody asks."""

    def apply_joint(self, parts: Sequence[Part]) -> str | None:
        """Nothing comes."""

    def commit_joint(self, parts: Sequence[Part]) -> None:
        """Nothing comes."""

    def commit(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Nothing comes."""

    def rollback(self) -> None:
        """Nothing is open."""

    def close(self) -> None:
        """Remember."""
        self.is_closed = True


class FakeWitness:
    """Is never asked."""

    def testify(
        self, run: Sequence[Transaction], effect: Fold | None = None, fellows: Sequence[Offer] = ()
    ) -> evidence.Testimony:
        """Nothing comes."""
        raise AssertionError("nobody is blocked")

    def find(self, run: Sequence[Transaction], effect: Fold | None, held: evidence.Held) -> RowName:
        """Nothing comes."""
        raise AssertionError("nobody is blocked")


@dataclass(frozen=True)
class FakeStored:
    """What is stored of a stream."""

    state: StreamState
    message: str = ""
    position: GtidSet = field(default_factory=GtidSet)
    owner: str = ""
    applied_at: float | None = None
    stops_at: GtidSet = NOWHERE


class FakeParts:
    """A player between fakes, whose handles are written down."""

    def __init__(self, stream: str, player: Player, source: FakeSource, target: FakeTarget, calls: list[str]) -> None:
        self.stream = stream
        self.player = player
        self.source = source
        self.target = target
        self._calls = calls

    def interrupt_source(self) -> None:
        """End a read."""
        self._calls.append("interrupt source")
        self.source.words.put(SourceLost("interrupted"))

    def kill_target_query(self) -> None:
        """Only remember."""
        self._calls.append("kill query")

    def interrupt_target(self) -> None:
        """Only remember."""
        self._calls.append("interrupt target")


class FakeAssembly:
    """Keeps states in memory; fails, hangs and builds as a test says."""

    def __init__(self) -> None:
        self.stored: dict[str, FakeStored] = {}
        self.calls: list[str] = []
        self.logged: list[LogEntry] = []
        self.built: queue.SimpleQueue[FakeParts] = queue.SimpleQueue()
        self.on_write: Callable[[str, StreamState], None] = lambda stream, state: None
        self.on_find: Callable[[], None] = lambda: None
        self.on_enter: Callable[[], None] = lambda: None
        self.on_build: Callable[[], None] = lambda: None
        self.on_log: Callable[[], None] = lambda: None
        self.on_reach: Callable[[GtidSet], None] = lambda stops_at: None
        self.on_interrupt: Callable[[], None] = lambda: None
        self.positions: Iterator[int] | None = None
        self.target_gate: threading.Event | None = None
        self._orders = itertools.count(1)

    def for_one_order(self) -> FakeAssembly:
        """See ``Assembly``."""
        return self

    def interrupt(self) -> None:
        """See ``Assembly``."""
        self.on_interrupt()

    def claim(self, stream: str) -> Claim:
        """See ``Assembly``."""
        self.on_find()
        stored = self.stored.get(stream)
        return Claim(stream, f"order {next(self._orders)}", stored.owner if stored is not None else "")

    def find(self, claim: Claim) -> FakeStored | None:
        """See ``Assembly``."""
        self.on_find()
        stored = self.stored.get(claim.stream)
        if stored is not None and not claim.covers(stored.owner):
            raise Fenced(f"{claim.stream} was taken over by another daemon")
        return stored

    def enter(self, claim: Claim) -> None:
        """See ``Assembly``."""
        self.on_enter()
        self.stored[claim.stream] = FakeStored(StreamState.RUNNING)

    def write(self, claim: Claim, state: StreamState, message: str, stops_at: GtidSet | None = None) -> None:
        """See ``Assembly``."""
        self.on_write(claim.stream, state)
        before = self.find(claim) or FakeStored(state)
        after = replace(before, state=state, message=message)
        self.stored[claim.stream] = after if stops_at is None else replace(after, stops_at=stops_at)

    def require_reachable(self, stream: str, stops_at: GtidSet) -> None:
        """See ``Assembly``."""
        self.on_reach(stops_at)

    def skip(self, claim: Claim, gtid: Gtid, reason: str) -> GtidSet:
        """See ``Assembly``."""
        stored = self.find(claim)
        assert stored is not None
        self.stored[claim.stream] = replace(stored, position=stored.position.advanced([gtid]))
        self.calls.append(f"skip {gtid}: {reason}")
        return self.stored[claim.stream].position

    def append_conflicts(self, entries: Sequence[LogEntry], now: float) -> None:
        """See ``Assembly``."""
        self.on_log()
        self.logged.extend(entries)

    def read_log(self, streams: Sequence[str], limit: int) -> Sequence[StoredEntry]:
        """See ``Assembly``."""
        return ()

    def ask_source(self, stream: str) -> SourceFacts:
        """See ``Assembly``."""
        raise SourceLost("nobody answers")

    def build(
        self,
        claim: Claim,
        board: Board,
        *,
        after_conflict: bool,
        accepted_schema_changes: frozenset[Gtid],
        stops_at: GtidSet = NOWHERE,
    ) -> FakeParts:
        """See ``Assembly``. The stream is taken over here, which the real player does when it opens."""
        self.on_build()
        stream = claim.stream
        self.stored[stream] = replace(self.stored[stream], owner=claim.owner)
        at = position(next(self.positions)) if self.positions is not None else position(1)
        source, target = FakeSource(), FakeTarget(at, self.target_gate)
        player = Player(
            stream,
            source,
            target,
            FakeWitness(),
            board,
            limits=Limits(1, 1.0),
            clock=SystemClock(),
            concerns=lambda change: False,
            interpreter=PlainInterpreter(),
            ledger=SimLedger(SimDatabase({}, {})),
            stop_position=StopPosition(stops_at) if stops_at else None,
        )
        parts = FakeParts(stream, player, source, target, self.calls)
        self.built.put(parts)
        return parts

    def next_parts(self) -> FakeParts:
        """Return the parts of the next player that is built."""
        return self.built.get(timeout=PATIENCE)


class FakeGate:
    """A gate that stands open until the test shuts it."""

    def __init__(self) -> None:
        self.refusal: Fenced | None = None
        self.opens = threading.Event()
        self.opens.set()
        self.is_closed = False
        self._lost = threading.Event()

    def enter(self, stop: StopToken, waits: Callable[[str, bool], None]) -> None:
        """See ``Gate``."""
        if self.refusal is not None:
            raise self.refusal
        if not self.opens.is_set():
            waits("waits for another", True)
        wait_until(lambda: self.opens.is_set() or stop.is_set())

    def keep(self, stop: StopToken, on_lost: Callable[[], None]) -> None:
        """See ``Gate``."""
        while not stop.is_set():
            if self._lost.wait(0.005):
                self._lost.clear()
                on_lost()

    def lose(self, refusal: Fenced | None = None) -> None:
        """Shut the gate, as another process has come in; without a refusal it is waited for."""
        self.refusal = refusal
        self.opens.clear()
        self._lost.set()

    def interrupt(self) -> None:
        """See ``Gate``."""

    def close(self) -> None:
        """See ``Gate``."""
        self.is_closed = True


class Stage:
    """A supervisor of one stream, ``a``, and what it does."""

    def __init__(self) -> None:
        self.assembly = FakeAssembly()
        self.gate = FakeGate()
        self.pauses: list[int] = []
        self.pause_seconds = 0.0
        self.supervisor = self.make(("a",), PATIENCE)

    def make(self, streams: Sequence[str], stop_timeout_seconds: float) -> Supervisor:
        """Replace the supervisor."""
        self.supervisor = Supervisor(
            "w",
            streams,
            self.assembly,
            self.gate,
            clock=SystemClock(),
            stop_timeout_seconds=stop_timeout_seconds,
            pause=self._pause,
        )
        return self.supervisor

    def _pause(self, attempt: int) -> float:
        self.pauses.append(attempt)
        return self.pause_seconds

    def wait_for(self, **values: object) -> None:
        """Wait until the board shows these values for ``a``."""
        wait_until(lambda: all(getattr(self.progress(), key) == value for key, value in values.items()))

    def progress(self) -> object:
        """Return what the board shows for ``a``."""
        return self.supervisor.board.progress("a")

    @property
    def threads(self) -> list[threading.Thread]:
        """Return the players' threads."""
        return [thread for thread in threading.enumerate() if thread.name.startswith("player:w/")]


def wait_until(holds: Callable[[], bool]) -> None:
    """Return as soon as a condition holds."""
    never = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if holds():
            return
        never.wait(0.005)
    raise AssertionError("not in time")


def wait_for(gate: threading.Event) -> None:
    """Hang until a gate opens."""
    assert gate.wait(PATIENCE)


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A stage whose threads have ended afterwards."""
    stage = Stage()
    yield stage
    if stage.assembly.target_gate is not None:
        stage.assembly.target_gate.set()
    stage.supervisor.shut_down()
    wait_until(lambda: not stage.threads)


def test_restarts_with_growing_pauses(stage: Stage) -> None:
    """Transient errors restart the stream; attempts are counted while the position stays, and anew once it moved."""
    stage.assembly.positions = iter([1, 1, 1, 2, 2, 3])
    stage.supervisor.start()
    for _ in range(5):
        stage.assembly.next_parts().source.words.put(SourceLost("gone"))
    stage.assembly.next_parts()
    assert stage.pauses == [1, 2, 3, 1, 2]
    counters = stage.supervisor.board.progress("a").counters
    assert (counters.restarts, counters.restart_causes) == (5, {"SourceLost": 5})


def test_a_cause_that_repeats_is_told_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Of a restart's causes each is told once for a while, those that differ in numbers alone being one."""
    stage.supervisor.start()
    for cause in ("port 1 is closed", "port 2 is closed", "access denied", "port 3 is closed"):
        stage.assembly.next_parts().source.words.put(SourceLost(cause))
    stage.assembly.next_parts()
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["port 1 is closed; trying again", "access denied; trying again"]
    assert stage.supervisor.board.progress("a").counters.restarts == 4


def test_a_server_that_is_down_at_first_is_retried(stage: Stage) -> None:
    """A stream that cannot be entered because servers do not answer is tried again, and entered in the end."""
    refusals = iter([ServersUnreachable("down"), TargetLost("down")])

    def enter() -> None:
        for refusal in refusals:
            raise refusal

    stage.assembly.on_enter = enter
    stage.supervisor.start()
    stage.assembly.next_parts()
    assert stage.pauses == [1, 2]


def test_an_order_to_start_that_comes_amid_the_first_look_counts(stage: Stage) -> None:
    """A stream that an operator starts while its thread still reads that it was stopped runs."""
    looks, goes_on = threading.Event(), threading.Event()

    def find() -> None:
        looks.set()
        goes_on.wait(PATIENCE)

    stage.assembly.stored["a"] = FakeStored(StreamState.STOPPED, "as said")
    stage.assembly.on_find = find
    stage.supervisor.start()
    assert looks.wait(PATIENCE)
    stage.supervisor.start(order=Order(resumes=True))
    goes_on.set()
    stage.assembly.next_parts()
    assert stage.assembly.stored["a"].state is StreamState.RUNNING


def test_a_stop_breaks_calls_from_before_there_is_a_player(stage: Stage) -> None:
    """Whatever a stream asks of servers before it plays ends at once when it is told to stop."""
    entering, broken = threading.Event(), threading.Event()

    def enter() -> None:
        entering.set()
        assert broken.wait(PATIENCE)
        raise TargetLost("interrupted")

    stage.assembly.on_enter, stage.assembly.on_interrupt = enter, broken.set
    stage.supervisor.start()
    assert entering.wait(PATIENCE)
    stage.supervisor.shut_down()
    assert not stage.threads


def test_fatal_error_is_stored_first(stage: Stage) -> None:
    """A fatal error is durable before the board shows it, with its hint, and the thread ends."""
    shown: list[StreamState] = []
    stage.assembly.on_write = lambda stream, state: shown.append(stage.supervisor.board.progress(stream).state)
    stage.supervisor.start()
    stage.assembly.next_parts().source.words.put(CorruptEvent("broken", hint="look"))
    stage.wait_for(state=StreamState.ERROR, phase=Phase.IDLE, message="broken — look")
    assert stage.assembly.stored["a"] == FakeStored(StreamState.ERROR, "broken — look", owner="order 1")
    assert shown == [StreamState.RUNNING]
    assert isinstance(stage.supervisor.failures()["a"], CorruptEvent)
    wait_until(lambda: not stage.supervisor.is_alive())


@pytest.mark.parametrize("refusal", [TargetLost("gone"), RuntimeError("a bug")])
def test_error_that_cannot_be_stored(stage: Stage, refusal: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """When the error state cannot be stored, the board and the log show it all the same."""

    def write(stream: str, state: StreamState) -> None:
        raise refusal

    stage.assembly.on_write = write
    stage.supervisor.start()
    stage.assembly.next_parts().source.words.put(CorruptEvent("broken"))
    stage.wait_for(state=StreamState.ERROR, phase=Phase.IDLE)
    assert "could not be stored" in caplog.text


def test_bug_becomes_an_error(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """An internal error ends the stream in the error state, with a traceback in the log; its text, which may be a
    server's and quote a row, is in neither message."""

    def build() -> None:
        raise ZeroDivisionError("a bug")

    stage.assembly.on_build = build
    stage.supervisor.start()
    stage.wait_for(state=StreamState.ERROR, phase=Phase.IDLE)
    assert "internal error: ZeroDivisionError" in stage.assembly.stored["a"].message
    assert "a bug" not in stage.assembly.stored["a"].message + " ".join(one.getMessage() for one in caplog.records)
    assert any(record.exc_info and record.levelno == logging.ERROR for record in caplog.records)


def test_stream_that_was_never_entered_leaves_nothing(stage: Stage) -> None:
    """A workflow that does not fit is in error on the board only: there is no row to store it in."""

    def enter() -> None:
        raise PreflightError("does not fit")

    stage.assembly.on_enter = enter
    stage.supervisor.start()
    stage.wait_for(state=StreamState.ERROR)
    assert stage.assembly.stored == {}


def test_fenced_stream_leaves_the_row_alone(stage: Stage) -> None:
    """The row of a stream that another daemon took over is that daemon's: no error is stored in it."""
    stage.supervisor.start()
    stage.assembly.next_parts().source.words.put(Fenced("taken over"))
    stage.wait_for(state=StreamState.ERROR)
    stage.supervisor.stop()
    assert stage.assembly.stored["a"].state is StreamState.RUNNING


def test_a_stream_that_was_taken_over_is_not_taken_back(stage: Stage) -> None:
    """A stream that meets a transient error after another daemon took it over ends as fenced, whatever it met first.

    An operator's next start takes it back.
    """
    stage.assembly.stored["a"] = FakeStored(StreamState.RUNNING, owner="before")
    stage.supervisor.start()
    parts = stage.assembly.next_parts()
    taken = stage.assembly.stored["a"] = FakeStored(StreamState.RUNNING, owner="another daemon")
    parts.source.words.put(SourceLost("the source ended the dump"))
    stage.wait_for(state=StreamState.ERROR, phase=Phase.IDLE)
    assert isinstance(stage.supervisor.failures()["a"], Fenced)
    assert stage.assembly.stored["a"] == taken
    assert stage.supervisor.stop() == ()
    assert stage.assembly.stored["a"] == taken
    wait_until(lambda: not stage.supervisor.is_alive())
    assert stage.assembly.built.empty()
    stage.supervisor.start(order=Order(resumes=True))
    stage.assembly.next_parts()
    assert stage.assembly.stored["a"].owner == "order 2"


def test_the_owner_found_first_may_restart_meanwhile(stage: Stage) -> None:
    """A start takes a stream from the daemon that it found, also when its first attempts fail."""
    stage.assembly.stored["a"] = FakeStored(StreamState.RUNNING, owner="before")
    failures = iter([SourceLost("down"), SourceLost("down")])

    def build() -> None:
        for failure in failures:
            raise failure

    stage.assembly.on_build = build
    stage.supervisor.start()
    stage.assembly.next_parts()
    assert stage.assembly.stored["a"].owner == "order 1"


def test_what_follows_a_take_over_is_told_as_one(stage: Stage) -> None:
    """A stream that fails because another daemon took it over, as when its dump is ended, says who has it now."""

    def write(stream: str, state: StreamState) -> None:
        raise Fenced("a was taken over by another daemon")

    stage.assembly.on_write = write
    stage.supervisor.start()
    stage.assembly.next_parts().source.words.put(SourceRejected("error 1236: the dump was ended"))
    stage.wait_for(state=StreamState.ERROR)
    assert "taken over by another daemon" in stage.supervisor.board.progress("a").message
    assert isinstance(stage.supervisor.failures()["a"], Fenced)


def test_start_of_a_running_stream_is_nothing(stage: Stage) -> None:
    """A second start makes no second thread and says that it started nothing."""
    assert stage.supervisor.start() == ("a",)
    stage.assembly.next_parts()
    assert stage.supervisor.start(order=Order(resumes=True)) == ()
    assert len(stage.threads) == 1
    assert stage.assembly.built.empty()


def test_durable_states_decide(stage: Stage) -> None:
    """A stream that is stored as stopped does not run on its own, and runs when an operator says so."""
    stage.assembly.stored["a"] = FakeStored(StreamState.STOPPED, "as said")
    stage.supervisor.start()
    stage.wait_for(state=StreamState.STOPPED, phase=Phase.IDLE, message="as said")
    wait_until(lambda: not stage.supervisor.is_alive())
    stage.supervisor.start(order=Order(resumes=True))
    stage.assembly.next_parts()
    assert stage.assembly.stored["a"].state is StreamState.RUNNING


def test_stop_stores_and_shows(stage: Stage) -> None:
    """A stop ends the thread, then stores the state, then shows it; a second stop finds nothing to do."""
    stage.supervisor.start()
    parts = stage.assembly.next_parts()
    stage.assembly.on_write = lambda stream, state: stage.assembly.calls.append(
        f"{state.value} with {len(stage.threads)} threads"
    )
    assert stage.supervisor.stop() == ("a",)
    assert stage.assembly.calls == ["interrupt source", "stopped with 0 threads"]
    assert parts.target.is_closed
    stage.wait_for(state=StreamState.STOPPED, phase=Phase.IDLE)
    assert stage.supervisor.stop() == ()


def test_stop_that_cannot_be_stored(stage: Stage) -> None:
    """When the target does not take the state, the stream has ended, the error says so, and a second stop stores it."""
    refusals = iter([TargetLost("gone")])

    def write(stream: str, state: StreamState) -> None:
        for refusal in refusals:
            raise refusal

    stage.supervisor.start()
    stage.assembly.next_parts()
    stage.assembly.on_write = write
    with pytest.raises(TargetError, match=r"have ended, but .* could not be stored: gone"):
        stage.supervisor.stop()
    assert not stage.supervisor.is_alive()
    assert stage.supervisor.stop() == ("a",)
    assert stage.assembly.stored["a"].state is StreamState.STOPPED


def test_stop_of_a_stream_that_was_taken_over(stage: Stage) -> None:
    """A stop whose stream another daemon has says so; the other streams are stored, and the stream is in error here."""
    supervisor = stage.make(("a", "b"), PATIENCE)

    def write(stream: str, state: StreamState) -> None:
        if stream == "a":
            raise Fenced("a was taken over by another daemon")

    supervisor.start()
    for _ in supervisor.streams:
        stage.assembly.next_parts()
    stage.assembly.on_write = write
    with pytest.raises(Fenced, match="have ended, but a was taken over by another daemon"):
        supervisor.stop()
    assert stage.assembly.stored["a"].state is StreamState.RUNNING
    assert stage.assembly.stored["b"].state is StreamState.STOPPED
    stage.wait_for(state=StreamState.ERROR, phase=Phase.IDLE)
    assert supervisor.stop() == ()


def test_stop_of_a_stream_that_was_not_found_yet(stage: Stage) -> None:
    """Whether a stream has a row is asked again by a stop, and its refusal told: unknown is not the same as none."""
    stage.pause_seconds = HOUR
    stage.assembly.stored["a"] = FakeStored(StreamState.RUNNING)
    refusals = iter([TargetLost("down")] * 2)

    def find() -> None:
        for refusal in refusals:
            raise refusal

    stage.assembly.on_find = find
    stage.supervisor.start()
    stage.wait_for(phase=Phase.BACKING_OFF)
    with pytest.raises(TargetError, match=r"could not be stored: down"):
        stage.supervisor.stop()
    assert stage.supervisor.stop() == ("a",)
    assert stage.assembly.stored["a"].state is StreamState.STOPPED


def test_stop_of_a_stream_without_a_row(stage: Stage) -> None:
    """A stream that was found to have no row stops without storing anything."""
    stage.pause_seconds = HOUR

    def enter() -> None:
        raise ServersUnreachable("down")

    stage.assembly.on_enter = enter
    stage.supervisor.start()
    stage.wait_for(phase=Phase.BACKING_OFF)
    assert stage.supervisor.stop() == ("a",)
    assert stage.assembly.stored == {}


def test_state_that_is_stored_late(stage: Stage) -> None:
    """A stop that a hung target kept from storing its state cannot overrule a start that came behind it."""
    gate = threading.Event()
    stage.make(("a",), stop_timeout_seconds=0.3)
    stage.supervisor.start()
    stage.assembly.next_parts()
    stage.assembly.on_write = lambda stream, state: wait_for(gate)
    with pytest.raises(TargetError, match="has not answered yet"):
        stage.supervisor.stop()
    starting = threading.Thread(target=lambda: stage.supervisor.start(order=Order(resumes=True)))
    starting.start()
    gate.set()
    starting.join(PATIENCE)
    stage.assembly.next_parts()
    assert stage.assembly.stored["a"].state is StreamState.RUNNING


def test_stop_leaves_an_error_as_it_is(stage: Stage) -> None:
    """A stop of a failed stream keeps the reason of its failure."""
    stage.supervisor.start()
    stage.assembly.next_parts().source.words.put(CorruptEvent("broken", hint=""))
    stage.wait_for(state=StreamState.ERROR)
    assert stage.supervisor.stop() == ()
    assert stage.assembly.stored["a"] == FakeStored(StreamState.ERROR, "broken", owner="order 1")


def test_order_of_a_stop_that_hangs(stage: Stage) -> None:
    """A stop goes from the token to KILL QUERY to the socket, and names at last what still hangs."""
    stage.assembly.target_gate = threading.Event()
    supervisor = stage.make(("a", "b"), stop_timeout_seconds=0.3)
    supervisor.start(["a"])
    stage.assembly.next_parts()
    with pytest.raises(StopTimeout, match=r"w: did not stop within the bound: a \(was connecting\)$"):
        supervisor.stop()
    assert stage.assembly.calls == ["interrupt source", "kill query", "interrupt target"]
    assert stage.assembly.stored["a"].state is StreamState.RUNNING
    with pytest.raises(DaemonError, match="still stopping"):
        supervisor.start(["a"])
    stage.assembly.target_gate.set()
    stage.wait_for(phase=Phase.IDLE)
    assert supervisor.stop() == ("a",)


def test_restart(stage: Stage) -> None:
    """A restart begins running, failed and stopped streams anew, and never stores that they are stopped."""
    stored: list[tuple[str, StreamState]] = []
    supervisor = stage.make(("a", "b", "c"), PATIENCE)
    supervisor.start()
    parts = {parts.stream: parts for parts in (stage.assembly.next_parts() for _ in range(3))}
    parts["b"].source.words.put(CorruptEvent("broken", hint=""))
    wait_until(lambda: supervisor.board.progress("b").state is StreamState.ERROR)
    assert supervisor.stop(["c"]) == ("c",)
    stage.assembly.on_write = lambda stream, state: stored.append((stream, state))
    assert supervisor.restart() == ("a", "b", "c")
    anew = {parts.stream for parts in (stage.assembly.next_parts() for _ in range(3))}
    assert (anew, parts["a"].target.is_closed) == ({"a", "b", "c"}, True)
    assert sorted(stored, key=lambda one: one[0]) == [("b", StreamState.RUNNING), ("c", StreamState.RUNNING)]
    assert len(stage.threads) == 3


def test_restart_of_a_stream_that_hangs(stage: Stage) -> None:
    """A restart names what did not end within the bound, and the other streams run again all the same."""
    stage.assembly.target_gate = threading.Event()
    supervisor = stage.make(("a", "b"), stop_timeout_seconds=0.3)
    supervisor.start(["a"])
    stage.assembly.next_parts()
    gate, stage.assembly.target_gate = stage.assembly.target_gate, None
    supervisor.start(["b"])
    stage.assembly.next_parts()
    with pytest.raises(StopTimeout, match=r"a \(was connecting\)$"):
        supervisor.restart()
    assert stage.assembly.next_parts().stream == "b"
    gate.set()
    wait_until(lambda: supervisor.board.progress("a").phase is Phase.IDLE)
    assert supervisor.restart(["a"]) == ("a",)


def test_stop_during_back_off(stage: Stage) -> None:
    """A stream that pauses before a restart stops at once."""
    stage.pause_seconds = HOUR
    stage.supervisor.start()
    stage.assembly.next_parts().source.words.put(SourceLost("gone"))
    stage.wait_for(phase=Phase.BACKING_OFF, message="gone")
    assert stage.supervisor.stop() == ("a",)
    assert stage.assembly.built.empty()


def test_stop_while_a_start_is_in_progress(stage: Stage) -> None:
    """A player that is still being made when the stop comes is never opened."""
    reached, gate = threading.Event(), threading.Event()

    def build() -> None:
        reached.set()
        gate.wait(PATIENCE)

    stage.assembly.on_build = build
    stage.supervisor.start()
    assert reached.wait(PATIENCE)
    stopping = threading.Thread(target=stage.supervisor.stop)
    stopping.start()
    stage.wait_for(phase=Phase.STOPPING)
    gate.set()
    stopping.join(PATIENCE)
    assert stage.assembly.next_parts().player.position.is_empty()
    stage.wait_for(state=StreamState.STOPPED, phase=Phase.IDLE)


def test_start_while_stopping_waits_for_the_stop(stage: Stage) -> None:
    """A start that comes amid a stop takes effect behind it: the stream runs in the end, in one thread."""
    stage.assembly.target_gate = threading.Event()
    stage.supervisor.start()
    stage.assembly.next_parts()
    stopping = threading.Thread(target=stage.supervisor.stop)
    stopping.start()
    stage.wait_for(phase=Phase.STOPPING)
    starting = threading.Thread(target=lambda: stage.supervisor.start(order=Order(resumes=True)))
    starting.start()
    stage.assembly.target_gate.set()
    stopping.join(PATIENCE)
    starting.join(PATIENCE)
    stage.assembly.next_parts()
    stage.wait_for(state=StreamState.RUNNING, phase=Phase.STREAMING)
    assert stage.assembly.stored["a"].state is StreamState.RUNNING
    assert len(stage.threads) == 1


def test_nothing_starts_when_the_process_ends(stage: Stage) -> None:
    """After a shut-down a start is refused, so that no thread outlives it; the durable state stays."""
    stage.supervisor.start()
    stage.assembly.next_parts()
    stage.supervisor.shut_down()
    with pytest.raises(DaemonError, match="is ending"):
        stage.supervisor.start()
    assert not stage.threads
    assert stage.assembly.stored["a"].state is StreamState.RUNNING


def test_repeated_cause_is_logged_once(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """A cause that repeats does not fill the log."""
    stage.supervisor.start()
    for _ in range(4):
        stage.assembly.next_parts().source.words.put(SourceLost("gone"))
    stage.assembly.next_parts()
    assert sum("gone" in record.getMessage() for record in caplog.records) == 1


ENDED = Ended(Blocked(0.0, 1, "u:1", "customer.email", ()), Outcome.JUMPED, 0.1, transactions=2)


def test_what_is_left_of_the_log_is_written_at_the_end(stage: Stage) -> None:
    """A conflict that ended a moment before the process does is in the log."""
    stage.supervisor.start()
    stage.assembly.next_parts()
    stage.supervisor.board.journal.add("a", ENDED, SystemClock().monotonic())
    stage.supervisor.shut_down()
    assert [entry.kind for entry in stage.assembly.logged] == ["jump"]


def test_a_log_that_hangs_does_not_hold_up_the_end(stage: Stage) -> None:
    """The process ends within its bound though the target does not take the log's entries."""
    gate = threading.Event()
    stage.assembly.on_log = lambda: wait_for(gate)
    stage.make(("a",), 1.0).start()
    stage.assembly.next_parts()
    stage.supervisor.board.journal.add("a", ENDED, SystemClock().monotonic())
    begin = SystemClock().monotonic()
    stage.supervisor.shut_down()
    assert SystemClock().monotonic() - begin < PATIENCE / 2
    gate.set()


def test_streams_wait_at_the_gate(stage: Stage) -> None:
    """Before the gate opens nothing is asked for, and a stop ends the wait; behind it the stream runs."""
    stage.gate.opens.clear()
    stage.supervisor.start()
    stage.wait_for(phase=Phase.STANDBY, message="waits for another")
    assert not stage.assembly.stored
    stage.supervisor.stop()
    assert not stage.threads
    stage.supervisor.start()
    stage.wait_for(phase=Phase.STANDBY)
    stage.gate.opens.set()
    stage.assembly.next_parts()
    stage.wait_for(phase=Phase.STREAMING, message="")


@pytest.mark.parametrize("refusal", [None, Fenced("it was taken over by another daemon")])
def test_a_workflow_that_is_lost(stage: Stage, refusal: Fenced | None) -> None:
    """Its streams end at once; a standby waits and begins anew, another ends in error. No state is stored."""
    stage.supervisor.start()
    stage.assembly.next_parts()
    stage.wait_for(phase=Phase.STREAMING)
    stage.gate.lose(refusal)
    if refusal is None:
        stage.wait_for(phase=Phase.STANDBY)
        stage.gate.opens.set()
        stage.assembly.next_parts()
        stage.wait_for(phase=Phase.STREAMING, state=StreamState.RUNNING)
    else:
        stage.wait_for(phase=Phase.IDLE, state=StreamState.ERROR)
        assert stage.supervisor.failures() == {"a": refusal}
        stage.gate.refusal = None
        stage.gate.opens.set()
        stage.supervisor.start(order=Order(resumes=True))
        stage.assembly.next_parts()
        stage.wait_for(phase=Phase.STREAMING, state=StreamState.RUNNING)
    assert stage.assembly.stored["a"].state is StreamState.RUNNING


def test_the_gate_is_let_go_at_the_end(stage: Stage) -> None:
    """Others are let in when all threads have ended, unless a successor takes the gate over."""
    stage.supervisor.start()
    stage.supervisor.hand_over()
    assert not stage.gate.is_closed and not stage.threads
    stage.make(("a",), PATIENCE)
    stage.supervisor.start()
    stage.supervisor.shut_down()
    assert stage.gate.is_closed and not stage.threads
