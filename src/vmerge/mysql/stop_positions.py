"""Where streams are ordered to stop, on the target: an order outlives the daemon that took it.

Knows: the control table ``stop_position``. Never knows: when a stream has come there. Used by ``mysql/states.py``,
which writes it together with a stream's state.
"""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from vmerge.core.position import GtidSet
from vmerge.mysql import sql


class StopPositions:
    """The stop positions of one workflow.

    Holds no connection: each call is given one, and takes part in its transaction. What PyMySQL raises is raised.
    """

    def __init__(self, control_database: str, workflow: str) -> None:
        self._control = sql.quoted(control_database).replace("%", "%%")  # values are put in by % formatting
        self._workflow = workflow

    def read(self, connection: Connection[Any], stream: str) -> GtidSet:
        """Return where a stream shall stop; the empty set: nowhere."""
        rows = self._run(connection, sql.READ_STOP_POSITION, self._workflow, stream)
        return GtidSet.parse(rows[0][0]) if rows else GtidSet()

    def write(self, connection: Connection[Any], stream: str, stops_at: GtidSet) -> None:
        """Set where a stream shall stop; with the empty set it shall stop nowhere."""
        self._run(connection, sql.REMOVE_STOP_POSITION, self._workflow, stream)
        if stops_at:
            self._run(connection, sql.ENTER_STOP_POSITION, self._workflow, stream, str(stops_at))

    def _run(self, connection: Connection[Any], statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(statement.format(control=self._control), values)
            return list(cursor.fetchall())
