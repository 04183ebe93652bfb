"""What a player tells its siblings and the operator about its stream.

Knows: how the steps of a player show on the board (position, phase, the wait under way, the counters), and which of
them are worth a line in the log. Never knows: what the player will do. Used by the player alone, in its thread.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from vmerge.core import conflict_terms as terms
from vmerge.core.barrier import Arrival, Hindered
from vmerge.core.blocked import Blocked, Ended, Outcome, Remedy, Tried
from vmerge.core.evidence import Testimony
from vmerge.core.position import GtidSet
from vmerge.core.states import Phase
from vmerge.core.stretch import Stretch
from vmerge.core.verdict import Finding, Permanent, Proof
from vmerge.player.board import BarrierWait, Board, LockWait
from vmerge.player.counters import Counters
from vmerge.stopping import Clock

logger = logging.getLogger(__name__)

TOLD_WAIT_SECONDS = 1.0
"""A wait that lasts so long gets a line in the log; where values move all day, shorter ones would fill it."""

SELDOM_SECONDS = 60.0
"""Between two lines of one kind about one stream: where values move all day, conflicts are no news. All are counted."""

SHOWN_CHARACTERS = 300
"""Of a position in the log: those of old clusters fill pages."""

TOLD_LOCKS = 5
TOLD_LOCK_SECONDS = 2.0
"""So many lock conflicts, or such a time of them, without a commit in between show as being locked out."""

TOLD_AGAIN = 2.0
"""Being locked out gets its next line in the log when it has lasted so many times as long as at the last one."""


class Reporter:
    """Keeps one stream's place on the board true.

    Promise: a stream is shown as blocked exactly from its first failed attempt to the end of the wait, however it ends;
    ended waits are in ``blocked_seconds``, and each goes into the journal once. Changes only the fields it is about:
    the stream's state and message are the supervisor's. Owner: the player's thread.
    """

    def __init__(self, name: str, board: Board, clock: Clock) -> None:
        self._name = name
        self._board = board
        self._clock = clock
        self._is_at_head = False
        self._has_been_at_head = False
        self._has_told_wait = False
        self._remedy = Remedy.WAITING
        """What is done, or was done last, about a wait."""
        self._locked: LockWait | None = None
        self._lock_told_after: float | None = None
        """For how long the stream had been locked out when the log was last told of it; None if it was not."""
        self._split_rest = 0
        """Transactions of the last split batch that are not through yet."""
        self._split_done = 0

    def connecting(self) -> None:
        """The player begins; what an earlier one was blocked by is history."""
        self._interrupt()
        self._unlock()
        self._update(phase=Phase.CONNECTING, is_at_head=False, surrendered=None)

    def opened(self, position: GtidSet) -> None:
        """Both sides are open."""
        # A COMMIT of unknown outcome that took effect has released keys without a word to those who wait for them.
        progress = self._board.progress(self._name)
        has_moved, is_again = position != progress.applied, bool(progress.message)
        tell = self._board.commit if has_moved else self._board.update
        tell(self._name, phase=Phase.STREAMING, applied=position, message="")
        text = str(position) or "the first transaction"
        shown = text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
        self._log_seldom(f"streaming {'again ' if is_again else ''}behind %s", shown)

    def closed(self) -> None:
        """The player ends, for whatever reason."""
        self._interrupt()
        self._unlock()
        barrier = self._board.progress(self._name).barrier
        if barrier is not None:
            seconds = self._counters.barrier_seconds + self._clock.monotonic() - barrier.since
            self._update(barrier=None, counters=replace(self._counters, barrier_seconds=seconds))

    def at_barrier(self, arrival: Arrival, awaited: tuple[str, ...], hindered: tuple[Hindered, ...] = ()) -> None:
        """The stream waits at a schema change, for these streams."""
        before = self._board.progress(self._name).barrier
        if before is None:
            since = self._clock.monotonic()
            self._log(f"waits at a schema change for {', '.join(awaited) or 'its turn'}, transaction {arrival.gtid}")
        else:
            since = before.since
        barrier = BarrierWait(since, str(arrival.gtid), arrival.statement.text, awaited, hindered)
        self._update(phase=Phase.AT_BARRIER, barrier=barrier)

    def executed_change(self) -> None:
        """A schema change that this stream waited at has been run."""
        counters = self._counters
        counters = replace(counters, schema_changes_executed=counters.schema_changes_executed + 1)
        self._update(counters=counters)

    def ignored_change(self) -> None:
        """A schema change was passed, as the workflow says."""
        counters = self._counters
        counters = replace(counters, schema_changes_ignored=counters.schema_changes_ignored + 1)
        self._update(counters=counters)

    def at_head(self) -> None:
        """The source has nothing more, and all of it is applied."""
        self._is_at_head = True
        if not self._has_been_at_head:
            self._has_been_at_head = True
            self._log_seldom("reached its head")
        self._update(is_at_head=True, phase=Phase.STREAMING, heard_at=self._clock.wall())

    def received(self) -> None:
        """The source has sent something."""
        if self._is_at_head:
            self._is_at_head = False
            self._update(is_at_head=False)

    def moved(self, position: GtidSet, applied_at: float, count: int) -> None:
        """The position moved past so many transactions that have no rows for the target."""
        self._pass_split(count)
        self._update(applied=position, applied_at=applied_at, moved_at=self._clock.wall())

    def committed(self, before: terms.State, stretch: Stretch, position: GtidSet, batch_limit: int) -> None:
        """These transactions are on the target; siblings wake. ``before`` is how they came there."""
        self._pass_split(stretch.count)
        has_told = self._has_told_wait or self._lock_told_after is not None
        self._unlock()
        counters = self._counters_after_wait()
        ended = self._ended(_OUTCOMES.get(type(before), Outcome.RELEASED), transactions=stretch.count)
        if isinstance(before, terms.Jumping):
            self._log_seldom("jumped over %d transactions, the last one %s", stretch.count, stretch.last)
            counters = replace(counters, jumps=counters.jumps + 1)
        elif isinstance(before, terms.Joining):
            self._log_seldom("joined %d transactions with its siblings', the last one %s", stretch.count, stretch.last)
            counters = replace(counters, joints=counters.joints + 1)
        if has_told:
            self._has_told_wait = False
            self._log_seldom("goes on")
        self._board.commit(
            self._name,
            phase=Phase.APPLYING,
            applied=position,
            applied_at=stretch.committed_at_microseconds / 1e6,
            moved_at=self._clock.wall(),
            batch_limit=batch_limit,
            blocked=None,
            counters=counters.with_batch(stretch),
        )
        self._enter(ended)

    def decided(self, before: terms.State, event: terms.Event, decision: terms.Decision) -> None:
        """Something happened, and this was decided."""
        if isinstance(event, terms.Applied):
            return
        self._count(before, event, decision)
        self._show_remedy(before, event, decision)
        if isinstance(decision, terms.GiveUp):
            self._surrender(decision)

    def _count(self, before: terms.State, event: terms.Event, decision: terms.Decision) -> None:
        counters = self._counters
        match event:
            case terms.Conflicted() | terms.Rejected() if isinstance(before, terms.Jumping):
                return
            case terms.Conflicted(count=count) | terms.Rejected(count=count) if count > 1:
                counters = replace(counters, splits=counters.splits + 1)
                self._split_rest, self._split_done = count, 0
            case terms.Conflicted() if isinstance(decision, terms.Await):
                if isinstance(before, terms.Waiting):
                    return
                # What a split brought to the target before the one that waits is the flush; later ones are not.
                has_flushed = bool(self._split_rest and self._split_done)
                counters = replace(counters, waits=counters.waits + 1, flushes=counters.flushes + has_flushed)
                self._split_rest = 0
            case terms.Locked():
                counters = replace(counters, lock_conflicts=counters.lock_conflicts + 1)
                self._lock_out()
            case _:
                return
        self._update(counters=counters)

    def _show_remedy(self, before: terms.State, event: terms.Event, decision: terms.Decision) -> None:
        match decision:
            case terms.Park():
                self._remedy = Remedy.JOINING
            case terms.Ask():
                self._remedy = Remedy.LOOKING_UP
            case terms.Await() if not isinstance(event, terms.Locked):
                self._remedy = Remedy.WAITING
            case terms.Proceed() if isinstance(event, terms.Conflicted):
                self._remedy = Remedy.JUMPING
        blocked = self._blocked
        if blocked is not None:
            tried = _with_attempt(blocked.tried, before, event, decision)
            self._update(blocked=replace(blocked, remedy=self._remedy, tried=tried))

    def found(self, finding: Finding, testimony: Testimony | None) -> None:
        """Evidence about the wait under way was asked for; ``testimony`` is None when none could be gathered."""
        counters = replace(self._counters, testimonies=self._counters.testimonies + 1)
        blocked = self._blocked
        if blocked is not None:
            tried = replace(blocked.tried, testimonies=blocked.tried.testimonies + 1)
            blocked = replace(blocked, finding=finding, testimony=testimony or blocked.testimony, tried=tried)
        self._update(blocked=blocked, counters=counters)

    # The ends of waits

    def _surrender(self, decision: terms.GiveUp) -> None:
        """The stream gives up what it waits for, if it waits."""
        outcome = Outcome.PROVEN if decision.finding is not None else Outcome.GIVEN_UP
        ended = self._ended(outcome, reason=decision.reason.value)
        if ended is not None:
            counters = _with_verdict(self._counters_after_wait(), decision.finding)
            self._update(blocked=None, surrendered=ended, counters=counters)
            self._enter(ended)

    def _interrupt(self) -> None:
        """The wait under way, if there is one, ends without an outcome."""
        ended = self._ended(Outcome.INTERRUPTED)
        self._update(blocked=None, counters=self._counters_after_wait())
        self._enter(ended)

    def _ended(self, outcome: Outcome, *, transactions: int = 0, reason: str = "") -> Ended | None:
        blocked = self._blocked
        if blocked is None:
            return None
        return Ended(blocked, outcome, self._clock.monotonic() - blocked.since, transactions, reason)

    def _enter(self, ended: Ended | None) -> None:
        """Put the end of a wait into the journal, after siblings and operators can see it."""
        if ended is not None:
            self._board.enter(self._name, ended, self._clock.monotonic())

    def _lock_out(self) -> None:
        """Count lock conflicts in a row; siblings briefly in each other's way are no news, more than that is."""
        now = self._clock.monotonic()
        known = self._locked or LockWait(now, 0)
        self._locked = locked = replace(known, attempts=known.attempts + 1)
        self._update(locked=locked)
        seconds = now - locked.since
        if locked.attempts < TOLD_LOCKS and seconds < TOLD_LOCK_SECONDS:
            return
        self._update(phase=Phase.LOCKED_OUT)
        if self._lock_told_after is None or seconds >= self._lock_told_after * TOLD_AGAIN:
            self._lock_told_after = max(seconds, TOLD_LOCK_SECONDS)
            self._log(
                "waits for a lock on the target since %.1f s, %d attempts; see sys.innodb_lock_waits and "
                "sys.schema_table_lock_waits there",
                seconds,
                locked.attempts,
            )

    def _unlock(self) -> None:
        """The stream has got what it wanted, or wants it no more."""
        locked, self._locked, self._lock_told_after = self._locked, None, None
        if locked is not None:
            seconds = self._counters.locked_seconds + self._clock.monotonic() - locked.since
            self._update(locked=None, counters=replace(self._counters, locked_seconds=seconds))

    def waiting(self, state: terms.Waiting, gtid: str, key: str | None) -> None:
        """The stream waits; ``key`` is None when this attempt failed before it came to the key."""
        known = self._blocked or Blocked(state.since, state.attempts, gtid, "", ())
        blocked = replace(
            known,
            since=state.since,
            attempts=state.attempts,
            gtid=gtid,
            key=known.key if key is None else key,
            unfree=state.siblings.unfree,
            may_join=state.may_jump,
            remedy=self._remedy,
        )
        self._update(phase=Phase.WAITING, blocked=blocked)
        seconds = self._clock.monotonic() - state.since
        if seconds >= TOLD_WAIT_SECONDS and not self._has_told_wait:
            self._has_told_wait = True
            not_free = f"; not running: {', '.join(state.siblings.unfree)}" if state.siblings.unfree else ""
            self._log_seldom(
                "waits on a sibling for %s since %.1f s, transaction %s%s",
                blocked.key or "a key",
                seconds,
                gtid,
                not_free,
            )

    def _log(self, text: str, *values: object) -> None:
        logger.info(text, *values, extra={"stream": self._name})

    def _log_seldom(self, text: str, *values: object) -> None:
        """Log a line, unless one of its kind was told a while ago; the next one says how many were left out."""
        telling = self._board.lines(self._name).tell(text, self._clock.monotonic(), SELDOM_SECONDS)
        if telling is not None:
            self._log(f"{text}%s", *values, telling)

    @property
    def _counters(self) -> Counters:
        return self._board.progress(self._name).counters

    @property
    def _blocked(self) -> Blocked | None:
        return self._board.progress(self._name).blocked

    def _pass_split(self, count: int) -> None:
        if self._split_rest:
            self._split_done += count
            self._split_rest = max(0, self._split_rest - count)

    def _counters_after_wait(self) -> Counters:
        """Return the counters with the wait under way, if there is one, added to them."""
        blocked = self._blocked
        if blocked is None:
            return self._counters
        seconds = self._counters.blocked_seconds + self._clock.monotonic() - blocked.since
        return replace(self._counters, blocked_seconds=seconds)

    def _update(self, **changes: object) -> None:
        self._board.update(self._name, **changes)


_OUTCOMES: dict[type[terms.State], Outcome] = {terms.Jumping: Outcome.JUMPED, terms.Joining: Outcome.JOINED}
"""How a wait ended by a commit, by the state in which the stream made it."""


def _with_attempt(tried: Tried, before: terms.State, event: terms.Event, decision: terms.Decision) -> Tried:
    """Return what was tried, with a jump that has just failed and an offer that is made now."""
    if isinstance(before, terms.Jumping) and isinstance(event, terms.Conflicted):
        tried = replace(tried, jumps=tried.jumps + 1, longest_jump=max(tried.longest_jump, event.count))
    return replace(tried, offers=tried.offers + 1) if isinstance(decision, terms.Park) else tried


def _with_verdict(counters: Counters, finding: Permanent | None) -> Counters:
    match finding:
        case Permanent(proof=Proof.DUPLICATE):
            return replace(counters, duplicates=counters.duplicates + 1)
        case Permanent(proof=Proof.FOREIGN_ROW | Proof.ALREADY_THERE):
            return replace(counters, foreign_rows=counters.foreign_rows + 1)
        case Permanent(proof=Proof.STRICTER_TARGET):
            return replace(counters, stricter_targets=counters.stricter_targets + 1)
        case _:
            return counters
