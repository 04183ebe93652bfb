"""What a source must be.

Knows: the variables and privileges that a dump of whole rows by GTID needs. Never knows: tables or the target. Used
by ``preflight.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from vmerge.core.accounts import source_grants
from vmerge.core.findings import Finding, error, warning
from vmerge.core.grants import REPLICATION_SLAVE, Grant
from vmerge.core.position import GtidSet
from vmerge.core.rules import Start
from vmerge.mysql import sql
from vmerge.mysql.preflight_server import (
    PARSE_ERROR,
    PRIVILEGE_MISSING,
    Expectation,
    ServerView,
    check_databases,
    check_privileges,
    check_variables,
    lacking,
)

OLDEST_SOURCE = (8, 0, 13)
"""The first whose schema views show expressions in keys; earlier ones hide unique keys from us."""

SOURCE_VARIABLES = (
    "auto_increment_increment",
    "auto_increment_offset",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "enforce_gtid_consistency",
    "gtid_mode",
    "innodb_native_foreign_keys",
    "log_bin",
    "log_replica_updates",
    "log_slave_updates",
    "max_allowed_packet",
    "server_uuid",
)

_HINT = "Set it in the source's configuration, for sessions that are open too, and run `vmerge check FILE` again."

_EXPECTATIONS: tuple[Expectation, ...] = (
    ("log-bin", "log_bin", lambda value: value == "ON", "ON", "Start the source with log_bin."),
    ("gtid-mode", "gtid_mode", lambda value: value == "ON", "ON", "Set gtid_mode=ON on the source, step by step."),
    ("gtid-consistency", "enforce_gtid_consistency", lambda value: value == "ON", "ON", _HINT),
    ("binlog-format", "binlog_format", lambda value: value == "ROW", "ROW", _HINT),
    ("row-image", "binlog_row_image", lambda value: value == "FULL", "FULL", _HINT),
)


def check_source(
    server: ServerView, user: str, databases: tuple[str, ...], start: Start, checkpoint: GtidSet | None
) -> Iterator[Finding]:
    """Yield what does not fit at one source. ``checkpoint`` is where the stream goes on, if it has run before."""
    yield from check_variables(server, _EXPECTATIONS)
    yield from _check_what_is_written(server)
    yield from _check_replication_privilege(server, user)
    yield from check_privileges(server, source_grants(databases), user)
    yield from check_databases(server, databases, "Correct `databases` in the workflow file.")
    yield from _check_position(server, start, checkpoint)


def _check_what_is_written(server: ServerView) -> Iterator[Finding]:
    """Warn of settings that a merge can live with, and say what each costs."""
    if server.variables.get("binlog_row_metadata") == "MINIMAL":
        yield warning(
            "row-metadata",
            server.where,
            "binlog_row_metadata is MINIMAL: rows come without the names of their columns and labels, so after an "
            "ALTER TABLE on this source, rows that were written before it stop the stream, or are misread if it only "
            "changed the order of columns of one type or of labels, and the target was altered, too, before they came",
            "SET PERSIST binlog_row_metadata=FULL; it costs some bytes a transaction. Until then alter the target only "
            "when every stream has come to its own ALTER TABLE.",
        )
    if server.variables.get("binlog_row_value_options"):
        yield warning(
            "partial-json",
            server.where,
            "binlog_row_value_options is PARTIAL_JSON: rows come without the whole document, so some key conflicts "
            "cannot be resolved",
            "SET PERSIST binlog_row_value_options=''",
        )
    if server.variable("log_replica_updates", "log_slave_updates") == "OFF":
        yield warning(
            "replica-updates",
            server.where,
            "log_replica_updates is OFF: what this server replicates from another is not in its binlog and not merged",
            "If this source is a replica, set log_replica_updates=ON.",
        )


def _check_replication_privilege(server: ServerView, user: str) -> Iterator[Finding]:
    errno = 0
    for statement in sql.PROBE_REPLICATION_SLAVE:
        errno = server.errno(statement)
        if errno != PARSE_ERROR:
            break
    if errno in PRIVILEGE_MISSING:
        yield lacking(server, Grant((REPLICATION_SLAVE,)), (REPLICATION_SLAVE,), user)


def _check_position(server: ServerView, start: Start, checkpoint: GtidSet | None) -> Iterator[Finding]:
    position = checkpoint if checkpoint is not None else start
    if not isinstance(position, GtidSet) or server.variables.get("gtid_mode") != "ON":
        return
    # Not from SHOW VARIABLES, which cuts values at 1,024 characters.
    executed, purged = (GtidSet.parse(text) for text in server.query(sql.SOURCE_FACTS)[0])
    what = "the start position" if checkpoint is None else "the stream's position"
    missing = purged.subtract(position)
    if not missing.is_empty():
        yield error(
            "position-purged",
            server.where,
            f"the binlogs behind {what} are purged: {missing} is needed",
            "Start from a later position with the rows to match; keep binlogs longer (binlog_expire_logs_seconds).",
        )
    ahead = position.subtract(executed)
    if not ahead.is_empty():
        yield error(
            "position-ahead",
            server.where,
            f"{what} has transactions that this source never had: {ahead}",
            "Correct `start`; or the source was restored from an older state: use a server that has them.",
        )
