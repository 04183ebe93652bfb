"""Named conflict sequences: one test a story, all interleavings, batches of every size, a crash at every step.

The names say what the sources did in real order; ``u(id primary key, uid unique null)`` unless said.
"""

from __future__ import annotations

import pytest
from tests.sim.ends import Fault
from tests.sim.history import History, Work, from_real_order
from tests.sim.rows import Change, Table, Value, delete, insert, update
from tests.sim.search import Search, Tally, finish
from tests.sim.world import Settings, World

from vmerge.core.conflict_terms import Await

A, B = 0, 1
U = Table("u", unique=((1,),))
FAMILY = (Table("parent"), Table("child", parents=((1, "parent"),)))


def add(id_: int, uid: Value) -> Change:
    """Insert into u."""
    return insert("u", id_, uid)


def drop(id_: int, uid: Value) -> Change:
    """Delete from u."""
    return delete("u", id_, uid)


def change(id_: int, before: Value, after: Value) -> Change:
    """Update u."""
    return update("u", (id_, before), (id_, after))


TAKE_AFTER_RELEASE = from_real_order((U,), [(A, (add(1, 25),)), (A, (drop(1, 25),)), (B, (add(2, 25),))])
TEAMS: tuple[Work, ...] = ((add(1, "a"),), (add(2, "b"),))
SWAP_THROUGH_NULL = from_real_order(
    (U,), [(B, (change(2, "b", None),)), (A, (change(1, "a", "b"),)), (B, (change(2, None, "a"),))], initial=TEAMS
)
ROW_MOVES = from_real_order((U,), [(A, (drop(7, None),)), (B, (add(7, None),))], initial=((add(7, None),), ()))
LATE_TAKER = TAKE_AFTER_RELEASE
ROW_MOVES_EARLY = from_real_order((U,), [(A, (add(7, "x"),)), (A, (drop(7, "x"),)), (B, (add(7, "x"),))])
HOT_KEY = from_real_order(
    (U,),
    [
        (A, (add(1, 25),)),
        (A, (drop(1, 25),)),
        (B, (add(2, 25),)),
        (B, (drop(2, 25),)),
        (A, (add(3, 25),)),
        (A, (drop(3, 25),)),
        (B, (add(4, 25),)),
    ],
)
BRIEF_DUPLICATE = History(
    (U,), (((change(1, None, "b"),),), ((change(2, "b", None),),)), ((add(1, None),), (add(2, "b"),))
)
SWAP_AT_ONCE = History((U,), (((change(1, "a", "b"),),), ((change(2, "b", "a"),),)), TEAMS)
CHILD_OF_ANOTHER_SHARD = from_real_order(FAMILY, [(B, (insert("parent", 1),)), (A, (insert("child", 1, 1),))])
PARENT_GOES_LAST = from_real_order(
    FAMILY,
    [(A, (delete("child", 1, 1),)), (B, (delete("parent", 1),))],
    initial=((insert("child", 1, 1),), (insert("parent", 1),)),
)
ALL_NULL = from_real_order((U,), [(A, (add(1, None),)), (B, (add(2, None),)), (A, (add(3, None),))])


def search(history: History, tally: Tally) -> set[tuple[int, ...]]:
    """Search a history under all settings; return the vectors in which it can end."""
    tally.histories += 1
    ends = set()
    for batch in (1, 2, 3):
        ends |= Search(history, Settings(batch=batch, calm=2, jump_after_seconds=0.0), 1, tally).run()
    return ends


WAITING_SUFFICES = {
    "3: a swap through NULL, met from the other side": SWAP_THROUGH_NULL,
    "12: a row moves to the other shard": ROW_MOVES,
    "9: a brief duplicate at the sources": BRIEF_DUPLICATE,
    "22: the parent is on another shard": CHILD_OF_ANOTHER_SHARD,
    "23: the child is deleted on another shard": PARENT_GOES_LAST,
    "25: NULLs are no conflict": ALL_NULL,
}


@pytest.mark.parametrize("name", WAITING_SUFFICES)
def test_always_ends_in_the_union(name: str, tally: Tally) -> None:
    """Flush, split and wait solve this sequence from every interleaving and every crash."""
    history = WAITING_SUFFICES[name]
    assert search(history, tally) == {history.end}


