"""The conflict machine: ``decide(state, event, limits) -> (state, decision)``.

Knows: what a stream does when its transactions meet keys or locks that others hold. Never knows: servers, threads,
clocks or random numbers; instants and jitter come in as values. The player executes exactly one decision and reports
back with the next event.

Why it looks like this
----------------------
Shards know nothing of each other, so a unique value that moved from shard A to shard B may reach the target from B
first. Then B's transaction fails with a duplicate key that is valid and transient. Two things must hold, or streams
wait for each other for ever:

* A stream never waits while it holds locks: every failure rolls the whole target transaction back first.
* A stream never keeps back what its sibling may need. A batch that failed is therefore replayed one transaction at a
  time, each committed with its own position (*split*, and by it the *flush* of everything in front of the one
  that fails), and only that one waits. Batching stays off until the conflict is over, and comes back gradually.

Waiting does not always help. A sibling may have overtaken this stream: its row with the key is final, and it is our own
later transactions that release the key. Then the stream *jumps*: it applies its next transactions together, as their
net effect, which the target can take. A jump that is possible is always right, since it ends in an exact prefix of the
shard; it only hides the states in between. So it comes after waiting, and its length grows until one fits or nothing
more has arrived from the source.

The transition table
--------------------
``n`` is the number of transactions in the attempt. ``limit`` is how many may share the next one.

    state      event             following state                    decision
    ---------  ----------------  ---------------------------------  ------------------------------
    Clear      Applied           Clear                              Proceed
    Waiting    Applied           Isolating(limit 1)                 Proceed
    Isolating  Applied           Isolating, limit doubled once      Proceed
                                 batching may return; Clear when
                                 that reaches the full batch
    any        Conflicted, n>1   Isolating(limit 1)                 Proceed          (split, flush)
    any        Conflicted, n=1
               no sibling        Stuck                              GiveUp(NO_SIBLING)
               blocked too long  Stuck                              GiveUp(TIMED_OUT)
               waiting is vain   Jumping(2, or beyond the last)     Proceed                  (jump)
               otherwise         Waiting                            Await(until, a commit)   (wait)
    Jumping    Conflicted        Jumping(more)                      Proceed
               no more arrived   Waiting                            Await(until, a commit)
    Jumping    Applied           Isolating(limit 1)                 Proceed
    Jumping    Unreached         Waiting                            Await(until, a commit)
    Jumping    Unfoldable        Waiting, never jumps               Await(until, a commit)
    any        Locked            same                               Await(until)
               several in a row  Isolating(half the limit), but     Await(until)
                                 Waiting and Jumping stay
    any        Rejected, n>1     Isolating(limit 1)                 Proceed          (split, flush)
    any        Rejected, n=1     Stuck                              GiveUp(REJECTED)
    Jumping    Rejected          Waiting, never jumps               Await(until, a commit)
    any        Woken             same                               Proceed         (the next try)
    Stuck      any               Stuck                              GiveUp(same)

``any`` is every state but Stuck, and but Jumping where that has a row of its own. Waiting is vain when every sibling is
at its head, waits itself or is not free; and it is taken to be vain after ``jump_after_seconds``, or a sibling that
keeps a hot key in motion could win for ever. After a jump that led nowhere the next one comes that much later, and if
no sibling has moved since, only with more transactions than that one had.

Evidence
--------
``Siblings`` is the snapshot of the board taken *before* the attempt that failed: what moved since then may have
released the key, so the wait that follows ends at once. Time counts towards ``timeout_seconds`` only while every
sibling is free to move: waiting for a stream that somebody stopped proves nothing.

Batching returns when the blocked transaction is committed **and** a sibling has committed once more since, or a number
of own transactions passed without a conflict: without that patience a hot key would make the limit flap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never


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


@dataclass(frozen=True, slots=True)
class FailedJump:
    """A jump with all that had arrived, which did not fit."""

    at: float
    count: int
    version: int
    """The siblings' version before it."""


@dataclass(frozen=True, slots=True)
class Jumping:
    """The blocked transaction is tried together with those behind it, as one net effect."""

    waiting: Waiting
    """What it goes back to."""
    count: int
    """How many transactions the next attempt is to hold, if so many have arrived."""
    least: int = 2
    """With fewer there is no attempt: they are known not to fit."""
    locks: int = 0


@dataclass(frozen=True, slots=True)
class Stuck:
    """Given up; an operator has to look."""

    reason: Reason


State = Clear | Isolating | Waiting | Jumping | Stuck
_Live = Clear | Isolating | Waiting | Jumping


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
    may_jump: bool = True
    """False for foreign keys: a jump does not check them, so it would not solve that conflict but hide it."""


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


Event = Applied | Conflicted | Locked | Rejected | Unfoldable | Unreached | Woken


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
class GiveUp:
    """Stop this stream with this reason; nothing of the failed transaction is on the target."""

    reason: Reason


Decision = Proceed | Await | GiveUp


def batch_limit(state: State, limits: Limits) -> int:
    """Return how many transactions the next attempt may hold."""
    match state:
        case Clear():
            return limits.batch_transactions
        case Isolating():
            return state.limit
        case Jumping():
            return state.count
        case Waiting() | Stuck():
            return 1
        case _:
            assert_never(state)


