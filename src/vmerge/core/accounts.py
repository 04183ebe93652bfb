"""The least privileges that vmerge's accounts need.

Knows: which privilege is needed where, by what a workflow asks for. Never knows: what an account has, or how that is
found out. Used by preflight, which names what lacks, by ``vmerge check --grants``, and by the lab, whose accounts have
these and no others; docs/operators-guide.md shows what is printed.

Found by trying; each is taken away in tests/integration/test_preflight.py. BINLOG itself needs only INSERT, UPDATE or
DELETE, as the row says, and fails without a text when they lack (1105); SELECT is for the schema and for comparing
rows. BINLOG_ADMIN with SESSION_VARIABLES_ADMIN would serve in place of REPLICATION_APPLIER, but may do more.
REPLICATION CLIENT is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vmerge.core.appliers import ApplierSetting
from vmerge.core.grants import REPLICATION_APPLIER, REPLICATION_SLAVE, ROWS, TRIGGER, Grant
from vmerge.core.schema_policy import OnDdl

CONTROL = ("CREATE", *ROWS)
"""On the control database. An upgrade of its tables that adds columns needs ALTER, too, for that time."""

_SCHEMA_CHANGES = ("ALTER", "CREATE", "INDEX")
_REHEARSALS = ("ALTER", "DROP", "INDEX")
"""On the control database, where a schema change is tried on an empty copy."""


def source_grants(databases: Iterable[str]) -> tuple[Grant, ...]:
    """Return what an account needs on a source."""
    return (Grant((REPLICATION_SLAVE,)), *(Grant(("SELECT",), database) for database in databases))


def target_grants(
    databases: Iterable[str], control_database: str, applier: ApplierSetting, on_ddl: OnDdl
) -> tuple[Grant, ...]:
    """Return what an account needs on the target. With ``auto`` it is what row events need."""
    events = () if applier is ApplierSetting.STATEMENTS else (Grant((REPLICATION_APPLIER,)),)
    return (*events, *database_grants(databases, control_database, applier, on_ddl))


def database_grants(
    databases: Iterable[str], control_database: str, applier: ApplierSetting, on_ddl: OnDdl
) -> Iterator[Grant]:
    """Yield the part of ``target_grants`` that is about databases."""
    runs = on_ddl is OnDdl.EXECUTE
    merged = ROWS + ((TRIGGER,) if applier is ApplierSetting.STATEMENTS else ()) + (_SCHEMA_CHANGES if runs else ())
    for database in databases:
        yield Grant(merged, database)
    yield Grant(CONTROL + (_REHEARSALS if runs else ()), control_database)
