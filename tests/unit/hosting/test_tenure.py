"""A tenure and its lock, without a server: what a daemon does that finds the lock with another, and that loses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from vmerge.errors import DaemonError, Fenced, PreflightError, TargetError, TargetLost, TargetRejected
from vmerge.hosting.tenure import Approach, Standing, Tenure
from vmerge.stopping import StopToken, SystemClock

PATIENCE = 20.0
OTHER = "elsewhere, process 7"


class FakeLock:
    """A lock that the test gives to us, or to another."""

    def __init__(self, holder: str | None = None) -> None:
        self.holder = holder
        """Who else has it."""
        self.is_ours = False
        self.error: TargetError | None = None
        self.unprepared: TargetError | None = None
        self.waits: list[int] = []
        self.changed = threading.Condition()

    def acquire(self, seconds: int) -> str | None:
        """See ``WorkflowLock``."""
        if self.error is not None:
            raise self.error
        self.waits.append(seconds)
        with self.changed:
            self.changed.wait_for(lambda: self.holder is None, min(seconds, 0.05))
            self.is_ours = self.holder is None
            return self.holder

    def seize(self) -> None:
        """See ``WorkflowLock``."""
        self.give(None)

    def keep(self) -> bool:
        """See ``WorkflowLock``."""
        if self.error is not None:
            self.is_ours = False
            raise self.error
        return self.is_ours

    def prepare(self) -> str:
        """See ``WorkflowLock``."""
        if self.unprepared is not None:
            raise self.unprepared
        return "tables"

    def interrupt(self) -> None:
        """See ``WorkflowLock``."""

    def close(self) -> None:
        """See ``WorkflowLock``."""
        self.is_ours = False

    def give(self, holder: str | None) -> None:
        """Give the lock to somebody else, or to nobody."""
        with self.changed:
            self.holder = holder
            self.is_ours = False
            self.changed.notify_all()


class Stage:
    """One tenure with its thread, and what streams are told."""

    def __init__(self, lock: FakeLock, approach: Approach, examine: Callable[[], None] = lambda: None) -> None:
        self.lock = lock
        self.tenure = Tenure("w", lock, approach, SystemClock(), examine, speak_seconds=0.02)
        self.stop = StopToken()
        self.lost = threading.Event()
        self.thread = threading.Thread(target=self.tenure.keep, args=(self.stop, self.lost.set))
        self.words: list[tuple[str, bool]] = []

    def enter(self) -> None:
        """Enter as a stream does, within a bound."""
        stop = StopToken()
        timer = threading.Timer(PATIENCE, stop.set)
        timer.start()
        try:
            self.tenure.enter(stop, lambda text, is_well: self.words.append((text, is_well)))
            assert not stop.is_set(), "it waits for ever"
        finally:
            timer.cancel()

    def once_told(self, action: Callable[[], None]) -> None:
        """Do something as soon as a stream was told what it waits for."""

        def act() -> None:
            self.wait_for(lambda: bool(self.words))
            action()

        threading.Thread(target=act).start()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Return as soon as a condition holds."""
        never = threading.Event()
        for _ in range(int(PATIENCE / 0.005)):
            if holds():
                return
            never.wait(0.005)
        raise AssertionError(f"not in time: {self.tenure.standing}, {self.words}")


@contextmanager
def staged(lock: FakeLock, approach: Approach, examine: Callable[[], None] = lambda: None) -> Iterator[Stage]:
    """Run a tenure's thread for the time of a test."""
    stage = Stage(lock, approach, examine)
    stage.thread.start()
    try:
        yield stage
    finally:
        stage.stop.set()
        with lock.changed:
            lock.changed.notify_all()
        stage.thread.join(PATIENCE)
        assert not stage.thread.is_alive()


@pytest.mark.parametrize("approach", list(Approach))
def test_a_free_lock_is_had_at_once(approach: Approach) -> None:
    """Whatever a daemon would do about another: streams enter without a wait, and without a word of one."""
    with staged(FakeLock(), approach) as stage:
        stage.enter()
        assert (stage.words, stage.tenure.refusal, stage.tenure.standby_for) == ([], None, None)
        stage.tenure.require_orders()


