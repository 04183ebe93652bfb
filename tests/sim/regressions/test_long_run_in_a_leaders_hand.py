"""A stream that ends while a leader has its long run in hand must not close what the leader reads.

Found by reading: closing the file of a run while another thread walks it ended the whole process.
"""

from __future__ import annotations

import gc
import weakref

from tests.sim.ends import SimRules
from tests.sim.history import History
from tests.sim.rows import Table, insert, update
from tests.sim.world import Settings, World

from vmerge.core.fold import Fold, MemoryChanges

HISTORY = History(
    (Table("u", unique=((1,),)),),
    (
        ((update("u", (1, "a"), (1, "b")),), (insert("u", 5, None),)),
        ((update("u", (2, "b"), (2, "a")),), (insert("u", 6, None),)),
    ),
    ((insert("u", 1, "a"),), (insert("u", 2, "b"),)),
)


class ClosedOnce(MemoryChanges):
    """Changes that know whether they were closed."""

    is_closed = False

    def close(self) -> None:
        """See ``Changes``."""
        self.is_closed = True


def test_the_leader_reads_on_when_a_member_ends() -> None:
    """B is lost while A has its offer in hand: what it offered stays open, and ends with the leader's last word."""
    world = World(HISTORY, Settings(batch=1, reach=1))
    kept: list[ClosedOnce] = []

    def keep() -> ClosedOnce:
        kept.append(ClosedOnce())
        return kept[-1]

    world.streams["B"].target.begin_fold = lambda: Fold(SimRules(world.database), keep)  # type: ignore[method-assign]
    while any((offered := world.board.offered(name)) is None or not offered.offer.long_run for name in "AB"):
        world.clock.advance(0.1)
        for name in "AB":
            if world.board.offered(name) is None:
                world.step(name)
    offers = world.board.lead("A", world.clock.now, world.clock.now)
    assert [offer.stream for offer in offers] == ["A", "B"]
    run = weakref.ref(offers[1].long_run)
    world.streams["B"].player.close()
    assert not kept[-1].is_closed
    del offers, offered
    gc.collect()
    assert run() is None
