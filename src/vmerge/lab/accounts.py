"""Accounts of vmerge on a lab's servers, with exactly the privileges that are documented.

Knows: how an account is made. Never knows: what it is for. Used by the demo, the benchmark and the tests.
"""

from __future__ import annotations

from collections.abc import Iterable

from vmerge.core.accounts import source_grants, target_grants
from vmerge.core.appliers import ApplierSetting
from vmerge.core.grants import Grant
from vmerge.core.schema_policy import OnDdl
from vmerge.lab.servers import Server


def create_source_account(
    server: Server, user: str, password: str, databases: Iterable[str], *, requires: str = "NONE"
) -> None:
    """Make an account on a shard, anew if it was there: past the binlog, which has the application's work only."""
    _create(server, user, password, source_grants(databases), f"SET sql_log_bin = 0; {_ACCOUNT}", requires)


def create_target_account(
    server: Server,
    user: str,
    password: str,
    databases: Iterable[str],
    control_database: str,
    *,
    applier: ApplierSetting = ApplierSetting.AUTO,
    on_ddl: OnDdl = OnDdl.STOP,
    requires: str = "NONE",
) -> None:
    """Make an account on the target, anew if it was there."""
    _create(server, user, password, target_grants(databases, control_database, applier, on_ddl), _ACCOUNT, requires)


def allow(server: Server, user: str, grants: Iterable[Grant]) -> None:
    """Give an account more."""
    for grant in grants:
        server.query(grant.statement(user))


_ACCOUNT = "DROP USER IF EXISTS {user}; CREATE USER {user} IDENTIFIED BY '{password}' REQUIRE {requires};"


def _create(server: Server, user: str, password: str, grants: Iterable[Grant], text: str, requires: str) -> None:
    account = text.format(user=user, password=password, requires=requires)
    server.execute_script(account + "".join(grant.statement(user) for grant in grants))
