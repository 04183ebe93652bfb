"""Sockets to servers, opened so that another thread may end that.

Knows: addresses and time-outs. Never knows: MySQL's protocol. Used by ``connect.py``, which hands them to PyMySQL.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

from pymysql.err import OperationalError

from vmerge.mysql.breaker import Breaker

CANNOT_CONNECT = 2003
"""The client library's number for a server that cannot be reached."""

Place = str | tuple[str, int]
"""The path of a Unix socket, or host and port."""


def open_socket(place: Place, timeout_seconds: float, breaker: Breaker) -> socket.socket:
    """Connect to the first address of a place that answers, trying each for so long at most.

    Only the look-up of a name is nothing that a breaker ends. Raises PyMySQL's error for a server that is out of reach.
    """
    failure: OSError | None = None
    for family, address in _addresses(place):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout_seconds)
        try:
            with breaker.opening(sock):
                sock.connect(address)
                breaker.require_whole()
        except OSError as error:
            sock.close()
            failure = error
            continue
        except BaseException:
            sock.close()
            raise
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return sock
    raise _unreachable(place, failure)


def _addresses(place: Place) -> Iterator[tuple[int, Any]]:
    """Yield family and address of each place where the server may be."""
    if isinstance(place, str):
        yield socket.AF_UNIX, place
        return
    try:
        found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _unreachable(place, error) from error
    for family, _, _, _, address in found:
        yield family, address


def _unreachable(place: Place, error: OSError | None) -> OperationalError:
    """Return the error that PyMySQL raises itself where it opens the socket."""
    where = place if isinstance(place, str) else place[0]
    return OperationalError(CANNOT_CONNECT, f"Can't connect to MySQL server on {where!r} ({error})")
