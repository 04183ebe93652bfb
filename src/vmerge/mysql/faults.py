"""Errors of servers and of the network, classed once.

Knows: which error number of MySQL means what to a stream. Never knows: what the stream does about it, nor message
texts: those are cut, localised and changed between versions. Used by every driver.

Transient numbers are an allow-list. A number that is not listed is fatal.
Source: MySQL's error reference (server and client numbers); tried on real servers in tests/integration/test_faults.py.
"""

from __future__ import annotations

import pymysql

from vmerge.errors import (
    CommitUnknown,
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
        1451,  # parent row is referenced
        1452,  # parent row is missing
    }
)

ROW_MISSING = frozenset({1032})

PURGED = frozenset({1789})  # the source has purged GTIDs that we need

COMMIT_FAILED = frozenset({1180})
"""Error during commit: what the storage engine did is not known."""


def errno_of(error: Exception) -> int:
    """Return the error number; 0 when the connection broke in a way that has none."""
    if isinstance(error, pymysql.err.MySQLError) and error.args and isinstance(error.args[0], int):
        return error.args[0]
    return 0


def describe(error: Exception) -> str:
    """Return the number and the server's text."""
    errno = errno_of(error)
    if errno and len(error.args) > 1:
        return f"error {errno}: {error.args[1]}"
    return str(error) or type(error).__name__


def source_fault(error: Exception, place: str) -> SourceError:
    """Class an error of a source; ``place`` says which source and what was being done."""
    errno = errno_of(error)
    message = f"{place}: {describe(error)}"
    if errno in CONNECTION_LOST:
        return SourceLost(message)
    if errno in PURGED:
        return PositionPurged(message)
    return SourceRejected(message, hint=_HINTS.get(errno))


def target_fault(error: Exception, place: str) -> TargetError:
    """Class an error of the target, outside of COMMIT."""
    errno = errno_of(error)
    message = f"{place}: {describe(error)}"
    if errno in CONNECTION_LOST:
        return TargetLost(message)
    if errno in LOCK_CONFLICTS:
        return LockConflict(message)
    if errno in KEY_CONFLICTS:
        return KeyConflict(message)
    if errno in ROW_MISSING:
        return RowMissing(message)
    return TargetRejected(message, hint=_HINTS.get(errno))


def commit_fault(error: Exception, place: str) -> TargetError:
    """Class an error in COMMIT: with the connection gone, only the checkpoint knows what happened."""
    errno = errno_of(error)
    if errno in CONNECTION_LOST or errno in COMMIT_FAILED:
        return CommitUnknown(f"{place}: {describe(error)}")
    return target_fault(error, place)


_HINTS = {
    1044: "Grant the account access to that database.",
    1045: "Correct user or password.",
    1105: "The target's table does not match the rows: compare SHOW CREATE TABLE on both sides.",
    1142: "Grant the account that privilege.",
    1146: "Create the table on the target with the source's definition, then start the stream again.",
    1153: "Raise max_allowed_packet on the target.",
    1227: "Grant the account that privilege; `vmerge check FILE` names what is needed.",
    1236: "Look at the source's error log; if another program reads with the same server_id, stop it.",
    1610: "The target's version cannot apply this event.",
    1114: "Make room on the target's disk, then start the stream again.",
}
