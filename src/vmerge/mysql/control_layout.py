"""The control tables: how they lie in the control database, and how older ones become like that.

Knows: the definitions, the version of their layout, and how tables of an older version are upgraded. Never knows: what
is kept in them, or when. Used by ``mysql/checkpoints.py`` and the preflight.

The upgrade
-----------
A newer vmerge upgrades what it finds before it reads or writes anything else there; an older one refuses what is newer.
There is one number for all tables, as they change together; tables from before it was kept have the version 0.

An upgrade adds what is missing and removes nothing, so a daemon of the older version that still runs another workflow
with the same control database goes on. Each statement is the server's own atomic change, is left out where it was made
already, and the number is written last: an upgrade that was killed is finished by the next one. A user lock keeps two
apart. Rows stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge import __version__
from vmerge.core.accounts import CONTROL
from vmerge.core.grants import Grant
from vmerge.errors import LockConflict, TargetRejected
from vmerge.mysql.faults import describe, errno_of
from vmerge.mysql.sql import quoted
from vmerge.mysql.user_locks import get_lock, lock_name, release_lock

LAYOUT = 1
"""The version that this vmerge knows. Whoever adds a table or a column counts it up."""

CREATE_CONTROL_DATABASE = "CREATE DATABASE IF NOT EXISTS {control} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

CREATE_STREAM_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.stream (
  workflow VARCHAR(64) NOT NULL,
  name VARCHAR(64) NOT NULL,
  position LONGTEXT NOT NULL COMMENT 'GTID set: everything in it is on this server',
  state VARCHAR(16) NOT NULL COMMENT 'running, stopped or error',
  message TEXT NOT NULL COMMENT 'why it stopped',
  epoch BIGINT UNSIGNED NOT NULL COMMENT 'fencing token: grows with every take-over',
  owner VARCHAR(255) NOT NULL DEFAULT '' COMMENT 'who has it: host, process id, random part',
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
  facts JSON NULL COMMENT 'of a conflict; no row values but primary keys',
  PRIMARY KEY (id),
  KEY by_stream (workflow, stream, id)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""What happened to each stream; bounded by ``TRIM_LOG``."""

