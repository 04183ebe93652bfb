"""Operators' orders to streams, as they come: in words.

Knows: which words an order may have. Never knows: how it is carried out (the supervisor does that). Used by the daemon.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmerge.core.position import Gtid, GtidSet
from vmerge.errors import ConfigError
from vmerge.hosting.hosted import NOWHERE, Order
from vmerge.hosting.supervisor import Supervisor

REASON_CHARACTERS = 1000
"""Of a reason for a skip: it is one entry of a log."""


class StreamOrders:
    """Orders to the streams of one workflow. Every call raises ``ConfigError`` when a word is wrong."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def start(
        self, streams: Sequence[str] | None, past_schema_change: str | None, stop_at: str | None
    ) -> Sequence[str]:
        """Start streams; return the names of the started. See ``ControlledDaemon``."""
        accepted = frozenset() if past_schema_change is None else frozenset({_gtid_of(past_schema_change)})
        stops_at = NOWHERE if stop_at is None else _position_of(_only(streams), stop_at)
        order = Order(resumes=True, accepted_schema_changes=accepted, stops_at=stops_at)
        return self._supervisor.start(streams, order)

    def stop(self, streams: Sequence[str] | None, at: str | None) -> Sequence[str]:
        """Stop streams, now or where one shall; return their names."""
        if at is None:
            return self._supervisor.stop(streams)
        stream = _only(streams)
        self._supervisor.stop_at(stream, _position_of(stream, at))
        return (stream,)

    def skip(self, stream: str, gtid: str, reason: str) -> tuple[Gtid, GtidSet]:
        """Skip a transaction; return its name, and where the stream stands then."""
        wanted, told = _gtid_of(gtid), " ".join(reason.split())
        if not told or len(told) > REASON_CHARACTERS:
            raise ConfigError(
                f"a skip needs a reason of 1 to {REASON_CHARACTERS} characters", hint="Say why, with --reason."
            )
        return wanted, self._supervisor.skip(stream, wanted, told)


def _only(streams: Sequence[str] | None) -> str:
    if streams is None or len(streams) != 1:
        raise ConfigError("a position is one stream's", hint="Name the stream behind the workflow.")
    return streams[0]


def _gtid_of(text: str) -> Gtid:
    try:
        return Gtid.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), hint="Copy the GTID from the stream's message.") from error


def _position_of(stream: str, text: str) -> GtidSet:
    try:
        stops_at = GtidSet.parse(text)
    except ValueError as error:
        raise ConfigError(str(error), hint="Write it as `SELECT @@GLOBAL.gtid_executed` on the source does.") from error
    if not stops_at:
        raise ConfigError(f"the position to stop stream {stream} at is empty", hint="Name a GTID set.")
    return stops_at
