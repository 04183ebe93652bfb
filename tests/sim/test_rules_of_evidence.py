"""The rules of evidence where the player keeps them: what it looks at before an attempt, and before it asks.

The machine's and the judge's own parts of the rules are in their unit tests. Here siblings move at the worst moment:
during an attempt, or while the witness looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.sim.database import SimDatabase
from tests.sim.ends import SimClock, SimSource, SimTarget
from tests.sim.ledger import PlainInterpreter, SimLedger
from tests.sim.rows import Table, insert
from tests.sim.world import gtid_of, transaction_of

from vmerge.core import evidence
from vmerge.core.conflict_terms import Await, Limits
from vmerge.core.events import Transaction
from vmerge.core.evidence import Held, Presence
from vmerge.core.fold import Fold
from vmerge.core.joint import Offer
from vmerge.core.position import GtidSet
from vmerge.core.quarantine import RowName
from vmerge.core.states import Phase, StreamState
from vmerge.core.verdict import Finding, Permanent, Transient
from vmerge.player.board import Board
from vmerge.player.patience import Parked
from vmerge.player.player import Player

ITEMS = [transaction_of(0, number, [insert("u", number, value)]) for number, value in ((1, "a"), (2, "b"))]


def at(count: int) -> GtidSet:
    """Return B's position behind so many transactions."""
    return GtidSet().advanced([gtid_of(1, number) for number in range(1, count + 1)])


class Moving:
    """A witness that sees a row of nobody hold the key, whatever moves while it looks."""

    def __init__(self) -> None:
        self.head = at(0)
        """How far B's source is."""
        self.meanwhile: Callable[[], object] = lambda: None

    def testify(
        self, run: Sequence[Transaction], effect: Fold | None = None, fellows: Sequence[Offer] = ()
    ) -> evidence.Testimony:
        """See ``Witness``."""
        self.meanwhile()
        presences = {"A": Presence.GONE, "B": Presence.GONE}
        held = Held(("shop", "u"), "unique_0", ("c1",), ("x",), "id=1", "id=9", Presence.ALIVE, presences)
        return evidence.Testimony((held,), {"A": GtidSet(), "B": self.head})

    def find(self, run: Sequence[Transaction], effect: Fold | None, held: Held) -> RowName:
        """See ``Witness``."""
        raise AssertionError("nothing is set aside")


class WatchedTarget(SimTarget):
    """Lets something happen at the end of each attempt, before its outcome is known."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def apply(self, batch: Sequence[Transaction]) -> None:
        """See ``Target``."""
        try:
            super().apply(batch)
        finally:
            self.meanwhile()


class Blocked:
    """A player A whose two transactions are each kept out by a row of the target, and a sibling B."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.board = Board(["A", "B"])
        for name in ("A", "B"):
            self.board.update(name, state=StreamState.RUNNING, phase=Phase.STREAMING)
        self.database = SimDatabase({"u": Table("u", unique=((1,),))}, {"A": GtidSet(), "B": GtidSet()})
        self.database.rows["u", 8] = (8, "b")
        self.database.rows["u", 9] = (9, "a")
        self.witness = Moving()
        self.target = WatchedTarget(self.database, "A")
        self.player = Player(
            "A",
            SimSource(ITEMS, 100),
            self.target,
            self.witness,
            self.board,
            limits=Limits(1, timeout_seconds=1e9),
            clock=self.clock,
            concerns=lambda change: True,
            interpreter=PlainInterpreter(),
            ledger=SimLedger(SimDatabase({}, {})),
            pause=lambda attempt: 0.5,
        )
        self.player.open()

    def b_applies(self, count: int) -> None:
        """B comes to a position."""
        self.board.commit("B", applied=at(count))

    def until_it_waits(self) -> Await | Parked:
        """Step until the player waits."""
        while True:
            pause = self.player.step()
            if pause is not None:
                return pause

    def next_finding(self) -> Finding:
        """Let time pass until evidence was gathered once more."""
        before = self.board.progress("A").counters.testimonies
        while self.board.progress("A").counters.testimonies == before:
            self.clock.advance(0.5)
            self.until_it_waits()
        blocked = self.board.progress("A").blocked
        assert blocked is not None
        assert blocked.finding is not None
        return blocked.finding


def test_rule_1_a_sibling_that_moves_during_an_attempt_ends_the_wait() -> None:
    """It may have released the key right behind the look at it, so the wait is over before it begins."""
    one = Blocked()
    one.target.meanwhile = lambda: one.b_applies(1)
    pause = one.until_it_waits()
    assert isinstance(pause, Await)
    assert pause.seen_version != one.board.siblings_of("A").version


def test_rule_1_what_a_sibling_applies_while_the_witness_looks_does_not_count() -> None:
    """The row was seen before B had come so far, so that it was still there proves nothing."""
    one = Blocked()
    one.witness.head = at(5)
    one.b_applies(4)
    one.next_finding()
    one.witness.meanwhile = lambda: one.b_applies(5)
    finding = one.next_finding()
    assert isinstance(finding, Transient)
    assert finding.streams == ("B",)
    assert isinstance(one.next_finding(), Permanent)


def test_rule_4_the_first_testimony_of_a_wait_has_no_fences() -> None:
    """Its own heads may be behind the release; a sibling that stands at them may have it before itself."""
    one = Blocked()
    one.b_applies(5)
    one.witness.head = at(5)
    assert isinstance(one.next_finding(), Transient)
    assert isinstance(one.next_finding(), Permanent)


def test_rule_4_fences_end_with_their_wait() -> None:
    """The heads that an earlier wait was judged by were read before this conflict was seen."""
    one = Blocked()
    one.witness.head = at(5)
    one.b_applies(4)
    one.next_finding()
    del one.database.rows["u", 9]
    while one.database.checkpoints["A"].count() < 1:
        one.clock.advance(0.1)
        one.player.step()
    one.b_applies(5)
    assert isinstance(one.next_finding(), Transient)