CREATE_QUARANTINE_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.quarantine (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  workflow VARCHAR(64) NOT NULL,
  stream VARCHAR(64) NOT NULL,
  target_database VARCHAR(64) NOT NULL,
  target_table VARCHAR(64) NOT NULL,
  row_key LONGBLOB NOT NULL COMMENT 'primary key: each part behind its length in 4 bytes',
  image LONGBLOB NOT NULL COMMENT 'the row as it stands at its source, as in a rows event',
  table_map LONGBLOB NOT NULL COMMENT 'body of the table map event that the image belongs to',
  flags SMALLINT UNSIGNED NOT NULL COMMENT 'of the rows event',
  state VARCHAR(16) NOT NULL COMMENT 'parked: comes as soon as it can; dropped: given up',
  unique_key VARCHAR(255) NOT NULL COMMENT 'the key that is held',
  own TEXT NOT NULL COMMENT 'primary key of the row when it was parked',
  holder TEXT NOT NULL COMMENT 'primary key of the row that held the key then',
  holder_stream VARCHAR(64) NOT NULL,
  proof TEXT NOT NULL,
  gtid VARCHAR(128) NOT NULL COMMENT 'the transaction that brought the duplicate',
  changed_gtid VARCHAR(128) NOT NULL COMMENT 'the last transaction that changed the row',
  parked_at DATETIME(6) NOT NULL COMMENT 'UTC',
  changed_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY by_stream (workflow, stream, id)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""One row for each row that a stream keeps off the target."""

CREATE_SCHEMA_CHANGE_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.schema_change (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  workflow VARCHAR(64) NOT NULL,
  target_database VARCHAR(64) NOT NULL,
  target_table VARCHAR(64) NOT NULL,
  statements JSON NOT NULL COMMENT 'as they run here, in order',
  gtids JSON NOT NULL COMMENT 'stream: its transaction',
  definitions JSON NOT NULL COMMENT 'of the table before each statement and behind the last; empty: there is none',
  state VARCHAR(16) NOT NULL COMMENT 'begun: the definition tells what was run; done: all streams are behind it',
  begun_at DATETIME(6) NOT NULL COMMENT 'UTC',
  done_at DATETIME(6) NULL COMMENT 'UTC',
  PRIMARY KEY (id),
  KEY by_state (workflow, state)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""One row for each schema change that was run for all streams."""

CREATE_SOURCE_TABLE_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.source_table (
  workflow VARCHAR(64) NOT NULL,
  stream VARCHAR(64) NOT NULL,
  target_database VARCHAR(64) NOT NULL,
  target_table VARCHAR(64) NOT NULL,
  description LONGTEXT NULL COMMENT 'the table at the source; rows without names are read by it; NULL: to be read anew',
  passed_at BIGINT NULL COMMENT 'when the change was made that the stream passed last, in seconds since 1970',
  PRIMARY KEY (workflow, stream, target_database, target_table)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""One row for each table that a stream has carried; see mysql/source_memory.py."""

CREATE_SHADOW_CHANGE_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.shadow_change (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  workflow VARCHAR(64) NOT NULL,
  stream VARCHAR(64) NOT NULL,
  source_database VARCHAR(64) NOT NULL,
  source_table VARCHAR(64) NOT NULL COMMENT 'the shadow table of an online schema change tool',
  gtid VARCHAR(128) NOT NULL,
  statement LONGTEXT NOT NULL,
  PRIMARY KEY (id),
  UNIQUE KEY by_gtid (workflow, stream, gtid)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""What was done to shadow tables since they were made."""

CREATE_STOP_POSITION_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.stop_position (
  workflow VARCHAR(64) NOT NULL,
  stream VARCHAR(64) NOT NULL,
  stops_at LONGTEXT NOT NULL COMMENT 'GTID set: the stream stops when all of it is applied',
  ordered_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (workflow, stream)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""One row for each stream that is ordered to stop somewhere and has not come there."""

CREATE_DAEMON_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.daemon (
  workflow VARCHAR(64) NOT NULL,
  owner VARCHAR(255) NOT NULL COMMENT 'who has the workflow: host, process id, random part',
  session BIGINT UNSIGNED NOT NULL COMMENT 'that holds the lock; of another session the row says nothing',
  held_since DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (workflow)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""Which daemon runs a workflow, or did last; see mysql/workflow_lock.py."""

CREATE_LAYOUT_TABLE = """
CREATE TABLE IF NOT EXISTS {control}.layout (
  version INT UNSIGNED NOT NULL COMMENT 'of these tables',
  vmerge VARCHAR(64) NOT NULL COMMENT 'the version that made them so',
  changed_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (version)
) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
"""
"""One row for each version that the tables have had; the greatest is what they have."""

_TABLES = {
    "stream": CREATE_STREAM_TABLE,
    "log": CREATE_LOG_TABLE,
    "quarantine": CREATE_QUARANTINE_TABLE,
    "schema_change": CREATE_SCHEMA_CHANGE_TABLE,
    "source_table": CREATE_SOURCE_TABLE_TABLE,
    "shadow_change": CREATE_SHADOW_CHANGE_TABLE,
    "stop_position": CREATE_STOP_POSITION_TABLE,
    "daemon": CREATE_DAEMON_TABLE,
    "layout": CREATE_LAYOUT_TABLE,
}
"""Each in its newest form."""


@dataclass(frozen=True, slots=True)
class Addition:
    """A column that a table did not have from the beginning."""

    table: str
    column: str
    definition: str
    """And its place: as in the newest form of the table."""


_ADDITIONS = (
    Addition(
        "stream",
        "owner",
        "VARCHAR(255) NOT NULL DEFAULT '' COMMENT 'who has it: host, process id, random part' AFTER epoch",
    ),
    Addition("log", "facts", "JSON NULL COMMENT 'of a conflict; no row values but primary keys'"),
)

_READ_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
_READ_COLUMNS = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s"
_READ_VERSION = "SELECT MAX(version) FROM {control}.layout"
_WRITE_VERSION = "INSERT INTO {control}.layout (version, vmerge, changed_at) VALUES (%s, %s, UTC_TIMESTAMP(6))"

_ER_NO_SUCH_TABLE = 1146
_ER_BAD_DB = 1049
_ER_TABLE_ACCESS_DENIED = 1142
_LOCK_SECONDS = 10


class ControlLayout:
    """The tables of one control database. Each call is given a connection, with no transaction open."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._control = quoted(database).replace("%", "%%")  # values are put in by % formatting

    def version(self, connection: Connection[Any]) -> int | None:
        """Return the version of what is there; None where no table of ours is."""
        try:
            ((version,),) = self._run(connection, _READ_VERSION)
        except MySQLError as error:
            if errno_of(error) not in (_ER_NO_SUCH_TABLE, _ER_BAD_DB):
                raise
            version = None
        if version is not None:
            return int(version)
        return 0 if "stream" in self._tables(connection) else None

    def create(self, connection: Connection[Any]) -> None:
        """Make the tables, or make them as they shall be.

        Raises:
            TargetRejected: they are of a newer version, or the account may not change them.
        """
        if self.version(connection) is None:
            self._run(connection, CREATE_CONTROL_DATABASE)
            self._change(connection)
        else:
            self.upgrade(connection)

    def upgrade(self, connection: Connection[Any]) -> int | None:
        """Make tables of an older version as they shall be; return that version, None if nothing was to be done.

        Raises:
            TargetRejected: they are of a newer version, or the account may not change them.
        """
        found = self.version(connection)
        if found is not None and found > LAYOUT:
            raise TargetRejected(
                f"the control tables in {self._database} have layout {found}, of a newer vmerge: "
                f"this one ({__version__}) knows layout {LAYOUT}",
                hint="Run this workflow with the vmerge that made them, or a later one.",
            )
        if found is None or found == LAYOUT:
            return None
        self._change(connection)
        return found

    def _change(self, connection: Connection[Any]) -> None:
        name = lock_name("layout", self._database)
        if not get_lock(connection, name, _LOCK_SECONDS):
            raise LockConflict(f"another vmerge changes the control tables in {self._database}")
        try:
            if self.version(connection) == LAYOUT:
                return
            for statement in self.pending(connection):
                self._run_upgrade(connection, statement)
            self._run(connection, _WRITE_VERSION, LAYOUT, __version__)
        finally:
            release_lock(connection, name)

    def needs_alter(self, connection: Connection[Any]) -> bool:
        """Whether an upgrade changes tables that are there."""
        return any(statement.startswith("ALTER") for statement in self.pending(connection))

    def pending(self, connection: Connection[Any]) -> list[str]:
        """Return the statements that make the tables as they shall be."""
        tables = self._tables(connection)
        columns = set(self._run(connection, _READ_COLUMNS, self._database))
        created = [statement for name, statement in _TABLES.items() if name not in tables]
        added = [
            f"ALTER TABLE {{control}}.{one.table} ADD COLUMN {one.column} {one.definition}"
            for one in _ADDITIONS
            if one.table in tables and (one.table, one.column) not in columns
        ]
        return created + added

    def _run_upgrade(self, connection: Connection[Any], statement: str) -> None:
        try:
            self._run(connection, statement)
        except MySQLError as error:
            if errno_of(error) != _ER_TABLE_ACCESS_DENIED:
                raise
            raise TargetRejected(
                f"the control tables in {self._database} cannot be upgraded to layout {LAYOUT}: {describe(error)}",
                hint=f"{Grant((*CONTROL, 'ALTER'), self._database).statement('the account')} It is for the first start "
                "of this version: start the streams then; ALTER may be revoked afterwards.",
            ) from error

    def _tables(self, connection: Connection[Any]) -> set[str]:
        return {name for (name,) in self._run(connection, _READ_TABLES, self._database)}

    def _run(self, connection: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(control=self._control), values)
            return list(cursor.fetchall())