def decide(state: State, event: Event, limits: Limits) -> tuple[State, Decision]:
    """Return the following state and what to do: the transition table above. Total and deterministic."""
    if isinstance(state, Stuck):
        return state, GiveUp(state.reason)
    match event:
        case Applied():
            return _after_commit(state, event, limits), Proceed()
        case Conflicted():
            return _after_conflict(state, event, limits)
        case Locked():
            return _after_lock(state, event, limits)
        case Unfoldable() | Unreached():
            return _after_no_jump(state, event)
        case Rejected() if isinstance(state, Jumping):
            return _after_no_jump(state, event)
        case Rejected():
            if event.count > 1:
                return Isolating(), Proceed()
            return Stuck(Reason.REJECTED), GiveUp(Reason.REJECTED)
        case Woken():
            return state, Proceed()
        case _:
            assert_never(event)


def _after_commit(state: _Live, event: Applied, limits: Limits) -> State:
    if isinstance(state, Clear):
        return state if not state.locks else Clear()
    if isinstance(state, Waiting | Jumping):
        return Isolating(limit=1, calm=0, moved_from=event.version)
    calm = state.calm + event.count
    sibling_moved = state.moved_from is not None and event.version != state.moved_from
    if not sibling_moved and calm < limits.calm_transactions:
        return replace(state, calm=calm, locks=0)
    limit = state.limit * 2
    if limit >= limits.batch_transactions:
        return Clear()
    return replace(state, limit=limit, calm=calm, locks=0)


def _after_conflict(state: _Live, event: Conflicted, limits: Limits) -> tuple[State, Decision]:
    if isinstance(state, Jumping):
        return _after_jump(state, event)
    if event.count > 1:
        return Isolating(), Proceed()
    if not event.siblings.count:
        return Stuck(Reason.NO_SIBLING), GiveUp(Reason.NO_SIBLING)
    waiting = _waiting(state, event)
    if waiting.counted_seconds >= limits.timeout_seconds:
        return Stuck(Reason.TIMED_OUT), GiveUp(Reason.TIMED_OUT)
    jumping = _jumping(waiting, event, limits)
    if jumping is not None:
        return jumping, Proceed()
    return waiting, Await(event.now + event.pause_seconds, event.siblings.version)


def _jumping(waiting: Waiting, event: Conflicted, limits: Limits) -> Jumping | None:
    """Return the jump that is due now, if there is one."""
    if waiting.attempts < 2 or not (waiting.may_jump and event.may_jump):
        return None
    last = waiting.last_jump
    since = waiting.since if last is None else last.at
    is_patient = event.now - since < limits.jump_after_seconds
    if is_patient and (last is not None or event.siblings.is_moving):
        return None
    if last is None or last.version != event.siblings.version:
        return Jumping(waiting, count=2)
    return Jumping(waiting, count=_longer(last.count), least=last.count + 1)


def _after_jump(state: Jumping, event: Conflicted) -> tuple[State, Decision]:
    """Try a longer jump; with all that has arrived tried, go back to waiting."""
    if event.count >= state.count:
        return replace(state, count=_longer(state.count), locks=0), Proceed()
    failed = FailedJump(event.now, event.count, event.siblings.version)
    waiting = replace(state.waiting, last_jump=failed)
    # What moved during the jumps may let the first transaction through, which was last tried alone before them.
    return waiting, Await(event.now + event.pause_seconds, waiting.siblings.version)


def _longer(count: int) -> int:
    """Return the next length of a jump: each one while that is cheap, since only one may fit; then larger steps."""
    if count < 64:
        return count + 1
    return count + count // 8 if count < 1024 else count * 2


def _after_no_jump(state: _Live, event: Unfoldable | Unreached | Rejected) -> tuple[State, Decision]:
    """Go back to waiting; outside of a jump there is nothing to go back from, and the next attempt is as good as any.

    A transaction that the target refuses may stand anywhere in the jump. It is met alone once those before it are done.
    """
    if not isinstance(state, Jumping):
        return state, Proceed()
    waiting = state.waiting
    if not isinstance(event, Unreached):
        waiting = replace(waiting, may_jump=False)
    return waiting, Await(event.now + event.pause_seconds, waiting.siblings.version)


def _waiting(state: Clear | Isolating | Waiting, event: Conflicted) -> Waiting:
    if not isinstance(state, Waiting):
        return Waiting(since=event.now, attempts=1, siblings=event.siblings, counted_at=event.now)
    all_free = not event.siblings.unfree and not state.siblings.unfree
    counted = state.counted_seconds + (event.now - state.counted_at if all_free else 0.0)
    return replace(
        state,
        attempts=state.attempts + 1,
        siblings=event.siblings,
        counted_seconds=counted,
        counted_at=event.now,
        locks=0,
    )


def _after_lock(state: _Live, event: Locked, limits: Limits) -> tuple[State, Decision]:
    pause = Await(event.now + event.pause_seconds, seen_version=None)
    locks = state.locks + 1
    if locks < limits.locks_before_smaller or isinstance(state, Waiting | Jumping):
        return replace(state, locks=locks), pause
    return Isolating(limit=max(1, batch_limit(state, limits) // 2)), pause
