"""The servers and players of one story, driven step by step.

Knows: what a step of a story does. Never knows: how a story must end. Used by ``test_scenarios.py``, whose docstring is
the format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from vmerge.config import load_workflow
from vmerge.core.conflict_terms import Await, Limits
from vmerge.core.duplicates import DuplicatePolicy, DuplicateRules
from vmerge.core.events import Heartbeat, SourceItem, Transaction
from vmerge.core.position import GtidSet
from vmerge.core.rules import StreamRules
from vmerge.core.states import Phase, StreamState
from vmerge.errors import ConflictUnresolved, Replanned, VmergeError
from vmerge.hosting.assembly import WorkflowAssembly
from vmerge.lab.comparison import Difference, Shard, compare
from vmerge.lab.servers import Server
from vmerge.mysql.quarantine_orders import QuarantineOrders
from vmerge.mysql.source import DumpSource
from vmerge.player.backlog import USUAL_REACH, Reach
from vmerge.player.board import Board
from vmerge.player.patience import Parked
from vmerge.player.player import Player
from vmerge.stopping import StopToken, SystemClock

STEPS = 2000
CONFLICT_TIMEOUT_SECONDS = 5.0
ASK_AFTER_SECONDS = 0.2
BASES_APART = 1000
"""What the first numbers of two shards' rows lie apart; see the step ``all``."""


class WholeSource:
    """Reads up to the shard's head at once, so that a story, not the network, says what comes together."""

    def __init__(self, source: DumpSource, shard: Server) -> None:
        self._source = source
        self._shard = shard
        self._position = GtidSet()

    def open(self, position: GtidSet) -> None:
        self._position = position
        self._source.open(position)

    def read(self) -> Sequence[SourceItem]:
        head = _executed(self._shard)
        items = list(self._source.read())
        with suppress(VmergeError):  # the source says so again, once what came before it is done
            while not self._advance(items).includes(head) and Heartbeat() not in items:  # prepared ones may stay open
                items += self._source.read()
        self._position = self._advance(items)
        return items

    def poll(self) -> Sequence[SourceItem]:
        items = self._source.poll()
        self._position = self._advance(items)
        return items

    def _advance(self, items: Sequence[SourceItem]) -> GtidSet:
        done = [item.gtid for item in items if not isinstance(item, Heartbeat)]
        done += [item.prepared for item in items if isinstance(item, Transaction) and item.prepared is not None]
        return self._position.advanced(done)

    def close(self) -> None:
        self._source.close()


def _executed(server: Server) -> GtidSet:
    return GtidSet.parse(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])


