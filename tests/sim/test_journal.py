"""Every wait goes into the journal once, with the remedy that ended it, whatever that was."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.sim.history import History
from tests.sim.search import finish
from tests.sim.test_sequences import HOT_KEY, SWAP_AT_ONCE, TAKE_AFTER_RELEASE, U, add
from tests.sim.world import Settings, World

DUPLICATE = History((U,), (((add(1, 25),),), ((add(2, 25),),)))


def play(history: History, first: str, count: int) -> World:
    """Let one stream bring so many transactions, then the other one meet what it left, and play to the end."""
    world = World(history, Settings(batch=1))
    while sum(world.vector) < count:
        world.step(first)
    other = "AB".replace(first, "")
    while world.streams[other].sleep is None and not world.is_done(other):
        world.step(other)
    finish(world)
    return world


def journaled(world: World) -> Counter[str]:
    """Return how many waits the journal has, by the kinds of their entries, whether told alone or counted."""
    kinds: Counter[str] = Counter()
    for entry in world.board.journal.take_rest(world.clock.now):
        kinds.update(entry.facts.get("outcomes", {entry.kind: 1}))
    return kinds


@pytest.mark.parametrize(
    ("history", "first", "count", "kinds"),
    [
        (TAKE_AFTER_RELEASE, "A", 1, {"wait": 1}),
        (TAKE_AFTER_RELEASE, "B", 1, {"jump": 1}),
        (SWAP_AT_ONCE, "A", 0, {"joint commit": 2}),
        (DUPLICATE, "A", 1, {"verdict": 1}),
    ],
    ids=["released", "jumped", "joined", "proven"],
)
def test_each_remedy_is_journaled(history: History, first: str, count: int, kinds: dict[str, int]) -> None:
    """The entry's kind is the remedy that worked, of each stream that waited."""
    assert journaled(play(history, first, count)) == kinds


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("history", [TAKE_AFTER_RELEASE, HOT_KEY, SWAP_AT_ONCE, DUPLICATE])
def test_the_journal_agrees_with_the_counters(history: History, count: int) -> None:
    """As many waits, jumps and joint commits are journaled as are counted, and as much time."""
    world = World(history, Settings(batch=1))
    for _ in range(count * 4):
        if not world.is_done("B"):
            world.step("B")
    finish(world)
    counters = [world.board.progress(name).counters for name in world.streams]
    kinds = journaled(world)
    assert kinds.total() == sum(one.waits for one in counters)
    assert kinds["jump"] == sum(one.jumps for one in counters)
    assert kinds["joint commit"] == sum(one.joints for one in counters)
    assert kinds["verdict"] == sum(one.duplicates for one in counters)


def test_a_lost_player_ends_its_wait() -> None:
    """A wait in which the stream's player is lost is an entry of its own, and the next player begins another."""
    world = World(TAKE_AFTER_RELEASE, Settings(batch=1))
    while world.vector != (1, 0):
        world.step("A")
    while world.board.progress("B").blocked is None:
        world.step("B")
    world.crash("B")
    assert world.board.progress("B").blocked is None
    finish(world)
    assert journaled(world)["wait interrupted"] == 1
