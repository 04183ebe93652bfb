"""Conflicts on their way into the log table: none is left out, few are told one by one, and nothing is in the way."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest
from tests.unit.hosting.test_waits import TRANSIENT

from vmerge.core.blocked import Ended, Outcome
from vmerge.core.log_entry import LogEntry
from vmerge.errors import TargetLost
from vmerge.player.journal import KEPT_ENTRIES, LONG_SECONDS, PERIOD_SECONDS, TOLD_A_MINUTE, Journal
from vmerge.stopping import StopToken, SystemClock

PATIENCE = 30.0


def ended(outcome: Outcome = Outcome.RELEASED, seconds: float = 0.01) -> Ended:
    """Return a wait that is over."""
    return Ended(TRANSIENT, outcome, seconds, transactions=3, reason="the time is over")


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome.RELEASED, "ended by its release"),
        (Outcome.JUMPED, "ended by a jump of 3 transactions"),
        (Outcome.JOINED, "ended by a joint commit with 3 transactions of this stream"),
        (Outcome.PROVEN, "verdict: "),
        (Outcome.GIVEN_UP, "given up: the time is over"),
        (Outcome.INTERRUPTED, "interrupted: the stream was stopped or has lost a server"),
    ],
)
def test_an_entry_says_what_and_how_it_ended(outcome: Outcome, words: str) -> None:
    """An entry names transaction, key, both rows, the holder's stream, the time and the outcome, and no row value."""
    journal = Journal()
    journal.add("80-", ended(outcome, 3.25), 100.0)
    (entry,) = journal.take(100.0)
    assert entry.kind == outcome.value
    assert entry.message.startswith(
        "transaction u:1 was blocked for 3.2 s, 5 attempts: customer.email of row id=5 was held by row id=17 of -80; "
    )
    assert words in entry.message
    facts = dict(entry.facts)
    assert facts["held"] == {
        "table": "shop.customer",
        "key": "email",
        "row": "id=5",
        "holder": "id=17",
        "holder_streams": ["-80"],
    }
    assert facts["fences"].keys() == {"-80"}
    assert (facts["seconds"], facts["transactions"], facts["remedy"]) == (3.25, 3, outcome.value)
    assert "secret" not in str(entry)


def test_a_flood_is_counted() -> None:
    """Of thousands of short waits a few are told, and one entry counts all others by their outcomes."""
    journal = Journal()
    for number in range(3000):
        journal.add("a", ended(Outcome.JUMPED if number % 3 == 0 else Outcome.RELEASED), 100.0 + number / 100)
    journal.add("b", ended(), 100.0)
    entries = journal.take(100.0 + PERIOD_SECONDS)
    assert [entry.kind for entry in entries if entry.stream == "b"] == ["wait"]
    *told, summary = [entry for entry in entries if entry.stream == "a"]
    assert len(told) == TOLD_A_MINUTE
    assert summary.kind == "conflicts"
    assert sum(summary.facts["outcomes"].values()) == 3000 - TOLD_A_MINUTE
    assert summary.facts["outcomes"]["jump"] == 1000 - sum(entry.kind == "jump" for entry in told)


def test_the_daemons_log_counts_each_minute(caplog: pytest.LogCaptureFixture) -> None:
    """A minute with conflicts is one line in the daemon's log, which counts them all by their outcomes."""
    caplog.set_level(logging.INFO)
    journal, stop, now = Journal(), StopToken(), SystemClock().monotonic()
    for number in range(30):
        journal.add("a", ended(Outcome.JUMPED if number % 3 == 0 else Outcome.RELEASED), now)
    stop.set()
    journal.keep(lambda entries, now: None, SystemClock(), stop)
    (record,) = caplog.records
    assert record.__dict__["stream"] == "a"
    assert record.getMessage().startswith("30 conflicts within 0 s (10 × jump, 20 × wait), blocked for ")


@pytest.mark.parametrize("outcome", [Outcome.PROVEN, Outcome.GIVEN_UP])
def test_what_matters_is_told_in_a_flood(outcome: Outcome) -> None:
    """Long waits, and those that stopped the stream, have entries of their own at any time."""
    journal = Journal()
    for _ in range(50):
        journal.add("a", ended(), 100.0)
    journal.add("a", ended(seconds=LONG_SECONDS), 100.0)
    journal.add("a", ended(outcome), 100.0)
    assert [entry.kind for entry in journal.take(100.0)][TOLD_A_MINUTE:] == ["wait", outcome.value]


def test_the_writer_writes_what_comes_and_what_is_left() -> None:
    """Entries are written soon after they came; what is still to be counted is written at the end."""
    journal, stop, written = Journal(), StopToken(), list[LogEntry]()
    has_some = threading.Event()

    def write(entries: Sequence[LogEntry], now: float) -> None:
        written.extend(entries)
        has_some.set()

    keeper = threading.Thread(target=journal.keep, args=(write, SystemClock(), stop))
    keeper.start()
    now = SystemClock().monotonic()
    for _ in range(TOLD_A_MINUTE):
        journal.add("a", ended(), now)
    assert has_some.wait(PATIENCE)
    for _ in range(5):
        journal.add("a", ended(), now)
    stop.set()
    keeper.join(PATIENCE)
    assert not keeper.is_alive()
    assert [entry.kind for entry in written] == ["wait"] * TOLD_A_MINUTE + ["conflicts"]


@pytest.mark.parametrize("error", [TargetLost("gone"), RuntimeError("a fault of ours")])
def test_an_error_of_the_log_is_nobodys(error: Exception) -> None:
    """Whoever adds never sees it, the writer lives on, and what waits is bounded."""
    journal, stop = Journal(), StopToken()
    has_failed = threading.Event()

    def write(entries: Sequence[LogEntry], now: float) -> None:
        has_failed.set()
        raise error

    keeper = threading.Thread(target=journal.keep, args=(write, SystemClock(), stop))
    keeper.start()
    for _ in range(2 * KEPT_ENTRIES):
        journal.add("a", ended(Outcome.GIVEN_UP), 100.0)
    assert has_failed.wait(PATIENCE)
    assert keeper.is_alive()
    stop.set()
    keeper.join(PATIENCE)
    assert len(journal.take(100.0)) <= KEPT_ENTRIES


def test_entries_wait_for_a_target_that_is_away() -> None:
    """What could not be written is written later, in its order."""
    journal, stop, written = Journal(), StopToken(), list[LogEntry]()
    is_away = True

    def write(entries: Sequence[LogEntry], now: float) -> None:
        nonlocal is_away
        if is_away:
            is_away = False
            stop.set()  # the next attempt is the last one, at once
            raise TargetLost("gone")
        written.extend(entries)

    journal.add("a", ended(Outcome.JUMPED), 100.0)
    journal.add("a", ended(Outcome.JOINED), 100.0)
    journal.keep(write, SystemClock(), stop)
    assert [entry.kind for entry in written] == ["jump", "joint commit"]
