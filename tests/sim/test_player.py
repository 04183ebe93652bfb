"""Players in the corners that histories do not reach: positions without rows, schema changes, the head, errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.sim.database import SimDatabase
from tests.sim.ends import Fault, SimClock, SimRules, SimSource, SimTarget
from tests.sim.ledger import PlainInterpreter, SimLedger
from tests.sim.rows import Change, Table, delete, insert, update
from tests.sim.world import gtid_of, transaction_of

from vmerge.core import evidence
from vmerge.core.conflict_terms import Await, Limits
from vmerge.core.events import SchemaChange, SourceItem, Transaction
from vmerge.core.fold import Fold, MemoryChanges
from vmerge.core.joint import Offer
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.quarantine import RowName
from vmerge.core.schema_policy import OnDdl
from vmerge.core.states import Phase, StreamState
from vmerge.core.verdict import Unproven
from vmerge.errors import (
    CommitUnknown,
    ConflictUnresolved,
    Fenced,
    LockConflict,
    Replanned,
    RowMissing,
    SchemaChanged,
    SchemaMismatch,
    SourceLost,
    SpoolFailed,
    TargetError,
    UnsupportedEvent,
    VmergeError,
)
from vmerge.player.backlog import USUAL_REACH, Reach
from vmerge.player.board import Board
from vmerge.player.checkpoint import IDLE_SAVE_SECONDS
from vmerge.player.patience import Parked
from vmerge.player.player import Player
from vmerge.player.schema_changes import ChangeRules

TABLES = {"u": Table("u", unique=((1,),))}


class RefusingTarget(SimTarget):
    """Fails once with a given error when it comes to a given transaction."""

    refuses: tuple[int, TargetError] | None = None

    def apply(self, batch: Sequence[Transaction]) -> None:
        """See ``Target``."""
        if self.refuses is not None and any(one.gtid.number == self.refuses[0] for one in batch):
            error = self.refuses[1]
            if not isinstance(error, SchemaMismatch):
                self.refuses = None
            raise error
        super().apply(batch)


class BreakingSource(SimSource):
    """Cannot read on from a given transaction, however often it is asked."""

    breaks_at: int | None = None
    error: VmergeError = UnsupportedEvent("an event of an unknown kind")

    def read(self) -> list[SourceItem]:
        """See ``Source``."""
        following = self.rest[0] if self.rest else None
        if isinstance(following, Transaction) and following.gtid.number == self.breaks_at:
            raise self.error
        return super().read()


class SilentWitness:
    """Cannot ask anybody."""

    error: Exception = SourceLost("no source answers")

    def testify(
        self, run: Sequence[Transaction], effect: Fold | None = None, fellows: Sequence[Offer] = ()
    ) -> evidence.Testimony:
        """See ``Witness``."""
        raise self.error

    def find(self, run: Sequence[Transaction], effect: Fold | None, held: evidence.Held) -> RowName:
        """See ``Witness``."""
        raise SourceLost("no source answers")


class Lone:
    """One player A with these items, beside a sibling B that the test moves by hand."""

    def __init__(
        self,
        items: Sequence[SourceItem],
        *,
        batch: int = 10,
        chunk: int = 100,
        accepted: frozenset[Gtid] = frozenset(),
        reach: Reach = USUAL_REACH,
    ) -> None:
        self.reach = reach
        self.clock = SimClock()
        self.board = Board(["A", "B"])
        for name in ("A", "B"):
            self.board.update(name, state=StreamState.RUNNING, phase=Phase.STREAMING)
        self.database = SimDatabase(TABLES, {"A": GtidSet(), "B": GtidSet()})
        self.source = BreakingSource(items, chunk)
        self.target = RefusingTarget(self.database, "A")
        self.witness = SilentWitness()
        self.ledger = SimLedger(self.database)
        self.on_ddl = OnDdl.STOP
        self.limits = Limits(batch, timeout_seconds=10.0)
        self.accepted = accepted
        self.player = self._player()
        self.player.open()

    def _player(self) -> Player:
        return Player(
            "A",
            self.source,
            self.target,
            self.witness,
            self.board,
            limits=self.limits,
            clock=self.clock,
            concerns=lambda change: "ALTER" in change.statement,
            interpreter=PlainInterpreter(),
            ledger=self.ledger,
            changes=ChangeRules(self.on_ddl, self.accepted),
            pause=lambda attempt: 0.5,
            reach=self.reach,
        )

    def reopen(self) -> None:
        """Go on with another player, as the supervisor does after a transient error."""
        self.player.close()
        self.player = self._player()
        self.player.open()

    def steps(self, count: int = 30) -> Await | Parked | None:
        """Step until the player waits, or so often."""
        for _ in range(count):
            pause = self.player.step()
            if pause is not None:
                return pause
        return None

    def fails(self, expected: type[VmergeError]) -> VmergeError:
        """Step until the player raises, and return that."""
        with pytest.raises(expected) as caught:
            self.steps()
        return caught.value

    @property
    def stored(self) -> int:
        """How many transactions the checkpoint holds."""
        return self.database.checkpoints["A"].count()

    @property
    def ids(self) -> list[int]:
        """The primary keys on the target."""
        return sorted(row[0] for row in self.database.rows.values() if isinstance(row[0], int))


def work(number: int, *changes: Change) -> Transaction:
    """Return A's n-th transaction."""
    return transaction_of(0, number, changes)


