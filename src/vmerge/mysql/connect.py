"""Endpoints to connections. Nothing else in vmerge connects to a server.

Knows: addresses, accounts, TLS and time-outs. Never knows: what a connection is used for. Used by the drivers.
"""

from __future__ import annotations

import ipaddress
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from pymysql.connections import Connection
from pymysql.constants import CLIENT
from pymysql.err import MySQLError, OperationalError

from vmerge.errors import VmergeError
from vmerge.mysql.breaker import Breaker
from vmerge.mysql.sockets import open_socket
from vmerge.mysql.tls import Tls, TlsMode, raise_if_tls_failed

CONNECT_TIMEOUT_SECONDS = 3
"""For each step of connecting: a stop must not wait for a server that accepts and then hangs."""

NO_MYSQL = 2007
"""The client library's number for a server that speaks another protocol."""
REFUSED_METHOD = 2061
"""The client library's number for a way to authenticate that it does not go."""


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
    breaker: Breaker | None = field(default=None, repr=False, compare=False)
    """What ends calls to this server from another thread; None if nothing does."""

    def breakable(self, breaker: Breaker) -> Endpoint:
        """Return the same server, with calls that this breaker ends."""
        return replace(self, breaker=breaker)

    @property
    def is_on_this_machine(self) -> bool:
        """Whether nobody else's wire lies between; a name other than ``localhost`` is taken for another machine's."""
        if self.unix_socket is not None or self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def address(self) -> str:
        """Where the server listens, as messages say it."""
        return self.unix_socket or f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.role} ({self.user}@{self.address})"


def connect(endpoint: Endpoint, *, read_timeout_seconds: float, session: Mapping[str, str | int]) -> Connection[Any]:
    """Open a connection with autocommit on, counting matched rows, with these session variables set.

    Blocks for a few times ``CONNECT_TIMEOUT_SECONDS`` at most, or until the endpoint's breaker is broken. Raises
    PyMySQL's errors: the caller knows whether it is a source or a target and translates (``mysql/faults.py``).
    """
    breaker = endpoint.breaker or Breaker()
    connection = _closed_connection(endpoint, read_timeout_seconds)
    try:
        _shake_hands(connection, endpoint, breaker)
    except (struct.error, IndexError, ValueError) as error:
        raise OperationalError(NO_MYSQL, "what answers at this address is no MySQL server") from error
    except OperationalError as error:
        raise_if_tls_failed(error)
        if endpoint.tls.certificate is None or not isinstance(error.__context__, ssl.SSLError):
            raise
        number, text = error.args  # a server may hang up before its alert is read
        raise OperationalError(number, f"{text}; it may have refused the client's certificate") from error
    try:
        breaker.watch(connection)
        if session:
            assignments = ", ".join(f"SESSION {name} = %s" for name in session)
            with connection.cursor() as cursor:
                cursor.execute(f"SET {assignments}", tuple(session.values()))
    except BaseException:
        drop(connection)
        raise
    connection._read_timeout = read_timeout_seconds  # type: ignore[attr-defined]  # no public way to change it
    return connection


class _Connection(Connection):
    """PyMySQL's connection, with a context of ours also where it would make its own: for ``preferred``."""

    def _create_ssl_ctx(self, given: object) -> ssl.SSLContext:
        return given if isinstance(given, ssl.SSLContext) else Tls().context()


def _shake_hands(connection: Connection[Any], endpoint: Endpoint, breaker: Breaker) -> None:
    sock = open_socket(endpoint.unix_socket or (endpoint.host, endpoint.port), CONNECT_TIMEOUT_SECONDS, breaker)
    # A second handle: with TLS the first one is handed on, and is nobody's any more, before the handshake begins.
    with sock.dup() as handle, breaker.opening(handle):
        connection.connect(sock)


def _closed_connection(endpoint: Endpoint, write_timeout_seconds: float) -> Connection[Any]:
    connection = _Connection(
        defer_connect=True,
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
        auth_plugin_map=_AUTHENTICATION,
        **_tls_arguments(endpoint),
    )
    # What PyMySQL notes where it opens the socket itself: passwords may go over it as they are.
    connection._secure = endpoint.unix_socket is not None  # type: ignore[attr-defined]  # no public way
    return connection


def _tls_arguments(endpoint: Endpoint) -> dict[str, Any]:
    match endpoint.tls.mode:
        case TlsMode.DISABLED:
            return {"ssl_disabled": True}
        case TlsMode.PREFERRED:  # a socket leads nowhere else: MySQL's own clients spare TLS on it, too
            return {"ssl_disabled": True} if endpoint.unix_socket is not None else {}
        case _:
            return {"ssl": endpoint.tls.context()}


class _ClearPassword:
    """Sends the password as it is, but only by TLS or a socket: PyMySQL sends it wherever a server asks for it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, _packet: object) -> Any:
        """Answer the server's request; return its next packet."""
        connection = self._connection
        if not connection._secure:
            raise OperationalError(REFUSED_METHOD, "the server asks for the password in clear text, without TLS")
        connection.write_packet(connection.password + b"\0")
        packet = connection._read_packet()
        packet.check_error()
        return packet


class _Refused:
    """A way to prove a password that gives it away, or that needs what is not there."""

    def __init__(self, _connection: object) -> None:
        pass

    def authenticate(self, _packet: object) -> NoReturn:
        """Refuse."""
        raise OperationalError(REFUSED_METHOD, "the server asks for the password in a way that vmerge does not answer")


_AUTHENTICATION: dict[str, Callable[[Connection[Any]], Any]] = {
    "mysql_clear_password": _ClearPassword,
    "mysql_old_password": _Refused,
    "dialog": _Refused,
    "client_ed25519": _Refused,
}
"""In place of PyMySQL's own: who stands between us and a server chooses the method."""


def drop(connection: Connection[Any]) -> None:
    """Close a connection without a word to the server: no round trip that could hang."""
    connection._force_close()  # type: ignore[attr-defined]  # no public way


SHORT_TIMEOUT_SECONDS = 10
"""For the few statements that are not a player's: none of them takes long on a server that answers."""

SHORT_SESSION: Mapping[str, str | int] = {
    "time_zone": "+00:00",
    "lock_wait_timeout": 3,
    "innodb_lock_wait_timeout": 3,
    "wait_timeout": 30,  # a process that sleeps, or is gone without a word, holds its locks until then
}


@contextmanager
def short_connection(
    endpoint: Endpoint,
    purpose: str,
    classify: Callable[[Exception, str], VmergeError],
    session: Mapping[str, str | int] = SHORT_SESSION,
) -> Iterator[Connection[Any]]:
    """Open a connection for a few statements; errors come out as ``classify`` (``mysql/faults.py``) classes them."""
    connection: Connection[Any] | None = None
    try:
        connection = connect(endpoint, read_timeout_seconds=SHORT_TIMEOUT_SECONDS, session=session)
        yield connection
    except (MySQLError, OSError) as error:
        raise classify(error, f"{purpose} on {endpoint}") from error
    finally:
        if connection is not None:
            drop(connection)
