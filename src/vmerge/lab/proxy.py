"""A TCP proxy between vmerge and a server, which breaks connections at the worst moment.

Knows: bytes of two directions, and when to cut, freeze or slow them. Never knows: MySQL's protocol, except for the one
packet that tests wait for (``COMMIT``). Used by the tests; TLS must be off where a pattern is looked for.

Each connection has two threads, one a direction. Both sides of a connection are closed by whoever breaks it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"
COMMIT = b"\x07\x00\x00\x00\x03COMMIT"
"""The packet of the statement: length, number, COM_QUERY, text."""

_CHUNK_BYTES = 64 * 1024
_CONNECT_SECONDS = 5.0
_JOIN_SECONDS = 5.0
_FROZEN_SECONDS = 600.0


class Moment(Enum):
    """When a connection breaks, seen from the packet that holds a pattern."""

    BEFORE = "before the server got it"
    AFTER = "after the server answered it"
    UNHEARD = "before the server got it, and the server does not notice"
    UNANSWERED = "after the server got it, whose answer stays away, as all answers of the proxy do until it thaws"


class Way(Enum):
    """A direction of a connection."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


@dataclass(frozen=True)
class Pace:
    """How slowly bytes are forwarded: so many at once, then a pause."""

    bytes: int
    seconds: float


@dataclass
class _Trap:
    """Which packet breaks its connection, and how many times yet."""

    pattern: bytes
    behind: bytes
    moment: Moment
    left: int


