"""Why streams that others wait for do not come by themselves, as far as the board shows.

Knows: which states and waits of a stream keep it where it is. Never knows: servers, or what is done about it. Used by
``schema_changes.py`` and by the status.

A key behind a change
---------------------
B may be blocked by a key that A releases only behind a schema change, while A waits there for B to come to the same
one. Then neither goes on, and nothing that vmerge may do helps: A's release has the new shape of the table, and B's
transaction the old one. It is certain once the evidence names as those who release the key only streams that wait at
changes for B, and B has failed an attempt since they wait: what they have applied by then is all that they can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmerge.core.barrier import Hindered, Hindrance
from vmerge.core.blocked import Blocked, key_name
from vmerge.core.states import Phase, StreamState
from vmerge.core.verdict import Transient
from vmerge.player.board import StreamProgress

_AWAY = frozenset({Phase.IDLE, Phase.BACKING_OFF, Phase.LOCKED_OUT, Phase.STOPPING})


def hindrances(own: str, awaited: Iterable[str], streams: Mapping[str, StreamProgress]) -> tuple[Hindered, ...]:
    """Return which of the streams that ``own`` waits for at a schema change do not come, and why."""
    found = []
    for name in awaited:
        stream = streams[name]
        held = stream.blocked
        if held is not None and _waits_for_waiters(name, held, own, streams):
            found.append(Hindered(name, Hindrance.HELD_UP, key_name(held)))
        elif (reason := hindrance(stream)) is not None:
            found.append(reason)
    return tuple(found)


def hindrance(stream: StreamProgress) -> Hindered | None:
    """Return what keeps a stream from moving by itself; None if nothing is known to, or it is blocked by a key."""
    message = " ".join(stream.message.split())
    match stream.state:
        case StreamState.STOPPED:
            return Hindered(stream.name, Hindrance.STOPPED, message)
        case StreamState.ERROR:
            return Hindered(stream.name, Hindrance.FAILED, message)
    if stream.phase in _AWAY:
        return Hindered(stream.name, Hindrance.AWAY, ": ".join(filter(None, (stream.phase.value, message))))
    if stream.barrier is not None:
        return Hindered(stream.name, Hindrance.AT_CHANGE, stream.barrier.statement)
    return None


def _waits_for_waiters(name: str, blocked: Blocked, own: str, streams: Mapping[str, StreamProgress]) -> bool:
    """Whether only streams that wait for this one could release the key that it waits for."""
    waiters = {other.name for other in streams.values() if other.barrier is not None and name in other.barrier.awaited}
    releasing = set(blocked.awaited)
    if not isinstance(blocked.finding, Transient) or not releasing or name in releasing:
        return False
    return releasing <= (waiters | {own}) & set(blocked.unfree)
