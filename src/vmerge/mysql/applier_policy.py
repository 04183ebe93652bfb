"""What the target's account may: the part of ``core.appliers.ApplierPolicy`` that only the server knows.

Knows: how BINLOG is tried, and how grants are read. Never knows: tables. Used by preflight and at each start of a
stream.

Grants are read from SHOW GRANTS, which has those of active roles, too: there is no statement that needs TRIGGER, tells
so on every server, and changes nothing.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.appliers import ApplierPolicy, ApplierSetting
from vmerge.core.statement import format_description
from vmerge.mysql import sql
from vmerge.mysql.faults import CONNECTION_LOST, errno_of
from vmerge.mysql.preflight_server import PRIVILEGE_MISSING, read_account

PROBE_SERVER_ID = 1
"""Of the format description that is sent to see whether the account may; no event follows it."""

_GRANT = re.compile(r"(GRANT|REVOKE) (.+?) ON [`\"]?(.+?)[`\"]?\.\* (?:TO|FROM) ")
_EVERYTHING = "*"
_SEES_TRIGGERS = frozenset({"ALL PRIVILEGES", "TRIGGER"})


def read_policy(
    connection: Connection[Any], setting: ApplierSetting, user: str, databases: Iterable[str]
) -> ApplierPolicy:
    """Return what the account may, with no transaction open. Changes nothing. Raises what PyMySQL raises."""
    refusal = None if setting is ApplierSetting.STATEMENTS else _binlog_refusal(connection, user)
    unseen: frozenset[str] = frozenset()
    if setting is not ApplierSetting.EVENTS:
        with connection.cursor() as cursor:
            cursor.execute(sql.SHOW_GRANTS)
            grants = [str(grant) for (grant,) in cursor.fetchall()]
        unseen = frozenset(database for database in databases if not may_trigger(grants, database))
    return ApplierPolicy(setting, refusal, unseen, read_account(connection))


def _binlog_refusal(connection: Connection[Any], user: str) -> str | None:
    """Send what every session of a stream begins with: a description of events. Without events it changes nothing."""
    statement = f"BINLOG '{b64encode(format_description(PROBE_SERVER_ID)).decode()}'"
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            cursor.execute(sql.AUTOMATIC_GTID)
    except MySQLError as error:
        errno = errno_of(error)
        if errno in PRIVILEGE_MISSING:
            return f"the account {user} lacks REPLICATION_APPLIER"
        if errno in CONNECTION_LOST:
            raise
        return f"the target does not take BINLOG statements (error {errno})"
    return None


def may_trigger(grants: Sequence[str], database: str) -> bool:
    """Whether grants, as SHOW GRANTS prints them, let an account see all triggers of a database.

    Of several patterns that fit a database the server takes one and leaves the others: each must have the privilege.
    """
    everywhere, on_database = False, []
    for grant in grants:
        match = _GRANT.match(grant)
        if match is None or not _covers(match[3], database):
            continue
        has = not {privilege.strip() for privilege in match[2].split(",")}.isdisjoint(_SEES_TRIGGERS)
        if match[1] == "REVOKE":
            if has:
                return False
        elif match[3] == _EVERYTHING:
            everywhere = everywhere or has
        else:
            on_database.append(has)
    return everywhere or (bool(on_database) and all(on_database))


def _covers(pattern: str, database: str) -> bool:
    if pattern == _EVERYTHING:
        return True
    parts = re.findall(r"\\.|.", pattern.replace("``", "`"), re.DOTALL)
    wildcards = {"%": ".*", "_": "."}
    text = "".join(wildcards.get(part) or re.escape(part.removeprefix("\\")) for part in parts)
    return re.fullmatch(text, database, re.DOTALL) is not None
