"""Named locks of the target, each held by a session for as long as that lives.

Knows: their names, and how a session gets one, is found by one, and is ended. Never knows: what a lock stands for. Used
by the drivers that talk to the target.

A lock tells who works here now; it guards nothing. A server that takes the place of another knows no locks of it, and a
session may lose its lock together with its connection at any time. What is written is guarded by epochs
(``mysql/checkpoints.py``).
Source: MySQL's manual, "Locking Functions" and "KILL Statement". Names have 64 characters at most.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.mysql import sql
from vmerge.mysql.faults import errno_of

_NOT_TO_BE_KILLED = frozenset({1094, 1095})
"""The session has ended, or is another account's."""


def lock_name(*parts: str) -> str:
    """Return the name of the lock for what these say, of any characters and lengths."""
    return f"vmerge {sha256(repr(parts).encode()).hexdigest()[:48]}"


def get_lock(connection: Connection[Any], name: str, seconds: float) -> bool:
    """Wait so long for a lock, in whole seconds; return whether the session has it."""
    return _value(connection, sql.GET_LOCK, name, seconds) == 1


def release_lock(connection: Connection[Any], name: str) -> None:
    """Let go of a lock."""
    _value(connection, sql.RELEASE_LOCK, name)


def holder_of(connection: Connection[Any], name: str) -> int | None:
    """Return the session that has a lock."""
    return _value(connection, sql.IS_USED_LOCK, name)


def kill_session(connection: Connection[Any], session: int) -> None:
    """End a session; what it had open is rolled back. One of another account is left alone."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql.KILL_SESSION, (session,))
    except MySQLError as error:
        if errno_of(error) not in _NOT_TO_BE_KILLED:
            raise


def silent_seconds(connection: Connection[Any], session: int) -> int:
    """Return for how long a session of the same account has said nothing; 0 if it works, or is not there."""
    with connection.cursor() as cursor:
        cursor.execute(sql.SHOW_SESSIONS)
        return next((row[5] for row in cursor.fetchall() if row[0] == session and row[4] == "Sleep"), 0)


def _value(connection: Connection[Any], statement: str, *values: object) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        row = cursor.fetchone()
    return None if row is None else row[0]
