"""Stop tokens, with real threads. Gates instead of sleeps: a wait that does not end makes a join fail, never a race."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from vmerge.stopping import StopToken, SystemClock

FOREVER = 3600.0
PATIENCE = 30.0
"""How long a join may take before the test fails; nothing is measured with it."""


class GatedCondition(threading.Condition):
    """Says when a thread has come to wait on it: the gate opens with the condition's lock held."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        """Open the gate, then wait: whoever takes the lock after the gate finds a real waiter."""
        self.waiting.release()
        return super().wait(timeout)


def run(action: Callable[[], object]) -> threading.Thread:
    """Start a thread."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def assert_ends(thread: threading.Thread) -> None:
    """Fail if the thread does not end."""
    thread.join(PATIENCE)
    assert not thread.is_alive(), "a wait did not end"


def test_waits_after_a_stop_end_at_once() -> None:
    """Every later wait on a token that is set returns without waiting."""
    token = StopToken()
    token.set()
    assert token.is_set()
    assert token.wait(FOREVER)
    assert not token.wait_for(threading.Condition(), lambda: False, FOREVER)


def test_a_stop_ends_a_plain_wait() -> None:
    """A thread that waits for time alone wakes when the token is set."""
    token = StopToken()
    began = threading.Event()

    def wait() -> None:
        began.set()
        token.wait(FOREVER)

    thread = run(wait)
    began.wait(PATIENCE)
    token.set()
    assert_ends(thread)


def test_a_stop_ends_all_waits_on_conditions() -> None:
    """Threads that wait on one condition and on another all wake when the token is set."""
    token = StopToken()
    conditions = [GatedCondition(), GatedCondition()]
    threads = [run(lambda c=c: token.wait_for(c, lambda: False, FOREVER)) for c in conditions * 2]  # type: ignore[misc]
    for condition in conditions * 2:
        condition.waiting.acquire()
    token.set()
    for thread in threads:
        assert_ends(thread)


def test_the_end_of_one_wait_does_not_hide_another() -> None:
    """Of two threads that wait on one condition, one gets what it wanted; a stop still reaches the other."""
    token = StopToken()
    condition = GatedCondition()
    wanted = threading.Event()
    first = run(lambda: token.wait_for(condition, wanted.is_set, FOREVER))
    second = run(lambda: token.wait_for(condition, lambda: False, FOREVER))
    for _ in range(2):
        condition.waiting.acquire()
    with condition:
        wanted.set()
        condition.notify_all()
    assert_ends(first)
    condition.waiting.acquire()  # the second is back at its wait
    token.set()
    assert_ends(second)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_wait_of_no_time_asks_once(seconds: float) -> None:
    """It returns what the predicate says, and never waits."""
    token = StopToken()
    assert not token.wait(seconds)
    assert token.wait_for(threading.Condition(), lambda: True, seconds)
    assert not token.wait_for(threading.Condition(), lambda: False, seconds)


def test_a_stop_does_not_turn_a_predicate_true() -> None:
    """``wait_for`` tells whether what was waited for came, also when a stop ended the wait."""
    token = StopToken()
    token.set()
    assert token.wait_for(threading.Condition(), lambda: True, FOREVER)


def test_the_clock_never_goes_back() -> None:
    """Two readings in a row do not decrease."""
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.wall() > 1.6e9
