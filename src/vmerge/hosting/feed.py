"""The event feed: what happens to streams, to everybody who follows, as it happens.

Knows: the order of happenings, and who follows. Never knows: HTTP heads, or where a happening comes from
(``happenings.py``). Owner: the daemon; its thread runs ``run``.

Nobody is waited for
--------------------
Streams publish under a lock that is held for moments, into one bounded queue that all followers read, each at its own
place. One thread sends, with sockets that never block: to each follower in the queue's order. A follower that falls so
far behind that the queue has let go of what it needs next is dropped, counted and logged. So the queue is each
follower's own bound, all see the same, and publishing costs the same however many follow; with none it costs a look.
"""

from __future__ import annotations

import contextlib
import json
import logging
import select
import socket
import threading
from collections import deque
from dataclasses import dataclass
from itertools import islice

from vmerge.core.blocked import Ended
from vmerge.errors import OrderRefused
from vmerge.hosting.happenings import Happening, happening_of_end, happenings_of
from vmerge.player.board import StreamProgress
from vmerge.stopping import Clock, StopToken

logger = logging.getLogger(__name__)

QUEUE_LENGTH = 4096
"""So many happenings a follower may be behind, beyond what its socket holds."""
MOST_FOLLOWERS = 64
ALIVE_SECONDS = 15.0
"""A follower that is told nothing for so long gets an empty line, which shows both sides that the other is there."""
_SENT_AT_ONCE = 256
_RECEIVE_BYTES = 4096


@dataclass(slots=True, eq=False)
class _Follower:
    """Somebody who follows. Owner: the feed's thread."""

    sock: socket.socket
    workflow: str | None
    """None: all workflows."""
    following: int
    """The number of the happening that it gets next, if that is one of its workflow."""
    outgoing: bytes
    sent_at: float


class Feed:
    """One daemon's happenings. Any thread may call; but for ``run``, every call returns at once."""

    def __init__(self, clock: Clock, queue_length: int = QUEUE_LENGTH) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[tuple[str, bytes]] = deque(maxlen=queue_length)
        """Workflow and line of the last happenings, in their order."""
        self._next = 1
        """The number of the happening that comes next; the last of the queue has the one before."""
        self._followers: list[_Follower] = []
        self._new: list[_Follower] = []
        self._is_followed = False
        self._is_woken = False
        self._wakes, self._waker = socket.socketpair()
        self._wakes.setblocking(False)
        self._waker.setblocking(False)
        self._stop = StopToken()
        self.dropped = 0
        """How many followers were too slow."""

    @property
    def followers(self) -> int:
        """How many follow."""
        with self._lock:
            return len(self._followers) + len(self._new)

    def watcher(self, workflow: str) -> FeedWatcher:
        """Return what a workflow's board tells its changes to."""
        return FeedWatcher(self, workflow)

    @property
    def is_followed(self) -> bool:
        """Whether anybody follows; looked at without the lock, for who comes in this moment misses nothing it had."""
        return self._is_followed

    def publish(self, workflow: str, happening: Happening) -> None:
        """Tell what has happened."""
        with self._lock:
            told = {
                "number": self._next,
                "at": round(self._clock.wall(), 6),
                "workflow": workflow,
                "stream": happening.stream,
                "kind": happening.kind.value,
                "message": happening.message,
                "facts": happening.facts,
            }
            self._queue.append((workflow, json.dumps(told).encode() + b"\n"))
            self._next += 1
            self._wake()

    def require_room(self) -> None:
        """Raise ``OrderRefused`` when as many follow as may."""
        if self.followers >= MOST_FOLLOWERS:
            raise OrderRefused(
                f"{MOST_FOLLOWERS} programs follow the events already", hint="End some of them, then ask again."
            )

    def follow(self, sock: socket.socket, workflow: str | None, head: bytes) -> None:
        """Send ``head`` over a socket, and then whatever happens from now on; the socket is the feed's."""
        sock.setblocking(False)
        with self._lock:
            self._new.append(_Follower(sock, workflow, self._next, head, self._clock.monotonic()))
            self._is_followed = True
            self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(OSError):  # it is closed: nobody is to be told any more
                self._waker.send(b"\0")

    def close(self) -> None:
        """End ``run``, once everybody has what their sockets take."""
        self._stop.set()
        with self._lock:
            self._is_woken = False
            self._wake()

    # The feed's thread

    def run(self) -> None:
        """Send until closed."""
        while not self._stop.is_set():
            self._wait()
            self._send_all()
        self._send_all()
        for follower in self._followers:
            follower.sock.close()
        self._wakes.close()
        self._waker.close()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._wakes, select.POLLIN)
        for follower in self._followers:
            poll.register(follower.sock, select.POLLIN | (select.POLLOUT if follower.outgoing else 0))
        poll.poll(ALIVE_SECONDS * 1000)
        with contextlib.suppress(BlockingIOError):
            self._wakes.recv(_RECEIVE_BYTES)
        with self._lock:
            self._is_woken = False
            self._followers += self._new
            self._new.clear()

    def _send_all(self) -> None:
        gone = [follower for follower in self._followers if not self._serve(follower)]
        for follower in gone:
            follower.sock.close()
        with self._lock:
            self._followers = [one for one in self._followers if one not in gone]
            self._is_followed = bool(self._followers or self._new)
            if not self._is_followed:
                self._queue.clear()

    def _serve(self, follower: _Follower) -> bool:
        """Send what a follower's socket takes; return False when it is gone, or too slow."""
        try:
            while self._fill(follower):
                sent = follower.sock.send(follower.outgoing)
                follower.outgoing = follower.outgoing[sent:]
                follower.sent_at = self._clock.monotonic()
        except BlockingIOError:
            pass
        except OSError:
            return False
        return not (self._is_too_slow(follower) or _has_left(follower.sock))

    def _fill(self, follower: _Follower) -> bool:
        """Take what comes next for a follower that has all it was given; return whether there is anything to send."""
        while not follower.outgoing:
            with self._lock:
                begin = len(self._queue) - (self._next - follower.following)
                entries = list(islice(self._queue, begin, begin + _SENT_AT_ONCE)) if begin >= 0 else []
            follower.following += len(entries)
            follower.outgoing = b"".join(line for workflow, line in entries if follower.workflow in (None, workflow))
            if not entries:
                is_due = begin >= 0 and self._clock.monotonic() - follower.sent_at >= ALIVE_SECONDS
                follower.outgoing = b"\n" if is_due else b""
                return is_due
        return True

    def _is_too_slow(self, follower: _Follower) -> bool:
        with self._lock:
            is_lost = self._next - follower.following > len(self._queue)
        if is_lost:
            self.dropped += 1
            logger.warning("a follower of the events was dropped: it did not read")
        return is_lost


def _has_left(sock: socket.socket) -> bool:
    """Whether the other side has closed; what it says meanwhile is of no interest."""
    try:
        return not sock.recv(_RECEIVE_BYTES)
    except BlockingIOError:
        return False
    except OSError:
        return True


class FeedWatcher:
    """Tells a feed what happens in one workflow."""

    def __init__(self, feed: Feed, workflow: str) -> None:
        self._feed = feed
        self._workflow = workflow

    def changed(self, before: StreamProgress, after: StreamProgress) -> None:
        """See ``vmerge.player.board.Watcher``."""
        if self._feed.is_followed:
            for happening in happenings_of(before, after):
                self._feed.publish(self._workflow, happening)

    def ended(self, stream: str, ended: Ended) -> None:
        """See ``vmerge.player.board.Watcher``."""
        if self._feed.is_followed:
            self._feed.publish(self._workflow, happening_of_end(stream, ended))
