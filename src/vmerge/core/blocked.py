"""The wait of a blocked stream as its siblings and its operator see it, and how it ended.

Knows: what is worth telling of a wait, and what of that a log may keep. Never knows: how it is shown, or what the
stream does next (``core/conflict.py``). Used by the board, the reporter, the journal and the status.

A log keeps no row values: primary keys and the names of tables, keys and columns at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

from vmerge.core.evidence import Held, Presence, Testimony
from vmerge.core.position import GtidSet
from vmerge.core.verdict import Finding, Permanent, Transient, Unproven

LOGGED_FENCE_CHARACTERS = 1000
"""Of a fence that a log keeps: GTID sets of old clusters are large, and many entries may name one."""


class Remedy(Enum):
    """What a blocked stream is doing about it."""

    WAITING = "waiting"
    JUMPING = "jumping"
    JOINING = "joining"
    LOOKING_UP = "looking up"


@dataclass(frozen=True, slots=True)
class Tried:
    """What was tried in a wait beside attempts with the blocked transaction alone."""

    jumps: int = 0
    """Jumps that did not fit."""
    longest_jump: int = 0
    """The transactions in the longest of them."""
    offers: int = 0
    """How often the run ahead was offered for a joint commit."""
    testimonies: int = 0
    """How often evidence was asked for."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The wait a stream is in."""

    since: float
    """Monotonic."""
    attempts: int
    gtid: str
    key: str
    """As the server names it; empty when it does not."""
    unfree: tuple[str, ...]
    finding: Finding | None = None
    """What the last evidence proved; None before there was any."""
    testimony: Testimony | None = None
    """The last evidence that could be gathered."""
    may_join: bool = True
    """Whether the stream will offer its run, if the wait lasts."""
    remedy: Remedy = Remedy.WAITING
    tried: Tried = Tried()

    @property
    def held(self) -> Held | None:
        """The row that is kept out and the one in its way, if the evidence tells."""
        return self.finding.held if isinstance(self.finding, Permanent | Transient) else None

    @property
    def awaited(self) -> tuple[str, ...]:
        """The streams that can end the wait, as far as the evidence tells; the own one is among them if it can."""
        match self.finding:
            case Transient(streams=streams):
                return streams
            case Permanent(holder_stream=str() as stream):
                return (stream,)
            case Permanent() | Unproven() | None:
                return ()
            case _:
                assert_never(self.finding)

    @property
    def holders(self) -> tuple[str, ...]:
        """The streams whose sources have the holder, changed or not."""
        if isinstance(self.finding, Permanent):
            return () if self.finding.holder_stream is None else (self.finding.holder_stream,)
        if self.held is None:
            return ()
        presences = self.held.holder_presences.items()
        return tuple(stream for stream, presence in presences if presence is not Presence.GONE)

    @property
    def fences(self) -> Mapping[str, GtidSet]:
        """What each source had executed when the evidence was gathered."""
        return {} if self.testimony is None else self.testimony.heads


class Outcome(Enum):
    """How a wait ended; the value is its kind in the log."""

    RELEASED = "wait"
    """The transaction alone fitted: somebody released the key, as a rule with a commit of a sibling."""
    JUMPED = "jump"
    JOINED = "joint commit"
    PROVEN = "verdict"
    GIVEN_UP = "given up"
    INTERRUPTED = "wait interrupted"
    """The stream was stopped, or lost a server, and takes the transaction up anew."""

    @property
    def is_surrender(self) -> bool:
        """Whether it stopped the stream."""
        return self in (Outcome.PROVEN, Outcome.GIVEN_UP)


@dataclass(frozen=True, slots=True)
class Ended:
    """A wait that is over."""

    blocked: Blocked
    outcome: Outcome
    seconds: float
    transactions: int = 0
    """How many of the stream's were committed together; 0 if none."""
    reason: str = ""
    """Why it was given up."""

    def sentence(self) -> str:
        """Return all of it that a log may keep, for a person."""
        blocked = self.blocked
        return (
            f"transaction {blocked.gtid} was blocked for {self.seconds:.1f} s, {counted(blocked.attempts, 'attempt')}: "
            f"{held_words(blocked)}; {self._outcome_words()}"
        )

    def _outcome_words(self) -> str:
        match self.outcome:
            case Outcome.RELEASED:
                return "ended by its release"
            case Outcome.JUMPED:
                return f"ended by a jump of {counted(self.transactions, 'transaction')}"
            case Outcome.JOINED:
                return f"ended by a joint commit with {counted(self.transactions, 'transaction')} of this stream"
            case Outcome.PROVEN:
                return f"verdict: {proof_words(self.blocked.finding)}"
            case Outcome.GIVEN_UP:
                return f"given up: {self.reason}"
            case Outcome.INTERRUPTED:
                return "interrupted: the stream was stopped or has lost a server"
            case _:
                assert_never(self.outcome)

    def facts(self) -> dict[str, Any]:
        """Return all of it that a log may keep, for a program; every key is always there."""
        blocked, held = self.blocked, self.blocked.held
        return {
            "gtid": blocked.gtid,
            "key": blocked.key,
            "seconds": round(self.seconds, 3),
            "attempts": blocked.attempts,
            "remedy": self.outcome.value,
            "transactions": self.transactions,
            "tried": tried_facts(blocked.tried),
            "reason": self.reason,
            "finding": finding_name(blocked.finding),
            "proof": proof_name(blocked.finding),
            "held": None if held is None else held_facts(blocked, held),
            "awaited": list(blocked.awaited),
            "fences": {
                stream: str(blocked.fences[stream])[:LOGGED_FENCE_CHARACTERS]
                for stream in blocked.awaited
                if stream in blocked.fences
            },
        }


# Words and facts without row values


def counted(count: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def key_name(blocked: Blocked) -> str:
    """Return the name of the key in question, as table.key."""
    held = blocked.held
    return (blocked.key or "a key") if held is None else f"{held.table[1]}.{held.key}"


def held_words(blocked: Blocked) -> str:
    """Say which row holds what against which."""
    held = blocked.held
    if held is None:
        return f"{key_name(blocked)} was held"
    of = f" of {', '.join(blocked.holders)}" if blocked.holders else ""
    return f"{key_name(blocked)} of row {held.own} was held by row {held.holder}{of}"


def held_facts(blocked: Blocked, held: Held) -> dict[str, Any]:
    """Return which row holds what against which."""
    return {
        "table": ".".join(held.table),
        "key": held.key,
        "row": held.own,
        "holder": held.holder,
        "holder_streams": list(blocked.holders),
    }


def tried_facts(tried: Tried) -> dict[str, int]:
    """Return what was tried, by stable names."""
    return {
        "jumps": tried.jumps,
        "longest_jump": tried.longest_jump,
        "offers": tried.offers,
        "testimonies": tried.testimonies,
    }


def finding_name(finding: Finding | None) -> str | None:
    """Return the stable name of a kind of finding."""
    match finding:
        case None:
            return None
        case Permanent():
            return "permanent"
        case Transient():
            return "transient"
        case Unproven():
            return "unproven"
        case _:
            assert_never(finding)


def proof_name(finding: Finding | None) -> str | None:
    """Return the stable name of a proof."""
    return finding.proof.name.lower() if isinstance(finding, Permanent) else None


def proof_words(finding: Finding | None) -> str:
    """Return what a permanent finding says."""
    return finding.proof.value if isinstance(finding, Permanent) else "nothing is proven"
