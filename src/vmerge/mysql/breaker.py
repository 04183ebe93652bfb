"""Calls to servers that another thread may end: connections that are open, and those that are still being opened.

Knows: how a socket is shut under whoever waits on it. Never knows: who asks for that, or when. An endpoint carries the
breaker of whatever connects to it (``connect.py``).
"""

from __future__ import annotations

import contextlib
import socket
import weakref
from collections.abc import Iterator
from typing import Any

from pymysql.connections import Connection
from pymysql.err import OperationalError

_LOST = 2013
"""The client library's number for a connection that is lost during a call."""


class Breaker:
    """The connections of one owner. Promise: once it was broken, every call on one of them, present or future, ends
    with an error of a lost connection, and none is opened any more; it is never mended.

    Owner: whoever connects; any thread may break it. It keeps no connection alive.
    """

    def __init__(self) -> None:
        self._opening: list[socket.socket] = []
        self._open: list[weakref.ref[Connection[Any]]] = []
        self._is_broken = False

    def break_off(self) -> None:
        """End every call, for good."""
        # Whoever opens first adds and then looks at the mark: one of both sees the other.
        self._is_broken = True
        for sock in tuple(self._opening):
            _shut(sock)
        for reference in tuple(self._open):
            connection = reference()
            if connection is not None:
                break_off(connection)

    def require_whole(self) -> None:
        """Raise PyMySQL's error of a lost connection if it was broken."""
        if self._is_broken:
            raise OperationalError(_LOST, "interrupted")

    @contextlib.contextmanager
    def opening(self, sock: socket.socket) -> Iterator[None]:
        """Watch a socket while it connects or shakes hands."""
        self._opening.append(sock)
        try:
            self.require_whole()
            yield
        finally:
            self._opening.remove(sock)

    def watch(self, connection: Connection[Any]) -> None:
        """Watch a connection for as long as it is open."""
        self._open = [one for one in self._open if (before := one()) is not None and before.open]
        self._open.append(weakref.ref(connection))
        self.require_whole()


def break_off(connection: Connection[Any]) -> None:
    """Shut an open connection's socket, from any thread: a call that hangs on it ends with an error."""
    sock = connection._sock  # type: ignore[attr-defined]  # no public way
    if sock is not None:
        _shut(sock)


def _shut(sock: socket.socket) -> None:
    """Shut a socket past the SSL layer, whose own ``shutdown`` would let a reader take encrypted bytes for plain."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
