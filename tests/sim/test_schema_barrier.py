"""Schema changes behind a barrier: the real ``Player.step()`` under all schedules, with a death at every step.

What must hold: each change is run exactly once; no row of the time before it is applied behind it, and none of the time
behind it before; all streams end behind it; nobody waits with an open target transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from tests.sim.database import SimDatabase
from tests.sim.ends import SimClock, SimSource, SimTarget
from tests.sim.ledger import Death, PlainInterpreter, SimLedger, SimSchema
from tests.sim.rows import Table, insert
from tests.sim.test_player import SilentWitness
from tests.sim.world import gtid_of, transaction_of

from vmerge.core.barrier import Hindrance
from vmerge.core.conflict_terms import Limits
from vmerge.core.events import SchemaChange, SourceItem, Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.schema_policy import OnDdl
from vmerge.core.states import Phase, StreamState
from vmerge.errors import ConflictUnresolved, SchemaChanged, Verdict, VmergeError
from vmerge.player.board import Board
from vmerge.player.player import Player
from vmerge.player.schema_changes import ChangeRules

TABLES = {"u": Table("u", unique=((1,),))}
STEPS = 400


def change(stream: int, number: int, statement: str) -> SchemaChange:
    """Return a schema change as a stream's n-th transaction."""
    return SchemaChange(gtid_of(stream, number), number * 1_000_000, "shop", statement)


def rows(stream: int, number: int) -> Transaction:
    """Return a transaction that inserts a row of its own as a stream's n-th."""
    return transaction_of(stream, number, [insert("u", stream * 100 + number, None)])


class CheckedTarget(SimTarget):
    """Knows with how many changes behind it each transaction was made at its source."""

    schema: SimSchema
    times: dict[object, int]
    is_fenced = False
    """What it applies then is rolled back in any case."""

    def apply(self, batch: Sequence[Transaction]) -> None:
        """See ``Target``."""
        for transaction in batch:
            is_in_time = self.times[transaction.gtid] == len(self.schema.runs)
            assert is_in_time or self.is_fenced, f"{transaction.gtid} meets another schema"
        super().apply(batch)


@dataclass
class Actor:
    """One stream."""

    source: SimSource
    target: CheckedTarget
    ledger: SimLedger
    player: Player
    failure: VmergeError | None = None


class Yard:
    """Some streams with these items each, whose supervisor is the test."""

    def __init__(
        self,
        streams: Sequence[Sequence[SourceItem]],
        carriers: frozenset[str] | None = None,
        earlier: Yard | None = None,
    ) -> None:
        """``earlier`` is another daemon's, whose streams are taken over."""
        self.clock = SimClock()
        self.names = [chr(ord("A") + index) for index in range(len(streams))]
        self.board = Board(self.names)
        self.is_fenced = False
        self.database = SimDatabase(TABLES, dict.fromkeys(self.names, GtidSet()))
        self.schema = SimSchema()
        if earlier is not None:
            self._displace(earlier)
        self.carriers = carriers if carriers is not None else frozenset(self.names)
        self.lengths = {name: len(items) for name, items in zip(self.names, streams, strict=True)}
        self.actors: dict[str, Actor] = {}
        for name, items in zip(self.names, streams, strict=True):
            self.board.update(name, state=StreamState.RUNNING)
            target = CheckedTarget(self.database, name)
            target.schema, target.times, count = self.schema, {}, 0
            for item in items:
                if isinstance(item, SchemaChange):
                    count += 1
                elif isinstance(item, Transaction):
                    target.times[item.gtid] = count
            if name not in self.carriers:
                target.times = dict.fromkeys(target.times, 0)
            source, ledger = SimSource(items, 100), SimLedger(self.database, self.schema)
            self.actors[name] = Actor(source, target, ledger, self._player(name, source, target, ledger))
            self.actors[name].player.open()

    def _displace(self, earlier: Yard) -> None:
        self.database, self.schema, earlier.is_fenced = earlier.database, earlier.schema, True
        for name, actor in earlier.actors.items():
            actor.target.is_fenced = True
            self.database.rollback(name)

    def _player(
        self,
        name: str,
        source: SimSource,
        target: SimTarget,
        ledger: SimLedger,
        accepted: frozenset[Gtid] = frozenset(),
    ) -> Player:
        return Player(
            name,
            source,
            target,
            SilentWitness(),
            self.board,
            limits=Limits(10, 10.0),
            clock=self.clock,
            concerns=lambda change: True,
            interpreter=PlainInterpreter(),
            ledger=ledger,
            changes=ChangeRules(OnDdl.EXECUTE, accepted, carriers=lambda _: self.carriers),
            pause=lambda attempt: 0.5,
        )

    def restart(self, name: str) -> None:
        """Go on with another player, as the supervisor does."""
        actor = self.actors[name]
        actor.player.close()
        actor.player = self._player(name, actor.source, actor.target, actor.ledger)
        actor.player.open()

    def start(self, name: str, accepted: frozenset[Gtid] = frozenset()) -> None:
        """Start a stream that has failed, as an operator does."""
        actor = self.actors[name]
        actor.failure = None
        self.board.update(name, state=StreamState.RUNNING)
        actor.player = self._player(name, actor.source, actor.target, actor.ledger, accepted)
        actor.player.open()

    def crash(self, name: str) -> None:
        """Lose a player without a word."""
        self.database.rollback(name)
        self.restart(name)

    def step(self, name: str) -> None:
        """Let a stream do one step."""
        actor = self.actors[name]
        if actor.failure is not None:
            return
        try:
            pause = actor.player.step()
        except VmergeError as error:
            if error.verdict is Verdict.TRANSIENT and not self.is_fenced:  # what is fenced is not started anew
                self.restart(name)
                return
            actor.failure = error
            actor.player.close()
            self.board.update(name, state=StreamState.ERROR, phase=Phase.IDLE)
        else:
            assert pause is None or name not in self.database.open, f"{name} waits with an open target transaction"

    def is_done(self, name: str) -> bool:
        """Whether a stream is at its end, or has failed."""
        return self.actors[name].failure is not None or self.actors[name].player.position.count() == self.lengths[name]

    def finish(self) -> None:
        """Step all in turn to their ends."""
        for _ in range(STEPS):
            behind = [name for name in self.names if not self.is_done(name)]
            if not behind:
                return
            for name in behind:
                self.step(name)
            self.clock.advance(0.1)
        raise AssertionError(f"not finished: {behind}")


