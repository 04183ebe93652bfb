"""One stream: read, batch, apply, commit; on a conflict ask ``core.conflict`` and obey.

Knows: the order of these steps, and what each outcome means for the position. Never knows: sockets, SQL, or how the
machine decides. Source and target are protocols with two implementations each: ``vmerge.mysql`` and the simulator of
the tests, which drives the same ``step`` under every schedule. Used by the supervisor.

Each step does at most one thing that siblings can see: apply a batch, commit it, or roll it back. So a schedule of
steps is a schedule of everything that streams see of each other, and between two steps of which the first said
``Await`` no target transaction is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Protocol

from vmerge.board import Board
from vmerge.core import conflict
from vmerge.core.batch import choose_batch
from vmerge.core.conflict import Await, GiveUp, Isolating, Jumping, Limits, Reason, Siblings, Waiting
from vmerge.core.events import Heartbeat, SchemaChange, SourceItem, Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.errors import (
    ConflictUnresolved,
    ForeignKeyConflict,
    KeyConflict,
    LockConflict,
    RowMissing,
    SchemaChanged,
    SchemaMismatch,
    SourceLost,
    TargetError,
    TargetRejected,
    UnsupportedEvent,
    VmergeError,
)
from vmerge.pauses import retry_pause
from vmerge.reporting import Reporter
from vmerge.stopping import Clock, StopToken

JUMP_BYTES = 2 * 1024 * 1024
"""Row images that one jump may hold: a hundred thousand of the smallest rows fold in about a second, in some 100 MB."""

JUMP_TRANSACTIONS = 20_000
"""And transactions, of which many may have no rows: what a blocked stream holds ahead stays bounded."""

IDLE_SAVE_SECONDS = 2.0
"""How often a position is stored that moved without any row for the target."""

KEEP_ALIVE_SECONDS = 10.0
"""How often a position is stored that did not move: a target may end sessions that say nothing for longer."""


class Source(Protocol):
    """Where a stream's items come from."""

    def open(self, position: GtidSet) -> None:
        """Begin behind ``position``, however often it was open before."""

    def read(self) -> Sequence[SourceItem]:
        """Return the next items in order, perhaps none; blocks for about a second at most."""

    def poll(self) -> Sequence[SourceItem]:
        """Return the next items that have arrived already, perhaps none; never blocks."""

    def close(self) -> None:
        """Let go of the source."""


class Target(Protocol):
    """Where a stream's transactions go. At most one target transaction is open."""

    def open(self) -> GtidSet:
        """Take the stream over, so that no earlier owner can commit any more, and return its position."""

    def apply(self, batch: Sequence[Transaction]) -> None:
        """Begin a target transaction and apply whole transactions in it. On an error the caller rolls back."""

    def apply_net_effect(self, run: Sequence[Transaction]) -> None:
        """Begin a target transaction and apply what a run of transactions does in the end (``core/fold.py``).

        Raises ``UnsupportedEvent`` when that cannot be told. On any error the caller rolls back.
        """

    def commit(self, position: GtidSet, applied_at_microseconds: int) -> None:
        """Store the position in the open target transaction (or one of its own) and commit."""

    def rollback(self) -> None:
        """Undo the open target transaction, if there is one."""

    def close(self) -> None:
        """Let go of the target."""