def schema_change(number: int, statement: str = "ALTER TABLE u ADD x INT") -> SchemaChange:
    """Return a schema change as A's n-th transaction."""
    return SchemaChange(gtid_of(0, number), number * 1_000_000, "shop", statement)


INSERTS = [work(number, insert("u", number, None)) for number in range(1, 5)]


# Positions


def test_a_busy_stream_without_rows_saves_its_position() -> None:
    """A source that always sends transactions without rows for us, and never pauses, still moves the checkpoint."""
    lone = Lone([work(number) for number in range(1, 100)], chunk=1)
    for _ in range(50):
        lone.player.step()
        lone.clock.advance(IDLE_SAVE_SECONDS / 10)
    assert lone.stored >= 30


def test_transactions_without_rows_are_shown_at_once_and_stored_later() -> None:
    """The board knows a position without rows when it is passed; the target after a while, and only then."""
    lone = Lone([*INSERTS, work(5), work(6)])
    lone.steps()
    assert lone.board.progress("A").applied.count() == 6
    assert lone.board.progress("A").applied_at == 6.0
    lone.reopen()
    lone.steps()
    lone.clock.advance(IDLE_SAVE_SECONDS)
    lone.steps()
    assert lone.stored == 6
    assert lone.ids == [1, 2, 3, 4]


def test_transactions_without_rows_wake_nobody() -> None:
    """They release no key, so siblings sleep on."""
    lone = Lone([work(1), work(2)])
    before = lone.board.siblings_of("B").version
    lone.steps()
    assert lone.board.siblings_of("B").version == before


def test_an_xa_transaction_counts_with_both_of_its_names() -> None:
    """The position holds the name of the prepared half only once the other half is done, also without rows."""
    prepared = gtid_of(0, 1)
    with_rows = work(3, insert("u", 3, None))._replace(prepared=prepared)
    lone = Lone([work(2, insert("u", 2, None)), with_rows], batch=1)
    while lone.stored < 1:
        lone.player.step()
    assert not lone.player.position.contains(prepared)
    lone.steps()
    assert str(lone.database.checkpoints["A"]).endswith(":1-3")
    rolled_back = Lone([work(2)._replace(prepared=prepared)])
    rolled_back.steps()
    assert str(rolled_back.player.position).endswith(":1-2")


@pytest.mark.parametrize("fault", [Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT])
def test_a_commit_of_unknown_outcome_is_learned_from_the_checkpoint(fault: Fault) -> None:
    """Whether it took effect or not, each transaction is on the target once."""
    lone = Lone(INSERTS, batch=2)
    lone.target.fault = fault
    lone.fails(CommitUnknown)
    lone.reopen()
    lone.steps()
    assert (lone.stored, lone.ids) == (4, [1, 2, 3, 4])


def test_an_earlier_owner_cannot_commit() -> None:
    """A player whose stream was taken over loses its batch, not the data."""
    lone = Lone(INSERTS)
    while not lone.player.is_in_flight:
        lone.player.step()
    lone.database.take_over("A")
    lone.fails(Fenced)
    assert lone.stored == 0


# The head


def test_at_head_means_all_is_applied() -> None:
    """A stream that was at its head is not any more once something came, however long that is blocked."""
    lone = Lone([work(1, insert("u", 1, "a"))])
    lone.database.rows["u", 9] = (9, "a")
    lone.board.update("A", is_at_head=True)
    lone.reopen()
    assert not lone.board.progress("A").is_at_head
    assert lone.steps() is not None
    assert not lone.board.progress("A").is_at_head
    del lone.database.rows["u", 9]
    lone.steps()
    assert lone.board.progress("A").is_at_head


# Schema changes


def test_a_schema_change_ends_the_batch_before_it() -> None:
    """What precedes a schema change of ours is on the target when the stream stops, rows or none."""
    lone = Lone([*INSERTS, work(5), schema_change(6), work(7, insert("u", 7, None))])
    lone.fails(SchemaChanged)
    assert lone.stored == 5
    assert lone.ids == [1, 2, 3, 4]


