"""Random histories with the policy to set duplicates aside, operators who settle rows at any time, crashes and lost
connections.

After every step the target is the union of the shards without the rows in quarantine, which are as at their sources
(``World.check``). In the end nobody has given up, and only what cannot stand on the target is kept off it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.sim.conftest import CI, LONG
from tests.sim.history import History
from tests.sim.rows import Row, RowKey, Value, delete, insert, is_consistent, update
from tests.sim.test_converge import DISTURBANCES, histories, play
from tests.sim.test_verdicts import TABLE, careless_histories
from tests.sim.witness import SimWitness
from tests.sim.world import Settings, World

from vmerge.core.duplicates import DuplicatePolicy, DuplicateRules
from vmerge.core.events import Transaction
from vmerge.core.evidence import Held
from vmerge.core.fold import Fold
from vmerge.core.quarantine import EntryState, RowName
from vmerge.errors import ConflictProven, UnsupportedEvent, VmergeError

SET_ASIDE = DuplicateRules(DuplicatePolicy.QUARANTINE)
QUIET_SECONDS = 45.0
"""Longer than any testimony is waited for, and than it takes until every row was tried again."""
OPERATIONS = ["retry", "retry unheard", "drop", "drop unheard"]

settings_of_worlds = st.builds(
    Settings,
    batch=st.integers(1, 8),
    chunk=st.integers(1, 12),
    calm=st.sampled_from([1, 3, 50]),
    ask_after_seconds=st.just(0.2),
    jump_after_seconds=st.sampled_from([0.1, 1.0]),
    duplicates=st.just(SET_ASIDE),
)
acts = st.one_of(*(st.just(act) for act in ("step", "step", "long tick")), st.sampled_from(DISTURBANCES + OPERATIONS))
schedules = st.lists(st.tuples(st.integers(0, 3), acts), max_size=150)


def do(world: World, schedule: list[tuple[int, str]]) -> None:
    """Do what a schedule says; ``long tick`` lets all waits end."""
    for number, act in schedule:
        if act == "long tick":
            world.clock.advance(0.3)
        elif act in OPERATIONS:
            operate(world, number, act)
        else:
            play(world, [(number, act)])


def operate(world: World, number: int, act: str) -> None:
    """Settle one of the rows in quarantine; the player hears of it, or has to find out."""
    entries = [(stream, name) for stream, kept in world.database.quarantine.items() for name in kept]
    if not entries:
        return
    stream, name = entries[number % len(entries)]
    with contextlib.suppress(VmergeError):
        (world.database.retry if act.startswith("retry") else world.database.drop)(stream, name)
    if not act.endswith("unheard"):
        world.streams[stream].player.reread_quarantine()
    world.check()


def settle(world: World) -> None:
    """Step everybody, those at their heads too, until nothing has happened for long enough."""
    last: Any = None
    quiet_since = world.clock.now
    while world.clock.now - quiet_since < QUIET_SECONDS:
        for name, stream in world.streams.items():
            if stream.failure is None and not world.is_asleep(name):
                world.step(name)
        now = world.vector, {name: dict(kept) for name, kept in world.database.quarantine.items()}
        if now != last:
            quiet_since, last = world.clock.now, now
        world.clock.advance(0.5)


def judge_end(world: World) -> list[tuple[str, EntryState]]:
    """Check everything that must hold in the end; return what is kept off the target."""
    assert not [stream.failure for stream in world.streams.values() if stream.failure is not None]
    assert world.vector == world.history.end
    kept = []
    for name, entries in world.database.quarantine.items():
        rows = world.quarantined(name)
        for (table, key, row), entry in zip(rows, entries.values(), strict=True):
            kept.append((f"{name}: {row}", entry.state))
            if entry.state is EntryState.PARKED:
                assert not fits(world, (table, key), row), f"{row} of {name} is kept off for nothing"
    return kept


def fits(world: World, key: RowKey, row: Row) -> bool:
    rows = world.database.rows
    return key not in rows and is_consistent(world.history.tables_by_name, {**rows, key: row})


def careless(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """Play a careless history to its end."""
    world = World(history, settings)
    do(world, schedule)
    settle(world)
    kept = judge_end(world)
    if history.union(history.end) is None:
        assert kept
    event(f"{len(kept)} kept off")


@CI
@given(careless_histories(), settings_of_worlds, schedules)
def test_shards_that_know_nothing_of_each_other_are_merged_but_for_duplicates(
    history: History, settings: Settings, schedule: list[tuple[int, str]]
) -> None:
    """Nobody stops, and only rows that the target cannot take stay off it."""
    careless(history, settings, schedule)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@LONG
@given(careless_histories(), settings_of_worlds, schedules)
def test_many_shards_that_know_nothing_of_each_other(
    history: History, settings: Settings, schedule: list[tuple[int, str]]
) -> None:
    """The same, for as long as one likes."""
    careless(history, settings, schedule)


@CI
@given(histories(), settings_of_worlds, schedules)
def test_legal_histories_leave_nothing_in_quarantine(
    history: History, settings: Settings, schedule: list[tuple[int, str]]
) -> None:
    """Without true duplicates the policy changes nothing in the end: the union, and nothing kept off."""
    world = World(history, settings)
    do(world, [(number, act) for number, act in schedule if not act.startswith("drop")])
    settle(world)
    assert judge_end(world) == []
    assert world.database.rows == history.union(history.end)


# Named cases


class Blind(SimWitness):
    """Tells what keeps a row out, and cannot tell which row it is."""

    def find(self, run: Sequence[Transaction], effect: Fold | None, held: Held) -> RowName:
        """See ``Witness``."""
        raise UnsupportedEvent("a row cannot be found")


def test_a_row_that_cannot_be_found_stops_the_stream() -> None:
    """Without its bytes the row cannot be set aside, so the proof ends the stream as under the other policy."""
    history = History((TABLE,), (((insert("u", *row(1, "a")),),), ((insert("u", *row(2, "a")),),)))
    world = World(history, Settings(duplicates=SET_ASIDE))
    for name, stream in world.streams.items():
        stream.player._quarantining._pointer = Blind(history, world.database, name)
    settle(world)
    (failure,) = [stream.failure for stream in world.streams.values() if stream.failure is not None]
    assert isinstance(failure, ConflictProven)
    assert sum(world.board.progress(name).counters.duplicates for name in world.streams) == 1
    assert not any(world.database.quarantine.values())


def row(id_: int, value: Value, state: str = "p") -> Row:
    return (id_, value, None, state)


def played(*streams: list[Any]) -> World:
    history = History((TABLE,), tuple(tuple((change,) for change in stream) for stream in streams))
    world = World(history, Settings(duplicates=SET_ASIDE))
    settle(world)
    return world


def test_a_parked_insert_lets_the_stream_go_on() -> None:
    """What follows the duplicate is applied, and the duplicate alone is kept off."""
    world = played([insert("u", *row(1, "a"))], [insert("u", *row(2, "a")), insert("u", *row(3, "b"))])
    assert len(judge_end(world)) == 1
    assert ("u", 3) in world.database.rows
    counters = {name: world.board.progress(name).counters for name in world.streams}
    assert sum(one.quarantined for one in counters.values()) == 1
    assert sum(world.board.progress(name).in_quarantine for name in world.streams) == 1


def test_an_update_that_takes_a_duplicate_value_takes_the_old_version_along() -> None:
    """The value that the row had before is free for others."""
    world = played(
        [insert("u", *row(1, "a"))],
        [insert("u", *row(2, "b")), update("u", row(2, "b"), row(2, "a")), insert("u", *row(3, "b"))],
    )
    rows = world.database.rows
    assert ("u", 3) in rows
    assert len(judge_end(world)) == 1
    assert (("u", 1) in rows) != (("u", 2) in rows)


def test_an_update_that_lets_go_of_the_value_brings_the_row_back() -> None:
    """A row comes back by itself once it no longer is a duplicate."""
    world = played(
        [insert("u", *row(1, "a"))],
        [insert("u", *row(2, "a")), *([insert("u", *row(3, "c")), delete("u", *row(3, "c"))] * 3)],
    )
    assert len(judge_end(world)) == 1
    history = world.history
    released = played(
        list(change for (change,) in history.streams[0]),
        [
            *(change for (change,) in history.streams[1]),
            update("u", row(2, "a"), row(2, "z")),
        ],
    )
    assert judge_end(released) == []


def test_a_row_of_the_same_primary_key_is_never_touched() -> None:
    """Two shards with one primary key: the changes of the later row never reach the earlier one's."""
    world = played(
        [insert("u", *row(1, "a"))],
        [insert("u", *row(1, "b")), update("u", row(1, "b"), row(1, "c")), delete("u", *row(1, "c"))],
        [insert("u", *row(1, "d"))],
    )
    assert len(judge_end(world)) == 1
    assert world.database.rows["u", 1] in ((1, "a", None, "p"), (1, "d", None, "p"))
