"""The conflict machine: ``decide(state, event, limits) -> (state, decision)``.

Knows: what a stream does when its transactions meet keys or locks that others hold. Never knows: servers, threads,
clocks or random numbers; instants and jitter come in as values. The player executes exactly one decision and reports
back with the next event. The words are in ``core/conflict_terms.py``.

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
more has arrived from the source. It begins with one transaction, whose own rows may take a value and release it.

Nor does a jump always help: of streams that block each other, each may need what the other releases. Then each *offers*
its run, and one of them, the leader, applies the net effect of them all in one target transaction (the *joint commit*,
``joint.py``). Like a jump it ends in exact prefixes, so it is right whenever it fits.

What none of these solves may be permanent. So a stream that stays blocked *asks*: the rows are looked up on the target
and at the sources (``core/verdict.py``). It gives up only on a proof, and only when the next testimony says the same.
Where the workflow says so for a table, a true duplicate costs one row only (``core/quarantine.py``): that is set aside
as it comes, and every remedy is tried anew.

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
               no sibling        Waiting                            Ask
               blocked too long  Stuck                              GiveUp(TIMED_OUT)
               asking is due     Waiting                            Ask
               a jump is due     Jumping(1, or beyond the last)     Proceed                  (jump)
               a jump failed     Joining                            Park                    (joint)
               otherwise         Waiting                            Await(until, a commit)   (wait)
    Jumping    Conflicted        Jumping(more)                      Proceed
               no more arrived   Joining                            Park
    Jumping    Applied           Isolating(limit 1)                 Proceed
    Jumping    Unreached         Joining                            Park
    Jumping    Unfoldable        Waiting, never jumps               Await(until, a commit)
    Joining    Applied           Isolating(limit 1)                 Proceed
    Joining    Unjoined, Locked  Waiting                            Await(until)
    Joining    Woken             Waiting                            Proceed         (alone again)
    Waiting    Testified
               no sibling        Stuck                              GiveUp(PROVEN or NO_SIBLING)
               permanent, again  Stuck                              GiveUp(PROVEN)
                 (quarantine)    Waiting, as new                    SetAside
               permanent         Waiting, suspicious                Await(until, a commit)
               transient         Waiting, blocked time anew         Await(until, a commit)
               unproven          Waiting                            Await(until, a commit)
               a jump failed     as above, and Joining              Park
    any        Locked            same                               Await(until)
               several in a row  Isolating(half the limit), but     Await(until)
                                 Waiting and Jumping stay
    any        Rejected, n>1     Isolating(limit 1)                 Proceed          (split, flush)
    any        Rejected, n=1     Stuck                              GiveUp(REJECTED)
    Jumping    Rejected          Waiting, never jumps               Await(until, a commit)
    any        Woken             same                               Proceed         (the next try)
    Stuck      any               Stuck                              GiveUp(same)

``any`` is every state but Stuck, and but Jumping and Joining where these have a row of their own. What no row names
changes nothing and lets the player proceed.

A jump is due, from the second failure on, when every sibling is at its head, waits itself or is not free; and after
``jump_after_seconds`` in any case, or a sibling that keeps a hot key in motion could win for ever. After a jump that
led nowhere the next one comes that much later, or later still if that one took long; and if no sibling has moved since,
only with more transactions than it had. From then on the stream is on offer to its siblings whenever it waits. Asking
is due after ``ask_after_seconds``, though never before the first jump that can be tried; while it finds nothing
permanent, it comes ever more rarely.

Evidence
--------
``Siblings`` is the snapshot of the board taken *before* the attempt that failed: what moved since then may have
released the key, so the wait that follows ends at once. Time counts towards ``timeout_seconds`` only while every
sibling is free to move, for waiting for a stream that somebody stopped proves nothing; and only from the last testimony
on that said with what the wait will end, if that can come: what our own later transactions release comes by a jump.

Batching returns when the blocked transaction is committed **and** a sibling has committed once more since, or a number
of own transactions passed without a conflict: without that patience a hot key would make the limit flap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from vmerge.core.conflict_terms import (
    Applied,
    Ask,
    Await,
    Clear,
    Conflicted,
    Decision,
    Event,
    FailedJump,
    GiveUp,
    Inquiry,
    Isolating,
    Joining,
    Jumping,
    Limits,
    Live,
    Locked,
    Park,
    Proceed,
    Reason,
    Rejected,
    SetAside,
    State,
    Stuck,
    Testified,
    Unfoldable,
    Unjoined,
    Unreached,
    Waiting,
    Woken,
)
from vmerge.core.duplicates import DuplicatePolicy
from vmerge.core.evidence import Presence
from vmerge.core.verdict import Finding, Permanent, Proof, Transient

LONGEST_SILENCE_SECONDS = 30.0
"""Between two testimonies of a wait that lasts: each costs the sources a few reads."""

LOOK_SHARE = 0.1
"""Of ``jump_after_seconds``: how long at most a stream that may soon jump takes its siblings to be moving."""

REST_SHARE = 3.0
"""How much longer than jumps that led nowhere is the rest after them: they cost the target and the interpreter."""


def batch_limit(state: State, limits: Limits) -> int:
    """Return how many transactions the next attempt may hold."""
    match state:
        case Clear():
            return limits.batch_transactions
        case Isolating():
            return state.limit
        case Jumping():
            return state.count
        case Waiting() | Joining() | Stuck():
            return 1
        case _:
            assert_never(state)


def decide(state: State, event: Event, limits: Limits) -> tuple[State, Decision]:
    """Return the following state and what to do: the transition table above. Total and deterministic."""
    if isinstance(state, Stuck):
        return state, GiveUp(state.reason, state.finding)
    match event:
        case Applied():
            return _after_commit(state, event, limits), Proceed()
        case Conflicted():
            return _after_conflict(state, event, limits)
        case Locked():
            return _after_lock(state, event, limits)
        case Unfoldable() | Unreached():
            return _after_no_jump(state, event)
        case Unjoined():
            return _after_no_joint(state, event)
        case Testified():
            return _after_testimony(state, event, limits)
        case Rejected():
            return _after_rejection(state, event)
        case Woken():
            return (state.waiting if isinstance(state, Joining) else state), Proceed()
        case _:
            assert_never(event)


def _after_commit(state: Live, event: Applied, limits: Limits) -> State:
    if isinstance(state, Clear):
        return state if not state.locks else Clear()
    if isinstance(state, Waiting | Jumping | Joining):
        return Isolating(limit=1, calm=0, moved_from=event.version)
    calm = state.calm + event.count
    sibling_moved = state.moved_from is not None and event.version != state.moved_from
    if not sibling_moved and calm < limits.calm_transactions:
        return replace(state, calm=calm, locks=0)
    limit = state.limit * 2
    if limit >= limits.batch_transactions:
        return Clear()
    return replace(state, limit=limit, calm=calm, locks=0)


def _after_conflict(state: Live, event: Conflicted, limits: Limits) -> tuple[State, Decision]:
    if isinstance(state, Jumping):
        return _after_jump(state, event)
    if isinstance(state, Joining):
        return _after_no_joint(state, Unjoined(event.now, event.pause_seconds))
    if event.count > 1:
        return Isolating(), Proceed()
    waiting = _waiting(state, event)
    if not event.siblings.count:
        return _asking(waiting, event.now), Ask()
    if waiting.counted_seconds >= limits.timeout_seconds:
        return Stuck(Reason.TIMED_OUT), GiveUp(Reason.TIMED_OUT)
    jumping = _jumping(waiting, event, limits)
    ask_at = _ask_at(waiting, limits)
    if event.now >= ask_at and (jumping is None or waiting.last_jump is not None):
        return _asking(waiting, event.now), Ask()
    if jumping is not None:
        return jumping, Proceed()
    until = min(event.now + event.pause_seconds, ask_at)
    if _may_join(waiting):
        return _joining(waiting, until)
    if waiting.may_jump and event.now - waiting.since < limits.jump_after_seconds:
        until = min(until, event.now + limits.jump_after_seconds * LOOK_SHARE)
    return waiting, Await(until, event.siblings.version)


def _jumping(waiting: Waiting, event: Conflicted, limits: Limits) -> Jumping | None:
    """Return the jump that is due now, if there is one."""
    if waiting.attempts < 2 or not waiting.may_jump:
        return None
    last = waiting.last_jump
    since, patience = waiting.since, limits.jump_after_seconds
    if last is not None:
        since, patience = last.at, max(patience, last.seconds * REST_SHARE)
    is_patient = event.now - since < patience
    if is_patient and (last is not None or event.siblings.is_moving):
        return None
    if last is None or last.version != event.siblings.version:
        return Jumping(waiting, count=1, began_at=event.now)
    return Jumping(waiting, count=_longer(last.count), least=last.count + 1, began_at=event.now)


def _may_join(waiting: Waiting) -> bool:
    """Whether a jump with all that had arrived has failed: from then on siblings may know more than this stream."""
    return waiting.may_jump and waiting.last_jump is not None


def _after_jump(state: Jumping, event: Conflicted) -> tuple[State, Decision]:
    """Try a longer jump; with all that has arrived tried, offer it to the siblings."""
    if event.count >= state.count:
        return replace(state, count=_longer(state.count), locks=0), Proceed()
    failed = FailedJump(event.now, event.count, event.siblings.version, event.now - state.began_at)
    return _joining(replace(state.waiting, last_jump=failed), event.now + event.pause_seconds)


def _longer(count: int) -> int:
    """Return the next length of a jump: each one while that is cheap, since only one may fit; then larger steps."""
    if count < 64:
        return count + 1
    return count + count // 8 if count < 1024 else count * 2


def _after_no_jump(state: Live, event: Unfoldable | Unreached | Rejected) -> tuple[State, Decision]:
    """Go back to waiting; outside of a jump there is nothing to go back from, and the next attempt is as good as any.

    A transaction that the target refuses may stand anywhere in the jump. It is met alone once those before it are done.
    """
    if not isinstance(state, Jumping):
        return state, Proceed()
    waiting = state.waiting
    if isinstance(event, Unreached):
        last = waiting.last_jump and replace(waiting.last_jump, at=event.now)
        return _joining(replace(waiting, last_jump=last), event.now + event.pause_seconds)
    return replace(waiting, may_jump=False), Await(event.now + event.pause_seconds, waiting.siblings.version)


def _after_rejection(state: Live, event: Rejected) -> tuple[State, Decision]:
    if isinstance(state, Jumping):
        return _after_no_jump(state, event)
    if isinstance(state, Joining):
        return _after_no_joint(state, Unjoined(event.now, event.pause_seconds))
    if event.count > 1:
        return Isolating(), Proceed()
    return Stuck(Reason.REJECTED), GiveUp(Reason.REJECTED)


def _joining(waiting: Waiting, until: float) -> tuple[State, Decision]:
    return Joining(waiting, until), Park(until)


def _after_no_joint(state: Live, event: Unjoined) -> tuple[State, Decision]:
    if not isinstance(state, Joining):
        return state, Proceed()
    return state.waiting, Await(event.now + event.pause_seconds, state.waiting.siblings.version)


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


# Evidence


def _ask_at(waiting: Waiting, limits: Limits) -> float:
    """Return when evidence is due: soon in the beginning and on a suspicion, later ever more rarely."""
    inquiry = waiting.inquiry
    if inquiry is None:
        return waiting.since + limits.ask_after_seconds
    if inquiry.suspect is not None:
        return inquiry.at + limits.ask_after_seconds
    doubled = limits.ask_after_seconds * float(1 << min(inquiry.count - 1, 10))
    return inquiry.at + min(doubled, max(LONGEST_SILENCE_SECONDS, limits.ask_after_seconds))


def _asking(waiting: Waiting, now: float) -> Waiting:
    before = waiting.inquiry
    if before is None:
        return replace(waiting, inquiry=Inquiry(now, 1))
    return replace(waiting, inquiry=replace(before, at=now, count=before.count + 1))


def _after_testimony(state: Live, event: Testified, limits: Limits) -> tuple[State, Decision]:
    if not isinstance(state, Waiting) or state.inquiry is None:
        return state, Proceed()
    finding = event.finding
    suspect = finding if isinstance(finding, Permanent) else None
    before = state.inquiry.suspect
    is_confirmed = suspect is not None and before is not None and suspect.is_about(before)
    if suspect is not None and is_confirmed and _may_set_aside(suspect, event.policy):
        return replace(state, inquiry=None, last_jump=None, counted_seconds=0.0), SetAside(suspect)
    if suspect is not None and (is_confirmed or not state.siblings.count):
        return Stuck(Reason.PROVEN, suspect), GiveUp(Reason.PROVEN, suspect)
    if not state.siblings.count:
        return Stuck(Reason.NO_SIBLING), GiveUp(Reason.NO_SIBLING)
    counted = 0.0 if _tells_the_end(finding, state, event.sees_on) else state.counted_seconds
    waiting = replace(state, inquiry=replace(state.inquiry, suspect=suspect), counted_seconds=counted)
    until = min(event.now + event.pause_seconds, _ask_at(waiting, limits))
    if _may_join(waiting):
        return _joining(waiting, until)
    return waiting, Await(until, state.siblings.version)


def _tells_the_end(finding: Finding, waiting: Waiting, sees_on: bool) -> bool:
    """Whether the wait is going to end: where only we release the key, later, it does so only if we can jump there."""
    if not isinstance(finding, Transient) or finding.held is None:
        return False
    will_stay = Presence.ALIVE in finding.held.holder_presences.values()
    return (waiting.may_jump and sees_on) or finding.held.own_presence is Presence.ALIVE or not will_stay


def _may_set_aside(finding: Permanent, policy: DuplicatePolicy) -> bool:
    return policy is DuplicatePolicy.QUARANTINE and finding.proof is Proof.DUPLICATE


def _after_lock(state: Live, event: Locked, limits: Limits) -> tuple[State, Decision]:
    pause = Await(event.now + event.pause_seconds, seen_version=None)
    if isinstance(state, Joining):
        return state.waiting, pause
    locks = state.locks + 1
    if locks < limits.locks_before_smaller or isinstance(state, Waiting | Jumping):
        return replace(state, locks=locks), pause
    return Isolating(limit=max(1, batch_limit(state, limits) // 2)), pause
