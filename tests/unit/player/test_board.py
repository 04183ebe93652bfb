"""The board, with real threads and gates."""

from __future__ import annotations

import threading

import pytest

from vmerge.core.blocked import Blocked
from vmerge.core.conflict_terms import Siblings
from vmerge.core.joint import Offer
from vmerge.core.position import GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.player.board import Board
from vmerge.player.counters import Counters
from vmerge.stopping import StopToken

FOREVER = 3600.0
PATIENCE = 30.0


def board_of(*names: str) -> Board:
    """Return a board on which all streams run."""
    board = Board(names)
    for name in names:
        board.update(name, state=StreamState.RUNNING, phase=Phase.STREAMING)
    return board


def test_a_commit_between_snapshot_and_wait_is_not_missed() -> None:
    """The wait ends without waiting when a sibling moved after the snapshot it is based on."""
    board = board_of("A", "B")
    seen = board.siblings_of("A").version
    board.commit("B")
    assert board.wait_for_siblings("A", seen, FOREVER, StopToken())


def test_own_commits_wake_nobody_but_siblings() -> None:
    """A stream's own commit changes its siblings' version and not its own."""
    board = board_of("A", "B", "C")
    seen = {name: board.siblings_of(name).version for name in "ABC"}
    board.commit("A")
    assert not board.wait_for_siblings("A", seen["A"], 0.0, StopToken())
    assert board.wait_for_siblings("B", seen["B"], FOREVER, StopToken())
    assert board.wait_for_siblings("C", seen["C"], FOREVER, StopToken())


def test_updates_wake_nobody() -> None:
    """Phases, messages and positions without rows release no key."""
    board = board_of("A", "B")
    seen = board.siblings_of("A").version
    board.update("B", phase=Phase.WAITING, message="busy")
    assert not board.wait_for_siblings("A", seen, 0.0, StopToken())


@pytest.mark.parametrize("ends_by", ["commit", "stop"])
def test_threads_that_wait_all_wake(ends_by: str) -> None:
    """A sibling's commit, or the stop they share, ends the waits of several threads, whenever it comes."""
    board = board_of("A", "B", "C", "D")
    stop = StopToken()
    begun = threading.Barrier(4, timeout=PATIENCE)
    answers: list[bool] = []

    def wait(name: str) -> None:
        seen = board.siblings_of(name).version
        begun.wait()
        answers.append(board.wait_for_siblings(name, seen, FOREVER, stop))

    threads = [threading.Thread(target=wait, args=(name,), daemon=True) for name in "ABC"]
    for thread in threads:
        thread.start()
    begun.wait()
    if ends_by == "commit":
        board.commit("D")
    else:
        stop.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert answers == [ends_by == "commit"] * 3


def test_no_commit_is_missed_in_a_long_chase() -> None:
    """Two threads that each wait for the other's commit before the next of their own never stall."""
    board = board_of("A", "B")
    stop = StopToken()
    rounds = 2000

    def chase(name: str, goes_first: bool) -> None:
        seen = 0
        if goes_first:
            board.commit(name)
        for _ in range(rounds):
            assert board.wait_for_siblings(name, seen, PATIENCE, stop)
            seen = board.siblings_of(name).version
            board.commit(name)

    threads = [threading.Thread(target=chase, args=args, daemon=True) for args in (("A", True), ("B", False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
        assert not thread.is_alive()
    assert board.siblings_of("B").version == rounds + 1


def test_a_snapshot_names_who_is_not_free() -> None:
    """Stopped, failed and reconnecting siblings are unfree; the stream itself does not count."""
    board = board_of("A", "B", "C")
    board.update("A", state=StreamState.ERROR)
    board.update("C", phase=Phase.BACKING_OFF)
    assert board.siblings_of("A") == Siblings(0, 2, ("C",))
    assert board.siblings_of("B") == Siblings(0, 2, ("A", "C"), is_moving=False)
    assert Board(["A"]).siblings_of("A") == Siblings(0, 0, is_moving=False)


def test_a_snapshot_tells_whether_a_sibling_will_move() -> None:
    """A sibling that is at its head, blocked itself, or not free will not move soon; any other will."""
    board = board_of("A", "B", "C")
    assert board.siblings_of("A").is_moving
    board.update("B", is_at_head=True)
    assert board.siblings_of("A").is_moving
    board.update("C", phase=Phase.WAITING, blocked=Blocked(0.0, 1, "", "", ()))
    assert not board.siblings_of("A").is_moving
    board.update("C", blocked=None, state=StreamState.STOPPED)
    assert not board.siblings_of("A").is_moving


# Joint commits

NOW = 100.0
PATIENT_SINCE = 99.0


def block(board: Board, name: str, since: float, *, offers: bool, may_join: bool = True) -> None:
    """Let a stream be blocked, perhaps with an offer that nobody's move has made old."""
    board.update(name, phase=Phase.WAITING, blocked=Blocked(since, 2, "", "", (), may_join=may_join))
    if offers:
        board.offer(Offer(name, board.siblings_of(name).version, since, NOW, GtidSet(), (), None, None))


def led(board: Board, name: str) -> str:
    """Return the streams whose offers a stream may take in its hand."""
    return "".join(offer.stream for offer in board.lead(name, NOW, PATIENT_SINCE))


def test_the_smallest_of_those_that_offer_leads() -> None:
    """It leads them all, and nobody leads what is in somebody's hand."""
    board = board_of("A", "B", "C")
    board.update("A", is_at_head=True)
    block(board, "C", 99.5, offers=True)
    assert led(board, "C") == "", "alone"
    block(board, "B", 99.5, offers=True)
    assert led(board, "C") == ""
    assert led(board, "B") == "BC"
    assert led(board, "B") == ""


@pytest.mark.parametrize(("since", "expected"), [(99.5, ""), (99.0, "AB")])
def test_siblings_that_move_are_waited_for_a_while(since: float, expected: str) -> None:
    """Their commits may release what is needed; but on live shards somebody always moves."""
    board = board_of("A", "B", "C")
    block(board, "A", since, offers=True)
    block(board, "B", since, offers=True)
    assert led(board, "A") == expected


def test_an_offer_is_old_once_a_sibling_has_moved() -> None:
    """Its stream has to try alone again first, unless it has been blocked for long."""
    board = board_of("A", "B", "C")
    block(board, "A", 99.5, offers=True)
    block(board, "B", 99.5, offers=True)
    board.commit("C", is_at_head=True)
    assert led(board, "A") == ""


def test_a_ring_is_joined_as_a_whole() -> None:
    """Who is blocked for long is waited for until it has an offer; who cannot make one, or only began, is not."""
    board = board_of("A", "B", "C")
    block(board, "A", 90.0, offers=True)
    block(board, "B", 90.0, offers=True)
    block(board, "C", 98.0, offers=False)
    assert led(board, "A") == ""
    block(board, "C", 99.5, offers=False)
    assert led(board, "A") == "AB"
    board.settle("A", ())
    for name in "AB":
        board.withdraw(name)
        block(board, name, 90.0, offers=True)
    block(board, "C", 98.0, offers=False, may_join=False)
    assert led(board, "A") == "AB"


def test_changes_leave_other_fields_alone() -> None:
    """A commit and an update each change what they name, and all streams stay in the workflow's order."""
    board = board_of("B", "A")
    board.update("A", message="hello")
    progress = board.commit("A", counters=Counters(transactions=1))
    assert (progress.message, progress.counters.transactions) == ("hello", 1)
    assert board.progress("A") == progress
    assert [stream.name for stream in board.all_progress()] == ["B", "A"]
