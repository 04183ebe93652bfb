"""The states of a stream.

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
    AT_BARRIER = "waiting at a schema change"
    LOCKED_OUT = "waiting for a lock"
    BACKING_OFF = "backing off"
    STANDBY = "standby"
    STOPPING = "stopping"


def is_free(state: StreamState, phase: Phase) -> bool:
    """Whether a stream can move by itself, so that waiting for it makes sense. One that is locked out may stay so."""
    return state is StreamState.RUNNING and phase in (Phase.STREAMING, Phase.APPLYING, Phase.WAITING)
