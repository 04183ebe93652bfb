"""The board, with real threads and gates."""

from __future__ import annotations

import threading

import pytest

from vmerge.board import Board, Counters
from vmerge.core.blocked import Blocked
from vmerge.core.conflict_terms import Siblings
from vmerge.core.states import Phase, StreamState
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


def test_changes_leave_other_fields_alone() -> None:
    """A commit and an update each change what they name, and all streams stay in the workflow's order."""
    board = board_of("B", "A")
    board.update("A", message="hello")
    progress = board.commit("A", counters=Counters(transactions=1))
    assert (progress.message, progress.counters.transactions) == ("hello", 1)
    assert board.progress("A") == progress
    assert [stream.name for stream in board.all_progress()] == ["B", "A"]
