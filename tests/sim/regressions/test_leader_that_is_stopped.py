"""A leader that ends before its COMMIT has put nothing on the target, and its members need not start anew.

Found by reading: whoever stopped the leading stream made all members of its joint commit reconnect.
"""

from __future__ import annotations

import pytest
from tests.sim.ends import Fault
from tests.sim.search import assert_ends_well, finish
from tests.sim.test_sequences import SWAP_AT_ONCE
from tests.sim.world import Settings, World

from vmerge.errors import CommitUnknown
from vmerge.player.board import Settlement


def leading() -> World:
    """Return a world in which A has applied a joint commit that B is a member of."""
    world = World(SWAP_AT_ONCE, Settings(batch=1))
    while not world.streams["A"].player._member.parts:
        world.clock.advance(0.1)
        for name in "BA":
            if not world.streams["A"].player._member.parts:
                world.step(name)
    return world


def test_members_go_on_when_a_leader_is_stopped() -> None:
    """B learns that nothing of its offer is on the target, and waits on with the player it has."""
    world = leading()
    member = world.streams["B"].player
    world.streams["A"].player.close()
    offered = world.board.offered("B")
    assert offered is not None
    assert offered.settlement is Settlement.DECLINED
    world.step("B")
    assert world.streams["B"].player is member
    world.crash("A")
    finish(world)
    assert_ends_well(world)


@pytest.mark.parametrize("fault", [Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT])
def test_members_start_anew_when_a_leader_is_lost_in_commit(fault: Fault) -> None:
    """Nobody knows then what is on the target, so B reads its checkpoint."""
    world = leading()
    world.streams["A"].target.fault = fault
    with pytest.raises(CommitUnknown):
        world.streams["A"].player.step()
    world.streams["A"].player.close()
    offered = world.board.offered("B")
    assert offered is not None
    assert offered.settlement is Settlement.UNKNOWN
    world.crash("A")
    finish(world)
    assert_ends_well(world)