def test_sequence_1_the_taker_waits_for_the_release(tally: Tally) -> None:
    """B meets A's row, waits, and takes the value once A has released it."""
    world = World(TAKE_AFTER_RELEASE, Settings(batch=1))
    for name in "AA":  # A's insert is on the target before B begins
        world.step(name)
    while world.vector != (1, 0):
        world.step("A")
    for name in "BB":
        world.step(name)
    blocked = world.board.progress("B").blocked
    assert blocked is not None
    assert blocked.key == "unique_0"
    finish(world)
    assert world.vector == TAKE_AFTER_RELEASE.end
    assert world.board.progress("B").counters.waits == 1
    assert world.board.progress("B").blocked is None
    assert search(TAKE_AFTER_RELEASE, tally) == {TAKE_AFTER_RELEASE.end}


def test_sequence_2_a_release_in_an_open_transaction_is_waited_for_without_locks() -> None:
    """B meets A's uncommitted release: it rolls back, waits for its timer, and takes the value after the commit."""
    world = World(TAKE_AFTER_RELEASE, Settings(batch=2))
    while "A" not in world.database.open:
        world.step("A")
    while world.streams["B"].sleep is None:
        world.step("B")
    sleep = world.streams["B"].sleep
    assert isinstance(sleep, Await)
    assert sleep.seen_version is None
    assert list(world.database.open) == ["A"]
    finish(world)
    assert world.vector == TAKE_AFTER_RELEASE.end
    assert world.board.progress("B").counters.lock_conflicts > 0


def test_sequence_3_and_4_the_combined_release_is_flushed() -> None:
    """B combined its release with what A blocks: it splits, commits the release alone, then waits."""
    world = World(SWAP_THROUGH_NULL, Settings(batch=2))
    while world.board.progress("B").blocked is None:
        world.step("B")
    assert world.vector == (0, 1)
    counters = world.board.progress("B").counters
    assert (counters.splits, counters.flushes, counters.waits) == (1, 1, 1)
    finish(world)
    assert world.vector == SWAP_THROUGH_NULL.end


@pytest.mark.parametrize("history", [LATE_TAKER, ROW_MOVES_EARLY, HOT_KEY], ids=["5", "13", "6 and 7"])
def test_an_overtaken_stream_jumps(history: History, tally: Tally) -> None:
    """Where a sibling has overtaken a stream, the stream jumps: every interleaving ends in the union."""
    assert search(history, tally) == {history.end}


@pytest.mark.parametrize("history", [LATE_TAKER, ROW_MOVES_EARLY], ids=["5", "13"])
def test_a_jump_over_what_came_and_went_leaves_the_siblings_row(history: History) -> None:
    """B is done before A begins: A's transactions fold to nothing, and B's row stays as it is."""
    world = World(history)
    while world.vector != (0, 1):
        world.step("B")
    rows = dict(world.database.rows)
    finish(world)
    assert world.vector == history.end
    assert world.database.rows == rows
    assert world.board.progress("A").counters.jumps == 1
    assert world.board.progress("A").blocked is None


def test_a_source_lost_while_its_stream_is_blocked_is_opened_again() -> None:
    """The release that a jump needs comes over a new connection, and the wait goes on counting from its beginning."""
    world = World(LATE_TAKER, Settings(chunk=1))
    while world.vector != (0, 1):
        world.step("B")
    while world.board.progress("A").blocked is None:
        world.step("A")
    blocked = world.board.progress("A").blocked
    assert blocked is not None
    world.streams["A"].source.fault = Fault.SOURCE
    for _ in range(100):
        if world.streams["A"].source.fault is None:
            break
        world.clock.advance(0.1)
        world.step("A")
    assert world.streams["A"].source.fault is None
    still = world.board.progress("A").blocked
    assert still is not None
    assert still.since == blocked.since
    finish(world)
    assert world.vector == LATE_TAKER.end


def test_sequence_8_a_swap_in_one_business_transaction_is_a_joint_commit(tally: Tally) -> None:
    """Two rows swap a value in one moment: no stream can go alone, so both go together."""
    assert search(SWAP_AT_ONCE, tally) == {SWAP_AT_ONCE.end}
    world = World(SWAP_AT_ONCE)
    finish(world)
    assert world.vector == SWAP_AT_ONCE.end
    assert [world.board.progress(name).counters.joints for name in "AB"] == [1, 1]