@dataclass
class Stage:
    """The servers and players of one story."""

    shards: dict[str, Server]
    target: Server
    database: str
    file: Path
    board: Board = field(init=False)
    new_player: Callable[[str], Player] = field(init=False)
    orders: QuarantineOrders = field(init=False)
    rules: dict[str, StreamRules] = field(default_factory=dict)
    players: dict[str, Player] = field(default_factory=dict)
    failures: list[VmergeError] = field(default_factory=list)
    """In the order in which streams failed."""
    usual: list[tuple[Server, str, str]] = field(default_factory=list)
    """What global variables were before the story: server, name, value."""

    def __post_init__(self) -> None:
        self.board = Board(self.shards)

    def set_up(self, story: dict[str, Any]) -> None:
        """Make the databases and tables."""
        for name, server in {**self.shards, "target": self.target}.items():
            for variable, value in story.get("settings", {}).get(name, {}).items():
                self.change_setting(server, variable, value)
            server.execute_script(f"CREATE DATABASE `{self.database}`")
            server.execute_script("CREATE USER IF NOT EXISTS story IDENTIFIED BY 'story'; GRANT ALL ON *.* TO story")
            for script in (story["schema"], story.get("only", {}).get(name)):
                if script is not None:
                    server.execute_script(script, self.database)

    def change_setting(self, server: Server, variable: str, value: str) -> None:
        """Set a global variable of a server until the stage is closed."""
        ((usual,),) = server.query(f"SELECT @@GLOBAL.{variable}")
        self.usual.append((server, variable, usual))
        server.query(f"SET GLOBAL {variable} = %s", value)

    def open(self, story: dict[str, Any]) -> None:
        """Make the players as the product does, and open them."""
        rules = {f"{self.database}.{table}": rule for table, rule in story.get("rules", {}).items()}
        more = {"rules": rules, **story.get("workflow", {})}
        self.file.write_text(_workflow_text(self.shards, self.target, self.database, more))
        workflow = load_workflow(self.file, {"STORY_PASSWORD": "story"})
        self.rules = {name: workflow.rules_of(name) for name in self.shards}
        assembly = WorkflowAssembly(workflow, clock=SystemClock())
        claims = {name: assembly.claim(name) for name in self.shards}
        for claim in claims.values():
            assembly.enter(claim)
        policy = DuplicatePolicy(story.get("duplicates", "stop"))
        timeout = CONFLICT_TIMEOUT_SECONDS * (1 if policy is DuplicatePolicy.STOP else 10)

        def new_player(name: str) -> Player:
            parts = assembly.build(claims[name], self.board, after_conflict=False, accepted_schema_changes=frozenset())
            return Player(
                name,
                WholeSource(parts.source, self.shards[name]),
                parts.target,
                parts.witness,
                self.board,
                limits=Limits(100, timeout, ask_after_seconds=ASK_AFTER_SECONDS),
                clock=SystemClock(),
                concerns=parts.concerns,
                interpreter=parts.plan,
                ledger=parts.ledger,
                changes=parts.changes,
                reach=Reach(transactions=story.get("reach", USUAL_REACH.transactions)),
                duplicates=DuplicateRules(policy),
            )

        self.new_player, self.orders = new_player, assembly.quarantine_orders()
        for name in self.shards:
            self.board.update(name, state=StreamState.RUNNING, phase=Phase.STREAMING)
            self.players[name] = new_player(name)
            self.players[name].open()

    def close(self) -> None:
        """Close the players, and leave the servers as they were."""
        for player in self.players.values():
            player.close()
        for server, variable, usual in self.usual:
            server.query(f"SET GLOBAL {variable} = %s", usual)

    def differences(self) -> list[Difference]:
        """What the target lacks of the shards' rows, or has otherwise, under the streams' rules."""
        rules = self.rules
        shards = [Shard(server, rules[name].databases, rules[name].table_rules) for name, server in self.shards.items()]
        return [one for table in compare(shards, self.target).tables for one in table.differences]

    def transactions(self, name: str) -> int:
        return self.board.progress(name).counters.transactions

    def drive(self, name: str, goal: str) -> None:
        """Step one player until it has done what the schedule says."""
        before = self.transactions(name)
        for _ in range(STEPS):
            waits = self._step_or_replan(name) is not None
            player = self.players[name]
            done = {"applies": player.is_in_flight, "commits": self.transactions(name) > before, "waits": waits}
            if done[goal]:
                return
            assert not waits, f"{name} waits where the schedule says {goal}"
        raise AssertionError(f"{name} never {goal}")

    def play(self, name: str, goal: str) -> None:
        """Let one player do what the schedule says."""
        if name == "all":
            self.finish()
        elif goal == "runs":
            self.finish([name])
        elif goal == "restarts":
            self.players[name].close()
            self.players[name] = self.new_player(name)
            self.players[name].open()
        else:
            self.drive(name, goal)

    def settle(self, order: str, name: str, hearing: str = "heard") -> None:
        """Give an operator's order about the one row of a stream in quarantine, as the daemon does.

        ``unheard`` is what a daemon does that the stream does not run in.
        """
        (stored,) = [one for one in self.orders.list() if one.stream == name]
        match order:
            case "retry":
                self.orders.retry(stored.id)
            case "drop":
                self.orders.drop(stored.id)
            case "refused":
                with pytest.raises(ConflictUnresolved, match="is held by row"):
                    self.orders.retry(stored.id)
        if hearing == "heard":
            self.players[name].reread_quarantine()

    def take(self, step: dict[str, Any]) -> None:
        """Do one step of the story."""
        ((actor, action),) = step.items()
        if actor == "play":
            self.play(*action.split())
        elif actor == "operator":
            self.settle(*action.split())
        elif actor == "hindered":
            for name, others in action.items():
                self.await_hindrances(name, others)
        elif actor == "target":
            self.target.execute_script(action, self.database)
        elif actor.startswith("at "):
            self.shards[actor.removeprefix("at ")].execute_script(action, self.database)
        elif actor == "all":
            for number, shard in enumerate(self.shards.values()):
                base = f"SET @base = {number * BASES_APART}"
                shard.execute_script(f"{base}; BEGIN; {action}; COMMIT", self.database)
        else:
            self.shards[actor].execute_script(f"BEGIN; {action}; COMMIT", self.database)

    def await_hindrances(self, name: str, others: dict[str, str]) -> None:
        """Step all players until one waits at a schema change, and knows why others do not come to it."""
        stop = StopToken()
        for _ in range(STEPS):
            barrier = self.board.progress(name).barrier
            if barrier is not None and {one.stream: one.hindrance.value for one in barrier.hindered} == others:
                return
            for player in list(self.players):
                self._step(player)
            stop.wait(0.01)
        raise AssertionError(f"{name} waits at no change for {others}: {barrier}")

    def finish(self, names: Sequence[str] | None = None) -> None:
        """Step these players, or all, in turn until each is at its shard's head or has failed."""
        stop = StopToken()
        heads = {name: _executed(shard) for name, shard in self.shards.items()}
        for _ in range(STEPS):
            behind = [name for name in self.players if name in (names or heads) and self._is_behind(name, heads[name])]
            if not behind:
                return
            for name in behind:
                pause = self._step(name)
                if pause is not None:
                    stop.wait(min(0.01, max(0.0, pause.until - SystemClock().monotonic())))
        raise AssertionError(f"not finished: {behind}")

    def _is_behind(self, name: str, head: GtidSet) -> bool:
        """Whether a player is before its shard's head, or has rows to try that it keeps off the target."""
        player = self.players[name]
        return not player.position.includes(head) or player._quarantining.is_due

    def _step(self, name: str) -> Await | Parked | None:
        try:
            return self._step_or_replan(name)
        except VmergeError as error:
            self.failures.append(error)
            self.players.pop(name).close()
            self.board.update(name, state=StreamState.ERROR, phase=Phase.IDLE)
            return None

    def _step_or_replan(self, name: str) -> Await | Parked | None:
        """Step a player; one that has passed a schema change is made anew, as the supervisor does."""
        try:
            return self.players[name].step()
        except Replanned:
            self.play(name, "restarts")
            return None

    def run(self, story: dict[str, Any]) -> None:
        """Play the whole story; errors are kept."""
        self.set_up(story)
        try:
            self.open(story)
            for step in story["steps"]:
                self.take(step)
        except VmergeError as error:
            self.failures.append(error)
        else:
            self.finish()


def _workflow_text(stage_servers: dict[str, Server], target: Server, database: str, more: dict[str, Any]) -> str:
    def server(one: Server) -> dict[str, Any]:
        account = {"user": "story", "password_env": "STORY_PASSWORD"}
        # Reading the system's certificates takes longer than all the rest of a story.
        return {"host": one.host, "port": one.port, **account, "tls": {"mode": "disabled"}}

    streams = {
        name: {**server(shard), "databases": {database: database}, "start": "current"}
        for name, shard in stage_servers.items()
    }
    control = {"control_database": f"{database}_control"}
    return yaml.safe_dump({"workflow": "story", "target": {**server(target), **control}, "streams": streams, **more})
