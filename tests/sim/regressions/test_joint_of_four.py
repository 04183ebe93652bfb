"""A ring of several streams must be joined as a whole, however long its members have waited already.

Found on real servers: after a second of waiting a stream led a joint commit of those that had an offer on the board
at that moment. Of four that need each other some were always between two offers, so none of them ever went on; or only
after many seconds, as each spent most of its time in pauses between its attempts.
"""

from __future__ import annotations

import random

import pytest
from tests.sim.history import History
from tests.sim.rows import Table, insert, update
from tests.sim.search import assert_ends_well, finish
from tests.sim.world import Settings, World

STREAMS = 4
LATE_SECONDS = 30.0
KEYS = [f"key {number}" for number in range(STREAMS)]
# Each row takes the next one's key, all at one moment.
HISTORY = History(
    (Table("u", unique=((1,),)),),
    tuple(
        ((update("u", (number, KEYS[number]), (number, KEYS[(number + 1) % STREAMS])),),) for number in range(STREAMS)
    ),
    initial=tuple((insert("u", number, key),) for number, key in enumerate(KEYS)),
)


@pytest.mark.parametrize("seed", range(20))
def test_a_ring_of_four_is_joined(seed: int) -> None:
    """The last member begins when the others have been blocked for long; soon after all four are through."""
    chance = random.Random(seed)
    world = World(HISTORY, Settings(batch=1, pause=lambda attempt: chance.uniform(0.002, min(2.0, 0.01 * 2**attempt))))
    first, *others = world.streams
    while not all(map(world.is_asleep, others)):
        for name in others:
            world.step(name)
    world.clock.advance(LATE_SECONDS)
    began_at = world.clock.now
    world.step(first)
    finish(world)
    assert_ends_well(world)
    assert world.clock.now - began_at < 1.0
