"""What the target must be.

Knows: the variables and privileges that applying row events needs. Never knows: tables or sources. Used by
``preflight.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace

from pymysql.err import MySQLError

from vmerge.core.accounts import database_grants
from vmerge.core.appliers import ApplierPolicy, ApplierSetting
from vmerge.core.findings import Finding, error, warning
from vmerge.core.grants import REPLICATION_APPLIER, Grant
from vmerge.core.schema_policy import OnDdl
from vmerge.mysql.control_layout import LAYOUT, ControlLayout
from vmerge.mysql.preflight_server import (
    Expectation,
    ServerView,
    check_databases,
    check_privileges,
    check_variables,
)

OLDEST_TARGET = (8, 0, 19)
"""The first that has VALUES ROW(…) beside REPLICATION_APPLIER."""

TARGET_VARIABLES = (
    "max_allowed_packet",
    "offline_mode",
    "rbr_exec_mode",
    "read_only",
    "replica_type_conversions",
    "server_uuid",
    "slave_type_conversions",
    "super_read_only",
)

_EXPECTATIONS: tuple[Expectation, ...] = (
    (
        "read-only",
        "super_read_only",
        lambda value: value == "OFF",
        "OFF",
        "Use the server that takes writes, or SET GLOBAL super_read_only=OFF.",
    ),
    (
        "read-only",
        "read_only",
        lambda value: value == "OFF",
        "OFF",
        "Use the server that takes writes, or SET GLOBAL read_only=OFF.",
    ),
    ("offline", "offline_mode", lambda value: value == "OFF", "OFF", "SET GLOBAL offline_mode=OFF"),
    (
        "exec-mode",
        "rbr_exec_mode",
        lambda value: value == "STRICT",
        "STRICT",
        "Remove it from init_connect on the target: with IDEMPOTENT, missing rows and duplicates pass without a word.",
    ),
    (
        "type-conversions",
        "replica_type_conversions|slave_type_conversions",
        lambda value: value == "",
        "empty",
        "SET PERSIST replica_type_conversions='': with it, a differing column would change values without a word.",
    ),
)


def check_target(
    server: ServerView, user: str, databases: Sequence[str], control_database: str, on_ddl: OnDdl
) -> Iterator[Finding]:
    """Yield what does not fit at the target, but for what an applier needs: see ``check_policy``."""
    yield from check_variables(server, _EXPECTATIONS)
    upgrade = yield from _check_layout(server, control_database)
    # Whether TRIGGER is needed depends on the appliers that the tables get.
    *merged, control = database_grants(databases, control_database, ApplierSetting.AUTO, on_ddl)
    control = replace(control, privileges=tuple(dict.fromkeys(control.privileges + upgrade)))
    yield from check_privileges(server, [*merged, control], user)
    yield from check_databases(
        server, databases, "Create it, with its tables, or correct `databases` in the workflow file."
    )


def _check_layout(server: ServerView, control_database: str) -> Generator[Finding, None, tuple[str, ...]]:
    """Tell when the control tables are of another version; return what an upgrade needs beyond the usual."""
    layout = ControlLayout(control_database)
    try:
        found = layout.version(server.connection)
        alters = found is not None and found < LAYOUT and layout.needs_alter(server.connection)
    except MySQLError:
        return ()  # what lacks is told by the privileges
    if found is not None and found > LAYOUT:
        yield error(
            "control-newer",
            server.where,
            f"the control tables in {control_database} have layout {found}, and this vmerge knows layout {LAYOUT}",
            "Run this workflow with the vmerge that made them, or a later one.",
        )
    if found is not None and found < LAYOUT:
        yield warning(
            "control-older",
            server.where,
            f"the control tables in {control_database} have layout {found}, and the start makes that layout {LAYOUT}",
            "Nothing, or read docs/operators-guide.md about upgrades first.",
        )
    return ("ALTER",) if alters else ()


def check_policy(server: ServerView, policy: ApplierPolicy) -> Iterator[Finding]:
    """Tell when row events cannot be applied: an error only where the workflow file asks for them."""
    if policy.refusal is None:
        return
    if policy.setting is ApplierSetting.AUTO:
        yield warning(
            "statements-only",
            server.where,
            f"{policy.refusal}: rows go as INSERT, UPDATE and DELETE",
            f"{Grant((REPLICATION_APPLIER,)).statement(policy.account)} Where that is possible, row events cost less.",
        )
    else:
        yield error(
            "privilege",
            server.where,
            policy.refusal,
            policy.events_hint,
        )


def check_packet(server: ServerView, sources: Iterable[ServerView]) -> Iterator[Finding]:
    """Warn of rows that a source takes and the target would not."""
    ours = int(server.variables.get("max_allowed_packet", "0"))
    for source in sources:
        theirs = int(source.variables.get("max_allowed_packet", "0"))
        if ours < theirs:
            yield warning(
                "max-allowed-packet",
                server.where,
                f"max_allowed_packet is {ours}, below the {theirs} of {source.where}: a row of more than "
                f"{ours // 4 * 3} bytes would stop the stream",
                "Raise max_allowed_packet on the target, at best to 1G.",
            )