def test_an_accepted_schema_change_is_stored_at_once() -> None:
    """Nobody is asked about the same schema change twice: its position is stored when it is passed."""
    lone = Lone([schema_change(1), work(2, insert("u", 2, None))], accepted=frozenset({gtid_of(0, 1)}))
    with pytest.raises(Replanned):
        lone.player.step()
    assert lone.stored == 1
    lone.accepted = frozenset()
    lone.reopen()
    lone.steps()
    assert lone.stored == 2


def test_a_schema_change_of_others_is_passed() -> None:
    """It is passed like a transaction without rows, and ends no batch."""
    lone = Lone([INSERTS[0], schema_change(2, "GRANT ALL"), INSERTS[2]])
    lone.steps()
    assert (lone.stored, lone.ids) == (3, [1, 3])
    assert lone.board.progress("A").counters.batches == 1


def test_a_schema_change_of_others_stops_no_jump() -> None:
    """A stream that its sibling has overtaken jumps over statements about tables that nobody merges."""
    lone = Lone([work(1, insert("u", 1, "a")), schema_change(2, "GRANT ALL"), work(3, delete("u", 1, "a"))])
    lone.database.rows["u", 9] = (9, "a")
    lone.steps()
    lone.clock.advance(1.0)
    lone.steps()
    assert lone.stored == 3
    assert lone.board.progress("A").counters.jumps == 1


# Transactions that memory shall not hold


class OnDisk(MemoryChanges):
    """Changes that a target keeps elsewhere."""


@pytest.mark.parametrize("released", [True, False])
def test_a_large_transaction_is_folded_where_there_is_room(released: bool) -> None:
    """Its net effect is never in memory, and what has arrived behind it is not taken for done."""
    takes = insert("u", 1, "a"), delete("u", 1, "a"), insert("u", 2, None)
    first = [work(1, *takes)] if released else [work(1, *takes[:1]), work(2, *takes[1:])]
    behind = [work(number, insert("u", number, None)) for number in range(5, 8)]
    lone = Lone([*first, *behind], reach=Reach(bytes=1))
    folded: list[OnDisk] = []

    def keep() -> OnDisk:
        folded.append(OnDisk())
        return folded[-1]

    lone.target.begin_fold = lambda: Fold(SimRules(lone.database), keep)  # type: ignore[method-assign]
    lone.target.apply_net_effect = lambda run: pytest.fail("in memory")  # type: ignore[method-assign]
    lone.database.rows["u", 9] = (9, "a")
    for _ in range(10):
        lone.steps()
        lone.clock.advance(0.5)
    assert lone.ids == [2, 5, 6, 7, 9]
    assert lone.stored == len(first) + 3
    assert folded


# Failures


@pytest.mark.parametrize("error", [RowMissing("gone"), SchemaMismatch("other columns")])
def test_a_refused_transaction_does_not_keep_back_those_before_it(error: TargetError) -> None:
    """The batch is split: what precedes the refused transaction is on the target, and the error names that one."""
    items = [*INSERTS[:2], work(3, update("u", (8, None), (8, "x"))), INSERTS[3]]
    lone = Lone(items)
    if isinstance(error, SchemaMismatch):
        lone.target.refuses = (3, error)
    raised = lone.fails(type(error))
    assert str(gtid_of(0, 3)) in raised.message
    assert lone.ids == [1, 2]
    assert lone.board.progress("A").counters.splits == 1


def test_a_witness_that_fails_stops_nothing() -> None:
    """A flaw of ours in gathering evidence is told without any value, and the wait goes on to its end."""
    lone = Lone([work(1, insert("u", 1, "a"))])
    lone.witness.error = ValueError("a value: a")
    lone.reopen()
    lone.database.rows["u", 9] = (9, "a")
    for _ in range(5):
        assert lone.steps() is not None
        lone.clock.advance(1.0)
    blocked = lone.board.progress("A").blocked
    assert blocked is not None
    assert isinstance(blocked.finding, Unproven)
    assert "ValueError at line" in blocked.finding.reason
    assert "a value" not in blocked.finding.reason
    del lone.database.rows["u", 9]
    lone.steps()
    assert lone.stored == 1


def test_an_event_that_cannot_be_read_keeps_back_nothing_before_it() -> None:
    """A blocked stream that looks ahead and meets it waits on, and stops when it comes to it."""
    lone = Lone([work(1, insert("u", 1, "a")), work(2)], chunk=1)
    lone.source.breaks_at = 2
    lone.database.rows["u", 9] = (9, "a")
    for _ in range(5):
        assert lone.steps() is not None
        lone.clock.advance(1.0)
    del lone.database.rows["u", 9]
    lone.fails(UnsupportedEvent)
    assert (lone.stored, lone.ids) == (1, [1])


