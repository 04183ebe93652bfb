"""One stream: read, batch, apply, commit; on a conflict ask ``core.conflict`` and obey.

Knows: the order of these steps, and what each outcome means for the position. Never knows: sockets, SQL, or how the
machine decides. Source, target and witness are protocols with two implementations each: ``vmerge.mysql`` and the
simulator of the tests, which drives the same ``step`` under every schedule. Used by the supervisor.

Each step does at most one thing that siblings can see: apply a batch, commit it, or roll it back. So a schedule of
steps is a schedule of everything that streams see of each other, and between two steps of which the first said
``Await`` or ``Parked`` no target transaction is open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import assert_never

from vmerge.core import conflict_terms as terms
from vmerge.core.batch import choose_batch
from vmerge.core.conflict_terms import Ask, Await, GiveUp, Joining, Jumping, Limits, Park, Proceed, SetAside, Waiting
from vmerge.core.duplicates import STOP_ALWAYS, DuplicateRules
from vmerge.core.events import SchemaChange, Transaction
from vmerge.core.joint import Offer, Part
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stop_position import StopPosition
from vmerge.core.stretch import gtids_of
from vmerge.errors import CommitUnknown, TargetError, UnsupportedEvent, Verdict, VmergeError
from vmerge.player.backlog import USUAL_REACH, Backlog, Reach, Source
from vmerge.player.board import Board, Offered, Settlement
from vmerge.player.checkpoint import Checkpoint
from vmerge.player.contention import Contention
from vmerge.player.ends import Target, Witness
from vmerge.player.inquiry import Inquiry
from vmerge.player.joint import JointMember, Retracted
from vmerge.player.patience import Pause, wait
from vmerge.player.pauses import retry_pause
from vmerge.player.quarantining import Quarantining
from vmerge.player.reporting import Reporter
from vmerge.player.runs import Flight, Runs
from vmerge.player.schema_changes import STOP_AT_CHANGES, ChangeRules, Interpreter, Ledger, SchemaChanges
from vmerge.stopping import Clock, StopToken


class Player:
    """Plays one stream.

    Promise: every transaction of the source is on the target exactly once, with its position, in the source's order;
    nothing is waited for with an open target transaction. Invariants: the backlog begins with the transactions
    behind ``position``; a batch in flight is its head. A player is opened once; after an error another one goes on
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
        interpreter: Interpreter,
        ledger: Ledger,
        changes: ChangeRules = STOP_AT_CHANGES,
        pause: Callable[[int], float] = retry_pause,
        after_conflict: bool = False,
        reach: Reach = USUAL_REACH,
        duplicates: DuplicateRules = STOP_ALWAYS,
        stop_position: StopPosition | None = None,
    ) -> None:
        self._name = name
        self._stop_position = stop_position
        self._backlog = Backlog(source, reach, concerns, stop_position)
        self._target = target
        self._board = board
        self._clock = clock
        self._in_flight: Flight | None = None
        self._is_woken = False
        self._checkpoint = Checkpoint(target, clock)
        self._reporter = Reporter(name, board, clock)
        self._schema_changes = SchemaChanges(
            name, changes, interpreter, ledger, target.membership, board, clock, self._reporter
        )
        self._runs = Runs(self._backlog, reach, target)
        self._inquiry = Inquiry(name, target, witness, board)
        self._member = JointMember(name, target, board, clock, limits.jump_after_seconds)
        self._quarantining = Quarantining(name, target, witness, board, clock, duplicates)
        self._contention = Contention(
            name,
            board,
            self._runs,
            self._inquiry,
            self._quarantining,
            self._reporter,
            limits=limits,
            clock=clock,
            pause=pause,
            state=terms.Isolating() if after_conflict else terms.Clear(),
        )

    @property
    def has_conflict(self) -> bool:
        """Whether a conflict is under way or was met not long ago; a successor then starts without batches."""
        return not isinstance(self._contention.state, terms.Clear)

    @property
    def position(self) -> GtidSet:
        """The position up to which everything is on the target."""
        return self._checkpoint.position

    @property
    def is_in_flight(self) -> bool:
        """Whether something is applied and not yet committed."""
        return self._in_flight is not None or bool(self._member.parts)

    @property
    def is_at_stop_position(self) -> bool:
        """Whether it has come to where it was ordered to stop, and that is stored."""
        return self._has_reached_stop() and not (self.is_in_flight or self._checkpoint.is_unsaved)

    def _has_reached_stop(self) -> bool:
        return self._stop_position is not None and self._stop_position.is_reached(self._checkpoint.position)

    def reread_quarantine(self) -> None:
        """Read the rows in quarantine anew before the next attempt, as an operator has settled one. From any thread."""
        self._quarantining.reread_later()

    def run(self, stop: StopToken) -> None:
        """Play until told to stop, or at the stop position.

        Every error goes to the caller; the connections are closed in every case. Whatever ends it for good, the
        position is stored as far as it is known: an operator who skips what stopped the stream names what follows it.
        """
        try:
            self.open()
            while not (stop.is_set() or self.is_at_stop_position):
                pause = self.step()
                if pause is not None:
                    wait(self._name, pause, self._board, self._clock, stop)
            if self._checkpoint.is_unsaved and not self.is_in_flight:
                self._checkpoint.save()
        except VmergeError as error:
            if stop.is_set() or error.verdict is not Verdict.TRANSIENT:
                self._save_at_last()
            raise
        finally:
            self.close()

    def _save_at_last(self) -> None:
        with contextlib.suppress(VmergeError):
            if self._checkpoint.is_unsaved:
                self._target.rollback()
                self._checkpoint.save()

    def open(self) -> None:
        """Take the stream over on the target and open the source behind its position."""
        self._leave_joints()
        self._schema_changes.begin()
        self._reporter.connecting()
        self._checkpoint.opened(self._target.open())
        self._backlog.open(self.position)
        self._reporter.opened(self.position)
        self._quarantining.opened()

    def close(self) -> None:
        """Close both sides; what was in flight is rolled back by the target."""
        self._backlog.close()
        self._target.close()
        self._leave_joints()
        self._schema_changes.leave()
        self._runs.end_long()
        self._reporter.closed()

    def _leave_joints(self) -> None:
        if self._member.leave():
            self._runs.leave_long()

    def step(self) -> Pause | None:
        """Do one thing; return what to wait for before the next step, if anything.

        Raises:
            SchemaChanged, ConflictUnresolved, SourceError, TargetError: the stream cannot go on like this.
        """
        if self._is_woken:
            self._is_woken = False
            self._contention.decide(terms.Woken())
        if self.is_in_flight:
            return self._commit()
        if self._quarantining.is_due and self._runs.long is None and self._board.offered(self._name) is None:
            self._quarantining.go_on(self.position, self._checkpoint.applied_at_microseconds)
            return None
        if not self._backlog.items:
            self._read()
        if not self._backlog.items:
            self._checkpoint.save_if_due()
            return None
        head = self._backlog.items[0]
        if isinstance(head, SchemaChange):
            return self._meet(head)
        match self._contention.state:
            case Jumping() as jumping:
                return self._jump(jumping)
            case Joining() as joining:
                return self._join(joining)
            case _:
                return self._apply()

    # Reading

    def _read(self) -> None:
        if self._backlog.read(self.position):
            self._reporter.at_head()
        if self._backlog.items:
            self._reporter.received()

    def _meet(self, change: SchemaChange) -> Pause | None:
        if self._checkpoint.is_unsaved:
            self._checkpoint.save()  # whatever becomes of the change, what precedes it is stored
        pause = self._schema_changes.meet(change, self.position)
        if pause is not None:
            self._checkpoint.save_if_due()
            return pause
        self._backlog.drop(1)
        self._pass([change.gtid], change.committed_at_microseconds, count=1)
        self._checkpoint.save()  # at once: nobody shall have to accept it twice
        self._schema_changes.passed(change)
        return None

    def _pass(self, gtids: Sequence[Gtid], committed_at_microseconds: int, *, count: int) -> None:
        """Move past what has no rows for the target. A stream may see nothing else for days, and never be idle."""
        self._move_to(self.position.advanced(gtids), committed_at_microseconds)
        self._reporter.moved(self.position, committed_at_microseconds / 1e6, count)
        if self._has_reached_stop():
            self._checkpoint.save()
        self._checkpoint.save_if_due()

    def _move_to(self, position: GtidSet, applied_at_microseconds: int) -> None:
        self._checkpoint.move_to(position, applied_at_microseconds)
        self._inquiry.forget()
        self._runs.end_long()

    # Applying

    def _apply(self) -> Pause | None:
        batch = choose_batch(self._backlog.items, self._contention.batch_limit)
        if not any(transaction.byte_count for transaction in batch):
            self._backlog.drop(len(batch))
            self._pass(gtids_of(batch), batch[-1].committed_at_microseconds, count=len(batch))
            return None
        self._contention.begin_attempt()
        try:
            self._target.apply(batch)
        except TargetError as error:
            return self._failed(len(batch), error)
        self._in_flight = Flight.of(batch, self.position)
        return None

    def _jump(self, jumping: Jumping) -> Pause | None:
        """Apply the next transactions, as many as have arrived of so many, as their net effect."""
        run = self._backlog.look_ahead(jumping.count, self.position)
        if self._backlog.is_too_large(run) or (len(run) < jumping.count and self._backlog.is_all_kept(run)):
            return self._jump_far(jumping, run)
        if len(run) < jumping.least:
            return self._obey(self._contention.unreached())
        self._contention.begin_attempt()
        try:
            self._target.apply_net_effect(run)
        except (TargetError, UnsupportedEvent) as error:
            return self._failed(len(run), error)
        self._in_flight = Flight.of(run, self.position)
        return None

    def _jump_far(self, jumping: Jumping, kept: Sequence[Transaction]) -> Pause | None:
        """Jump beyond what the backlog keeps, or over more than memory shall hold: the net effect grows on disk."""
        try:
            # One step may read for long, and the target ends sessions that say nothing.
            run = self._runs.grow(kept, self.position, jumping.count, meanwhile=self._checkpoint.save_if_due)
        except UnsupportedEvent as error:
            self._runs.end_long()
            return self._failed(len(kept), error)
        if run.count < jumping.least:
            return self._obey(self._contention.unreached())
        self._contention.begin_attempt()
        try:
            self._target.apply_effect(run.effect, kept[0])
        except TargetError as error:
            return self._failed(run.count, error)
        assert run.stretch is not None, "what was applied is not empty"
        self._in_flight = Flight(run.stretch, run.position, run.kept)
        return None

    def _commit(self) -> Pause | None:
        if self._member.parts:
            return self._commit_joint()
        flight, self._in_flight = self._in_flight, None
        assert flight is not None, "something is in flight"
        try:
            self._target.commit(flight.position, flight.stretch.committed_at_microseconds)
        except TargetError as error:
            return self._failed(flight.stretch.count, error)
        self._has_committed(flight)
        return None

    def _has_committed(self, flight: Flight) -> None:
        self._backlog.drop(flight.dropped)
        self._move_to(flight.position, flight.stretch.committed_at_microseconds)
        self._checkpoint.has_saved()
        self._quarantining.committed()
        self._contention.committed(flight.stretch, flight.position)

    # Joint commits

    def _join(self, joining: Joining) -> Pause | None:
        """Offer the run; lead if it falls to this stream; learn what became of it; or try alone again."""
        if self._checkpoint.is_unsaved and not self._member.has_offer:
            self._checkpoint.save()  # what is offered must be what is stored, or the joint commit is refused
            return None
        try:
            outcome = self._member.go_on(joining, lambda: self._offer(joining.waiting))
        except (TargetError, UnsupportedEvent) as error:
            return self._unjoined(error)
        match outcome:
            case Offered():
                return self._learn(outcome)
            case Retracted():
                return self._obey(self._contention.decide(terms.Woken()))
            case _:
                return outcome

    def _offer(self, waiting: Waiting) -> Offer:
        run = tuple(self._runs.kept(self.position))
        version, membership, now = waiting.siblings.version, self._target.membership(), self._clock.monotonic()
        long = self._runs.long
        long_run = long if long is not None and long.count > len(run) else None
        return Offer(self._name, version, waiting.since, now, self.position, run, long_run, membership)

    def _learn(self, offered: Offered) -> Pause | None:
        self._member.learned()
        match offered.settlement:
            case Settlement.UNKNOWN:
                raise CommitUnknown(f"stream {self._name}: its sibling was lost in a commit for both")
            case Settlement.DECLINED:
                self._inquiry.fellows = offered.fellows
                return self._obey(self._contention.unjoined(offered))
            case Part() as part:
                self._quarantining.joined()
                self._has_committed(Flight(part.stretch, part.position, len(part.run)))
                return None
            case None:
                raise AssertionError("an offer is learned of when it is settled")
            case _:
                assert_never(offered.settlement)

    def _commit_joint(self) -> Pause | None:
        try:
            own = self._member.commit()
        except TargetError as error:
            return self._unjoined(error)
        return self._learn(own)

    def _unjoined(self, error: VmergeError) -> Pause | None:
        """Undo a joint commit that failed, then let the members go."""
        if self._contention.event_of(error, 1) is None:
            raise error
        return self._learn(self._member.give_up())

    # Conflicts

    def _failed(self, count: int, error: VmergeError) -> Pause | None:
        """Roll back an attempt of so many transactions, ask the machine, obey."""
        event = self._contention.event_of(error, count)
        if event is None:
            raise error
        self._target.rollback()
        return self._obey(self._contention.failed(event, error, self._backlog.items[0].gtid, self.position))

    def _obey(self, decision: terms.Decision) -> Pause | None:
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
