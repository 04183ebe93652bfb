"""What a source may write and a merge cannot carry: the texts for operators.

Knows: reasons and remedies. Never knows: how an event is read. Used by ``core/binlog.py``.
"""

from __future__ import annotations

from vmerge.core import event_types
from vmerge.core.position import Gtid
from vmerge.errors import UnsupportedEvent

_ROW_FORMAT = "Set binlog_format=ROW on the source, in every session too."

REFUSED = {
    event_types.ANONYMOUS_GTID: ("sent a transaction without a GTID", "Set gtid_mode=ON on the source."),
    event_types.INCIDENT: (
        "reports an incident: events were lost",
        "The shard's rows must be copied anew from a position behind the incident.",
    ),
    event_types.BEGIN_LOAD_QUERY: ("wrote LOAD DATA as a statement", _ROW_FORMAT),
    event_types.EXECUTE_LOAD_QUERY: ("wrote LOAD DATA as a statement", _ROW_FORMAT),
}
"""By event type: what the source did, and what helps."""


def refused_event(event_type: int, where: str) -> UnsupportedEvent:
    """Say why an event of this type stops the stream."""
    text, hint = REFUSED.get(
        event_type,
        (
            f"sent an event of type {event_type}, which is not known here",
            "Look at that place with mysqlbinlog; a newer version of vmerge may know it.",
        ),
    )
    return UnsupportedEvent(f"the source {text}, {where}", hint=hint)


def refused_statement(gtid: Gtid, word: str) -> UnsupportedEvent:
    """Name a statement by its first word only: its text may hold row values."""
    if word == "ROLLBACK":
        return refused_end(gtid, word)
    return UnsupportedEvent(
        f"transaction {gtid} holds a statement ({word}) where rows are needed",
        hint=f"{_ROW_FORMAT} The source's binlog has the statement.",
    )


def refused_end(gtid: Gtid, word: str) -> UnsupportedEvent:
    """Say why rows that end with a statement instead of an engine's commit stop the stream."""
    if word == "ROLLBACK":
        return UnsupportedEvent(
            f"transaction {gtid} was rolled back in part, and what is left of it cannot be told",
            hint="Do not mix storage engines in one transaction. The source's binlog has it.",
        )
    return UnsupportedEvent(
        f"transaction {gtid} changes rows of a storage engine without transactions; a crash of the source may leave "
        "them different from what its binlog says",
        hint="Leave such tables out with `tables` or `exclude`. Or start over from a position behind it, with the "
        "table turned into InnoDB on the source and its rows copied.",
    )