def test_a_standby_waits_and_takes_over() -> None:
    """Its streams say for whom they wait, orders are refused, and it goes on when the other lets go."""
    with staged(FakeLock(OTHER), Approach.STANDBY) as stage:
        stage.once_told(lambda: stage.lock.give(None))
        stage.tenure.first_look(StopToken(), PATIENCE)
        assert stage.tenure.standby_for == OTHER
        with pytest.raises(DaemonError, match=f"in standby here: {OTHER} runs it"):
            stage.tenure.require_orders()
        stage.enter()
        assert stage.words == [(f"waits for {OTHER}", True)]
        assert stage.tenure.standby_for is None


def test_a_standby_that_could_not_take_over_says_so() -> None:
    """What does not fit is told long before it matters."""

    def examine() -> None:
        raise PreflightError("source a: access denied")

    with staged(FakeLock(OTHER), Approach.STANDBY, examine) as stage:
        stop = StopToken()
        thread = threading.Thread(target=stage.tenure.enter, args=(stop, lambda *words: stage.words.append(words)))
        thread.start()
        stage.wait_for(
            lambda: (f"waits for {OTHER}; could not take over: source a: access denied", False) in stage.words
        )
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_a_lock_that_comes_back() -> None:
    """A session that is lost costs nothing while nobody else has the lock; with another, all is lost, and said."""
    with staged(FakeLock(), Approach.STANDBY) as stage:
        stage.enter()
        stage.lock.error = TargetLost("gone")
        stage.wait_for(lambda: not stage.lock.is_ours)
        stage.enter()
        stage.lock.error = None
        stage.wait_for(lambda: stage.lock.is_ours)
        assert not stage.lost.is_set()
        stage.lock.give(OTHER)
        assert stage.lost.wait(PATIENCE)
        assert stage.tenure.standby_for == OTHER
        stage.lock.give(None)
        stage.enter()


def test_a_daemon_that_lost_the_workflow_asks_no_more() -> None:
    """It neither fights for the lock nor keeps it from a third; an operator's order asks once more."""
    with staged(FakeLock(), Approach.TAKE_OVER) as stage:
        stage.enter()
        stage.lock.give(OTHER)
        assert stage.lost.wait(PATIENCE)
        with pytest.raises(Fenced, match=f"was taken over by another daemon .{OTHER}"):
            stage.enter()
        asked = len(stage.lock.waits)
        stage.lock.give(None)
        with pytest.raises(Fenced):
            stage.enter()
        assert len(stage.lock.waits) == asked
        stage.tenure.ask()
        stage.enter()


def test_a_take_over_ends_the_holder() -> None:
    """A daemon that is told to take over does not wait for the other."""
    with staged(FakeLock(OTHER), Approach.TAKE_OVER) as stage:
        stage.enter()
        assert stage.lock.is_ours


def test_a_target_that_cannot_be_reached_is_waited_for() -> None:
    """The reason is shown meanwhile, as a fault and no standby."""
    lock = FakeLock()
    lock.error = TargetLost("no route")
    with staged(lock, Approach.REFUSE) as stage:
        stage.once_told(lambda: setattr(lock, "error", None))
        stage.enter()
        assert stage.words == [("no route", False)]


@pytest.mark.parametrize("where", ["error", "unprepared"])
def test_what_waiting_does_not_change_ends_the_streams(where: str) -> None:
    """A refusal of the target, and control tables of a newer version, are an error until an operator starts anew."""
    lock = FakeLock()
    setattr(lock, where, TargetRejected("denied", hint="Grant it."))
    with staged(lock, Approach.REFUSE) as stage:
        with pytest.raises(TargetRejected, match="denied") as caught:
            stage.enter()
        assert caught.value.hint == "Grant it." and not lock.is_ours
        setattr(lock, where, None)
        with pytest.raises(TargetRejected):
            stage.enter()
        stage.tenure.ask()
        stage.enter()


def test_a_successor_goes_on_with_the_lock() -> None:
    """Whoever gets a tenure's lock and standing enters without asking."""
    former = Tenure("w", FakeLock(), Approach.STANDBY, SystemClock(), lambda: None)
    successor = Tenure("w", former.lock, Approach.STANDBY, SystemClock(), lambda: None, Standing(is_ours=True))
    successor.enter(StopToken(), lambda text, is_well: None)
