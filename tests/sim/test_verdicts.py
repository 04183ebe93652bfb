"""Random illegal histories: shards that know nothing of each other take the same values.

Whoever gives up has proven a duplicate that really stands at the sources in the end; and where the ends of the shards
cannot stand side by side, somebody does. Everything else goes on.
"""

from __future__ import annotations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.sim.conftest import CI, LONG
from tests.sim.history import History, Work
from tests.sim.rows import Change, Row, Table, Value, delete, insert, unique_entries, update
from tests.sim.search import finish
from tests.sim.test_converge import play, schedules, settings_of_worlds
from tests.sim.world import Settings, World

from vmerge.core.conflict_terms import Stuck
from vmerge.core.verdict import Permanent, Proof
from vmerge.errors import ConflictProven

TABLE = Table("u", unique=((1,), (2, 3)))
ENOUGH_SECONDS = 120.0
"""Longer than any testimony is waited for."""


@st.composite
def careless_histories(draw: st.DrawFn) -> History:
    """Each shard keeps its own keys unique, and nobody looks at the others."""
    return History((TABLE,), tuple(draw(shards()) for _ in range(draw(st.integers(2, 3)))))


@st.composite
def shards(draw: st.DrawFn) -> tuple[Work, ...]:
    """Return the transactions of one shard."""
    rows: dict[int, Row] = {}
    works: list[Work] = []
    values = st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, "x"]), st.sampled_from(["p", "q"]))
    wishes = st.lists(st.tuples(st.integers(1, 4), values, st.booleans()), max_size=8)
    for id_, wished, is_delete in draw(wishes):
        change = _change(rows, id_, wished, is_delete)
        if change is not None:
            works.append((change,))
    return tuple(works)


def _change(rows: dict[int, Row], id_: int, wished: tuple[Value, Value, Value], is_delete: bool) -> Change | None:
    before = rows.get(id_)
    if is_delete:
        return delete("u", *rows.pop(id_)) if before is not None else None
    row: Row = (id_, *wished)
    entries = set(unique_entries(TABLE, row))
    others = (entry for other in rows.values() if other[0] != id_ for entry in unique_entries(TABLE, other))
    if row == before or entries.intersection(others):
        return None
    rows[id_] = row
    return insert("u", *row) if before is None else update("u", before, row)


def settle(world: World) -> None:
    """Play fairly until all are done or gave up, or nothing has happened for long enough."""
    quiet_since, last = world.clock.now, None
    while world.unfinished() and world.clock.now - quiet_since < ENOUGH_SECONDS:
        now = (world.vector, len(world.unfinished()))
        if now != last:
            quiet_since, last = world.clock.now, now
        awake = [name for name in world.unfinished() if not world.is_asleep(name)]
        for name in awake:
            world.step(name)
        if not awake:
            sleeps = [world.streams[name].sleep for name in world.unfinished()]
            instants = [sleep.until for sleep in sleeps if sleep is not None]
            world.clock.advance(max(0.0, min(instants) - world.clock.now))


def judge_end(world: World) -> int:
    """Check everything that must hold in the end; return how many gave up."""
    failures = [stream for stream in world.streams.values() if stream.failure is not None]
    for stream in failures:
        assert isinstance(stream.failure, ConflictProven)
        state = stream.player._contention.state
        assert isinstance(state, Stuck)
        assert state.finding is not None
        assert_is_true_duplicate(world, stream.name, state.finding)
    if world.history.union(world.history.end) is None:
        assert failures, f"no verdict on {world.history}"
    else:
        assert not failures
        assert not world.unfinished()
    return len(failures)


def assert_is_true_duplicate(world: World, stream: str, finding: Permanent) -> None:
    """Both rows must stand in the ends of two different shards and share the key."""
    assert finding.proof is Proof.DUPLICATE
    assert finding.holder_stream not in (None, stream)
    ends = {name: world.history.shard(index, world.history.end[index]) for index, name in enumerate(world.streams)}
    own = _row(ends[stream], finding.held.own)
    holder = _row(ends[str(finding.holder_stream)], finding.held.holder)
    if finding.held.key == "PRIMARY":
        assert own[0] == holder[0]
        return
    number = int(finding.held.key.removeprefix("unique_"))
    assert dict(unique_entries(TABLE, own))[number] == dict(unique_entries(TABLE, holder))[number]


def _row(shard: dict[tuple[str, Value], Row], name: str) -> Row:
    return shard["u", int(name.removeprefix("id="))]


def careless(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """Play a careless history to its end and check the verdicts."""
    world = World(history, settings)
    play(world, schedule)
    settle(world)
    count = judge_end(world)
    event(f"{count} verdicts" if count else "union")


@CI
@given(careless_histories(), settings_of_worlds, schedules)
def test_verdicts_name_true_duplicates(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """Whatever shards do that know nothing of each other: the union, or a verdict that names a duplicated pair."""
    careless(history, settings, schedule)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@LONG
@given(careless_histories(), settings_of_worlds, schedules)
def test_many_verdicts(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """The same, for as long as one likes."""
    careless(history, settings, schedule)


def test_a_true_duplicate_is_named_within_five_seconds_and_siblings_go_on() -> None:
    """The later stream gives up soon after all are at their heads; the other shards are merged to their ends."""
    history = History(
        (TABLE,),
        (
            ((insert("u", 1, "a", None, "p"),),),
            ((insert("u", 2, "a", None, "p"),),),
            ((insert("u", 3, "b", None, "p"),),),
        ),
    )
    world = World(history)
    settle(world)
    assert sorted(world.vector) == [0, 1, 1]
    assert world.clock.now - 1000.0 - ENOUGH_SECONDS < 5.0
    assert judge_end(world) == 1


def test_after_a_repair_the_stream_goes_on() -> None:
    """A duplicate that is gone at its source by the time of the restart ends in the union."""
    history = History(
        (TABLE,),
        (
            ((insert("u", 1, "a", None, "p"),), (delete("u", 1, "a", None, "p"),)),
            ((insert("u", 2, "a", None, "p"),),),
        ),
    )
    world = World(history)
    finish(world)
    assert world.vector == history.end
