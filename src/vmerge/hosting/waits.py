"""The wait of a blocked stream as plain data, and in a few words.

Knows: what of a wait a program or an operator is told: who is waited for, what holds the key, and what will end it.
Never knows: row values; those are in ``vmerge show`` alone (``showing.py``). Used by the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from vmerge.core.barrier import Hindered
from vmerge.core.blocked import (
    Blocked,
    Remedy,
    counted,
    finding_name,
    held_facts,
    key_name,
    proof_name,
    tried_facts,
)
from vmerge.core.position import GtidSet
from vmerge.core.verdict import Permanent, Proof, Transient, Unproven

WaitSnapshot = dict[str, Any]
"""JSON-ready."""


def wait_snapshot(stream: str, blocked: Blocked, applied: Mapping[str, GtidSet], seconds: float) -> WaitSnapshot:
    """Return a wait as data; ``applied`` has every stream's position. Every key is always there."""
    held = blocked.held
    return {
        "seconds": round(seconds, 3),
        "attempts": blocked.attempts,
        "gtid": blocked.gtid,
        "key": key_name(blocked) if held is not None else blocked.key,
        "streams_not_free": list(blocked.unfree),
        "hindered": [],
        "remedy": blocked.remedy.value,
        "tried": tried_facts(blocked.tried),
        "finding": finding_name(blocked.finding),
        "proof": proof_name(blocked.finding),
        "reason": blocked.finding.reason if isinstance(blocked.finding, Unproven) else None,
        "held": None if held is None else held_facts(blocked, held),
        "awaited": [
            {
                "stream": other,
                "is_itself": other == stream,
                "transactions_before_fence": transactions_before_fence(blocked, other, applied),
            }
            for other in blocked.awaited
        ],
        "ends_with": ends_with(stream, blocked),
    }


def hindered_data(hindered: Iterable[Hindered]) -> list[dict[str, str]]:
    """Return as data which streams that are waited for do not move, and why."""
    return [{"stream": one.stream, "hindrance": one.hindrance.value, "text": one.sentence()} for one in hindered]


def transactions_before_fence(blocked: Blocked, stream: str, applied: Mapping[str, GtidSet]) -> int | None:
    """Return how many transactions a stream still has to bring up to its fence; None without a fence."""
    fence = blocked.fences.get(stream)
    if fence is None or stream not in applied:
        return None
    return fence.subtract(applied[stream]).count()


def ends_with(stream: str, blocked: Blocked) -> str | None:
    """Say what will end a wait; None as long as nothing is known."""
    match blocked.finding:
        case None | Unproven():
            return None
        case Permanent() as finding:
            return _repair(finding)
        case Transient(streams=()):
            return "the next attempt, unless a foreign key is in its way"
        case Transient(streams=streams) if streams == (stream,):
            return "later transactions of its own, by a jump or a joint commit"
        case Transient(streams=streams):
            asleep = [other for other in streams if other in blocked.unfree]
            begin = "".join(f"; `vmerge start -- WORKFLOW {other}` lets it run" for other in asleep)
            return f"transactions of {', '.join(streams)}{begin}"
        case _:
            assert_never(blocked.finding)


def _repair(finding: Permanent) -> str:
    match finding.proof:
        case Proof.DUPLICATE:
            return "a repair: one of the two rows is changed or deleted at its source"
        case Proof.STRICTER_TARGET:
            return "a repair: the target's key compares as the source's does, or one of the rows changes there"
        case Proof.FOREIGN_ROW:
            return "a repair: the row that no source has is moved or deleted on the target"
        case Proof.ALREADY_THERE:
            return "a repair: the position is corrected, or the row that is there already is deleted on the target"
        case _:
            assert_never(finding.proof)


def wait_sentence(wait: WaitSnapshot) -> str:
    """Put a wait into one sentence."""
    text = _reason(wait)
    if wait["remedy"] != Remedy.WAITING.value:
        text += f" ({wait['remedy']})"
    explained = {one["stream"] for one in wait["hindered"]}
    unfree = [name for name in wait["streams_not_free"] if name not in explained]
    text += f"; not running: {', '.join(unfree)}" if unfree else ""
    return text + "".join(f"; {one['text']}" for one in wait["hindered"])


def _reason(wait: WaitSnapshot) -> str:
    since, key = f"since {wait['seconds']:.1f} s", wait["key"] or "a key"
    match wait["finding"]:
        case "transient" if wait["held"] is None:
            return f"waits {since} for {key}, which no row holds any more"
        case "transient":
            return f"{_awaits(wait, since)}: {key} held by {_holder(wait)}; {_distances(wait)}"
        case "permanent":
            return f"waits {since}: {key} held by {_holder(wait)}; {_PROOFS[wait['proof']]}, if that is found once more"
        case "unproven":
            return f"waits {since} for {key}; what holds it is not known: {wait['reason']}"
        case _:
            return f"waits on a sibling {since} for {key}"


_PROOFS = {proof.name.lower(): proof.value for proof in Proof}


def _awaits(wait: WaitSnapshot, since: str) -> str:
    others = [one["stream"] for one in wait["awaited"] if not one["is_itself"]]
    return f"waits on {', '.join(others)} {since}" if others else f"waits {since}"


def _holder(wait: WaitSnapshot) -> str:
    """Name the holder, and whose it is where the awaited streams do not say so already."""
    held = wait["held"]
    streams = held["holder_streams"]
    is_told = streams == [one["stream"] for one in wait["awaited"]] and wait["finding"] == "transient"
    return str(held["holder"]) if is_told or not streams else f"{held['holder']} of {', '.join(streams)}"


def _distances(wait: WaitSnapshot) -> str:
    return ", ".join(_distance(one) for one in wait["awaited"])


def _distance(awaited: Mapping[str, Any]) -> str:
    count = awaited["transactions_before_fence"]
    if awaited["is_itself"]:
        return "its own later transactions release it"
    if count is None:
        return f"{awaited['stream']} releases it"
    if not count:
        return f"{awaited['stream']} has reached its fence"
    return f"{awaited['stream']} is {counted(count, 'transaction')} before its fence"
