"""Streams that are ordered to stop at a position: none passes it, whatever is done about conflicts.

``World`` looks at every checkpoint after every step.
"""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.sim.conftest import CI, LONG
from tests.sim.enumeration import U
from tests.sim.history import History, Vector
from tests.sim.rows import delete, insert, update
from tests.sim.search import assert_ends_well, finish
from tests.sim.test_converge import histories, play, schedules, settings_of_worlds
from tests.sim.world import Settings, World

FEW = settings(CI, max_examples=40)


def at_one_instant(history: History, count: int) -> Vector:
    """Return how many transactions each shard had made when there were so many in all."""
    return tuple(history.order[:count].count(stream) for stream in range(len(history.streams)))


def stops_of(vector: Vector) -> dict[str, int]:
    """Return a stop position for each stream of a world."""
    return {chr(ord("A") + index): length for index, length in enumerate(vector)}


def stop_together(history: History, settings: Settings, schedule: list[tuple[int, str]], share: float) -> None:
    """Stop all streams where their shards were at one instant; then let them go on to their ends."""
    vector = at_one_instant(history, round(len(history.order) * share))
    world = World(history, settings, stops=stops_of(vector))
    play(world, schedule)
    finish(world)
    assert world.vector == vector
    assert world.database.rows == history.union(vector)
    assert all(stream.has_stopped for stream in world.streams.values())
    remedies = [world.board.progress(name).counters for name in world.streams]
    event(f"jumps: {any(one.jumps for one in remedies)}, joint commits: {any(one.joints for one in remedies)}")
    world.lift_stops()
    finish(world)
    assert_ends_well(world)


def stop_anywhere(
    history: History, settings: Settings, schedule: list[tuple[int, str]], shares: list[float | None]
) -> None:
    """Stop some streams where it may well be that nobody gets there; when they may go on, all come to their ends."""
    lengths = zip(stops_of(history.end).items(), shares, strict=False)
    stops = {name: round(length * share) for (name, length), share in lengths if share is not None}
    world = World(history, settings, stops=stops)
    play(world, schedule)
    world.lift_stops()
    finish(world)
    assert_ends_well(world)


shares_of_streams = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=4, max_size=4)


@FEW
@given(histories(), settings_of_worlds, schedules, st.floats(0, 1))
def test_streams_stop_together(
    history: History, settings: Settings, schedule: list[tuple[int, str]], share: float
) -> None:
    """Streams that shall stop where their shards were at one instant all get exactly there, and on from there."""
    stop_together(history, settings, schedule, share)


@FEW
@given(histories(), settings_of_worlds, schedules, shares_of_streams)
def test_no_stream_passes_its_stop(
    history: History, settings: Settings, schedule: list[tuple[int, str]], shares: list[float | None]
) -> None:
    """Whatever the schedule, no stream passes its stop position; without it the merge ends in the union as ever."""
    stop_anywhere(history, settings, schedule, shares)


@pytest.mark.parametrize("reach", [2, 100])
def test_a_joint_commit_ends_at_the_stops(reach: int) -> None:
    """Streams whose runs only fit together take them no further than to their stops, however much has arrived."""
    swap = (update("u", (1, "a"), (1, "b")),), (update("u", (2, "b"), (2, "a")),)
    behind = tuple((insert("u", id, None),) for id in (11, 12, 13)), ((delete("u", 2, "a"),), ())
    initial = (insert("u", 1, "a"),), (insert("u", 2, "b"),)
    history = History((U,), ((swap[0], *behind[0]), (swap[1], *behind[1])), initial)
    world = World(history, Settings(reach=reach), stops={"A": 2, "B": 1})
    finish(world)
    assert [world.board.progress(name).counters.joints for name in world.streams] == [1, 1]
    assert world.vector == (2, 1)
    assert all(stream.has_stopped for stream in world.streams.values())
    world.lift_stops()
    finish(world)
    assert_ends_well(world)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@LONG
@given(histories(), settings_of_worlds, schedules, st.floats(0, 1), shares_of_streams)
def test_many_stops(
    history: History,
    settings: Settings,
    schedule: list[tuple[int, str]],
    share: float,
    shares: list[float | None],
) -> None:
    """Both, for as long as one likes."""
    stop_together(history, settings, schedule, share)
    stop_anywhere(history, settings, schedule, shares)