def test_a_blocked_stream_says_what_keeps_it_from_reading_on() -> None:
    """Its own later transactions might release the key, so what hides them is in the message when it gives up."""
    lone = Lone([work(1, insert("u", 1, "a")), work(2)], chunk=1)
    lone.source.breaks_at = 2
    lone.database.rows["u", 9] = (9, "a")
    with pytest.raises(ConflictUnresolved, match="what follows cannot be read: an event of an unknown kind"):
        for _ in range(20):
            lone.steps()
            lone.clock.advance(1.0)


def test_a_blocked_stream_stops_where_there_is_no_room_to_read_on() -> None:
    """A full disk is for an operator to settle: a stream that needs it to end a conflict does not wait in silence."""
    lone = Lone([work(1, insert("u", 1, "a")), work(2, delete("u", 1, "a"))], chunk=1)
    lone.source.breaks_at, lone.source.error = 2, SpoolFailed("no room")
    lone.database.rows["u", 9] = (9, "a")
    with pytest.raises(SpoolFailed):
        for _ in range(5):
            lone.steps()
            lone.clock.advance(1.0)
    lone.source.breaks_at = None
    lone.reopen()
    lone.steps()
    lone.clock.advance(5.0)
    lone.steps()
    assert (lone.stored, lone.ids) == (2, [9])


def test_a_blocked_transaction_that_is_refused_ends_the_wait() -> None:
    """An error that waiting does not change stops a waiting stream too."""
    lone = Lone([work(1, insert("u", 1, "a"), delete("u", 5, None))])
    lone.database.rows["u", 9] = (9, "a")
    assert lone.steps() is not None
    del lone.database.rows["u", 9]
    lone.fails(RowMissing)
    assert lone.player.has_conflict
    lone.player.close()
    assert lone.board.progress("A").blocked is None


def test_a_lock_wait_while_blocked_keeps_the_key_on_show() -> None:
    """An attempt that fails earlier, on a lock, neither ends the wait nor hides what is waited for."""
    lone = Lone([work(1, insert("u", 1, "a"))])
    lone.database.rows["u", 9] = (9, "a")
    lone.steps()
    before = lone.board.progress("A").blocked
    assert before is not None
    lone.target.refuses = (1, LockConflict("busy"))
    pause = lone.steps()
    assert isinstance(pause, Await)
    assert pause.seen_version is None
    assert lone.board.progress("A").blocked == before
    del lone.database.rows["u", 9]
    lone.steps()
    assert (lone.stored, lone.board.progress("A").blocked) == (1, None)


def test_a_flush_is_counted_only_for_what_a_split_brought_through() -> None:
    """A wait long after a split batch went through alone is no flush."""
    lone = Lone([*INSERTS, work(5, insert("u", 5, "a"))], batch=2)
    lone.target.refuses = (2, RowMissing("a moment's error"))
    while lone.stored < 4:
        lone.player.step()
    lone.database.rows["u", 9] = (9, "a")
    assert lone.steps() is not None
    counters = lone.board.progress("A").counters
    assert (counters.splits, counters.flushes, counters.waits) == (1, 0, 1)


def test_a_wait_for_a_stopped_sibling_never_times_out() -> None:
    """Time counts only while every sibling is free to move; once it is, the time-out comes and says so."""
    lone = Lone([work(1, insert("u", 1, "a"))])
    lone.database.rows["u", 9] = (9, "a")
    lone.board.update("B", state=StreamState.STOPPED)
    for _ in range(50):
        assert lone.steps() is not None
        lone.clock.advance(1.0)
    blocked = lone.board.progress("A").blocked
    assert blocked is not None
    assert blocked.unfree == ("B",)
    lone.board.update("B", state=StreamState.RUNNING)
    waits = 0
    with pytest.raises(ConflictUnresolved, match="duplicate"):
        while True:
            waits += lone.steps() is not None
            lone.clock.advance(1.0)
    assert 10 <= waits <= 12


def test_a_stream_without_siblings_gives_up_at_once() -> None:
    """Nobody could release the key, so waiting is pointless, and no wait is counted."""
    lone = Lone([work(1, insert("u", 1, "a"))])
    lone.board = Board(["A"])
    lone.board.update("A", state=StreamState.RUNNING)
    lone.database.rows["u", 9] = (9, "a")
    lone.reopen()
    lone.fails(ConflictUnresolved)
    assert lone.board.progress("A").counters.waits == 0


def test_a_supervisor_may_change_state_and_message_meanwhile() -> None:
    """A commit reported by the player leaves the fields alone that others write."""
    lone = Lone(INSERTS)
    while not lone.player.is_in_flight:
        lone.player.step()
    lone.board.update("A", state=StreamState.STOPPED, message="stopped by an operator")
    lone.player.step()
    progress = lone.board.progress("A")
    assert (progress.state, progress.message) == (StreamState.STOPPED, "stopped by an operator")
    assert replace(progress.counters, rows_bytes=0).transactions == 4
