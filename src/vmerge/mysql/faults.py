"""Errors of servers and of the network, classed once.

Knows: which error number of MySQL means what to a stream. Never knows: what the stream does about it. Message texts
decide nothing: they are cut, localised and changed between versions. Used by every driver.

Texts may hold row values, and messages go to logs: only texts that are known to hold names alone are shown as they
are; in all others what stands in quotes is left out.

Transient numbers are an allow-list. A number that is not listed is fatal.
Source: MySQL's error reference (server and client numbers); tried on real servers in tests/integration/test_faults.py.
"""

from __future__ import annotations

import re

import pymysql

from vmerge.errors import (
    CommitUnknown,
    ForeignKeyConflict,
    KeyConflict,
    LockConflict,
    PositionPurged,
    RowMissing,
    SourceError,
    SourceLost,
    SourceRejected,
    TargetError,
    TargetLost,
    TargetRejected,
)
from vmerge.mysql.tls import TlsFailure

CONNECTION_LOST = frozenset(
    {
        0,  # PyMySQL: used after it was closed
        1040,  # too many connections, for now
        1043,  # bad handshake: a server that is just starting or stopping
        1053,  # shutdown in progress
        1152,  # aborted connection
        1158,  # network: reading
        1159,  # network: reading timed out
        1160,  # network: writing
        1161,  # network: writing timed out
        1203,  # the account has too many connections (max_user_connections), for now
        1226,  # the account has used up a resource for now, its connections of this hour for one
        1290,  # read only: a fail-over under way
        1836,  # read only mode
        2003,  # cannot connect
        2006,  # server has gone away
        2013,  # lost during query
        2055,  # lost during query, with the system's error
        3032,  # offline mode
        3169,  # session was killed
        4031,  # idle for longer than wait_timeout
    }
)

LOCK_CONFLICTS = frozenset(
    {
        1205,  # lock wait timeout
        1213,  # deadlock victim
        1317,  # query interrupted: KILL QUERY, ours when a stop is overdue
        3101,  # group replication rolled the transaction back in certification
        3572,  # NOWAIT
        3058,  # user lock deadlock
    }
)

KEY_CONFLICTS = frozenset(
    {
        1062,  # duplicate entry
        1586,  # duplicate entry, with the key's name
        1216,  # as 1452, for an account that may not know the other table
        1217,  # as 1451, likewise
        1451,  # parent row is referenced
        1452,  # parent row is missing
    }
)

ROW_NOT_FOUND = 1032
ROW_MISSING = frozenset({ROW_NOT_FOUND})

PURGED = frozenset({1789})  # the source has purged GTIDs that we need

COMMIT_ROLLED_BACK = frozenset({1205, 1213, 3101})
"""The only errors of COMMIT itself that tell the outcome: nothing is on the server."""


_DUPLICATES = frozenset({1062, 1586})

_NAMES_ONLY = frozenset(
    {
        *CONNECTION_LOST,
        *LOCK_CONFLICTS,
        *ROW_MISSING,
        *PURGED,
        *(KEY_CONFLICTS - _DUPLICATES),
        1044,  # no access to the database
        1045,  # access denied
        1049,  # no such database
        1114,  # the table is full
        1142,  # no privilege for the table
        1146,  # no such table
        1153,  # packet too large
        1180,  # error in COMMIT
        1227,  # no privilege
        1236,  # the dump failed
        1610,  # the event cannot be read
        1698,  # access denied
        1786,  # the statement breaks GTID consistency
        2026,  # no TLS; the text is ours
        2061,  # a way to authenticate that is refused; the text is ours
        3159,  # only encrypted connections are taken
    }
)
"""The errors whose texts hold names of servers, accounts, databases, tables, columns or keys, and nothing else."""

_COLUMN_REFUSALS = frozenset(
    {
        1048,  # NULL in a NOT NULL column
        1264,  # out of range
        1265,  # data truncated: no such label, digits cut off
        1292,  # no such date or time
        1366,  # no such number, or bytes that are no text of the character set
        1406,  # data too long
        1690,  # out of range, in an expression
        3140,  # no JSON
    }
)
"""The errors for a value that a column does not take. Their texts may hold the value, and name the column last."""

_VALUES_WITHOUT_QUOTES = frozenset(
    {
        1526,  # no partition for the value
        1644,  # what a trigger says
        1863,  # a row in the wrong partition, with its columns
    }
)
"""The errors whose texts may hold a value that is not in quotes: of these only the number is told."""

