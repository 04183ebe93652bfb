"""The words of the conflict machine: its states, the events it is told, and what it decides.

Knows: values and what each means. Never knows: which follows which; that is ``core/conflict.py``, with the table and
the reasons. Used by it, the player, the board and the reporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vmerge.core.duplicates import DuplicatePolicy
from vmerge.core.verdict import Finding, Permanent


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the machine."""

    batch_transactions: int
    """How many transactions may share a target transaction when nothing is in the way."""
    timeout_seconds: float
    """How long one transaction may stay blocked while its siblings are free to move."""
    calm_transactions: int = 50
    """So many own transactions without a conflict bring batching back even if no sibling moves."""
    jump_after_seconds: float = 1.0
    """How long siblings that still move are waited for before a jump is tried."""
    ask_after_seconds: float = 1.0
    """How long a transaction is blocked before evidence is gathered, and the least time between two testimonies."""
    locks_before_smaller: int = 3
    """So many lock conflicts in a row halve the limit: a smaller transaction holds fewer locks for less time."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """The other streams as the board showed them before an attempt."""

    version: int
    """Grows with every commit of any sibling."""
    count: int
    unfree: tuple[str, ...] = ()
    """Streams that cannot move by themselves: stopped, in error, reconnecting."""
    is_moving: bool = True
    """Whether some sibling is free, behind its head and not waiting itself, so that it will move soon."""


class Reason(Enum):
    """Why a stream gives up."""

    NO_SIBLING = "no other stream could release the key"
    TIMED_OUT = "the key stayed held for longer than conflict_timeout_seconds"
    REJECTED = "the target refuses the transaction"
    PROVEN = "it can never be applied"


# States


@dataclass(frozen=True, slots=True)
class Clear:
    """Nothing is in the way: full batches."""

    locks: int = 0
    """Lock conflicts in a row."""


@dataclass(frozen=True, slots=True)
class Isolating:
    """A conflict was met not long ago: small batches, growing again."""

    limit: int = 1
    calm: int = 0
    """Own transactions since the last conflict."""
    moved_from: int | None = None
    """The siblings' version when the blocked transaction was committed; None if none was blocked."""
    locks: int = 0


@dataclass(frozen=True, slots=True)
class Waiting:
    """One transaction is blocked by a key that a sibling may release."""

    since: float
    attempts: int
    siblings: Siblings
    counted_seconds: float = 0.0
    """Blocked time during which every sibling was free to move."""
    counted_at: float = 0.0
    locks: int = 0
    may_jump: bool = True
    """False once the transactions ahead turned out to have no net effect that can be told."""
    last_jump: FailedJump | None = None
    inquiry: Inquiry | None = None
    """The last evidence that was gathered."""


@dataclass(frozen=True, slots=True)
class Inquiry:
    """Evidence that was asked for."""

    at: float
    count: int
    """How often in this wait, this time included."""
    suspect: Permanent | None = None
    """What it proved, if the next one says the same: a brief duplicate at the sources shall have time to pass."""


@dataclass(frozen=True, slots=True)
class FailedJump:
    """A jump with all that had arrived, which did not fit."""

    at: float
    count: int
    version: int
    """The siblings' version before it."""
    seconds: float = 0.0
    """How long it took, with all the shorter ones before it."""


@dataclass(frozen=True, slots=True)
class Jumping:
    """The blocked transaction is tried together with those behind it, as one net effect."""

    waiting: Waiting
    """What it goes back to."""
    count: int
    """How many transactions the next attempt is to hold, if so many have arrived."""
    least: int = 1
    """With fewer there is no attempt: they are known not to fit."""
    locks: int = 0
    began_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Joining:
    """No jump of its own helps: its run is offered to the siblings, for a joint commit with others that are blocked."""

    waiting: Waiting
    """What it goes back to."""
    until: float
    """When it tries alone again."""
    locks: int = 0


@dataclass(frozen=True, slots=True)
class Stuck:
    """Given up; an operator has to look."""

    reason: Reason
    finding: Permanent | None = None
    """The proof, if the reason is one."""


Live = Clear | Isolating | Waiting | Jumping | Joining
State = Live | Stuck


# Events


@dataclass(frozen=True, slots=True)
class Applied:
    """So many transactions were committed."""

    count: int
    version: int
    """The siblings' version now."""


@dataclass(frozen=True, slots=True)
class Conflicted:
    """An attempt of ``count`` transactions met a held key and was rolled back."""

    count: int
    siblings: Siblings
    now: float
    pause_seconds: float
    """The jittered pause, should this lead to a wait."""


@dataclass(frozen=True, slots=True)
class Locked:
    """An attempt was rolled back by a lock wait or a deadlock."""

    count: int
    now: float
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """An attempt failed for a reason that waiting does not change, and was rolled back."""

    count: int
    now: float
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Unfoldable:
    """A jump was not attempted: its transactions have no net effect that can be told from their images."""

    now: float
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Unreached:
    """A jump was not attempted: fewer transactions than the least have arrived."""

    now: float
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Woken:
    """The awaited instant came, or a sibling committed before it."""


@dataclass(frozen=True, slots=True)
class Unjoined:
    """A joint commit of which this stream was a member did not fit, and was rolled back."""

    now: float
    pause_seconds: float
    """Before the next offer: the longer, the more the joint commit has cost."""


@dataclass(frozen=True, slots=True)
class Testified:
    """Evidence was gathered, and proves this."""

    finding: Finding
    now: float
    pause_seconds: float
    policy: DuplicatePolicy = DuplicatePolicy.STOP
    """Of the table that the finding is about."""
    sees_on: bool = True
    """Whether more of the stream's own transactions can still arrive."""


Event = Applied | Conflicted | Locked | Rejected | Unfoldable | Unreached | Unjoined | Testified | Woken


# Decisions


@dataclass(frozen=True, slots=True)
class Proceed:
    """Make the next attempt: a jump if the state is ``Jumping``, else ``batch_limit(state)`` transactions at most."""


@dataclass(frozen=True, slots=True)
class Await:
    """Wait, without an open transaction, until the instant, or until a sibling commits if ``wakes`` says so."""

    until: float
    seen_version: int | None
    """Wake as soon as the siblings' version is another; None: only the instant counts."""


@dataclass(frozen=True, slots=True)
class Park:
    """Offer the run ahead to the siblings and stay without an attempt: until the offer is settled, or the instant."""

    until: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Gather evidence, without an open transaction, and report what it proves."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Put this stream's own row of a true duplicate into quarantine as it comes, and make the next attempt."""

    finding: Permanent


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Stop this stream with this reason; nothing of the failed transaction is on the target."""

    reason: Reason
    finding: Permanent | None = None


Decision = Proceed | Await | Park | Ask | SetAside | GiveUp
