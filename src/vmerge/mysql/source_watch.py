"""What a source says of itself when it is asked now and then.

Knows: which variables tell it, and how versions differ. Never knows: when it is asked, or what follows. Used by the
assembly, for the supervisor's watching thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.position import GtidSet
from vmerge.core.source_facts import SourceFacts
from vmerge.mysql import sql
from vmerge.mysql.connect import Endpoint, short_connection
from vmerge.mysql.faults import errno_of, source_fault

ER_UNKNOWN_SYSTEM_VARIABLE = 1193
_DAY_SECONDS = 86400


def read_source_facts(endpoint: Endpoint, now: Callable[[], float]) -> SourceFacts:
    """Ask a source over a connection of its own; ``now`` is this machine's clock, seconds since 1970.

    Raises:
        SourceError: as ``mysql/faults.py`` classes it.
    """
    with short_connection(endpoint, "asking how far the source is", source_fault) as connection:
        before = now()
        executed, purged, source_time, kept_seconds = _read(connection, sql.SOURCE_WATCH)
        after = now()
        kept = _kept_seconds(connection, float(kept_seconds))
    middle = (before + after) / 2
    ahead = float(source_time) - middle
    return SourceFacts(middle, GtidSet.parse(executed), GtidSet.parse(purged), ahead, kept)


def _kept_seconds(connection: Connection[Any], seconds: float) -> float | None:
    if not int(_read_if_known(connection, sql.SOURCE_PURGES, 1)):
        return None
    return seconds or int(_read_if_known(connection, sql.SOURCE_KEPT_DAYS, 0)) * _DAY_SECONDS or None


def _read_if_known(connection: Connection[Any], statement: str, otherwise: int) -> Any:
    try:
        return _read(connection, statement)[0]
    except MySQLError as error:
        if errno_of(error) != ER_UNKNOWN_SYSTEM_VARIABLE:
            raise
        return otherwise


def _read(connection: Connection[Any], statement: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row: tuple[Any, ...] = cursor.fetchone()
    return row
