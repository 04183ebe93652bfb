"""Orders about rows in quarantine, as a daemon gets them, and how such rows are printed.

Knows: rows in quarantine as plain data, and who must hear of an order. Never knows: SQL or the control socket. Used by
the daemon and the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from vmerge.errors import DaemonError
from vmerge.hosting.status import Snapshot
from vmerge.hosting.supervisor import Supervisor
from vmerge.mysql.quarantine import StoredEntry
from vmerge.mysql.quarantine_orders import QuarantineOrders


class QuarantineDesk:
    """Takes one workflow's orders. Any thread may call."""

    def __init__(self, orders: QuarantineOrders, supervisor: Supervisor) -> None:
        self._orders = orders
        self._supervisor = supervisor

    def carry_out(self, order: str, id: int | None) -> Snapshot:
        """Do what an operator says: ``list``, or ``show``, ``retry``, ``drop`` with the number of a row.

        Raises:
            DaemonError: there is no such order or row.
            ConflictUnresolved: a row cannot come back, as a key is still held.
            TargetError, SourceError: the server cannot be reached or refuses.
        """
        match order, id:
            case "list", None:
                return {"rows": [_as_data(stored) for stored in self._orders.list()]}
            case "show", int():
                shown = self._orders.show(id)
                return {"row": {**_as_data(shown.stored), "values": dict(shown.values)}}
            case "retry", int():
                return self._settled(self._orders.retry(id))
            case "drop", int():
                return self._settled(self._orders.drop(id))
            case _:
                raise DaemonError(f"there is no order `{order}` like this for rows in quarantine")

    def _settled(self, stored: StoredEntry) -> Snapshot:
        """Let the stream know at once; it would find out by itself when it comes to the row."""
        self._supervisor.reread_quarantine(stored.stream)
        return {"row": _as_data(stored)}


def _as_data(stored: StoredEntry) -> dict[str, Any]:
    grounds = stored.entry.grounds
    return {
        "id": stored.id,
        "stream": stored.stream,
        "table": ".".join(stored.name[0]),
        "state": stored.entry.state.value,
        "key": grounds.key,
        "own": grounds.own,
        "holder": grounds.holder,
        "holder_stream": grounds.holder_stream,
        "proof": grounds.text,
        "gtid": stored.parked_gtid,
        "parked_at": stored.parked_at,
        "changed_gtid": str(stored.entry.gtid),
        "changed_at": stored.changed_at,
    }


def quarantine_table(rows: Sequence[Snapshot]) -> str:
    """Lay rows out as a table."""
    if not rows:
        return "No row is in quarantine."
    lines = [("ID", "STREAM", "TABLE", "ROW", "STATE", "SINCE", "KEY", "HELD BY")]
    for row in rows:
        holder = f"{row['holder']} of {row['holder_stream']}"
        since = _instant(row["parked_at"])
        lines.append((str(row["id"]), row["stream"], row["table"], row["own"], row["state"], since, row["key"], holder))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def quarantine_page(row: Snapshot) -> str:
    """Print all that is known of one row."""
    facts = [
        ("row", f"{row['id']}, {row['state']}"),
        ("stream", row["stream"]),
        ("table", row["table"]),
        ("proof", row["proof"]),
        ("parked", f"{_instant(row['parked_at'])} by transaction {row['gtid']}"),
        ("changed", f"{_instant(row['changed_at'])} by transaction {row['changed_gtid']}"),
    ]
    values = [(f"  {name}", "NULL" if value is None else value) for name, value in row["values"].items()]
    width = max(len(name) for name, _ in (*facts, *values))
    lines = [f"{name.ljust(width)}  {text}" for name, text in facts]
    return "\n".join([*lines, "values as at the source:", *(f"{name.ljust(width)}  {text}" for name, text in values)])


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
