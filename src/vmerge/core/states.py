"""The states of a stream and which change into which.

Knows: durable states (few, stored on the target) and phases (what a player is doing now, in memory only). Never knows:
who changes them or why. Used by the player, the board, the supervisor and the status.
"""

from __future__ import annotations

from enum import Enum


class StreamState(Enum):
    """Durable: survives a restart of the daemon. An operator's word moves a stream between them, or a fatal error."""

    RUNNING = "running"
    STOPPED = "stopped"
    ERROR = "error"


class Phase(Enum):
    """What a player is doing right now. Informational; lost with the process."""

    IDLE = "idle"
    CONNECTING = "connecting"
    STREAMING = "streaming"
    APPLYING = "applying"
    WAITING = "waiting on a sibling"
    BACKING_OFF = "backing off"
    STOPPING = "stopping"


_LEGAL = {
    StreamState.RUNNING: {StreamState.RUNNING, StreamState.STOPPED, StreamState.ERROR},
    StreamState.STOPPED: {StreamState.STOPPED, StreamState.RUNNING},
    StreamState.ERROR: {StreamState.ERROR, StreamState.RUNNING, StreamState.STOPPED},
}


def may_change(current: StreamState, following: StreamState) -> bool:
    """Whether a stream may go from one state to the other. A stopped stream cannot fail: nothing runs in it."""
    return following in _LEGAL[current]


def is_free(state: StreamState, phase: Phase) -> bool:
    """Whether a stream can move by itself, so that waiting for it makes sense."""
    return state is StreamState.RUNNING and phase in (Phase.STREAMING, Phase.APPLYING, Phase.WAITING)
