"""One stream: read, batch, apply, commit; on a conflict ask ``core.conflict`` and obey.

Knows: the order of these steps, and what each outcome means for the position. Never knows: sockets, SQL, or how the
machine decides. Source, target and witness are protocols with two implementations each: ``vmerge.mysql`` and the
simulator of the tests, which drives the same ``step`` under every schedule. Used by the supervisor.

Each step does at most one thing that siblings can see: apply a batch, commit it, or roll it back. So a schedule of
steps is a schedule of everything that streams see of each other, and between two steps of which the first said
``Await`` or ``Parked`` no target transaction is open.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Protocol, assert_never

from vmerge.backlog import USUAL_REACH, Backlog, Reach, Source
from vmerge.board import Board, Offered, Settlement
from vmerge.core import conflict_terms as terms
from vmerge.core.batch import choose_batch
from vmerge.core.conflict import REST_SHARE, batch_limit, decide
from vmerge.core.conflict_terms import Ask, Await, GiveUp, Joining, Jumping, Limits, Park, Proceed, SetAside, Waiting
from vmerge.core.duplicates import STOP_ALWAYS, DuplicateRules
from vmerge.core.events import SchemaChange, Transaction
from vmerge.core.evidence import Testimony
from vmerge.core.fold import Fold
from vmerge.core.joint import Offer, Part
from vmerge.core.long_run import LongRun
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stretch import Stretch, gtids_of
from vmerge.core.verdict import Finding, Permanent, Standing, Unproven, judge
from vmerge.errors import (
    CommitUnknown,
    JointRefused,
    KeyConflict,
    LockConflict,
    QuarantineSettled,
    RowMissing,
    SchemaChanged,
    SchemaMismatch,
    TargetError,
    TargetRejected,
    UnsupportedEvent,
    Verdict,
    VmergeError,
)
from vmerge.joint import JointTarget, apply_joint
from vmerge.pauses import retry_pause
from vmerge.quarantining import Pointer, QuarantineTarget, Quarantining
from vmerge.reporting import Reporter
from vmerge.stopping import Clock, StopToken
from vmerge.surrender import surrender

IDLE_SAVE_SECONDS = 2.0
"""How often a position is stored that moved without any row for the target."""

KEEP_ALIVE_SECONDS = 10.0
"""How often a position is stored that did not move: a target may end sessions that say nothing for longer."""

LOOK_SECONDS = 0.25
"""How often a stream looks whether it may lead: some of what decides that changes by time alone."""

OFFER_SHARE = 0.02
"""Of ``jump_after_seconds``: how long an offer stands, though others move, of a stream that is blocked for longer."""

UNJOINED_ATTEMPT = 3
"""The pause after a joint commit that did not fit is that of a third attempt: soon, and others may be there by then."""

LONGEST_REST_SECONDS = 15.0
"""After a joint commit that did not fit, whatever it has cost: a target ends sessions that say nothing for longer."""

LED_SECONDS = 1.0
"""How long at a time a member waits for its leader; it is woken when the leader is done."""


class Target(JointTarget, QuarantineTarget, Protocol):
    """Where a stream's transactions go. At most one target transaction is open."""

    def open(self) -> GtidSet:
        """Take the stream over, so that no earlier owner can commit any more, and return its position."""

    def apply(self, batch: Sequence[Transaction]) -> None:
        """Begin a target transaction and apply whole transactions in it. On an error the caller rolls back."""

    def apply_net_effect(self, run: Sequence[Transaction]) -> None:
        """Begin a target transaction and apply what a run of transactions does in the end (``core/fold.py``).

        Raises ``UnsupportedEvent`` when that cannot be told. On any error the caller rolls back.
        """

    def begin_fold(self) -> Fold:
        """Return an empty fold for a run of any length; ``apply_effect`` takes it."""

    def apply_effect(self, effect: Fold, first: Transaction) -> None:
        """Begin a target transaction and apply the net effect of a run that begins with ``first``."""

    def commit(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Store the position in the open target transaction (or one of its own) and commit."""

    def close(self) -> None:
        """Let go of the target."""


class Witness(Pointer, Protocol):
    """Who can be asked about a conflict."""

    def testify(
        self, run: Sequence[Transaction], effect: Fold | None = None, fellows: Sequence[Offer] = ()
    ) -> Testimony:
        """Look up what keeps a run's net effect out of the target, and where those rows are at the sources.

        ``effect`` is that of a longer run, of which ``run`` has the first transactions. ``fellows`` are runs of
        siblings: the target is looked at as it would be with as many of them as fit.
        Changes nothing. Raises ``UnsupportedEvent`` when the rows cannot be followed, and errors of source or target.
        """


@dataclass(frozen=True, slots=True)
class Parked:
    """What an offered stream waits for: news on the board, or the instant."""

    until: float
    seen_news: int


class Player:
    """Plays one stream.

    Promise: every transaction of the source is on the target exactly once, with its position, in the source's order;
    nothing is waited for with an open target transaction. Invariants: the backlog begins with the transactions
    behind ``_position``; a batch in flight is its head. A player is opened once; after an error another one goes on
    from the checkpoint. Owner: one thread, which opens, uses and closes the connections.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        target: Target,
        witness: Witness,
        board: Board,
        *,
        limits: Limits,
        clock: Clock,
        concerns: Callable[[SchemaChange], bool],
        accepted_schema_changes: frozenset[Gtid] = frozenset(),
        pause: Callable[[int], float] = retry_pause,
        after_conflict: bool = False,
        reach: Reach = USUAL_REACH,
        duplicates: DuplicateRules = STOP_ALWAYS,
    ) -> None:
        self._name = name
        self._reach = reach
        self._backlog = Backlog(source, reach, concerns)
        self._target = target
        self._witness = witness
        self._board = board
        self._limits = limits
        self._clock = clock
        self._accepted_schema_changes = accepted_schema_changes
        self._pause = pause
        self._state: terms.State = terms.Isolating() if after_conflict else terms.Clear()
        self._position = GtidSet()
        self._in_flight: list[Transaction] = []
        self._parts: tuple[Part, ...] = ()
        """What is in flight, if it is a joint commit that this stream leads."""
        self._may_be_joined = False
        """Whether a joint commit that this stream leads may be on the target."""
        self._long: LongRun | None = None
        """The run from the position on, if it is longer than what the backlog keeps."""
        self._is_long_in_flight = False
        self._snapshot = terms.Siblings(0, 0)
        self._is_woken = False
        self._is_position_unsaved = False
        self._applied_at = 0
        self._saved_at = 0.0
        self._fences: Mapping[str, GtidSet] = {}
        """The heads of the last testimony of this wait."""
        self._fellows: tuple[Offer, ...] = ()
        """What siblings offered when a joint commit with them did not fit."""
        self._reporter = Reporter(name, board, clock)
        self._quarantining = Quarantining(name, target, witness, board, clock, duplicates)

    @property
    def has_conflict(self) -> bool:
        """Whether a conflict is under way or was met not long ago; a successor then starts without batches."""
        return not isinstance(self._state, terms.Clear)

    @property
    def position(self) -> GtidSet:
        """The position up to which everything is on the target."""
        return self._position

    @property
    def is_in_flight(self) -> bool:
        """Whether something is applied and not yet committed."""
        return bool(self._in_flight or self._parts or self._is_long_in_flight)

    def reread_quarantine(self) -> None:
        """Read the rows in quarantine anew before the next attempt, as an operator has settled one. From any thread."""
        self._quarantining.reread_later()

    def run(self, stop: StopToken) -> None:
        """Play until told to stop. Every error goes to the caller; the connections are closed in every case."""
        try:
            self.open()
            while not stop.is_set():
                pause = self.step()
                if pause is not None:
                    self._wait(pause, stop)
        finally:
            self.close()

    def open(self) -> None:
        """Take the stream over on the target and open the source behind its position."""
        self._leave_joints()
        self._reporter.connecting()
        self._position = self._target.open()
        self._backlog.open(self._position)
        self._saved_at = self._clock.monotonic()
        self._reporter.opened(self._position)
        self._quarantining.opened()

    def close(self) -> None:
        """Close both sides; what was in flight is rolled back by the target."""
        self._backlog.close()
        self._target.close()
        self._leave_joints()
        self._end_long_run()
        self._reporter.closed()

    def _leave_joints(self) -> None:
        if self._may_be_joined:
            self._board.lose(self._name)
        self._board.settle(self._name, ())
        if self._board.withdraw(self._name):
            self._long = None  # not closed: its leader reads it in another thread, and is the last to let go of it

    def step(self) -> Await | Parked | None:
        """Do one thing; return what to wait for before the next step, if anything.

        Raises:
            SchemaChanged, ConflictUnresolved, SourceError, TargetError: the stream cannot go on like this.
        """
        if self._is_woken:
            self._is_woken = False
            self._decide(terms.Woken())
        if self.is_in_flight:
            return self._commit()
        if self._quarantining.is_due and self._long is None and self._board.offered(self._name) is None:
            self._quarantining.go_on(self._position, self._applied_at)
            return None
        if not self._backlog.items:
            self._read()
        if not self._backlog.items:
            self._save_if_due()
            return None
        head = self._backlog.items[0]
        if isinstance(head, SchemaChange):
            self._pass_schema_change(head)
            return None
        if isinstance(self._state, Jumping):
            return self._jump(self._state)
        if isinstance(self._state, Joining):
            return self._join(self._state)
        return self._apply()

    # Reading

    def _read(self) -> None:
        if self._backlog.read(self._position):
            self._reporter.at_head()
        if self._backlog.items:
            self._reporter.received()

    def _save_if_due(self) -> None:
        period = IDLE_SAVE_SECONDS if self._is_position_unsaved else KEEP_ALIVE_SECONDS
        if self._clock.monotonic() - self._saved_at >= period:
            self._save()

    def _save(self) -> None:
        self._target.commit(self._position, self._applied_at)
        self._has_saved()

    def _has_saved(self) -> None:
        self._is_position_unsaved = False
        self._saved_at = self._clock.monotonic()

    def _pass_schema_change(self, change: SchemaChange) -> None:
        if change.gtid not in self._accepted_schema_changes:
            if self._is_position_unsaved:
                self._save()
            raise SchemaChanged(
                f"stream {self._name} reached a schema change of a merged table, transaction {change.gtid}: "
                f"{' '.join(change.statement.split())[:200]}",
                hint="Change the target's table likewise (after TRUNCATE or DROP delete this shard's rows only: the "
                "siblings' are there, too), then go on with `vmerge start --past-schema-change "
                f"{change.gtid} -- WORKFLOW {self._name}`.",
            )
        self._backlog.drop(1)
        self._pass([change.gtid], change.committed_at_microseconds, count=1)
        self._save()  # at once: nobody shall have to accept it twice

    def _pass(self, gtids: Sequence[Gtid], committed_at_microseconds: int, *, count: int) -> None:
        """Move past what has no rows for the target. A stream may see nothing else for days, and never be idle."""
        self._move_to(self._position.advanced(gtids), committed_at_microseconds)
        self._is_position_unsaved = True
        self._reporter.moved(self._position, self._applied_at / 1e6, count)
        self._save_if_due()

    def _move_to(self, position: GtidSet, applied_at_microseconds: int) -> None:
        self._position = position
        self._applied_at = applied_at_microseconds
        self._fences = {}
        self._fellows = ()
        self._end_long_run()

    # Applying

    def _apply(self) -> Await | Parked | None:
        batch = choose_batch(self._backlog.items, batch_limit(self._state, self._limits))
        if not any(transaction.byte_count for transaction in batch):
            self._backlog.drop(len(batch))
            self._pass(gtids_of(batch), batch[-1].committed_at_microseconds, count=len(batch))
            return None
        # The snapshot is taken before the attempt: a sibling that moves during it may release what we miss.
        self._snapshot = self._board.siblings_of(self._name)
        try:
            self._target.apply(batch)
        except TargetError as error:
            return self._failed(len(batch), error)
        self._in_flight = batch
        return None

    def _jump(self, jumping: Jumping) -> Await | Parked | None:
        """Apply the next transactions, as many as have arrived of so many, as their net effect."""
        run = self._backlog.look_ahead(jumping.count, self._position)
        if self._backlog.is_too_large(run) or (len(run) < jumping.count and self._backlog.is_all_kept(run)):
            return self._jump_far(jumping, run)
        if len(run) < jumping.least:
            return self._obey(self._decide(terms.Unreached(*self._now_and_pause())))
        self._snapshot = self._board.siblings_of(self._name)
        try:
            self._target.apply_net_effect(run)
        except (TargetError, UnsupportedEvent) as error:
            return self._failed(len(run), error)
        self._in_flight = run
        return None

    def _jump_far(self, jumping: Jumping, kept: Sequence[Transaction]) -> Await | Parked | None:
        """Jump beyond what the backlog keeps, or over more than memory shall hold: the net effect grows on disk."""
        try:
            run = self._long_run(kept)
            while run.count < jumping.count and (more := self._backlog.read_on(run.position)):
                run.add(more)
                self._save_if_due()  # one step may read for long, and the target ends sessions that say nothing
        except UnsupportedEvent as error:
            self._end_long_run()
            return self._failed(len(kept), error)
        if run.count < jumping.least:
            return self._obey(self._decide(terms.Unreached(*self._now_and_pause())))
        self._snapshot = self._board.siblings_of(self._name)
        try:
            self._target.apply_effect(run.effect, kept[0])
        except TargetError as error:
            return self._failed(run.count, error)
        self._is_long_in_flight = True
        return None

    def _long_run(self, kept: Sequence[Transaction]) -> LongRun:
        if self._long is None:
            self._long = LongRun(self._position, self._target.begin_fold())
            self._long.add(kept)
            self._long.kept = len(kept)
        return self._long

    def _end_long_run(self) -> None:
        long, self._long, self._is_long_in_flight = self._long, None, False
        if long is not None:
            long.close()

    def _commit(self) -> Await | Parked | None:
        if self._parts:
            return self._commit_joint()
        if self._long is not None and self._is_long_in_flight:
            return self._commit_long_run(self._long)
        batch, self._in_flight = self._in_flight, []
        position = self._position.advanced(gtids_of(batch))
        stretch = Stretch.of(batch)
        try:
            self._target.commit(position, stretch.committed_at_microseconds)
        except TargetError as error:
            return self._failed(len(batch), error)
        self._has_committed(stretch, position, dropped=len(batch))
        return None

    def _commit_long_run(self, run: LongRun) -> Await | Parked | None:
        assert run.stretch is not None, "what was applied is not empty"
        self._is_long_in_flight = False
        try:
            self._target.commit(run.position, run.stretch.committed_at_microseconds)
        except TargetError as error:
            return self._failed(run.count, error)
        self._has_committed(run.stretch, run.position, dropped=run.kept)
        return None

    def _has_committed(self, stretch: Stretch, position: GtidSet, *, dropped: int) -> None:
        """These transactions are on the target with their position; so many items of the backlog are done."""
        before = self._state
        self._backlog.drop(dropped)
        self._move_to(position, stretch.committed_at_microseconds)
        self._has_saved()
        self._quarantining.committed()
        # Before siblings hear of it: what they commit in answer shall count as a move of theirs.
        version = self._board.siblings_of(self._name).version
        self._decide(terms.Applied(stretch.count, version))
        limit = batch_limit(self._state, self._limits)
        self._reporter.committed(before, stretch, position, limit)

    # Joint commits

    def _join(self, joining: Joining) -> Await | Parked | None:
        """Offer the run; lead if it falls to this stream; learn what became of it; or try alone again."""
        seen_news = self._board.news
        offered = self._board.offered(self._name)
        if offered is None:
            if self._is_position_unsaved:
                self._save()  # what is offered must be what is stored, or the joint commit is refused
                return None
            offered = self._offer(joining.waiting)
        if offered.settlement is not None:
            return self._learn(offered, offered.settlement)
        now = self._clock.monotonic()
        if offered.leader is not None:
            return Parked(now + LED_SECONDS, seen_news)
        patient_since = now - self._limits.jump_after_seconds
        offers = self._board.lead(self._name, now, patient_since)
        if offers:
            return self._lead(offers)
        until = joining.until
        if self._board.siblings_of(self._name).version != joining.waiting.siblings.version:
            # In a long wait offers have to meet on the board, however fast other siblings move.
            stands = self._limits.jump_after_seconds * OFFER_SHARE if joining.waiting.since <= patient_since else 0.0
            until = min(until, offered.offer.made_at + stands)
        if now >= until and self._board.retract(self._name):
            return self._obey(self._decide(terms.Woken()))
        return Parked(min(until, now + LOOK_SECONDS), seen_news)

    def _lead(self, offers: Sequence[Offer]) -> Await | Parked | None:
        try:
            self._parts = apply_joint(self._target, offers)
        except (TargetError, UnsupportedEvent) as error:
            return self._unjoined(error)
        if not self._parts:
            self._board.settle(self._name, ())
        return None

    def _offer(self, waiting: Waiting) -> Offered:
        run = tuple(self._backlog.look_ahead(self._reach.transactions, self._position))
        version, membership, now = waiting.siblings.version, self._target.membership(), self._clock.monotonic()
        long_run = self._long if self._long is not None and self._long.count > len(run) else None
        offer = Offer(self._name, version, waiting.since, now, self._position, run, long_run, membership)
        return self._board.offer(offer)

    def _learn(self, offered: Offered, settlement: Part | Settlement) -> Await | Parked | None:
        self._board.withdraw(self._name)
        match settlement:
            case Settlement.UNKNOWN:
                raise CommitUnknown(f"stream {self._name}: its sibling was lost in a commit for both")
            case Settlement.DECLINED:
                self._fellows = offered.fellows
                return self._obey(self._decide(self._as_unjoined(offered)))
            case Part():
                self._quarantining.joined()
                self._has_committed(settlement.stretch, settlement.position, dropped=len(settlement.run))
                return None
            case _:
                assert_never(settlement)

    def _commit_joint(self) -> Await | Parked | None:
        self._may_be_joined = True
        try:
            self._target.commit_joint(self._parts)
        except TargetError as error:
            return self._unjoined(error)
        self._may_be_joined = False
        parts, self._parts = self._parts, ()
        self._board.settle(self._name, parts)
        own = self._board.offered(self._name)
        assert own is not None, "a leader is a member"
        assert own.settlement is not None
        return self._learn(own, own.settlement)

    def _unjoined(self, error: VmergeError) -> Await | Parked | None:
        """Undo a joint commit that failed, then let the members go."""
        if self._as_event(1, error) is None:
            raise error
        self._parts = ()
        self._target.rollback()
        self._may_be_joined = False
        self._board.settle(self._name, ())
        own = self._board.offered(self._name)
        assert own is not None, "a leader is a member"
        return self._learn(own, Settlement.DECLINED)

    def _as_unjoined(self, offered: Offered) -> terms.Unjoined:
        now = self._clock.monotonic()
        rest = min((now - offered.led_at) * REST_SHARE, LONGEST_REST_SECONDS)
        return terms.Unjoined(now, self._pause(UNJOINED_ATTEMPT) + rest)

    # Conflicts

    def _failed(self, count: int, error: VmergeError) -> Await | Parked | None:
        """Roll back an attempt of so many transactions, ask the machine, obey."""
        event = self._as_event(count, error)
        if event is None:
            raise error
        self._target.rollback()
        before, gtid = self._state, self._backlog.items[0].gtid
        decision = self._decide(event)
        if isinstance(self._state, Waiting):
            key = error.key if isinstance(error, KeyConflict) else None
            self._reporter.waiting(self._state, str(gtid), key)
        if isinstance(decision, Ask):
            decision = self._ask()
        if isinstance(decision, GiveUp):
            raise surrender(self._name, gtid, decision, before, error, self._clock.monotonic()) from error
        return self._obey(decision)

    def _obey(self, decision: terms.Decision) -> Await | Parked | None:
        match decision:
            case Proceed() | Park():
                return None
            case Await():
                self._is_woken = True
                return decision
            case Ask() | SetAside() | GiveUp():
                raise AssertionError(f"{decision} follows only from a failed attempt")
            case _:
                assert_never(decision)

    def _decide(self, event: terms.Event) -> terms.Decision:
        before = self._state
        self._state, decision = decide(before, event, self._limits)
        self._reporter.decided(before, event, decision)
        return decision

    def _ask(self) -> terms.Decision:
        """Gather evidence and tell the machine what it proves."""
        # Before the testimony: what a stream applied meanwhile may be what the testimony misses.
        applied = {progress.name: progress.applied for progress in self._board.all_progress()}
        standing = Standing(self._name, applied, self._fences)
        kept = self._backlog.look_ahead(self._reach.transactions, self._position)
        finding: Finding
        testimony: Testimony | None = None
        long = self._long
        run: Sequence[Transaction] = kept
        try:
            run = self._target.visible(kept)
            effect = long.effect if long is not None else None
            testimony = self._witness.testify(run, effect, self._blocked_fellows(applied))
        except VmergeError as error:
            finding = Unproven(error.message)
        except Exception as error:  # a flaw in what only looks is no reason to stop; its text may hold row values
            finding = Unproven(f"internal error: {type(error).__name__}{_place_of(error)}")
        else:
            self._fences = testimony.heads
            finding = judge(testimony, standing)
        self._reporter.found(finding, testimony)
        policy = self._quarantining.policy(finding)
        decision = self._decide(terms.Testified(finding, *self._now_and_pause(), policy))
        return self._set_aside(run, decision.finding) if isinstance(decision, SetAside) else decision

    def _set_aside(self, run: Sequence[Transaction], finding: Permanent) -> terms.Decision:
        """Mark the stream's own row of a duplicate, and try again; a row that cannot be found stops the stream."""
        long = self._long
        effect = None if long is None else long.effect
        until = run[-1].gtid if long is None or long.stretch is None else long.stretch.last
        try:
            self._quarantining.mark(run, effect, finding, until)
        except VmergeError as error:
            if error.verdict is not Verdict.TRANSIENT:
                give_up = GiveUp(terms.Reason.PROVEN, finding)
                self._reporter.decided(self._state, terms.Testified(finding, *self._now_and_pause()), give_up)
                return give_up
        self._end_long_run()  # its transactions have passed without the mark
        return Proceed()

    def _blocked_fellows(self, applied: Mapping[str, GtidSet]) -> list[Offer]:
        """Return the fellows that still stand where their offers began.

        In a ring a duplicate may show only behind what the members release together. A longer run than is kept is its
        owner's, who may add to it now; such a fellow stays out.
        """
        return [one for one in self._fellows if one.long_run is None and applied[one.stream] == one.position]

    def _as_event(self, count: int, error: VmergeError) -> terms.Event | None:
        now, pause = self._now_and_pause()
        match error:
            case KeyConflict():
                return terms.Conflicted(count, self._snapshot, now, pause)
            case LockConflict():
                locks = 0 if isinstance(self._state, terms.Stuck | Joining) else self._state.locks
                return terms.Locked(count, now, self._pause(locks + 1))
            case QuarantineSettled():
                self._quarantining.reread_later()
                self._end_long_run()
                return terms.Locked(count, now, pause)
            case JointRefused():
                return terms.Unjoined(now, pause)
            case RowMissing() | SchemaMismatch() | TargetRejected():
                return terms.Rejected(count, now, pause)
            case UnsupportedEvent():
                return terms.Unfoldable(now, pause)
            case _:
                return None

    def _now_and_pause(self) -> tuple[float, float]:
        """Return the instant and the pause before the attempt that comes next."""
        match self._state:
            case Waiting(attempts=attempts):
                pause = self._pause(attempts + 1)
            case Jumping(waiting) | Joining(waiting):
                pause = self._pause(waiting.attempts + 1)
            case _:
                pause = self._pause(1)
        return self._clock.monotonic(), pause

    def _wait(self, pause: Await | Parked, stop: StopToken) -> None:
        seconds = pause.until - self._clock.monotonic()
        match pause:
            case Parked(seen_news=seen):
                self._board.wait_for_news(seen, seconds, stop)
            case Await(seen_version=None):
                stop.wait(seconds)
            case Await(seen_version=int() as version):
                self._board.wait_for_siblings(self._name, version, seconds, stop)


def _place_of(error: Exception) -> str:
    """Return where an error comes from, to be reported."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at line {frames[-1].lineno} of {PurePath(frames[-1].filename).name}" if frames else ""
