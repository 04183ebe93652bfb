"""The world of the simulator: real players between simulated sources and a simulated target, without threads.

Knows: how a supervisor treats its players (who runs next is the schedule's business), and what must hold after every
single step. Never knows: why a schedule is as it is. Used by the searches and the named cases.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sim.database import SimDatabase, Snapshot
from tests.sim.ends import Fault, SimClock, SimSource, SimTarget
from tests.sim.history import History, Vector, Work
from tests.sim.ledger import PlainInterpreter, SimLedger
from tests.sim.rows import Row, RowKey, decode, encode
from tests.sim.witness import SimWitness

from vmerge.core.conflict_terms import Await, Clear, Isolating, Joining, Jumping, Limits, Waiting
from vmerge.core.duplicates import STOP_ALWAYS, DuplicateRules
from vmerge.core.events import Transaction
from vmerge.core.joint import Part
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.core.stop_position import StopPosition
from vmerge.errors import ConflictUnresolved, Verdict, VmergeError
from vmerge.player.backlog import Reach
from vmerge.player.board import Board
from vmerge.player.patience import Parked
from vmerge.player.player import Player


class SimBoard(Board):
    """A board that can be taken back to an earlier moment."""

    def save(self) -> tuple[Any, ...]:
        """Return everything, for ``restore``."""
        return dict(self._streams), dict(self._versions), dict(self._offers), self._news

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to what was saved."""
        streams, versions, offers, self._news = saved
        self._streams, self._versions, self._offers = dict(streams), dict(versions), dict(offers)


@dataclass
class SimStream:
    """One stream of the world."""

    name: str
    source: SimSource
    target: SimTarget
    player: Player
    sleep: Await | Parked | None = None
    failure: ConflictUnresolved | None = None
    has_stopped: bool = False
    """Whether it came to its stop position."""


def gtid_of(stream: int, number: int) -> Gtid:
    """Return the name of a stream's n-th transaction, counted from 1."""
    return Gtid(bytes([stream + 1] * 16), "", number)


def prefix_of(stream: int, length: int) -> GtidSet:
    """Return the position behind a stream's first transactions."""
    return GtidSet().advanced([gtid_of(stream, number) for number in range(1, length + 1)])


def transaction_of(stream: int, number: int, changes: Sequence[Any]) -> Transaction:
    """Return a source transaction that makes these changes."""
    rows = [encode(change) for change in changes]
    return Transaction(gtid_of(stream, number), number * 1_000_000, rows, sum(len(event.images) for event in rows))


@dataclass(frozen=True)
class Settings:
    """How the players of a world are set up."""

    batch: int = 3
    chunk: int = 100
    calm: int = 50
    timeout_seconds: float = 60.0
    jump_after_seconds: float = 1.0
    ask_after_seconds: float = 1.0
    reach: int = 100
    """How many transactions a blocked player keeps ahead; longer runs pass by."""
    duplicates: DuplicateRules = STOP_ALWAYS
    pause: Callable[[int], float] = field(default=lambda attempt: 0.01 * 2 ** min(attempt, 7))


