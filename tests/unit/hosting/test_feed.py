"""The event feed over real sockets: order, who is told what, and that nobody is waited for."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.unit.hosting.test_supervisor import ENDED, wait_until

from vmerge.core.blocked import Blocked, Remedy
from vmerge.core.states import Phase, StreamState
from vmerge.errors import OrderRefused
from vmerge.hosting.feed import MOST_FOLLOWERS, Feed
from vmerge.player.board import Board
from vmerge.player.counters import Counters
from vmerge.stopping import SystemClock

Follow = Callable[..., socket.socket]
HEAD = b"head\n"
QUEUE = 200


@pytest.fixture
def feed() -> Iterator[Feed]:
    """A feed that runs, with a short queue."""
    feed = Feed(SystemClock(), QUEUE)
    thread = threading.Thread(target=feed.run)
    thread.start()
    yield feed
    feed.close()
    thread.join(10)
    assert not thread.is_alive()


def board_of(feed: Feed, workflow: str) -> Board:
    """Return a board whose changes a feed tells."""
    board = Board(["a", "b"])
    board.watcher = feed.watcher(workflow)
    return board


@pytest.fixture
def follow(feed: Feed) -> Iterator[Follow]:
    """Follows over a pair of sockets, of which it returns the other end; all are closed afterwards."""
    opened: list[socket.socket] = []

    def follow(workflow: str | None = None) -> socket.socket:
        ours, theirs = socket.socketpair()
        opened.append(ours)
        ours.settimeout(10)
        feed.follow(theirs, workflow, HEAD)
        assert ours.recv(len(HEAD)) == HEAD
        return ours

    yield follow
    for sock in opened:
        sock.close()


def read(sock: socket.socket, count: int) -> list[dict[str, object]]:
    """Read so many events."""
    with sock.makefile("rb") as lines:
        return [json.loads(lines.readline()) for _ in range(count)]


def quarantine(board: Board, count: int) -> None:
    """Let so many events happen."""
    for number in range(1, count + 1):
        board.update("a", in_quarantine=number)


def test_followers_see_the_same_in_order(feed: Feed, follow: Follow) -> None:
    """All followers get every event once, in one order and with one number; a workflow's follower only its own."""
    shop, other = board_of(feed, "shop"), board_of(feed, "other")
    first, second, only = follow(), follow(), follow("other")
    for number in range(1, 61):
        shop.update("a", in_quarantine=number)
        if number % 20 == 0:
            other.update("b", in_quarantine=number)
    events = read(first, 63)
    assert events == read(second, 63)
    assert [one["number"] for one in events] == list(range(1, 64))
    assert read(only, 3) == [one for one in events if one["workflow"] == "other"]


def test_a_follower_that_does_not_read_is_dropped(feed: Feed, follow: Follow, caplog: pytest.LogCaptureFixture) -> None:
    """It is dropped when the queue has let go of what it needs; publishing never waits, and others miss nothing."""
    board = board_of(feed, "shop")
    lazy, reader = follow(), follow()
    with caplog.at_level(logging.WARNING):
        for number in range(0, 5_000, 100):
            quarantine(board, 100)
            assert [one["number"] for one in read(reader, 100)] == list(range(number + 1, number + 101))
        wait_until(lambda: feed.dropped == 1)
    assert "was dropped" in caplog.text
    wait_until(lambda: feed.followers == 1)
    while lazy.recv(1 << 20):
        pass  # what its socket held, and then the end
    reader.close()
    wait_until(lambda: feed.followers == 0)
    quarantine(board, 10)  # nobody is told
    late = follow()
    board.update("a", in_quarantine=1)
    assert [one["facts"] for one in read(late, 1)] == [{"rows": 1, "before": 10}]


def test_no_more_than_so_many_follow(feed: Feed, follow: Follow) -> None:
    """One follower too many is refused until another one leaves."""
    followers = [follow() for _ in range(MOST_FOLLOWERS)]
    with pytest.raises(OrderRefused, match="64 programs follow"):
        feed.require_room()
    followers[0].close()
    wait_until(lambda: feed.followers < MOST_FOLLOWERS)
    feed.require_room()


def test_what_is_told(feed: Feed, follow: Follow) -> None:
    """States, restarts, conflicts with their remedies and ends, schema changes and quarantine are told."""
    board = board_of(feed, "shop")
    sock = follow()
    blocked = Blocked(1.0, 1, "u:7", "customer.email", ())
    board.update("a", state=StreamState.RUNNING, phase=Phase.STREAMING)
    board.update("a", phase=Phase.BACKING_OFF, message="the target is gone")
    board.update("a", phase=Phase.WAITING, message="", blocked=blocked)
    board.update("a", blocked=replace(blocked, attempts=2))
    board.update("a", blocked=replace(blocked, remedy=Remedy.JUMPING))
    board.commit("a", blocked=None, batch_limit=1)
    board.enter("a", ENDED, 5.0)
    board.update("a", counters=Counters(schema_changes_ignored=1))
    board.update("a", in_quarantine=2)
    board.update("a", state=StreamState.ERROR, message="a row is missing")
    told = [(one["kind"], one["message"]) for one in read(sock, 8)]
    assert told == [
        ("state", "running"),
        ("restart", "the target is gone"),
        ("conflict", "transaction u:7 is blocked by customer.email"),
        ("remedy", Remedy.JUMPING.value),
        ("conflict ended", ENDED.sentence()),
        ("schema change", "ignored"),
        ("quarantine", "2 rows in quarantine"),
        ("state", "error: a row is missing"),
    ]
