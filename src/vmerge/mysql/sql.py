"""Every fixed statement, named.

Knows: SQL text. Never knows: when or why a statement is sent. Used by the drivers only. Names of databases and tables
that come from a workflow are quoted with ``quoted``; values are always parameters.
"""

from __future__ import annotations


def quoted(name: str) -> str:
    """Quote one identifier."""
    return "`" + name.replace("`", "``") + "`"


# Sources

SOURCE_FACTS = "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged"
"""What the source has, and what of it the binlogs no longer hold."""

SET_DUMP_OPTIONS = (
    "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32', "
    "@source_heartbeat_period = %s, @master_heartbeat_period = %s, "
    "@replica_uuid = %s, @slave_uuid = %s"
)
"""What a dump looks at: we can read checksums (each file says whether it has any), heartbeats in nanoseconds, and
who we are: a source drops an older dump with the same uuid. Both spellings, as versions differ."""

WAIT_FOR_EXECUTED = "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 3)"
"""0 when the source has executed the set within three seconds."""

# Control tables on the target. ``{control}`` is the quoted name of the control database.

CREATE_CONTROL_DATABASE = "CREATE DATABASE IF NOT EXISTS {control} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

CREATE_STREAM_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.stream (
  workflow VARCHAR(64) NOT NULL,
  name VARCHAR(64) NOT NULL,
  position LONGTEXT NOT NULL COMMENT 'GTID set: everything in it is on this server',
  state VARCHAR(16) NOT NULL COMMENT 'running, stopped or error',
  message TEXT NOT NULL COMMENT 'why it stopped',
  epoch BIGINT UNSIGNED NOT NULL COMMENT 'fencing token: grows with every take-over',
  applied_at DATETIME(6) NULL COMMENT 'commit time, at the source and in UTC, of the last applied transaction',
  updated_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (workflow, name)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""One row a stream. LONGTEXT, because GTID sets of old clusters are large."""

CREATE_LOG_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.log (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  workflow VARCHAR(64) NOT NULL,
  stream VARCHAR(64) NOT NULL,
  happened_at DATETIME(6) NOT NULL COMMENT 'UTC',
  kind VARCHAR(32) NOT NULL,
  message TEXT NOT NULL,
  PRIMARY KEY (id),
  KEY by_stream (workflow, stream, id)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""What happened to each stream; bounded by ``TRIM_LOG``."""

REGISTER_STREAM = """
INSERT INTO {control}.stream (workflow, name, position, state, message, epoch, updated_at)
VALUES (%s, %s, %s, 'running', '', 0, UTC_TIMESTAMP(6))
"""
"""Give a new stream its start position."""

READ_STREAMS = "SELECT name, position, state, message, applied_at FROM {control}.stream WHERE workflow = %s"

LOCK_STREAM = "SELECT position, epoch FROM {control}.stream WHERE workflow = %s AND name = %s FOR UPDATE"
"""Wait for the transaction of an earlier owner to end, and see its outcome."""

TAKE_EPOCH = "UPDATE {control}.stream SET epoch = %s WHERE workflow = %s AND name = %s"

WRITE_CHECKPOINT = """
UPDATE {control}.stream SET position = %s, applied_at = FROM_UNIXTIME(%s / 1000000), updated_at = SYSDATE(6)
WHERE workflow = %s AND name = %s AND epoch = %s
"""
"""Must match one row: none means that another daemon took the stream over. SYSDATE, because events set NOW()."""

WRITE_STATE = """
UPDATE {control}.stream SET state = %s, message = %s, updated_at = SYSDATE(6) WHERE workflow = %s AND name = %s
"""

APPEND_LOG = """
INSERT INTO {control}.log (workflow, stream, happened_at, kind, message) VALUES (%s, %s, UTC_TIMESTAMP(6), %s, %s)
"""

TRIM_LOG = """
DELETE FROM {control}.log WHERE workflow = %s AND stream = %s AND id < (
  SELECT id FROM (
    SELECT id FROM {control}.log WHERE workflow = %s AND stream = %s ORDER BY id DESC LIMIT 1 OFFSET 1000
  ) AS oldest_kept
)
"""
"""Keep the last thousand entries of a stream."""

# Applying

TARGET_FACTS = "SELECT @@SESSION.rbr_exec_mode, @@GLOBAL.max_allowed_packet"

AUTOMATIC_GTID = "SET gtid_next = 'AUTOMATIC'"
"""Needed after a format description was sent with BINLOG (else error 1782)."""