class Proxy:
    """Forwards connections to one server. Use it as a context manager; any thread may call."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._lock = threading.Condition()
        self._flows = {way: threading.Event() for way in Way}
        self.thaw()
        self._pace: Pace | None = None
        self._closing = threading.Event()
        self._left: dict[Way, int] = {}
        """Of each direction, how many bytes still pass before their connection breaks."""
        self._links: set[_Link] = set()
        self._trap: _Trap | None = None
        self._sprung = 0
        self._accepts = True
        self._listener = socket.create_server((HOST, 0))
        self._acceptor = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._acceptor.start()

    host = HOST

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def sprung(self) -> int:
        """How many connections the traps have broken so far."""
        with self._lock:
            return self._sprung

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cut everything and end the threads."""
        with self._lock:
            self._accepts = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(_JOIN_SECONDS)
        self._listener.close()
        self._closing.set()
        self.thaw()
        for link in self._all_links():
            link.cut()
            link.join()

    def cut(self) -> int:
        """Break all connections; return how many."""
        links = self._all_links()
        for link in links:
            link.cut()
        return len(links)

    def refuse(self) -> None:
        """Break all connections, and every new one at once, as if the server were down."""
        with self._lock:
            self._accepts = False
        self.cut()

    def accept(self) -> None:
        """Let new connections through again."""
        with self._lock:
            self._accepts = True

    def freeze(self, *ways: Way) -> None:
        """Forward nothing more, in these directions or both; connections stay open, as when packets are swallowed."""
        for way in ways or Way:
            self._flows[way].clear()

    def thaw(self) -> None:
        """Forward what was held back, and go on."""
        for flow in self._flows.values():
            flow.set()

    def heal(self) -> None:
        """Let everything through, as fast as it comes."""
        with self._lock:
            self._trap, self._pace, self._accepts = None, None, True
            self._left.clear()
        self.thaw()

    def slow_down(self, pace: Pace | None) -> None:
        """Forward everything at this pace; None for as fast as it comes."""
        with self._lock:
            self._pace = pace

    def cut_within(self, way: Way, byte_count: int) -> None:
        """Break the connection that takes so many bytes further, behind the last of them, wherever in a packet it is.

        It counts as sprung.
        """
        with self._lock:
            self._left[way] = byte_count

    def cut_when(self, pattern: bytes, moment: Moment, *, behind: bytes = b"", times: int = 1) -> None:
        """Break the next connections whose client sends this pattern, right behind a statement with ``behind``.

        Earlier traps are removed.
        """
        with self._lock:
            self._trap = _Trap(pattern, behind, moment, times)

    def wait_for_sprung(self, count: int, seconds: float) -> bool:
        """Wait until the traps have broken so many connections in all; return whether they have."""
        with self._lock:
            return self._lock.wait_for(lambda: self._sprung >= count, seconds)

    # In the threads

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                accepts = self._accepts
            if not accepts:
                client.close()
                continue
            try:
                server = socket.create_connection(self._upstream, _CONNECT_SECONDS)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(self, client, server)
            with self._lock:
                self._links.add(link)
            link.start()

    def _all_links(self) -> list[_Link]:
        with self._lock:
            return list(self._links)

    def wait_to_flow(self, way: Way) -> None:
        """Block a pump while its direction is frozen."""
        self._flows[way].wait(_FROZEN_SECONDS)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Yield bytes as slowly as they shall flow."""
        while data:
            with self._lock:
                pace = self._pace
            if pace is None or self._closing.is_set():
                yield data
                return
            self._closing.wait(pace.seconds)
            yield data[: pace.bytes]
            data = data[pace.bytes :]

    def allowed(self, way: Way, byte_count: int) -> int | None:
        """Return how many of these bytes still pass before their connection breaks; None for all, and it does not."""
        with self._lock:
            left = self._left.get(way)
            if left is None:
                return None
            if left > byte_count:
                self._left[way] = left - byte_count
                return None
            del self._left[way]
            return left

    def spring(self, data: bytes, before: bytes) -> Moment | None:
        """Return how bytes on their way to the server, behind others, break their connection, if they do."""
        with self._lock:
            trap = self._trap
            if trap is None or not trap.left or trap.pattern not in data or trap.behind not in before:
                return None
            trap.left -= 1
            return trap.moment

    def has_sprung(self) -> None:
        """Count a connection that a trap broke; called when it is broken."""
        with self._lock:
            self._sprung += 1
            self._lock.notify_all()

    def forget(self, link: _Link) -> None:
        """Let go of a connection that ended."""
        with self._lock:
            self._links.discard(link)


class _Link:
    """One connection: two sockets, two pumps. The last pump to end closes the sockets."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._swallows_reply = False
        self._is_abandoned = False
        self._pumps = [
            threading.Thread(target=self._run, args=(pump,), name="proxy pump", daemon=True)
            for pump in (self._to_server, self._to_client)
        ]
        self._lock = threading.Lock()
        self._running = len(self._pumps)

    def start(self) -> None:
        """Begin to forward."""
        for pump in self._pumps:
            pump.start()

    def cut(self) -> None:
        """Break both sides."""
        self._is_abandoned = False
        for one in (self._client, self._server):
            _shut(one)

    def join(self) -> None:
        """Wait for the pumps to end."""
        for pump in self._pumps:
            pump.join(_JOIN_SECONDS)

    def _run(self, pump: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(OSError):
                pump()
        finally:
            self._end()

    def _end(self) -> None:
        if not self._is_abandoned:
            self.cut()
        with self._lock:
            self._running -= 1
            if self._running:
                return
        self._client.close()
        self._server.close()
        self._proxy.forget(self)

    def _to_server(self) -> None:
        before = b""
        while data := self._client.recv(_CHUNK_BYTES):
            self._proxy.wait_to_flow(Way.TO_SERVER)
            moment = self._proxy.spring(data, before)
            before = data
            if moment is Moment.UNANSWERED:
                self._proxy.freeze(Way.TO_CLIENT)
                self._proxy.has_sprung()
            if moment is None or moment is Moment.UNANSWERED:
                if self._forward(data, Way.TO_SERVER, self._server):
                    continue
                return
            if moment is Moment.AFTER:
                self._swallows_reply = True
                self._server.sendall(data)
                continue
            # Abandoned: the server side stays open, and with it the session and its locks.
            self._is_abandoned = moment is Moment.UNHEARD
            _shut(self._client)
            self._proxy.has_sprung()
            return

    def _to_client(self) -> None:
        while data := self._server.recv(_CHUNK_BYTES):
            self._proxy.wait_to_flow(Way.TO_CLIENT)
            if self._swallows_reply:
                self._proxy.has_sprung()
                return
            if not self._forward(data, Way.TO_CLIENT, self._client):
                return

    def _forward(self, data: bytes, way: Way, receiver: socket.socket) -> bool:
        """Send bytes on; return False where the connection shall break behind some of them."""
        allowed = self._proxy.allowed(way, len(data))
        for piece in self._proxy.pieces(data[:allowed]):
            receiver.sendall(piece)
        if allowed is None:
            return True
        self.cut()
        self._proxy.has_sprung()
        return False


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