class World:
    """Sources, players and the target of one history.

    Promise: after each step everything in ``check`` held. Who wants an earlier moment back saves and restores.
    """

    def __init__(
        self,
        history: History,
        settings: Settings | None = None,
        *,
        foreign: Work = (),
        stops: Mapping[str, int] | None = None,
    ) -> None:
        """``foreign`` are inserts that no stream brings: somebody made them on the target by hand.

        ``stops`` says behind how many transactions streams shall stop, if they shall.
        """
        self.history = history
        self.settings = settings or Settings()
        self.clock = SimClock()
        names = [chr(ord("A") + index) for index in range(len(history.streams))]
        self.stops = {name: prefix_of(names.index(name), length) for name, length in (stops or {}).items()}
        self.board = SimBoard(names)
        self.database = SimDatabase(history.tables_by_name, dict.fromkeys(names, GtidSet()))
        self.foreign: dict[RowKey, Row] = {
            (change.table, change.after[0]): change.after for change in foreign if change.after is not None
        }
        self.database.rows = (history.union(history.start) or {}) | self.foreign
        self.streams = {name: self._stream(index, name) for index, name in enumerate(names)}
        self._numbers = {gtid_of(index, 0).source: index for index in range(len(names))}
        for name in names:
            self.board.update(name, state=StreamState.RUNNING)
            self.streams[name].player.open()
            self._stop_if_there(self.streams[name])
        self.check()

    def _stream(self, index: int, name: str) -> SimStream:
        items = [transaction_of(index, number, work) for number, work in enumerate(self.history.streams[index], 1)]
        source = SimSource(items, self.settings.chunk)
        target = SimTarget(self.database, name)
        return SimStream(name, source, target, self._player(name, source, target, after_conflict=False))

    def _player(self, name: str, source: SimSource, target: SimTarget, *, after_conflict: bool) -> Player:
        settings = self.settings
        limits = Limits(
            settings.batch,
            settings.timeout_seconds,
            calm_transactions=settings.calm,
            jump_after_seconds=settings.jump_after_seconds,
            ask_after_seconds=settings.ask_after_seconds,
        )
        return Player(
            name,
            source,
            target,
            SimWitness(self.history, self.database, name),
            self.board,
            limits=limits,
            clock=self.clock,
            concerns=lambda change: True,
            interpreter=PlainInterpreter(),
            ledger=SimLedger(self.database),
            pause=settings.pause,
            after_conflict=after_conflict,
            reach=Reach(transactions=settings.reach),
            duplicates=settings.duplicates,
            stop_position=StopPosition(self.stops[name]) if name in self.stops else None,
        )

    # What a schedule may do

    def step(self, name: str) -> None:
        """Let a stream's player do one step, waiting or not: its timer may go off at any moment."""
        stream = self.streams[name]
        assert stream.failure is None, f"{name} has given up: {stream.failure}"
        stream.sleep = None
        try:
            stream.sleep = stream.player.step()
        except ConflictUnresolved as error:
            stream.player.close()
            stream.failure = error
            self.board.update(name, state=StreamState.ERROR, phase=Phase.IDLE)
        except VmergeError as error:
            if error.verdict is not Verdict.TRANSIENT:
                raise
            stream.player.close()
            self._replace(stream)
        self._stop_if_there(stream)
        self.check()

    def _stop_if_there(self, stream: SimStream) -> None:
        if stream.failure is None and stream.player.is_at_stop_position:
            stream.player.close()
            stream.sleep, stream.has_stopped = None, True
            self.board.update(stream.name, state=StreamState.STOPPED, phase=Phase.IDLE)

    def lift_stops(self) -> None:
        """Start every stream anew, without its stop position and whatever it has met."""
        self.stops = {}
        for stream in self.streams.values():
            stream.player.close()
            stream.failure, stream.has_stopped = None, False
            self.board.update(stream.name, state=StreamState.RUNNING)
            self._replace(stream)
        self.check()

    def step_before_wait(self, name: str, other: str) -> bool:
        """Let a stream fail, and a sibling do two steps before it waits; return whether the stream did fail."""

        def interlude() -> None:
            for _ in range(2):
                self.step(other)

        target = self.streams[name].target
        target.interlude = interlude
        self.step(name)
        has_failed = target.interlude is None
        target.interlude = None
        return has_failed

    def crash(self, name: str) -> None:
        """Lose a stream's player without a word; the server rolls back, a new one begins."""
        stream = self.streams[name]
        self.database.rollback(name)
        self._replace(stream)
        self._stop_if_there(stream)
        self.check()

    def fail(self, name: str, fault: Fault) -> bool:
        """Let a stream do one step in which a connection breaks; return whether that step came by the place."""
        stream = self.streams[name]
        end = stream.source if fault is Fault.SOURCE else stream.target
        end.fault = fault
        self.step(name)
        has_struck = end.fault is None
        end.fault = None
        return has_struck

    def _replace(self, stream: SimStream) -> None:
        stream.sleep = None
        after_conflict = stream.player.has_conflict
        stream.source.fault = stream.target.fault = None
        stream.player = self._player(stream.name, stream.source, stream.target, after_conflict=after_conflict)
        stream.player.open()

    # What a schedule may ask

    @property
    def vector(self) -> Vector:
        """How many transactions of each stream are on the target, as the checkpoints say."""
        return tuple(self.database.checkpoints[name].count() for name in self.streams)

    @property
    def passed(self) -> Vector:
        """How many transactions of each stream are done: those without rows may be passed and not yet stored."""
        known = [stream.player.position.count() for stream in self.streams.values()]
        return tuple(max(pair) for pair in zip(known, self.vector, strict=True))

    @property
    def is_dead(self) -> bool:
        """Tell whether no stream can go on."""
        return self.history.is_dead(self.passed)

    def is_asleep(self, name: str) -> bool:
        """Tell whether a stream waits, its time is not over and no sibling has moved."""
        sleep = self.streams[name].sleep
        if sleep is None or self.clock.now >= sleep.until:
            return False
        if isinstance(sleep, Parked):
            return self.board.news == sleep.seen_news
        return sleep.seen_version is None or self.board.siblings_of(name).version == sleep.seen_version

    def is_done(self, name: str) -> bool:
        """Tell whether all of a stream's transactions are on the target, or it stopped or gave up."""
        index = list(self.streams).index(name)
        is_complete = self.streams[name].player.position.count() == self.history.end[index]
        return is_complete or self.streams[name].failure is not None or self.streams[name].has_stopped

    def unfinished(self) -> list[str]:
        """Return the streams that still have something to do."""
        return [name for name in self.streams if not self.is_done(name)]

    # What always holds

    def check(self) -> None:
        """Check every promise that can be seen between two steps."""
        vector = self.vector
        for index, (name, stream) in enumerate(self.streams.items()):
            checkpoint = self.database.checkpoints[name]
            prefix = prefix_of(index, vector[index])
            assert checkpoint == prefix, f"{name}: the checkpoint {checkpoint} is no prefix"
            stop = self.stops.get(name)
            assert stop is None or stop.includes(checkpoint), f"{name}: {checkpoint} is behind the stop at {stop}"
            self._check_stream(index, stream, vector)
        rows = {key: row for key, row in self.database.rows.items() if self.foreign.get(key) != row}
        assert rows == self.expected_rows(vector), f"DIVERGENCE at {vector}: {self.database.rows}"

    def expected_rows(self, vector: Vector) -> dict[RowKey, Row] | None:
        """Return what the target must have: the union of the shards, without the rows in quarantine."""
        if not any(self.database.quarantine.values()):
            return self.history.union(vector)
        rows: dict[RowKey, Row] = {}
        for index, name in enumerate(self.streams):
            shard = dict(self.history.shard(index, vector[index]))
            for row in self.quarantined(name):
                assert shard.pop(row[:2]) == row[2], f"{name}: {row} in quarantine is not as at the source"
            assert not rows.keys() & shard.keys(), f"two rows of one key at {vector}, none in quarantine"
            rows |= shard
        return rows

    def quarantined(self, name: str) -> list[tuple[str, Any, Row]]:
        """Return the rows of a stream in quarantine: table, primary key and values."""
        changes = [decode(entry.insert()) for entry in self.database.quarantine[name].values()]
        return [(change.table, change.after[0], change.after) for change in changes if change.after is not None]

    def _check_stream(self, index: int, stream: SimStream, vector: Vector) -> None:
        name = stream.name
        progress = self.board.progress(name)
        offered = self.board.offered(name)
        if stream.failure is None and (offered is None or offered.settlement is None):
            self._check_position(index, stream, vector[index])
            assert progress.applied == stream.player.position, f"{name}: the board shows another position"
        if stream.sleep is not None or stream.failure is not None:
            assert name not in self.database.open, f"{name} waits with an open target transaction"
        if progress.blocked is not None:
            is_waiting = (
                isinstance(stream.player._contention.state, Waiting | Jumping | Joining) and stream.failure is None
            )
            assert is_waiting, f"{name} is shown as blocked and is not"
        if any(self.database.quarantine.values()):
            return  # the history does not know what is possible without some rows
        if isinstance(stream.sleep, Await) and stream.sleep.seen_version is not None and self.is_asleep(name):
            passed = self.passed
            assert not self.history.can_step(passed, index), f"{name} sleeps at {passed} though its key is free"

    def _check_position(self, index: int, stream: SimStream, stored: int) -> None:
        position = stream.player.position
        assert position.includes(self.database.checkpoints[stream.name]), (
            f"{stream.name}: {position} lags its checkpoint"
        )
        unsaved = self.history.streams[index][stored : position.count()]
        assert not any(unsaved), f"{stream.name}: {position} is ahead of its rows"

    # Snapshots

    def save(self) -> tuple[Any, ...]:
        """Return everything but the clock's owner, for ``restore``."""
        streams = [
            (self._kept(s), list(s.source.rest), s.target.save(), s.sleep, s.failure, s.has_stopped)
            for s in self.streams.values()
        ]
        return self.clock.now, self.board.save(), self.database.save(), streams

    def _kept(self, stream: SimStream) -> Player:
        """Return a copy of a player. It keeps the long run itself, to which offers that are saved refer."""
        kept, live = fork(stream.player), stream.player
        kept._runs.long, live._runs.long = live._runs.long, kept._runs.long
        return kept

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Go back to what was saved; the snapshot stays usable."""
        snapshot: Snapshot
        self.clock.now, board, snapshot, streams = saved
        self.board.restore(board)
        self.database.restore(snapshot)
        for stream, (player, rest, target, *rests) in zip(self.streams.values(), streams, strict=True):
            stream.player = fork(player)
            stream.source.rest = list(rest)
            stream.target.restore(target)
            stream.sleep, stream.failure, stream.has_stopped = rests


def _cloned(part: Any) -> Any:
    """As ``copy.copy``, at a fraction of its cost: a search forks players by the hundred thousand."""
    twin = object.__new__(type(part))
    twin.__dict__.update(part.__dict__)
    return twin


def fork(player: Player) -> Player:
    """Return a player that goes its own way from here: what it owns is copied, its collaborators are shared."""
    twin: Player = _cloned(player)
    twin._backlog = _cloned(player._backlog)
    twin._checkpoint = _cloned(player._checkpoint)
    twin._inquiry = _cloned(player._inquiry)
    twin._member = _cloned(player._member)
    twin._quarantining = _cloned(player._quarantining)
    twin._reporter = _cloned(player._reporter)
    twin._runs = _cloned(player._runs)
    twin._runs._backlog = twin._backlog
    twin._contention = _cloned(player._contention)
    twin._contention.__dict__.update(
        _runs=twin._runs, _inquiry=twin._inquiry, _quarantining=twin._quarantining, _reporter=twin._reporter
    )
    twin._backlog.items = player._backlog.items.copy()
    twin._backlog._run = player._backlog._run.copy()
    long = player._runs.long
    if long is not None:
        rules = long.effect._rules
        twin._runs.long = copy.deepcopy(long, {id(rules): rules})
    return twin


def fingerprint(world: World) -> tuple[Any, ...]:
    """Return what the world's future depends on, with instants and counters left out.

    Two moments of equal fingerprint have equal futures, apart from when a time-out comes.
    """
    players = []
    for name, stream in world.streams.items():
        player = stream.player
        version = world.board.siblings_of(name).version
        mode: tuple[Any, ...]
        match player._contention.state:
            case Isolating(limit, calm, moved_from, locks):
                has_moved = None if moved_from is None else moved_from != version
                mode = ("Isolating", limit, min(calm, world.settings.calm), has_moved, locks)
            case Clear(locks):
                mode = ("Clear", locks)
            case Waiting():
                mode = ("Waiting", *_wait_mode(player._contention.state, version))
            case Jumping(waiting, count, least):
                mode = ("Jumping", count, least, *_wait_mode(waiting, version))
            case Joining(waiting):
                mode = ("Joining", *_wait_mode(waiting, version))
            case state:
                mode = (type(state).__name__,)
        flight = (
            player._in_flight and (player._in_flight.stretch.count, player._in_flight.dropped),
            tuple(_part_mode(part) for part in player._member.parts),
        )
        offered = world.board.offered(name)
        offer = None
        if offered is not None:
            settlement = offered.settlement
            settled = _part_mode(settlement) if isinstance(settlement, Part) else settlement
            offer = len(offered.offer.run), offered.offer.version == version, offered.leader, settled
        long = player._runs.long.count if player._runs.long is not None else 0
        backlog = len(player._backlog.items), player._backlog._is_torn, player._backlog._reached, long
        fences = tuple(player._inquiry.fences.items())
        players.append((mode, backlog, flight, len(stream.source.rest), player.position, offer, fences))
    checkpoints = tuple(world.database.checkpoints.values())
    return checkpoints, tuple(players)


def _part_mode(part: Part) -> tuple[str, int]:
    return part.stream, part.stretch.count


def _wait_mode(waiting: Waiting, version: int) -> tuple[Any, ...]:
    """Return what of a wait decides over its jumps."""
    last = waiting.last_jump
    failed = None if last is None else (last.count, last.version != version)
    inquiry = waiting.inquiry
    suspect = None if inquiry is None else (inquiry.suspect is not None, min(inquiry.count, 2))
    return min(waiting.attempts, 2), waiting.may_jump, failed, suspect
