"""Every fixed statement, named.

Knows: SQL text. Never knows: when or why a statement is sent. Used by the drivers only. Names of databases and tables
that come from a workflow are quoted with ``quoted``; values are always parameters.
"""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """Quote one identifier."""
    return "`" + name.replace("`", "``") + "`"


# Both sides

READ_ACCOUNT = "SELECT CURRENT_USER()"
"""The account that privileges belong to, as ``user@host``."""

READ_CIPHER = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
"""Empty when the session is not encrypted."""

# Sources

SOURCE_FACTS = "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
"""What the source has, and what of it the binlogs no longer hold."""

SOURCE_WATCH = """
SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged, UNIX_TIMESTAMP(NOW(6)), @@GLOBAL.binlog_expire_logs_seconds
"""
"""What is asked of a source now and then: no privilege is needed for it, and no table is read."""

SOURCE_PURGES = "SELECT @@GLOBAL.binlog_expire_logs_auto_purge"
"""Whether it purges by itself; from MySQL 8.0.29 on, earlier ones always do."""

SOURCE_KEPT_DAYS = "SELECT @@GLOBAL.expire_logs_days"
"""How sources until 8.0 may say it instead of in seconds."""

SET_DUMP_OPTIONS = (
    "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32', "
    "@source_heartbeat_period = %s, @master_heartbeat_period = %s, "
    "@replica_uuid = %s, @slave_uuid = %s"
)
"""What a dump looks at: we can read checksums (each file says whether it has any), heartbeats in nanoseconds, and
who we are: a source drops an older dump with the same uuid. Both spellings, as versions differ."""

SOURCE_UUID = "SELECT @@GLOBAL.server_uuid"

WAIT_FOR_EXECUTED = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 3)"
"""0 when the source has executed the set within three seconds."""

# Control tables on the target (mysql/control_layout.py). ``{control}`` is the quoted name of the control database.

READ_SOURCE_TABLES = """
SELECT target_database, target_table, description, passed_at FROM {control}.source_table
WHERE workflow = %s AND stream = %s
"""

RENEW_SOURCE_TABLE = """
UPDATE {control}.source_table SET description = %s, passed_at = NULL
WHERE workflow = %s AND stream = %s AND target_database = %s AND target_table = %s
  AND description IS NULL AND passed_at <=> %s
"""
"""Matches nothing when the stream has passed another change since the row was read, in whatever daemon."""

ENTER_SOURCE_TABLE = """
INSERT INTO {control}.source_table (workflow, stream, target_database, target_table, description)
VALUES (%s, %s, %s, %s, %s)
"""

OUTDATE_SOURCE_TABLES = """
UPDATE {control}.source_table SET description = NULL, passed_at = %s WHERE workflow = %s AND stream = %s
"""

OUTDATE_SOURCE_TABLE = """
UPDATE {control}.source_table SET description = NULL, passed_at = %s
WHERE workflow = %s AND stream = %s AND target_database = %s AND target_table = %s
"""

READ_ALTERED_AT = """
SELECT table_schema, table_name, UNIX_TIMESTAMP(create_time) FROM information_schema.tables WHERE table_schema IN %s
"""

FORGET_SHADOW = """
DELETE FROM {control}.shadow_change
WHERE workflow = %s AND stream = %s AND source_database = %s AND source_table = %s
"""

FORGET_SHADOW_STATEMENT = "DELETE FROM {control}.shadow_change WHERE workflow = %s AND stream = %s AND gtid = %s"

NOTE_SHADOW_STATEMENT = """
INSERT INTO {control}.shadow_change (workflow, stream, source_database, source_table, gtid, statement)
VALUES (%s, %s, %s, %s, %s, %s)
"""

READ_SHADOW = """
SELECT statement FROM {control}.shadow_change
WHERE workflow = %s AND stream = %s AND source_database = %s AND source_table = %s ORDER BY id
"""

READ_BEGUN_CHANGES = """
SELECT id, gtids, statements, definitions FROM {control}.schema_change
WHERE workflow = %s AND state = 'begun' AND target_database = %s AND target_table = %s ORDER BY id DESC
"""

BEGIN_SCHEMA_CHANGE = """
INSERT INTO {control}.schema_change (
  workflow, target_database, target_table, gtids, statements, definitions, state, begun_at
) VALUES (%s, %s, %s, %s, %s, %s, 'begun', SYSDATE(6))
"""

END_SCHEMA_CHANGE = "UPDATE {control}.schema_change SET state = 'done', done_at = SYSDATE(6) WHERE id = %s"

