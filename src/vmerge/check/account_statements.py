"""The accounts that a workflow needs, as statements to run on each server.

Knows: how they are printed. Never knows: what accounts there are: it asks no server. Used by ``vmerge check --grants``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vmerge.core.accounts import source_grants, target_grants
from vmerge.core.appliers import ApplierSetting
from vmerge.core.grants import ROWS, TRIGGER, Grant, account_name
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.preflight import WorkflowFacts
from vmerge.mysql.tls import TlsMode


def account_statements(facts: WorkflowFacts) -> Iterator[str]:
    """Yield lines of SQL: for each server its account, with the least privileges and what its TLS allows to ask for."""
    for stream in facts.streams:
        yield from _account(stream.source, source_grants(stream.rules.databases))
        yield ""
    databases = sorted({name for stream in facts.streams for name in stream.rules.databases.values()})
    grants = target_grants(databases, facts.control_database, facts.applier, facts.on_ddl)
    yield from _account(facts.target, grants)
    if facts.applier is not ApplierSetting.AUTO:
        return
    yield "-- If some columns are wider on the target, their tables go as statements, which need TRIGGER, too:"
    merged = [grant for grant in grants if grant.database in databases]
    for grant in merged:
        more = tuple(dict.fromkeys((*ROWS, TRIGGER, *grant.privileges)))
        yield f"-- {Grant(more, grant.database).statement(account_name(facts.target.user))}"


def _account(endpoint: Endpoint, grants: Iterable[Grant]) -> Iterator[str]:
    account = account_name(endpoint.user)
    yield f"-- {endpoint}"
    yield f"CREATE USER {account} IDENTIFIED BY '…'{_requirement(endpoint)};"
    for grant in grants:
        yield grant.statement(account)


def _requirement(endpoint: Endpoint) -> str:
    if endpoint.tls.certificate is not None:
        return " REQUIRE X509"
    return " REQUIRE SSL" if endpoint.tls.mode not in (TlsMode.DISABLED, TlsMode.PREFERRED) else ""
