"""A target ends sessions that say nothing for half a minute; a blocked stream must not lose its wait by that.

Found by reading: a jump that let millions of transactions pass by, and the rest after a joint commit that took long,
left the session idle. The stream started anew, forgot all it had read, and came to the same point again.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.database import SimDatabase
from tests.sim.ends import SimClock, SimSource, SimTarget
from tests.sim.history import History
from tests.sim.ledger import PlainInterpreter, SimLedger
from tests.sim.rows import Table, delete, insert
from tests.sim.witness import SimWitness
from tests.sim.world import gtid_of, transaction_of

from vmerge.core.conflict_terms import Limits
from vmerge.core.events import SourceItem
from vmerge.core.joint import Offer, Part
from vmerge.core.position import GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.errors import TargetLost
from vmerge.player.backlog import Reach
from vmerge.player.board import Board
from vmerge.player.player import Player

IDLE_SECONDS = 30.0
"""``wait_timeout`` of the sessions (mysql/target.py)."""
U = Table("u", unique=((1,),))
SLEEP = (insert("u", 1, "a"),)


class SlowSource(SimSource):
    """Takes its time for each transaction."""

    def __init__(self, items: Sequence[SourceItem], clock: SimClock) -> None:
        super().__init__(items, 1)
        self._clock = clock

    def poll(self) -> list[SourceItem]:
        """See ``Source``."""
        self._clock.advance(5.0)
        return super().poll()


class SlowTarget(SimTarget):
    """Ends idle sessions, and takes its time for a joint commit, which it then refuses."""

    def __init__(self, database: SimDatabase, stream: str, clock: SimClock) -> None:
        super().__init__(database, stream)
        self._clock = clock
        self._used_at = clock.now

    def open(self) -> GtidSet:
        """See ``Target``."""
        self._used_at = self._clock.now
        return super().open()

    def apply_joint(self, parts: Sequence[Part]) -> str | None:
        """See ``JointTarget``."""
        self._require_connection()
        self._clock.advance(IDLE_SECONDS / 2)
        self._require_connection()
        return parts[0].stream

    def _require_connection(self) -> None:
        if self._clock.now - self._used_at > IDLE_SECONDS:
            raise TargetLost("idle for too long")
        self._used_at = self._clock.now
        super()._require_connection()


class Slow:
    """A stream A on slow servers, kept out by a row of its sibling B."""

    def __init__(self, history: History) -> None:
        self.clock = SimClock()
        self.board = Board(["A", "B"])
        for name in ("A", "B"):
            self.board.update(name, state=StreamState.RUNNING, phase=Phase.STREAMING)
        self.board.update("B", is_at_head=True)
        self.database = SimDatabase(history.tables_by_name, {"A": GtidSet(), "B": GtidSet()})
        self.database.rows["u", 9] = (9, "a")
        items = [transaction_of(0, number, changes) for number, changes in enumerate(history.streams[0], 1)]
        self.player = Player(
            "A",
            SlowSource(items, self.clock),
            SlowTarget(self.database, "A", self.clock),
            SimWitness(history, self.database, "A"),
            self.board,
            limits=Limits(1, timeout_seconds=1e9, jump_after_seconds=1.0, ask_after_seconds=1e9),
            clock=self.clock,
            concerns=lambda change: True,
            interpreter=PlainInterpreter(),
            ledger=SimLedger(SimDatabase({}, {})),
            pause=lambda attempt: 1.0,
            reach=Reach(transactions=1),
        )
        self.player.open()

    def step(self) -> None:
        """Do one step and wait as long as it says."""
        pause = self.player.step()
        if pause is not None:
            self.clock.now = max(self.clock.now, pause.until)


def test_reading_on_keeps_the_session() -> None:
    """The release is so far away that one step reads for longer than a session lives, and the jump gets there."""
    later = tuple((insert("u", number, None),) for number in range(100, 200))
    slow = Slow(History((U,), ((SLEEP, *later, (delete("u", 1, "a"),)), ())))
    while slow.database.checkpoints["A"].is_empty():
        slow.step()
    assert slow.database.checkpoints["A"].count() == 102


def test_resting_after_a_long_joint_commit_keeps_the_session() -> None:
    """The longer it took the longer is the rest, but never so long that the session ends."""
    slow = Slow(History((U,), ((SLEEP,), ())))
    theirs = (transaction_of(1, 1, [insert("u", 5, None)]),)
    offers = 0
    while offers < 3:
        slow.step()
        if slow.board.offered("A") is not None and slow.board.offered("B") is None:
            version, now = slow.board.siblings_of("B").version, slow.clock.now
            slow.board.offer(Offer("B", version, now, now, GtidSet(), theirs, None, None))
            offers += 1
        theirs_offered = slow.board.offered("B")
        if theirs_offered is not None and theirs_offered.settlement is not None:
            slow.board.withdraw("B")
    assert slow.database.epochs["A"] == 1
    assert not slow.player.position.contains(gtid_of(0, 1))