FIND_TABLE = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"

DROP_REHEARSAL = "DROP TABLE IF EXISTS {table}"

READ_STOP_POSITION = "SELECT stops_at FROM {control}.stop_position WHERE workflow = %s AND stream = %s"

ENTER_STOP_POSITION = """
INSERT INTO {control}.stop_position (workflow, stream, stops_at, ordered_at) VALUES (%s, %s, %s, SYSDATE(6))
"""

REMOVE_STOP_POSITION = "DELETE FROM {control}.stop_position WHERE workflow = %s AND stream = %s"

LOCK_STANDING = """
SELECT position, epoch, owner, state FROM {control}.stream WHERE workflow = %s AND name = %s FOR UPDATE
"""

SKIP = """
UPDATE {control}.stream SET position = %s, epoch = %s, owner = %s, updated_at = SYSDATE(6)
WHERE workflow = %s AND name = %s
"""

REGISTER_STREAM = """
INSERT INTO {control}.stream (workflow, name, position, state, message, epoch, owner, updated_at)
VALUES (%s, %s, %s, 'running', '', 0, %s, UTC_TIMESTAMP(6))
"""
"""Give a new stream its start position and its first owner."""

READ_STREAMS = "SELECT name, position, state, message, applied_at, owner FROM {control}.stream WHERE workflow = %s"

READ_OWNER = "SELECT owner, epoch FROM {control}.stream WHERE workflow = %s AND name = %s"
"""Who has a stream; waits for no lock."""

HOLD_OWNER = "SELECT owner FROM {control}.stream WHERE workflow = %s AND name = %s FOR SHARE"
"""Who has a stream, and has it until the open transaction ends."""

READ_STAND = "SELECT position, epoch FROM {control}.stream WHERE workflow = %s AND name = %s"

LOCK_STREAM = "SELECT position, epoch, owner FROM {control}.stream WHERE workflow = %s AND name = %s FOR UPDATE"
"""Wait for the transaction of an earlier owner to end, and see its outcome."""

TAKE_EPOCH = "UPDATE {control}.stream SET epoch = %s, owner = %s WHERE workflow = %s AND name = %s"

WRITE_CHECKPOINT = """
UPDATE {control}.stream
SET position = %s, applied_at = COALESCE(FROM_UNIXTIME(%s / 1000000), applied_at), updated_at = SYSDATE(6)
WHERE workflow = %s AND name = %s AND epoch = %s
"""
"""Must match one row: none means that another daemon took the stream over. SYSDATE, because events set NOW()."""

WRITE_JOINT_CHECKPOINT = """
UPDATE {control}.stream
SET position = %s, applied_at = COALESCE(FROM_UNIXTIME(%s / 1000000), applied_at), updated_at = SYSDATE(6)
WHERE workflow = %s AND name = %s AND epoch = %s AND position = %s
"""
"""Must match one row: none means that the member of a joint commit is no longer where its offer said."""

WRITE_STATE = """
UPDATE {control}.stream SET state = %s, message = %s, updated_at = SYSDATE(6)
WHERE workflow = %s AND name = %s AND owner IN %s
"""
"""Must match one row: the row of a stream that was taken over is its new owner's. A state is written outside of the
sessions of the epochs, also when a take-over's answer was never heard; so the owner counts."""

APPEND_LOG = """
INSERT INTO {control}.log (workflow, stream, happened_at, kind, message) VALUES (%s, %s, SYSDATE(6), %s, %s)
"""

APPEND_CONFLICT = """
INSERT INTO {control}.log (workflow, stream, happened_at, kind, message, facts)
VALUES (%s, %s, UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND, %s, %s, %s)
"""
"""An entry that is written some time after it happened."""

READ_LOG = """
SELECT id, stream, DATE_FORMAT(happened_at, '%%Y-%%m-%%d %%H:%%i:%%s.%%f'), kind, message, facts
FROM {control}.log WHERE workflow = %s AND stream IN %s ORDER BY id DESC LIMIT %s
"""

TRIM_LOG = """
DELETE FROM {control}.log WHERE workflow = %s AND stream = %s AND id < (
  SELECT id FROM (
    SELECT id FROM {control}.log WHERE workflow = %s AND stream = %s ORDER BY id DESC LIMIT 1 OFFSET 1000
  ) AS oldest_kept
)
"""
"""Keep the last thousand entries of a stream."""

