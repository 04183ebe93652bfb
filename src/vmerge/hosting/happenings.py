"""What is worth telling about a stream as it happens.

Knows: which changes of what a board shows are news, and their words; no row values but primary keys. Never knows: who
listens. Used by the feed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from vmerge.core.blocked import Blocked, Ended, counted, finding_name, held_words, proof_name, proof_words
from vmerge.core.states import Phase
from vmerge.player.board import StreamProgress


class Kind(Enum):
    """What a happening is about; the value is its stable name."""

    STATE = "state"
    """The durable state, or the reason for it, is another; errors that stop a stream among them."""
    RESTART = "restart"
    """A transient error; the stream tries again."""
    CONFLICT = "conflict"
    """A key keeps the stream out."""
    REMEDY = "remedy"
    """What is done about it is another thing now."""
    VERDICT = "verdict"
    """What the evidence says about it is another thing now."""
    CONFLICT_ENDED = "conflict ended"
    SCHEMA_CHANGE = "schema change"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that has happened to a stream."""

    stream: str
    kind: Kind
    message: str
    facts: Mapping[str, Any]
    """JSON-ready."""


def happenings_of(before: StreamProgress, after: StreamProgress) -> Iterator[Happening]:
    """Yield what a change of a stream's progress tells."""
    name = after.name
    if (before.state, before.message) != (after.state, after.message) and before.state is not after.state:
        facts = {"state": after.state.value, "before": before.state.value, "reason": after.message}
        yield Happening(name, Kind.STATE, f"{after.state.value}: {after.message}".rstrip(": "), facts)
    if after.phase is Phase.BACKING_OFF and (before.phase, before.message) != (after.phase, after.message):
        yield Happening(name, Kind.RESTART, after.message, {"restarts": after.counters.restarts})
    if after.blocked is not None:
        yield from _of_wait(name, before.blocked, after.blocked)
    yield from _of_schema_change(before, after)
    if before.in_quarantine != after.in_quarantine:
        message = f"{counted(after.in_quarantine, 'row')} in quarantine"
        yield Happening(name, Kind.QUARANTINE, message, {"rows": after.in_quarantine, "before": before.in_quarantine})


def _of_wait(name: str, before: Blocked | None, after: Blocked) -> Iterator[Happening]:
    facts = {"gtid": after.gtid, "key": after.key, "attempts": after.attempts}
    if before is None:
        yield Happening(name, Kind.CONFLICT, f"transaction {after.gtid} is blocked by {after.key or 'a key'}", facts)
    elif before.remedy is not after.remedy:
        yield Happening(name, Kind.REMEDY, after.remedy.value, {**facts, "remedy": after.remedy.value})
    known = None if before is None else before.finding
    if after.finding is not None and finding_name(known) != finding_name(after.finding):
        told = {**facts, "finding": finding_name(after.finding), "proof": proof_name(after.finding)}
        words = f"{finding_name(after.finding)}: {held_words(after)}; {proof_words(after.finding)}"
        yield Happening(name, Kind.VERDICT, words, told)


def _of_schema_change(before: StreamProgress, after: StreamProgress) -> Iterator[Happening]:
    if before.barrier is None and after.barrier is not None:
        facts = {"gtid": after.barrier.gtid, "statement": after.barrier.statement, "outcome": "waits"}
        yield Happening(after.name, Kind.SCHEMA_CHANGE, f"waits at {after.barrier.statement}", facts)
    for outcome in ("executed", "ignored"):
        key = f"schema_changes_{outcome}"
        if getattr(before.counters, key) < getattr(after.counters, key):
            yield Happening(after.name, Kind.SCHEMA_CHANGE, outcome, {"outcome": outcome})


def happening_of_end(stream: str, ended: Ended) -> Happening:
    """Return what the end of a wait tells: how it ended, with the whole of the log's entry."""
    return Happening(stream, Kind.CONFLICT_ENDED, ended.sentence(), ended.facts())