_COLUMN = re.compile(r".*[Cc]olumn '(.+?)'(?: at row| cannot|$)", re.DOTALL)

_QUOTED = re.compile(r"'.*'", re.DOTALL)
"""From the first quote to the last: a value may hold quotes itself."""


def errno_of(error: Exception) -> int:
    """Return the error number; 0 when the connection broke in a way that has none."""
    if isinstance(error, pymysql.err.MySQLError) and error.args and isinstance(error.args[0], int):
        return error.args[0]
    return 0


def describe(error: Exception) -> str:
    """Return the number and the server's text, without row values."""
    errno = errno_of(error)
    if not errno or len(error.args) < 2:
        return str(error) or type(error).__name__
    text = str(error.args[1])
    if errno in _DUPLICATES:
        key = key_of(error)
        return f"error {errno}: duplicate entry for key {key}" if key else f"error {errno}: duplicate entry"
    if errno in _COLUMN_REFUSALS and (column := _COLUMN.match(text)):
        return f"error {errno}: column `{column[1]}` does not take the value"
    if errno in _VALUES_WITHOUT_QUOTES:
        return f"error {errno} (its text is left out, as it may have a row's values)"
    return f"error {errno}: {text if errno in _NAMES_ONLY else _QUOTED.sub('(left out)', text)}"


def key_of(error: Exception) -> str:
    """Return the name of the key or constraint an error is about, for display; empty when the text does not say."""
    text = str(error.args[1]) if len(error.args) > 1 else ""
    if errno_of(error) in _DUPLICATES:
        _, found, key = text.rpartition(" for key '")
        return key.removesuffix("'") if found else ""
    match = re.search(r"CONSTRAINT `(.+?)` FOREIGN KEY", text)
    return match[1] if match else ""


def source_fault(error: Exception, place: str) -> SourceError:
    """Class an error of a source; ``place`` says which source and what was being done."""
    errno = errno_of(error)
    message = f"{place}: {describe(error)}"
    if errno in CONNECTION_LOST:
        return SourceLost(message)
    if errno in PURGED:
        return PositionPurged(message)
    return SourceRejected(message, hint=hint_of(error))


def target_fault(error: Exception, place: str) -> TargetError:
    """Class an error of the target, outside of COMMIT."""
    errno = errno_of(error)
    message = f"{place}: {describe(error)}"
    if errno in CONNECTION_LOST:
        return TargetLost(message)
    if errno in LOCK_CONFLICTS:
        return LockConflict(message)
    if errno in _DUPLICATES:
        return KeyConflict(message, key=key_of(error))
    if errno in KEY_CONFLICTS:
        return ForeignKeyConflict(message, key=key_of(error))
    if errno in ROW_MISSING:
        return RowMissing(message)
    return TargetRejected(message, hint=hint_of(error))


def commit_fault(error: Exception, place: str) -> TargetError:
    """Class an error in COMMIT: but for a few, only the checkpoint knows what happened."""
    if errno_of(error) in COMMIT_ROLLED_BACK:
        return target_fault(error, place)
    return CommitUnknown(f"{place}: {describe(error)}")


def hint_of(error: Exception) -> str | None:
    """Return what helps against an error that is fatal, if anything is known."""
    return error.hint if isinstance(error, TlsFailure) else _HINTS.get(errno_of(error))


_HINTS = {
    1044: "Grant the account access to that database.",
    1045: "Correct user or password. If they are right: an account with REQUIRE SSL or REQUIRE X509 refuses in these "
    "words whoever comes without TLS, or without a certificate.",
    1105: "The target's table does not match the rows: compare SHOW CREATE TABLE on both sides.",
    1142: "Grant the account that privilege; `vmerge check --grants FILE` prints what is needed.",
    1146: "Create the table on the target with the source's definition, then start the stream again.",
    1153: "Raise max_allowed_packet on the target.",
    1227: "Grant the account that privilege; `vmerge check --grants FILE` prints what is needed.",
    1236: "Look at the source's error log. If another program reads with the same server_id, stop it. If it is an "
    "anonymous transaction, set gtid_mode=ON and carry its rows over by hand: the next start is served without it.",
    2061: "Set `tls` to a mode that verifies the server; if it is yours, look at the account's plugin.",
    3159: "Set `tls` for this server to `required` or a mode that verifies.",
    1610: "The target's version cannot apply this event.",
    1114: "Make room on the target's disk, then start the stream again.",
}