READ_QUARANTINE = """
SELECT id, stream, target_database, target_table, row_key, image, table_map, flags, state,
  unique_key, own, holder, holder_stream, proof, gtid, changed_gtid, parked_at, changed_at
FROM {control}.quarantine WHERE workflow = %s"""
"""Conditions and an order follow."""

ADD_TO_QUARANTINE = """
INSERT INTO {control}.quarantine (
  workflow, stream, target_database, target_table, row_key, image, table_map, flags, state,
  unique_key, own, holder, holder_stream, proof, gtid, changed_gtid, parked_at, changed_at
) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, SYSDATE(6), SYSDATE(6))
"""

CHANGE_IN_QUARANTINE = """
UPDATE {control}.quarantine
SET row_key = %s, image = %s, table_map = %s, flags = %s, state = %s, changed_gtid = %s, changed_at = SYSDATE(6)
WHERE id = %s AND state = %s AND workflow = %s
"""
"""Must match one row, as all that change an entry: none means that an operator has settled it."""

SET_QUARANTINE_STATE = "UPDATE {control}.quarantine SET state = %s WHERE id = %s AND workflow = %s"

REMOVE_FROM_QUARANTINE = "DELETE FROM {control}.quarantine WHERE id = %s AND state = %s AND workflow = %s"

READ_DAEMON = "SELECT owner FROM {control}.daemon WHERE workflow = %s AND session = %s"

RENEW_DAEMON = """
UPDATE {control}.daemon SET owner = %s, session = %s, held_since = UTC_TIMESTAMP(6) WHERE workflow = %s
"""

ENTER_DAEMON = (
    "INSERT INTO {control}.daemon (owner, session, workflow, held_since) VALUES (%s, %s, %s, UTC_TIMESTAMP(6))"
)

# Applying

TARGET_FACTS = "SELECT @@SESSION.rbr_exec_mode, @@GLOBAL.max_allowed_packet"

SHOW_GRANTS = "SHOW GRANTS"
"""Of the session's account, with what its active roles may."""

READ_PACKET_BYTES = "SELECT @@GLOBAL.max_allowed_packet"

READ_CHARSETS = "SELECT id, character_set_name FROM information_schema.collations"
"""The character set of each collation that a table map may name."""

SHOW_WARNINGS = "SHOW WARNINGS"

USE_ANY_DATABASE = "USE information_schema"
"""JSON_TABLE asks for a current database (else error 1046), and every account may use this one."""

SHOW_TABLE = "SHOW CREATE TABLE {table}"

KILL_QUERY = "KILL QUERY {id}"

KILL_SESSION = "KILL %s"
"""An account may end its own sessions without any privilege."""

SHOW_SESSIONS = "SHOW PROCESSLIST"
"""Those of the account; of others too, if it has the privilege PROCESS."""

GET_LOCK = "SELECT GET_LOCK(%s, %s)"

RELEASE_LOCK = "SELECT RELEASE_LOCK(%s)"

IS_USED_LOCK = "SELECT IS_USED_LOCK(%s)"
"""The session that has a lock; NULL if nobody has it."""

AUTOMATIC_GTID = "SET gtid_next = 'AUTOMATIC'"
"""Needed after a format description was sent with BINLOG (else error 1782)."""


# Schemas (mysql/schemas.py). Statistics of tables are left out: they alone make these views slow and stale.

SHOW_GENERATED_KEYS = "SET SESSION show_gipk_in_create_table_and_information_schema = ON"
"""Let the schema views and SHOW CREATE TABLE show primary keys that the server made by itself (8.0.30 and later)."""

READ_COLLATIONS = "SELECT collation_name, id FROM information_schema.collations"
"""The number of each collation, as table maps carry it."""

READ_TABLES = (
    "SELECT table_schema, table_name, engine FROM information_schema.tables "
    "WHERE table_schema IN %s AND table_type = 'BASE TABLE' ORDER BY table_schema, table_name"
)
"""The base tables of some databases."""

READ_COLUMNS = (
    "SELECT table_schema, table_name, column_name, ordinal_position, column_type, is_nullable, "
    "character_octet_length, character_set_name, collation_name, extra, generation_expression, srs_id "
    "FROM information_schema.columns WHERE table_schema IN %s ORDER BY table_schema, table_name, ordinal_position"
)
"""Their columns, in order."""

READ_UNIQUE_KEYS = (
    "SELECT table_schema, table_name, index_name, column_name, expression, sub_part "
    "FROM information_schema.statistics WHERE table_schema IN %s AND non_unique = 0 "
    "ORDER BY table_schema, table_name, index_name, seq_in_index"
)
"""The parts of their unique keys, in order."""

