"""One server, as preflight sees it: reached or not, its variables, and what its account may do.

Knows: what is examined alike at sources and target. Never knows: what each of them needs. Used by
``preflight_source.py`` and ``preflight_target.py``.

A privilege is probed by a statement that needs it and cannot change anything, not read from SHOW GRANTS: only the
server knows what roles, wildcards and partial revokes come to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.findings import Finding, error, warning
from vmerge.core.grants import Grant, account_name
from vmerge.mysql import sql
from vmerge.mysql.connect import REFUSED_METHOD, Endpoint, connect, drop
from vmerge.mysql.faults import describe, errno_of, hint_of
from vmerge.mysql.tls import TLS_FAILED

READ_TIMEOUT_SECONDS = 60.0
"""The schema views of a server with ten thousands of tables take seconds; more is a server that hangs."""

ACCESS_REFUSED = frozenset(
    {
        1044,  # no access to the database
        1045,  # wrong user or password
        1130,  # host not allowed
        1251,  # authentication that the client cannot do
        1698,  # account of the system
        1820,  # password must be changed first
        1862,  # password expired
        3118,  # account locked
    }
)
TLS_REFUSED = frozenset(
    {
        TLS_FAILED,
        REFUSED_METHOD,
        3159,  # TLS is required
    }
)
PRIVILEGE_MISSING = frozenset({1044, 1142, 1143, 1227})
BAD_DATABASE = 1049
PARSE_ERROR = 1064

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class ServerView:
    """An open connection to a server that can be examined, and its variables."""

    where: str
    connection: Connection[Any]
    variables: Mapping[str, str]

    @property
    def version(self) -> tuple[int, ...]:
        """For example (8, 4, 3)."""
        match = _VERSION.match(self.variables.get("version", ""))
        return tuple(map(int, match.groups())) if match is not None else (0, 0, 0)

    def variable(self, *names: str) -> str | None:
        """Return the first of these that the server has: versions differ in what they call it."""
        return next((self.variables[name] for name in names if name in self.variables), None)

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def errno(self, statement: str) -> int:
        """Return the number of the error that a statement gives; 0 when it gives none."""
        try:
            self.query(statement)
        except MySQLError as error:
            return errno_of(error)
        return 0

    def close(self) -> None:
        """Close the connection."""
        drop(self.connection)


def open_server(endpoint: Endpoint, variables: Iterable[str]) -> ServerView | Finding:
    """Connect and read variables; or say, in one finding, why that failed."""
    connection: Connection[Any] | None = None
    try:
        connection = connect(endpoint, read_timeout_seconds=READ_TIMEOUT_SECONDS, session={})
        with connection.cursor() as cursor:
            cursor.execute(sql.READ_VARIABLES, (("version", *variables),))
            return ServerView(endpoint.role, connection, dict(cursor.fetchall()))
    except (MySQLError, OSError) as failure:
        if connection is not None:
            drop(connection)
        return unreachable(endpoint, failure)


def read_account(connection: Connection[Any]) -> str:
    """Return the account that a server took us for, as GRANT writes it."""
    with connection.cursor() as cursor:
        cursor.execute(sql.READ_ACCOUNT)
        user, _, host = str(cursor.fetchone()[0]).rpartition("@")
    return account_name(user, host)


def unreachable(endpoint: Endpoint, failure: Exception) -> Finding:
    """Say why a server cannot be examined."""
    errno = errno_of(failure)
    text = f"cannot connect to {endpoint.address} as {endpoint.user}: {describe(failure)}"
    hint = hint_of(failure)
    if errno in ACCESS_REFUSED:
        return error("access-refused", endpoint.role, text, hint or "Correct the account on the server.")
    if errno in TLS_REFUSED:
        return error("tls", endpoint.role, text, hint or "Correct `tls` in the workflow file.")
    return error("unreachable", endpoint.role, text, "Start the server, or correct its address and port.")


def check_encryption(server: ServerView, endpoint: Endpoint) -> Iterator[Finding]:
    """Warn of a connection over a network that everybody on the way can read."""
    if endpoint.is_on_this_machine or any(cipher for _, cipher in server.query(sql.READ_CIPHER)):
        return
    yield warning(
        "unencrypted",
        server.where,
        "the connection is not encrypted: whoever listens on the way reads all rows, and whoever stands in it learns "
        "the password",
        "Set `tls: {mode: verify_identity, ca: FILE}`; the server needs a certificate.",
    )


def check_kind(server: ServerView, oldest: tuple[int, int, int]) -> Iterator[Finding]:
    """Yield a finding for a server that is no MySQL, or too old: then nothing else about it is worth asking."""
    version = server.variables.get("version", "")
    if "mariadb" in version.lower():
        yield error("mariadb", server.where, f"is MariaDB ({version})", "Only MySQL is supported for now.")
    elif server.version < oldest:
        needed = ".".join(map(str, oldest))
        yield error("version", server.where, f"is MySQL {version}; at least {needed} is needed", "Upgrade the server.")


def check_privileges(server: ServerView, grants: Iterable[Grant], user: str) -> Iterator[Finding]:
    """Yield one finding for each grant on a database of which the account lacks something."""
    for grant in grants:
        if grant.database is not None:
            database = grant.database
            missing = tuple(privilege for privilege in grant.privileges if not _has(server, database, privilege))
            if missing:
                yield lacking(server, grant, missing, user)


def lacking(server: ServerView, grant: Grant, missing: Iterable[str], user: str) -> Finding:
    """Say that the account lacks privileges of a grant, with the statement that gives them."""
    place = "" if grant.database is None else f" on {sql.quoted(grant.database)}"
    text = f"the account {user} lacks {', '.join(missing)}{place}"
    return error("privilege", server.where, text, grant.statement(read_account(server.connection)))


def _has(server: ServerView, database: str, privilege: str) -> bool:
    table = f"{sql.quoted(database)}.{sql.quoted(sql.PROBE_TABLE)}"
    return server.errno(sql.PROBES[privilege].format(table=table)) not in PRIVILEGE_MISSING


def check_databases(server: ServerView, databases: Iterable[str], hint: str) -> Iterator[Finding]:
    """Yield a finding for each database that is not there, as far as the account may know."""
    for database in databases:
        table = f"{sql.quoted(database)}.{sql.quoted(sql.PROBE_TABLE)}"
        if server.errno(sql.PROBES["SELECT"].format(table=table)) == BAD_DATABASE:
            yield error("database-missing", server.where, f"has no database {sql.quoted(database)}", hint)


Expectation = tuple[str, str, Callable[[str], bool], str, str]
"""A finding's id, a variable, whether its value will do, what is needed, and the hint."""


def check_variables(server: ServerView, expectations: Iterable[Expectation]) -> Iterator[Finding]:
    """Yield an error for each variable whose value will not do. A variable that the server lacks is not asked for."""
    for id, name, will_do, needed, hint in expectations:
        value = server.variable(*name.split("|"))
        if value is not None and not will_do(value):
            text = f"{name.split('|')[0]} is {value or 'empty'}; {needed} is needed"
            yield error(id, server.where, text, hint)
