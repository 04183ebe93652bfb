"""Numbers and flags of the binlog's events.

Knows: which number means which event, and which events are ignored on purpose. Never knows: their content.
Used by ``core/binlog.py`` and ``core/statement.py``. Source: mysql::binlog::event::Log_event_type.
"""

from __future__ import annotations

from vmerge.core.events import RowsKind

HEADER_LENGTH = 19
CHECKSUM_LENGTH = 4

# The CRC32 of any bytes followed by their own CRC32 (little-endian) is this constant.
CHECKSUM_RESIDUE = 0x2144DF1C

IGNORABLE_FLAG = 0x80
"""LOG_EVENT_IGNORABLE_F, in an event's header."""

STATEMENT_END_FLAG = 0x01
NO_FOREIGN_KEY_CHECKS_FLAG = 0x02
RELAXED_UNIQUE_CHECKS_FLAG = 0x04
KNOWN_ROWS_FLAGS = 0x1F
"""Also 0x08, complete rows, and 0x10, foreign keys acted on above the storage engine (since 9.6)."""

QUERY = 2
STOP = 3
ROTATE = 4
INTVAR = 5
RAND = 13
USER_VAR = 14
FORMAT_DESCRIPTION = 15
XID = 16
BEGIN_LOAD_QUERY = 17
EXECUTE_LOAD_QUERY = 18
TABLE_MAP = 19
WRITE_ROWS_V1 = 23
UPDATE_ROWS_V1 = 24
DELETE_ROWS_V1 = 25
INCIDENT = 26
HEARTBEAT = 27
IGNORABLE = 28
ROWS_QUERY = 29
WRITE_ROWS = 30
UPDATE_ROWS = 31
DELETE_ROWS = 32
GTID = 33
ANONYMOUS_GTID = 34
PREVIOUS_GTIDS = 35
TRANSACTION_CONTEXT = 36
VIEW_CHANGE = 37
XA_PREPARE = 38
PARTIAL_UPDATE_ROWS = 39
TRANSACTION_PAYLOAD = 40
HEARTBEAT_V2 = 41
GTID_TAGGED = 42

ROWS_KINDS = {
    WRITE_ROWS_V1: RowsKind.WRITE,
    UPDATE_ROWS_V1: RowsKind.UPDATE,
    DELETE_ROWS_V1: RowsKind.DELETE,
    WRITE_ROWS: RowsKind.WRITE,
    UPDATE_ROWS: RowsKind.UPDATE,
    DELETE_ROWS: RowsKind.DELETE,
    PARTIAL_UPDATE_ROWS: RowsKind.PARTIAL_UPDATE,
}

# Each of these carries nothing that a row on the target depends on. PREVIOUS_GTIDS repeats what we asked for; the
# statement behind INTVAR, RAND and USER_VAR is judged by itself; the group replication events certify.
IGNORED = (
    STOP,
    INTVAR,
    RAND,
    USER_VAR,
    IGNORABLE,
    ROWS_QUERY,
    PREVIOUS_GTIDS,
    TRANSACTION_CONTEXT,
    VIEW_CHANGE,
)

BEFORE_FORMAT = frozenset({ROTATE, HEARTBEAT, HEARTBEAT_V2})
"""What a source may send before the first format description."""

NEVER_INSIDE_PAYLOAD = frozenset(
    {
        ROTATE,
        STOP,
        FORMAT_DESCRIPTION,
        INCIDENT,
        HEARTBEAT,
        HEARTBEAT_V2,
        GTID,
        GTID_TAGGED,
        ANONYMOUS_GTID,
        PREVIOUS_GTIDS,
        TRANSACTION_PAYLOAD,
    }
)
"""What belongs to the stream, not to a transaction."""