READ_FOREIGN_KEYS = (
    "SELECT table_schema, table_name, constraint_name, column_name, "
    "referenced_table_schema, referenced_table_name, referenced_column_name "
    "FROM information_schema.key_column_usage WHERE table_schema IN %s AND referenced_table_name IS NOT NULL "
    "ORDER BY table_schema, table_name, constraint_name, ordinal_position"
)
"""The columns of their foreign keys, in order."""

READ_FOREIGN_KEY_RULES = (
    "SELECT constraint_schema, table_name, constraint_name, delete_rule, update_rule "
    "FROM information_schema.referential_constraints WHERE constraint_schema IN %s"
)
"""What their foreign keys do when a parent changes."""

READ_TRIGGERS = (
    "SELECT DISTINCT event_object_schema, event_object_table FROM information_schema.triggers "
    "WHERE event_object_schema IN %s"
)
"""The tables that have triggers, as far as the account may see them."""


FIND_TRIGGERS = (
    "SELECT event_object_schema, event_object_table, trigger_name FROM information_schema.triggers "
    "WHERE (event_object_schema, event_object_table) IN %s"
)
"""Those of some tables. The account sees them: without TRIGGER on their databases no statement is sent."""


def encode_labels(charsets: Iterable[str]) -> str:
    """Make the statement that returns each of its parameters in a character set, as bytes."""
    return "SELECT " + ", ".join(f"CAST(CONVERT(%s USING {quoted(charset)}) AS BINARY)" for charset in charsets)


# Preflight (mysql/preflight*.py). Nothing here changes anything.

READ_VARIABLES = "SHOW VARIABLES WHERE variable_name IN %s"
"""Those of the variables that this server has; values are cut at 1,024 characters."""

PROBE_TABLE = "vmerge_probe"
"""A table that nobody has. A server that lacks a privilege says so before it says that there is no such table, so
these statements tell about privileges, roles and wildcards included, and can never change anything."""

PROBES = {
    "SELECT": "SELECT 1 FROM {table} LIMIT 0",
    "INSERT": "EXPLAIN INSERT INTO {table} VALUES ()",
    "UPDATE": "EXPLAIN UPDATE {table} SET a = NULL",
    "DELETE": "EXPLAIN DELETE FROM {table}",
    "CREATE": "CREATE TABLE {table} (a INT, a INT)",
    "ALTER": "ALTER TABLE {table} ADD COLUMN a INT, ADD COLUMN a INT",
    "INDEX": "CREATE INDEX a ON {table} (a, a)",
    "DROP": "DROP VIEW {table}",
}
"""What tells whether an account has a privilege on a database. Even with such a table there, CREATE, ALTER and INDEX
would fail on a column that they name twice, and DROP on its not being a view."""

PROBE_REPLICATION_SLAVE = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
"""Needs the same privilege as a dump: as versions from 8.0.22 on call it, and as earlier ones do."""


# Evidence about conflicts (mysql/probe.py, mysql/lookup.py). Rows come in transactions that are always rolled back.

CREATE_PROBE_TABLE = "CREATE TABLE IF NOT EXISTS {probe} LIKE {table}"
"""A table with the columns and unique keys of another, and without its foreign keys."""

EMPTY_PROBE_TABLE = "DELETE FROM {probe}"
"""Inside the transaction: rows of a probe table that are not ours would be false evidence."""

READ_PROBED = "SELECT {columns} FROM {probe}"

MATCH_ROWS = """
SELECT /*+ MERGE(p, t) SET_VAR(optimizer_switch = 'use_invisible_indexes=on') */ {columns}
FROM {probe} STRAIGHT_JOIN {table} ON {conditions} WHERE {own} LIMIT {limit}
"""
"""Rows of a probe table and the rows of the target that have their key. The probe's drive, as they are few."""

READ_VALUE = "(SELECT /*+ MERGE(o) */ {value} FROM {probe} WHERE {own})"
"""One value as a constant: an index on an expression serves a comparison with nothing else."""

READ_ROWS = "SELECT /*+ MERGE({alias}) */ {columns} FROM {table} WHERE {conditions} LIMIT {limit}"

READ_OWNED = "SELECT @@GLOBAL.gtid_owned"
"""The GTIDs of transactions in their commit: their rows may be seen a moment before ``READ_EXECUTED`` has them."""

READ_EXECUTED = "SELECT @@GLOBAL.gtid_executed"
