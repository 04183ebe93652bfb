"""Snapshots of what streams do, as plain data.

Knows: how progress is put into numbers and words for an operator. Never knows: servers or threads. Used by the control
server, the command line and ``vmerge run``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmerge.core.barrier import Hindered, Hindrance
from vmerge.core.blocked import Blocked, counted
from vmerge.core.position import GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.core.stop_position import StopPosition
from vmerge.hosting.behind import lag_words, purge_words, source_snapshot
from vmerge.hosting.waits import hindered_data, wait_sentence, wait_snapshot
from vmerge.player.board import BarrierWait, Board, LockWait, StreamProgress
from vmerge.player.counters import BATCH_SIZES
from vmerge.player.hindrances import hindrance
from vmerge.stopping import Clock

Snapshot = dict[str, Any]
"""JSON-ready."""

_WITHOUT_SERVERS = frozenset(phase.value for phase in (Phase.IDLE, Phase.CONNECTING, Phase.BACKING_OFF))


def workflow_snapshot(workflow: str, board: Board, clock: Clock, standby_for: str | None = None) -> Snapshot:
    """Return the state of one workflow: ``{"workflow": …, "standby_for": …, "streams": [{…}, …]}``."""
    streams = board.all_progress()
    applied = {stream.name: stream.applied for stream in streams}
    snapshots = [stream_snapshot(stream, applied, clock) for stream in streams]
    for snapshot, stream in zip(snapshots, streams, strict=True):
        if snapshot["blocked"] is not None:
            snapshot["blocked"]["hindered"] = hindered_data(_hindered(stream, streams))
    return {"workflow": workflow, "standby_for": standby_for, "streams": snapshots}


def _hindered(blocked: StreamProgress, streams: Sequence[StreamProgress]) -> list[Hindered]:
    """Return why the siblings that a blocked stream found unable to move are so; one that waits for it says it best."""
    found = []
    for one in streams:
        if blocked.blocked is None or one.name not in blocked.blocked.unfree:
            continue
        here = hindrance(one)
        is_ring = one.barrier is not None and any(
            other.stream == blocked.name and other.hindrance is Hindrance.HELD_UP for other in one.barrier.hindered
        )
        if here is not None:
            found.append(replace(here, hindrance=Hindrance.RING) if is_ring else here)
    return found


def stream_snapshot(progress: StreamProgress, applied: Mapping[str, GtidSet], clock: Clock) -> Snapshot:
    """Return the state of one stream; ``applied`` has every stream's position.

    Seconds are floats; ``lag_seconds`` is None before the first transaction.
    """
    counters = progress.counters
    return {
        "stream": progress.name,
        "state": progress.state.value,
        "phase": progress.phase.value,
        "message": progress.message,
        "applied": str(progress.applied),
        "applied_at": progress.applied_at,
        "is_at_head": progress.is_at_head,
        "stops_at": _stops_at(progress),
        "lag_seconds": _lag_seconds(progress, clock),
        **source_snapshot(progress, clock),
        "batch_limit": progress.batch_limit,
        "transactions": counters.transactions,
        "batches": counters.batches,
        "batch_sizes": [
            {"up_to": bound, "batches": count}
            for bound, count in zip((*BATCH_SIZES, None), counters.batch_sizes, strict=True)
        ],
        "row_events": counters.row_events,
        "row_bytes": counters.rows_bytes,
        "spool_bytes": 0 if progress.spool is None else progress.spool.byte_count,
        "restarts": counters.restarts,
        "restart_causes": dict(counters.restart_causes),
        "lock_conflicts": counters.lock_conflicts,
        "conflicts": {
            "flushes": counters.flushes,
            "splits": counters.splits,
            "waits": counters.waits,
            "jumps": counters.jumps,
            "joints": counters.joints,
            "testimonies": counters.testimonies,
            "verdicts": {
                "duplicate": counters.duplicates,
                "foreign_row": counters.foreign_rows,
                "stricter_target": counters.stricter_targets,
            },
            "quarantined": counters.quarantined,
            "returned": counters.returned,
        },
        "in_quarantine": progress.in_quarantine,
        "blocked_seconds_total": round(counters.blocked_seconds + _since(progress.blocked, clock), 3),
        "waited_seconds": _waited_seconds(progress, clock),
        "blocked": _blocked(progress, applied, clock),
        "locked": _locked(progress, clock),
        "schema_changes": {
            "executed": counters.schema_changes_executed,
            "ignored": counters.schema_changes_ignored,
        },
        "barrier_seconds_total": round(counters.barrier_seconds + _since(progress.barrier, clock), 3),
        "barrier": _barrier(progress, clock),
    }


def unready_streams(status: Snapshot) -> list[Snapshot]:
    """Return the streams of a daemon's status that shall run and do not: in error, or without one of their servers.

    One that an operator has stopped is as it shall be. One that waits for a sibling or a lock is at work. Who asks for
    this needs no token, so it tells no message, which may name hosts and tables.
    """
    return [
        {
            "workflow": workflow["workflow"],
            "stream": stream["stream"],
            "state": stream["state"],
            "phase": stream["phase"],
        }
        for workflow in status["workflows"]
        for stream in workflow["streams"]
        if stream["state"] == StreamState.ERROR.value
        or (stream["state"] == StreamState.RUNNING.value and stream["phase"] in _WITHOUT_SERVERS)
    ]


def _stops_at(progress: StreamProgress) -> Snapshot | None:
    """Return where a stream is ordered to stop, and how many transactions of that are missing."""
    if not progress.stops_at:
        return None
    missing = StopPosition(progress.stops_at).missing(progress.applied)
    return {"position": str(progress.stops_at), "missing": missing}


def _lag_seconds(progress: StreamProgress, clock: Clock) -> float | None:
    """Return by how much the target is behind, by the commit time of the last applied transaction."""
    if progress.is_at_head:
        return 0.0
    if progress.applied_at is None:
        return None
    return round(max(0.0, clock.wall() - progress.applied_at), 3)


def _since(wait: Blocked | LockWait | BarrierWait | None, clock: Clock) -> float:
    """Return for how long a wait has been under way."""
    return 0.0 if wait is None else clock.monotonic() - wait.since


def _waited_seconds(progress: StreamProgress, clock: Clock) -> dict[str, float]:
    counters = progress.counters
    waited = {
        "key": counters.blocked_seconds + _since(progress.blocked, clock),
        "lock": counters.locked_seconds + _since(progress.locked, clock),
        "schema_change": counters.barrier_seconds + _since(progress.barrier, clock),
        "restart": counters.restart_seconds,
    }
    return {reason: round(seconds, 3) for reason, seconds in waited.items()}


def _blocked(progress: StreamProgress, applied: Mapping[str, GtidSet], clock: Clock) -> Snapshot | None:
    blocked = progress.blocked
    if blocked is None:
        return None
    return wait_snapshot(progress.name, blocked, applied, _since(blocked, clock))


def _locked(progress: StreamProgress, clock: Clock) -> Snapshot | None:
    locked = progress.locked
    if locked is None:
        return None
    return {"seconds": round(_since(locked, clock), 3), "attempts": locked.attempts}


def _barrier(progress: StreamProgress, clock: Clock) -> Snapshot | None:
    barrier = progress.barrier
    if barrier is None:
        return None
    return {
        "seconds": round(_since(barrier, clock), 3),
        "gtid": barrier.gtid,
        "statement": barrier.statement,
        "awaited": list(barrier.awaited),
        "hindered": hindered_data(barrier.hindered),
    }


def barrier_sentence(barrier: Snapshot) -> str:
    """Say what a stream waits for at a schema change."""
    awaited = ", ".join(barrier["awaited"])
    what = f"for {awaited} to come to the same one" if awaited else "while it is run"
    hindered = "".join(f"; {one['text']}" for one in barrier["hindered"])
    return f"waits at a schema change since {barrier['seconds']:.1f} s, {what}: {barrier['statement']}{hindered}"


def stream_sentence(stream: Snapshot) -> str:
    """Put what a stream is doing into a few words."""
    count = stream["in_quarantine"]
    kept = f"; {count} {'row' if count == 1 else 'rows'} in quarantine" if count else ""
    stops_at = stream["stops_at"]
    stops = "" if stops_at is None else f"; stops at a position, {counted(stops_at['missing'], 'transaction')} to go"
    return _doing(stream) + kept + stops + purge_words(stream)


def _doing(stream: Snapshot) -> str:
    message = " ".join(stream["message"].split())  # some have a line for each finding
    if stream["state"] != StreamState.RUNNING.value:
        return f"{stream['state']}: {message}" if message else stream["state"]
    locked = stream["locked"]
    if locked is not None and stream["phase"] == Phase.LOCKED_OUT.value:
        return (
            f"waits for a lock on the target since {locked['seconds']:.1f} s, {locked['attempts']} attempts; "
            "see sys.innodb_lock_waits there"
        )
    if stream["barrier"] is not None:
        return barrier_sentence(stream["barrier"])
    if stream["blocked"] is not None:
        return wait_sentence(stream["blocked"])
    if stream["is_at_head"]:
        return "at head"
    return f"{stream['phase']}: {message}" if message else stream["phase"]


def status_line(snapshot: Snapshot) -> str:
    """Put a workflow into one line for a terminal."""
    return " | ".join(
        f"{stream['stream']} {stream['transactions']} tx, lag {lag_words(stream)}, {stream_sentence(stream)}"
        for stream in snapshot["streams"]
    )


def status_table(snapshots: Sequence[Snapshot]) -> str:
    """Lay workflows and their streams out as a table."""
    head = ("WORKFLOW", "STREAM", "STATE", "LAG", "BEHIND", "TRANSACTIONS", "WAITS", "BLOCKED", "DOING")
    rows = [head]
    for snapshot in snapshots:
        for stream in snapshot["streams"]:
            behind = stream["transactions_behind"]
            rows.append(
                (
                    snapshot["workflow"],
                    stream["stream"],
                    stream["state"],
                    lag_words(stream),
                    "–" if behind is None else str(behind),
                    str(stream["transactions"]),
                    str(stream["conflicts"]["waits"]),
                    f"{stream['blocked_seconds_total']:.1f} s",
                    stream_sentence(stream),
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
