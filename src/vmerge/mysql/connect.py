"""Endpoints to connections. Nothing else in vmerge connects to a server.

Knows: addresses, accounts, TLS and time-outs. Never knows: what a connection is used for. Used by the drivers.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT
from pymysql.err import MySQLError, OperationalError

from vmerge.errors import VmergeError

CONNECT_TIMEOUT_SECONDS = 3
"""For each step of connecting: a stop must not wait for a server that accepts and then hangs."""


class TlsMode(Enum):
    """How much a connection asks of TLS; the names are those of MySQL's own clients."""

    DISABLED = "disabled"
    PREFERRED = "preferred"
    REQUIRED = "required"
    VERIFY_CA = "verify_ca"
    VERIFY_IDENTITY = "verify_identity"


NO_MYSQL = 2007
"""The client library's number for a server that speaks another protocol."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to one server; paths of PEM files."""

    mode: TlsMode = TlsMode.PREFERRED
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return PyMySQL's arguments for this."""
        if self.mode is TlsMode.DISABLED:
            return {"ssl_disabled": True}
        if self.mode is TlsMode.PREFERRED:
            return {}
        verifies = self.mode in (TlsMode.VERIFY_CA, TlsMode.VERIFY_IDENTITY)
        parts: dict[str, Any] = {
            "verify_mode": verifies,
            "check_hostname": self.mode is TlsMode.VERIFY_IDENTITY,
            "ca": self.ca,
            "cert": self.certificate,
            "key": self.key,
        }
        return {"ssl": {name: value for name, value in parts.items() if value is not None}}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server as one account sees it. ``role`` is how messages name it: ``target``, ``stream -80``."""

    role: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    unix_socket: str | None = None
    tls: Tls = field(default_factory=Tls)

    def __str__(self) -> str:
        return f"{self.role} ({self.user}@{self.unix_socket or f'{self.host}:{self.port}'})"


def connect(endpoint: Endpoint, *, read_timeout_seconds: float, session: Mapping[str, str | int]) -> Connection[Any]:
    """Open a connection with autocommit on, counting matched rows, with these session variables set.

    Blocks for a few times ``CONNECT_TIMEOUT_SECONDS`` at most. Raises PyMySQL's errors: the caller knows whether it is
    a source or a target and translates (``mysql/faults.py``).
    """
    try:
        connection = _connect(endpoint, read_timeout_seconds)
    except (struct.error, IndexError, ValueError) as error:
        raise OperationalError(NO_MYSQL, "what answers at this address is no MySQL server") from error
    if session:
        assignments = ", ".join(f"SESSION {name} = %s" for name in session)
        with connection.cursor() as cursor:
            cursor.execute(f"SET {assignments}", tuple(session.values()))
    connection._read_timeout = read_timeout_seconds  # type: ignore[attr-defined]  # no public way to change it
    return connection


def _connect(endpoint: Endpoint, write_timeout_seconds: float) -> Connection[Any]:
    return pymysql.connect(
        host=endpoint.host,
        port=endpoint.port,
        unix_socket=endpoint.unix_socket,
        user=endpoint.user,
        password=endpoint.password.encode("utf-8"),  # as text, PyMySQL takes latin-1 only
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=CONNECT_TIMEOUT_SECONDS,
        write_timeout=write_timeout_seconds,
        charset="utf8mb4",
        autocommit=True,
        client_flag=CLIENT.FOUND_ROWS,
        program_name="vmerge",
        **endpoint.tls.arguments(),
    )


def break_off(connection: Connection[Any]) -> None:
    """Shut a connection's socket, from any thread: a call that hangs on it ends with an error.

    Past the SSL layer, whose own ``shutdown`` would let the reading thread take encrypted bytes for plain ones.
    """
    sock = connection._sock  # type: ignore[attr-defined]  # no public way
    if sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def drop(connection: Connection[Any]) -> None:
    """Close a connection without a word to the server: no round trip that could hang."""
    connection._force_close()  # type: ignore[attr-defined]  # no public way


SHORT_TIMEOUT_SECONDS = 10
"""For the few statements that are not a player's: none of them takes long on a server that answers."""


@contextmanager
def short_connection(
    endpoint: Endpoint, purpose: str, classify: Callable[[Exception, str], VmergeError]
) -> Iterator[Connection[Any]]:
    """Open a connection for a few statements; errors come out as ``classify`` (``mysql/faults.py``) classes them."""
    connection: Connection[Any] | None = None
    session: dict[str, str | int] = {"time_zone": "+00:00", "lock_wait_timeout": 3, "innodb_lock_wait_timeout": 3}
    try:
        connection = connect(endpoint, read_timeout_seconds=SHORT_TIMEOUT_SECONDS, session=session)
        yield connection
    except (MySQLError, OSError) as error:
        raise classify(error, f"{purpose} on {endpoint}") from error
    finally:
        if connection is not None:
            drop(connection)
