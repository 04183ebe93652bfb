"""All interleavings: every order of the players' steps, with crashes, until nothing new is found.

Knows: a search over moments of a world, with a memory of those already seen. A player that waits may be stepped at any
moment, as its timer may go off at any moment, so no schedule that threads could produce is left out. Never knows: what
the histories mean. Used by the exhaustive tests and the named sequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from tests.sim.ends import Fault
from tests.sim.history import History, Vector, Work
from tests.sim.world import Settings, World, fingerprint

from vmerge.errors import ConflictUnresolved

Choice = tuple[str, int, Callable[[World], bool | None]]
"""Its name in a schedule, the crashes left after it, and what to do."""


@dataclass
class Tally:
    """What was searched."""

    histories: int = 0
    searches: int = 0
    moments: int = 0
    steps: int = 0
    dead_ends: int = 0

    def add(self, other: Tally) -> None:
        """Count another tally in."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Search:
    """One search: a history under one setting, with so many crashes at most."""

    history: History
    settings: Settings
    crashes: int = 0
    tally: Tally = field(default_factory=Tally)
    foreign: Work = ()
    """Rows of the target that no shard has."""
    judge: Callable[[World], None] | None = None
    """Looks at every end. With it a dead vector is no end until nobody has anything left to do."""

    def run(self) -> set[Vector]:
        """Search everything; return the vectors in which it can end. AssertionError names the schedule that fails."""
        world = World(self.history, self.settings, foreign=self.foreign)
        first: Hashable = (self.crashes, fingerprint(world))
        paths: dict[Hashable, list[str]] = {first: []}
        came_from: dict[Hashable, set[Hashable]] = {}
        ends: dict[Hashable, Vector] = {}
        stack = [(world.save(), self.crashes, first)]
        while stack:
            saved, crashes, key = stack.pop()
            world.restore(saved)
            if not world.unfinished() or (self.judge is None and self._is_dead(world)):
                self._end(world, paths[key])
                ends[key] = world.vector
            for text, left, act in self._choices(world, crashes):
                world.restore(saved)
                path = [*paths[key], text]
                if not self._act(act, world, path):
                    continue
                following: Hashable = (left, fingerprint(world))
                came_from.setdefault(following, set()).add(key)
                if following not in paths:
                    paths[following] = path
                    stack.append((world.save(), left, following))
        self._check_no_trap(paths, came_from, ends)
        self.tally.searches += 1
        self.tally.moments += len(paths)
        return set(ends.values())

    def _choices(self, world: World, crashes: int) -> list[Choice]:
        """Return all that may happen next; looked up at once, for each act changes the world."""
        choices: list[Choice] = []
        act: Callable[[World], bool | None]
        committing = list(world.database.open)
        for name in world.unfinished():
            choices.append((name, crashes, partial(World.step, name=name)))
            if name not in committing:
                # What a sibling commits between a failed attempt and the wait must end the wait.
                for other in world.unfinished():
                    if other != name:
                        act = partial(World.step_before_wait, name=name, other=other)
                        choices.append((f"{name}, {other} before it waits", crashes, act))
            if crashes:
                choices.append((f"crash {name}", crashes - 1, partial(World.crash, name=name)))
                faults = (Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT) if name in committing else (Fault.APPLY,)
                for fault in faults:
                    act = partial(World.fail, name=name, fault=fault)
                    choices.append((f"{fault.name} {name}", crashes - 1, act))
        return choices

    def _act(self, act: Callable[[World], bool | None], world: World, path: list[str]) -> bool:
        """Do one thing; return False if it could not be done here."""
        self.tally.steps += 1
        try:
            return act(world) is not False
        except Exception as error:
            raise AssertionError(f"{error!r} in {self.history} with {self.settings} after {path}") from error

    def _end(self, world: World, path: list[str]) -> None:
        if self.judge is not None:
            try:
                self.judge(world)
            except AssertionError as error:
                raise AssertionError(f"{error} in {self.history} with {self.settings} after {path}") from error

    def _is_dead(self, world: World) -> bool:
        return world.is_dead and not world.database.open

    def _check_no_trap(
        self, paths: dict[Hashable, list[str]], came_from: dict[Hashable, set[Hashable]], ends: dict[Hashable, Vector]
    ) -> None:
        """From each moment some end can be reached, and the only ends are the union and the dead vectors."""
        reached = set(ends)
        queue = deque(reached)
        while queue:
            for key in came_from.get(queue.popleft(), ()):
                if key not in reached:
                    reached.add(key)
                    queue.append(key)
        trapped = [path for key, path in paths.items() if key not in reached]
        assert not trapped, f"no way out in {self.history} with {self.settings} after {min(trapped, key=len)}"


def finish(world: World, *, limit: int = 10_000) -> None:
    """Play fairly to the end: whoever is awake steps in turn; when all sleep, the clock moves on.

    Ends when each stream is done or gave up, or waits for one that gave up.
    """
    for _ in range(limit):
        unfinished = world.unfinished()
        is_hopeless = world.is_dead and any(s.failure for s in world.streams.values())
        if not unfinished or is_hopeless:
            return
        awake = [name for name in unfinished if not world.is_asleep(name)]
        for name in awake:
            world.step(name)
        if not awake:
            instants = [sleep.until for name in unfinished if (sleep := world.streams[name].sleep) is not None]
            world.clock.advance(max(0.0, min(instants) - world.clock.now))
    raise AssertionError(f"no end at {world.vector} of {world.history}")


def assert_ends_well(world: World) -> None:
    """Check the end of a play: the union of all, or a clear time-out where nobody could go on."""
    failures = [stream.failure for stream in world.streams.values() if stream.failure is not None]
    assert not world.database.open
    if failures:
        assert all(isinstance(failure, ConflictUnresolved) for failure in failures)
        assert world.is_dead, f"gave up at {world.vector} of {world.history} though one could go on"
    else:
        assert not world.unfinished()
        assert world.database.rows == world.history.union(world.history.end)
