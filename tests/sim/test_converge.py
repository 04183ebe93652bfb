"""Random legal histories under random schedules, crashes and lost connections.

Each ends in the union of the shards; never in divergence (which ``World.check`` looks for after every step), a missing
row, a verdict, or a stream that fences itself off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tests.sim.conftest import CI, LONG
from tests.sim.ends import Fault
from tests.sim.history import History, Work, from_real_order
from tests.sim.rows import Change, Row, Table, Value, delete, insert, update
from tests.sim.search import assert_ends_well, finish
from tests.sim.world import Settings, World

TABLE = Table("u", unique=((1,), (2, 3)))
"""One plain and one composite unique key, all nullable."""


@dataclass
class Sources:
    """All shards in real time: takes wishes, does what is legal of them, and writes down what was done."""

    streams: int
    rows: dict[int, tuple[int, Row]] = field(default_factory=dict)
    events: list[tuple[int, Work]] = field(default_factory=list)

    def wish(self, stream: int, id_: int, values: tuple[Value, Value, Value], kind: str, joins: bool) -> None:
        """Change the row with this key in the wished way, at the shard that has it or shall get it."""
        held = self.rows.get(id_)
        row: Row = (id_, *values)
        if held is None:
            self._put(stream, row, lambda free: insert("u", *free), joins)
        elif kind == "delete":
            self._remove(id_, joins)
        elif kind == "move":
            self._remove(id_, joins)
            self._put(stream, held[1], lambda free: insert("u", *free), joins)
        else:
            owner, before = held
            self._put(owner, row, lambda free: update("u", before, free), joins)

    def _put(self, stream: int, row: Row, change: Callable[[Row], Change], joins: bool) -> None:
        free = self._without_taken(row)
        held = self.rows.get(row[0])  # type: ignore[arg-type]  # ids are numbers
        if held == (stream, free):
            return
        self.rows[row[0]] = (stream, free)  # type: ignore[index]  # ids are numbers
        self._write(stream, change(free), joins)

    def _remove(self, id_: int, joins: bool) -> None:
        owner, row = self.rows.pop(id_)
        self._write(owner, delete("u", *row), joins)

    def _without_taken(self, row: Row) -> Row:
        """Return the row with those unique values set to NULL that another row has now."""
        others = [other for _, other in self.rows.values() if other[0] != row[0]]
        id_, first, second, third = row
        if any(other[1] == first for other in others):
            first = None
        if any(other[2:] == (second, third) for other in others):
            second = None
        return (id_, first, second, third)

    def _write(self, stream: int, change: Change, joins: bool) -> None:
        """Note a change, in the transaction before it if that was the same shard's and the last anywhere."""
        if joins and self.events and self.events[-1][0] == stream:
            self.events[-1] = (stream, (*self.events[-1][1], change))
        else:
            self.events.append((stream, (change,)))

    def history(self) -> History:
        """Return what was done; the real order proves it legal."""
        return from_real_order((TABLE,), self.events, streams=self.streams)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Legal histories of two to four shards."""
    sources = Sources(draw(st.integers(2, 4)))
    values = st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from([None, "x"]), st.sampled_from(["p", "q"]))
    kinds = st.sampled_from(["update", "move", "delete"])
    streams = st.integers(0, sources.streams - 1)
    wishes = st.lists(st.tuples(streams, st.integers(1, 4), values, kinds, st.booleans()), min_size=6, max_size=24)
    for stream, id_, wished, kind, joins in draw(wishes):
        sources.wish(stream, id_, wished, kind, joins)
    for place in draw(st.lists(st.integers(0, len(sources.events)), max_size=4)):
        sources.events.insert(place, (draw(streams), ()))  # what concerns other tables only
    return sources.history()


settings_of_worlds = st.builds(
    Settings,
    batch=st.integers(1, 8),
    chunk=st.integers(1, 12),
    calm=st.sampled_from([1, 3, 50]),
    timeout_seconds=st.just(40.0),
    reach=st.sampled_from([2, 5, 100]),
)
DISTURBANCES = ["run", "crash", "tick", *(fault.name for fault in Fault)]


def schedules_of(*usual: str) -> st.SearchStrategy[list[tuple[int, str]]]:
    """Return schedules in which about every fourth act is a disturbance."""
    acts = st.one_of(*(st.just(act) for act in usual), st.sampled_from(DISTURBANCES))
    return st.lists(st.tuples(st.integers(0, 3), acts), max_size=150)


# Chaos mostly leads to where only a jump helps; streams that follow real time, more or less, mostly get through.
schedules = st.one_of(schedules_of("step", "step", "step"), schedules_of("step", "follow", "follow"))


def play(world: World, schedule: list[tuple[int, str]]) -> None:
    """Do what a schedule says.

    ``run`` lets a stream race ahead, ``follow`` lets the one step that is last in real time, ``tick`` lets time pass.
    """
    names = list(world.streams)
    for number, act in schedule:
        name = names[_last_in_real_time(world) if act == "follow" else number % len(names)]
        if act == "tick":
            world.clock.advance(0.05)
        elif world.is_done(name):
            continue
        elif act == "run":
            for _ in range(12):
                if not world.is_done(name):
                    world.step(name)
        elif act == "crash":
            world.crash(name)
        elif act in ("step", "follow"):
            world.step(name)
        else:
            world.fail(name, Fault[act])


def _last_in_real_time(world: World) -> int:
    passed = list(world.vector)
    for stream in world.history.order:
        if not passed[stream]:
            return stream
        passed[stream] -= 1
    return 0


def converge(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """Play a schedule, then fairly to the end, and check the end."""
    world = World(history, settings)
    play(world, schedule)
    finish(world)
    assert_ends_well(world)
    assert not any(stream.failure for stream in world.streams.values())
    waits = sum(world.board.progress(name).counters.waits for name in world.streams)
    joints = sum(world.board.progress(name).counters.joints for name in world.streams)
    event(f"{'with' if waits else 'without'} waits, {'with' if joints else 'without'} a joint commit")


@CI
@given(histories(), settings_of_worlds, schedules)
def test_random_histories_converge(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """Any legal history under any schedule ends in the union."""
    converge(history, settings, schedule)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@LONG
@given(histories(), settings_of_worlds, schedules)
def test_many_random_histories_converge(history: History, settings: Settings, schedule: list[tuple[int, str]]) -> None:
    """The same, for as long as one likes."""
    converge(history, settings, schedule)