ADD, DROP = "ALTER TABLE u ADD x", "ALTER TABLE u DROP x"


def two_changes(streams: int) -> list[list[SourceItem]]:
    """Return streams that change one table twice, with rows around it."""
    return [
        [rows(index, 1), change(index, 2, ADD), rows(index, 3), change(index, 4, DROP), rows(index, 5)]
        for index in range(streams)
    ]


def schedules(names: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    """Yield every order of so many steps; what is left is played in turn."""
    return itertools.product(names, repeat=length)


def require_end(yard: Yard, streams: int) -> None:
    """Check that everything is there once."""
    assert yard.schema.runs == [ADD, DROP]
    assert all(actor.failure is None for actor in yard.actors.values())
    assert {name: yard.database.checkpoints[name].count() for name in yard.names} == yard.lengths
    assert len(yard.database.rows) == 3 * streams


@pytest.mark.parametrize(("streams", "length"), [(2, 9), (3, 5)])
def test_every_schedule_runs_each_change_once(streams: int, length: int) -> None:
    """Whoever comes first waits; each change is run once, between the rows of its time, and all end behind it."""
    for schedule in schedules("ABC"[:streams], length):
        yard = Yard(two_changes(streams))
        for name in schedule:
            yard.step(name)
        yard.finish()
        require_end(yard, streams)


@pytest.mark.parametrize("streams", [2, 3])
def test_a_player_may_be_lost_before_every_step(streams: int) -> None:
    """A crash of any stream after any number of steps changes nothing of that."""
    for victim, at in itertools.product("ABC"[:streams], range(24 * streams)):
        yard = Yard(two_changes(streams))
        for number in range(24 * streams):
            if number == at:
                yard.crash(victim)
            yard.step(yard.names[number % streams])
        yard.finish()
        require_end(yard, streams)


@pytest.mark.parametrize("second", [None, *Death])
@pytest.mark.parametrize("first", list(Death))
@pytest.mark.parametrize("all_die", [False, True])
def test_the_session_that_runs_a_change_may_end_anywhere(first: Death, second: Death | None, all_die: bool) -> None:
    """Before it is begun, before or after it takes effect, after the commit: it is run once, also after two deaths."""
    yard = Yard(two_changes(3))
    ledger = yard.actors["A"].ledger
    ledger.death, deaths = first, [second]
    for _ in range(STEPS):
        for name in yard.names:
            yard.step(name)
            if ledger.death is None and deaths:
                ledger.death = deaths.pop()
                for one in yard.names if all_die else ():
                    yard.crash(one)
    yard.finish()
    require_end(yard, 3)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_daemon_that_slept_does_nothing_late(streams: int) -> None:
    """A daemon that falls asleep at any step, and wakes when another has taken over, is fenced: at changes, too."""
    for asleep, ahead in itertools.product(range(14 * streams), range(0, 20 * streams, 5)):
        older = Yard(two_changes(streams))
        for number in range(asleep):
            older.step(older.names[number % streams])
        newer = Yard(two_changes(streams), earlier=older)
        for number in range(ahead):
            newer.step(newer.names[number % streams])
        for name in newer.names:
            while name in newer.database.open:  # the simulator has one session for a stream
                newer.step(name)
        for number in range(20 * streams):
            older.step(older.names[number % streams])
        newer.finish()
        require_end(newer, streams)


def test_a_stream_that_does_not_fill_the_table_is_not_waited_for() -> None:
    """Its rows go on, and it never comes to the change."""
    yard = Yard([*two_changes(2), [rows(2, 1), rows(2, 2)]], carriers=frozenset("AB"))
    yard.actors["C"].target.times = dict.fromkeys(yard.actors["C"].target.times, 0)
    yard.step("C")
    yard.finish()
    assert yard.schema.runs == [ADD, DROP]


def test_a_waiting_stream_says_for_whom() -> None:
    """The board shows the change, and the streams that have not come to it; the wait ends with them."""
    yard = Yard([[change(0, 1, ADD)], [rows(1, 1), change(1, 2, ADD)]])
    yard.step("A")
    barrier = yard.board.progress("A").barrier
    assert barrier is not None
    assert (barrier.statement, barrier.awaited) == (ADD, ("B",))
    assert yard.board.progress("A").phase is Phase.AT_BARRIER
    assert yard.board.siblings_of("B").unfree == ("A",)
    yard.finish()
    assert yard.board.progress("A").barrier is None


def test_streams_at_different_changes_stop() -> None:
    """All of them, with each other's statements, and nothing is run."""
    yard = Yard([[change(0, 1, ADD)], [change(1, 1, DROP)], [change(2, 1, ADD)]])
    yard.finish()
    failures = [yard.actors[name].failure for name in "ABC"]
    assert all(isinstance(failure, SchemaChanged) for failure in failures)
    assert all(ADD in str(failure) and DROP in str(failure) for failure in failures)
    assert yard.schema.runs == []


def test_a_stream_that_has_stopped_is_waited_for() -> None:
    """Where it stood when it failed does not count: what an operator does meanwhile by hand is not run once more."""
    yard = Yard([[change(0, 1, ADD), change(0, 2, DROP)], [change(1, 1, DROP)]])
    yard.finish()
    assert isinstance(yard.actors["B"].failure, SchemaChanged)
    yard.start("A", accepted=frozenset({gtid_of(0, 1)}))
    for _ in range(10):
        yard.step("A")
    assert yard.schema.runs == []
    barrier = yard.board.progress("A").barrier
    assert barrier is not None
    assert [(one.stream, one.hindrance) for one in barrier.hindered] == [("B", Hindrance.FAILED)]
    yard.start("B")
    yard.finish()
    assert yard.schema.runs == [DROP]


def test_a_change_waits_for_a_stream_that_is_still_on_its_way() -> None:
    """A sibling that waits at another change, which a third will come to, is no dead end."""
    yard = Yard([[change(0, 1, ADD)], [rows(1, 1), rows(1, 2), change(1, 3, ADD)]])
    for _ in range(20):
        yard.step("A")
    assert yard.actors["A"].failure is None
    yard.finish()
    assert yard.schema.runs == [ADD]


def test_a_key_that_is_released_behind_the_change_does_not_time_out() -> None:
    """The blocked sibling waits, and both sides say for whom: a stream at a barrier is not free to move."""
    yard = Yard(
        [
            [transaction_of(0, 1, [insert("u", 1, "k")]), change(0, 2, ADD)],
            [transaction_of(1, 1, [insert("u", 2, "k")]), change(1, 2, ADD)],
        ]
    )
    for _ in range(20):
        yard.step("A")
    for _ in range(60):
        yard.step("B")
        yard.step("A")
        yard.clock.advance(1.0)
    assert not any(isinstance(actor.failure, ConflictUnresolved) for actor in yard.actors.values())
    blocked, barrier = yard.board.progress("B").blocked, yard.board.progress("A").barrier
    assert blocked is not None
    assert blocked.unfree == ("A",)
    assert barrier is not None
    assert barrier.awaited == ("B",)