class Player:
    """Plays one stream.

    Promise: every transaction of the source is on the target exactly once, with its position, in the source's order;
    nothing is waited for with an open target transaction. Invariants: ``_pending`` begins with the transactions
    behind ``_position``; a batch in flight is the head of ``_pending``. A player is opened once; after an error another
    one goes on from the checkpoint. Owner: one thread, which opens, uses and closes the connections.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        target: Target,
        board: Board,
        *,
        limits: Limits,
        clock: Clock,
        concerns: Callable[[SchemaChange], bool],
        accepted_schema_changes: frozenset[Gtid] = frozenset(),
        pause: Callable[[int], float] = retry_pause,
        after_conflict: bool = False,
    ) -> None:
        self._name = name
        self._source = source
        self._target = target
        self._board = board
        self._limits = limits
        self._clock = clock
        self._concerns = concerns
        self._accepted_schema_changes = accepted_schema_changes
        self._pause = pause
        self._state: conflict.State = Isolating() if after_conflict else conflict.Clear()
        self._position = GtidSet()
        self._pending: deque[SourceItem] = deque()
        self._in_flight: list[Transaction] = []
        self._snapshot = Siblings(0, 0)
        self._is_woken = False
        self._is_position_unsaved = False
        self._applied_at = 0
        self._saved_at = 0.0
        self._reporter = Reporter(name, board, clock)

    @property
    def has_conflict(self) -> bool:
        """Whether a conflict is under way or was met not long ago; a successor then starts without batches."""
        return not isinstance(self._state, conflict.Clear)

    @property
    def position(self) -> GtidSet:
        """The position up to which everything is on the target."""
        return self._position

    @property
    def is_in_flight(self) -> bool:
        """Whether a batch is applied and not yet committed."""
        return bool(self._in_flight)

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
        self._reporter.connecting()
        self._position = self._target.open()
        self._source.open(self._position)
        self._saved_at = self._clock.monotonic()
        self._reporter.opened(self._position)

    def close(self) -> None:
        """Close both sides; what was in flight is rolled back by the target."""
        self._source.close()
        self._target.close()
        self._reporter.closed()

    def step(self) -> Await | None:
        """Do one thing; return what to wait for before the next step, if anything.

        Raises:
            SchemaChanged, ConflictUnresolved, SourceError, TargetError: the stream cannot go on like this.
        """
        if self._is_woken:
            self._is_woken = False
            self._state, _ = conflict.decide(self._state, conflict.Woken(), self._limits)
        if self._in_flight:
            return self._commit()
        if not self._pending:
            self._read()
        if not self._pending:
            self._save_if_due()
            return None
        head = self._pending[0]
        if isinstance(head, SchemaChange):
            self._pass_schema_change(head)
            return None
        if isinstance(self._state, Jumping):
            return self._jump(self._state)
        return self._apply()

    # Reading

    def _read(self) -> None:
        self._take(self._source.read())

    def _take(self, items: Sequence[SourceItem]) -> None:
        for item in items:
            if isinstance(item, Heartbeat):
                if not self._pending:
                    self._reporter.at_head()
            else:
                self._pending.append(item)
        if self._pending:
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
        is_concerned = self._concerns(change)
        if is_concerned and change.gtid not in self._accepted_schema_changes:
            if self._is_position_unsaved:
                self._save()
            raise SchemaChanged(
                f"stream {self._name} reached a schema change of a merged table, transaction {change.gtid}: "
                f"{' '.join(change.statement.split())[:200]}",
                hint="Change the target's table likewise (after TRUNCATE or DROP delete this shard's rows only: the "
                "siblings' are there, too), then go on with `vmerge start --past-schema-change "
                f"{change.gtid} -- WORKFLOW {self._name}`.",
            )
        self._pending.popleft()
        self._pass([change.gtid], change.committed_at_microseconds, count=1)
        if is_concerned:
            self._save()  # at once: nobody shall have to accept it twice

    def _pass(self, gtids: Sequence[Gtid], committed_at_microseconds: int, *, count: int) -> None:
        """Move past what has no rows for the target. A stream may see nothing else for days, and never be idle."""
        self._position = self._position.advanced(gtids)
        self._applied_at = committed_at_microseconds
        self._is_position_unsaved = True
        self._reporter.moved(self._position, self._applied_at / 1e6, count)
        self._save_if_due()

    # Applying

    def _apply(self) -> Await | None:
        batch = choose_batch(self._pending, conflict.batch_limit(self._state, self._limits))
        if not any(transaction.byte_count for transaction in batch):
            self._drop_from_pending(batch)
            self._pass(_gtids_of(batch), batch[-1].committed_at_microseconds, count=len(batch))
            return None
        # The snapshot is taken before the attempt: a sibling that moves during it may release what we miss.
        self._snapshot = self._board.siblings_of(self._name)
        try:
            self._target.apply(batch)
        except TargetError as error:
            return self._failed(batch, error)
        self._in_flight = batch
        return None

    def _jump(self, jumping: Jumping) -> Await | None:
        """Apply the next transactions, as many as have arrived of so many, as their net effect."""
        run = self._look_ahead(jumping.count)
        if len(run) < jumping.least:
            now = self._clock.monotonic()
            decision = self._decide(conflict.Unreached(now, self._pause(self._attempt())))
            assert not isinstance(decision, GiveUp), "a jump that is not tried proves nothing"
            return decision
        self._snapshot = self._board.siblings_of(self._name)
        try:
            self._target.apply_net_effect(run)
        except (TargetError, UnsupportedEvent) as error:
            return self._failed(run, error)
        self._in_flight = run
        return None

    def _look_ahead(self, count: int) -> list[Transaction]:
        """Return the next transactions up to a schema change, the bounds of a jump, or what has arrived."""
        ahead = _bytes_of(self._pending)
        while len(self._pending) < min(count, JUMP_TRANSACTIONS) and ahead < JUMP_BYTES:
            before = len(self._pending)
            self._poll()
            if len(self._pending) == before:
                break
            ahead += _bytes_of(islice(self._pending, before, None))
        run: list[Transaction] = []
        size = 0
        for item in self._pending:
            if not isinstance(item, Transaction) or len(run) == min(count, JUMP_TRANSACTIONS):
                break
            size += item.byte_count
            if run and size > JUMP_BYTES:
                break
            run.append(item)
        return run

    def _poll(self) -> None:
        """Take what has arrived. A source that is lost while the stream is blocked is opened again behind what it gave.

        A restart would do that too, but forget for how long the stream is blocked already.
        """
        try:
            self._take(self._source.poll())
        except SourceLost:
            received = [item for item in self._pending if not isinstance(item, Heartbeat)]
            position = self._position.advanced(_gtids_of(received))
            with suppress(SourceLost):  # not yet back: what has arrived has to do until the next jump
                self._source.open(position)

    def _commit(self) -> Await | None:
        batch, self._in_flight = self._in_flight, []
        position = self._position.advanced(_gtids_of(batch))
        applied_at = batch[-1].committed_at_microseconds
        try:
            self._target.commit(position, applied_at)
        except TargetError as error:
            return self._failed(batch, error)
        self._position = position
        self._applied_at = applied_at
        self._has_saved()
        self._drop_from_pending(batch)
        if isinstance(self._state, Jumping):
            self._reporter.jumped(batch)
        # Before siblings hear of it: what they commit in answer shall count as a move of theirs.
        applied = conflict.Applied(len(batch), self._board.siblings_of(self._name).version)
        self._state, _ = conflict.decide(self._state, applied, self._limits)
        limit = conflict.batch_limit(self._state, self._limits)
        self._reporter.committed(batch, position, applied_at / 1e6, limit)
        return None

    def _drop_from_pending(self, batch: Sequence[Transaction]) -> None:
        if len(batch) == len(self._pending):
            self._pending.clear()
            return
        for _ in batch:
            self._pending.popleft()

    # Conflicts

    def _failed(self, batch: Sequence[Transaction], error: VmergeError) -> Await | None:
        """Roll back, ask the machine, obey."""
        event = self._as_event(batch, error)
        if event is None:
            raise error
        self._target.rollback()
        before = self._state
        decision = self._decide(event)
        if isinstance(decision, GiveUp):
            raise self._surrender(decision.reason, before, batch, error) from error
        if isinstance(decision, Await) and isinstance(self._state, Waiting):
            key = error.key if isinstance(error, KeyConflict) else None
            self._reporter.waiting(self._state, str(batch[0].gtid), key)
        return decision

    def _decide(self, event: conflict.Event) -> Await | GiveUp | None:
        """Ask the machine; return what is more than going on."""
        before = self._state
        self._state, decision = conflict.decide(before, event, self._limits)
        self._reporter.failed(before, event, decision)
        if isinstance(decision, conflict.Proceed):
            return None
        self._is_woken = isinstance(decision, Await)
        return decision

    def _as_event(self, batch: Sequence[Transaction], error: VmergeError) -> conflict.Event | None:
        now = self._clock.monotonic()
        match error:
            case KeyConflict():
                may_jump = not isinstance(error, ForeignKeyConflict)
                return conflict.Conflicted(
                    len(batch), self._snapshot, now, self._pause(self._attempt()), may_jump=may_jump
                )
            case LockConflict():
                locks = 0 if isinstance(self._state, conflict.Stuck) else self._state.locks
                return conflict.Locked(len(batch), now, self._pause(locks + 1))
            case RowMissing() | SchemaMismatch() | TargetRejected():
                return conflict.Rejected(len(batch), now, self._pause(self._attempt()))
            case UnsupportedEvent():
                return conflict.Unfoldable(now, self._pause(self._attempt()))
            case _:
                return None

    def _attempt(self) -> int:
        """Return the number of the attempt that comes next, for its pause."""
        match self._state:
            case Waiting(attempts=attempts) | Jumping(waiting=Waiting(attempts=attempts)):
                return attempts + 1
            case _:
                return 1

    def _surrender(
        self, reason: Reason, before: conflict.State, batch: Sequence[Transaction], error: VmergeError
    ) -> VmergeError:
        gtid = batch[0].gtid
        if reason is Reason.REJECTED:
            return type(error)(f"stream {self._name}, transaction {gtid}: {error.message}", hint=error.hint)
        seconds = self._clock.monotonic() - before.since if isinstance(before, Waiting) else 0.0
        return ConflictUnresolved(
            f"stream {self._name}, transaction {gtid}: {error.message}; {reason.value} (blocked for {seconds:.1f} s)",
        )

    def _wait(self, pause: Await, stop: StopToken) -> None:
        seconds = pause.until - self._clock.monotonic()
        if pause.seen_version is None:
            stop.wait(seconds)
        else:
            self._board.wait_for_siblings(self._name, pause.seen_version, seconds, stop)


def _gtids_of(items: Sequence[Transaction | SchemaChange]) -> list[Gtid]:
    """Return the GTIDs that are done with these items, the earlier halves of XA transactions last."""
    gtids = [item.gtid for item in items]
    gtids += [item.prepared for item in items if isinstance(item, Transaction) and item.prepared is not None]
    return gtids


def _bytes_of(items: Iterable[SourceItem]) -> int:
    """Return how many bytes of row images items hold."""
    return sum(item.byte_count for item in items if isinstance(item, Transaction))
