"""Runs every story below this folder on real servers, with the real players driven step by step.

A story is a folder with a ``story.yaml``:

    property   one sentence that holds
    schema     SQL run in the database of every server
    steps      what happens, in real order. ``- a: SQL`` is one transaction on shard a, ``- target: SQL`` runs there;
               ``- play: a commits`` steps a's player until it has committed; ``a applies`` leaves its batch open,
               ``a waits`` ends when it met a key or a lock and waits. After the last step all players run to their
               shards' heads
    reach      how many transactions a blocked player keeps ahead, if not as many as usual
    end        ``union``, or the class of the error that stops a stream
    conflicts  least counts expected, such as ``{b: {waits: 1}}``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from vmerge.assembly import WorkflowAssembly
from vmerge.backlog import USUAL_REACH, Reach
from vmerge.board import Board
from vmerge.config import load_workflow
from vmerge.core.conflict_terms import Limits
from vmerge.core.events import Heartbeat, SourceItem
from vmerge.core.position import GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.errors import VmergeError
from vmerge.lab.servers import Server
from vmerge.mysql.source import DumpSource
from vmerge.player import Player
from vmerge.stopping import StopToken, SystemClock

pytestmark = pytest.mark.server

STORIES = sorted(path.parent.name for path in Path(__file__).parent.glob("*/story.yaml"))
STEPS = 2000
CONFLICT_TIMEOUT_SECONDS = 5.0
ASK_AFTER_SECONDS = 0.2


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
        while not self._advance(items).includes(head):
            items += self._source.read()
        self._position = self._advance(items)
        return items

    def poll(self) -> Sequence[SourceItem]:
        items = self._source.poll()
        self._position = self._advance(items)
        return items

    def _advance(self, items: Sequence[SourceItem]) -> GtidSet:
        return self._position.advanced([item.gtid for item in items if not isinstance(item, Heartbeat)])

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
    board: Board
    players: dict[str, Player]

    def transactions(self, name: str) -> int:
        return self.board.progress(name).counters.transactions

    def drive(self, name: str, goal: str) -> None:
        """Step one player until it has done what the schedule says."""
        player, before = self.players[name], self.transactions(name)
        for _ in range(STEPS):
            waits = player.step() is not None
            done = {"applies": player.is_in_flight, "commits": self.transactions(name) > before, "waits": waits}
            if done[goal]:
                return
            assert not waits, f"{name} waits where the schedule says {goal}"
        raise AssertionError(f"{name} never {goal}")

    def take(self, step: dict[str, str]) -> None:
        """Do one step of the story."""
        ((actor, action),) = step.items()
        if actor == "play":
            self.drive(*action.split())
        elif actor == "target":
            self.target.execute_script(action, self.database)
        else:
            self.shards[actor].execute_script(f"BEGIN; {action}; COMMIT", self.database)

    def finish(self) -> None:
        """Step all players in turn until each is at its shard's head."""
        stop = StopToken()
        heads = {name: _executed(shard) for name, shard in self.shards.items()}
        for _ in range(STEPS):
            behind = [name for name, player in self.players.items() if not player.position.includes(heads[name])]
            if not behind:
                return
            for name in behind:
                pause = self.players[name].step()
                if pause is not None:
                    stop.wait(min(0.01, max(0.0, pause.until - SystemClock().monotonic())))
        raise AssertionError(f"not finished: {behind}")


def _workflow_text(stage_servers: dict[str, Server], target: Server, database: str) -> str:
    def server(one: Server) -> dict[str, Any]:
        return {"host": one.host, "port": one.port, "user": "story", "password_env": "STORY_PASSWORD"}

    streams = {
        name: {**server(shard), "databases": {database: database}, "start": "current"}
        for name, shard in stage_servers.items()
    }
    control = {"control_database": f"{database}_control"}
    return yaml.safe_dump({"workflow": "story", "target": {**server(target), **control}, "streams": streams})


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, shard_a: Server, shard_b: Server, target: Server, database: str, tmp_path: Path
) -> Iterator[Stage]:
    story = request.getfixturevalue("story")
    shards = {"a": shard_a, "b": shard_b}
    for server in (*shards.values(), target):
        server.execute_script(f"CREATE DATABASE `{database}`")
        server.execute_script("CREATE USER IF NOT EXISTS story IDENTIFIED BY 'story'; GRANT ALL ON *.* TO story")
        server.execute_script(story["schema"], database)
    file = tmp_path / "workflow.yaml"
    file.write_text(_workflow_text(shards, target, database))
    workflow = load_workflow(file, {"STORY_PASSWORD": "story"})
    assembly = WorkflowAssembly(workflow, clock=SystemClock())
    claims = {name: assembly.claim(name) for name in shards}
    for claim in claims.values():
        assembly.enter(claim)
    board = Board(shards)
    players = {}
    for name in shards:
        board.update(name, state=StreamState.RUNNING, phase=Phase.STREAMING)
        parts = assembly.build(claims[name], board, after_conflict=False, accepted_schema_changes=frozenset())
        players[name] = Player(
            name,
            WholeSource(parts.source, shards[name]),
            parts.target,
            parts.witness,
            board,
            limits=Limits(100, CONFLICT_TIMEOUT_SECONDS, ask_after_seconds=ASK_AFTER_SECONDS),
            clock=SystemClock(),
            concerns=lambda _: True,
            reach=Reach(transactions=story.get("reach", USUAL_REACH.transactions)),
        )
        players[name].open()
    yield Stage(shards, target, database, board, players)
    for player in players.values():
        player.close()


@pytest.fixture
def story(request: pytest.FixtureRequest) -> dict[str, Any]:
    text = (Path(__file__).parent / request.param / "story.yaml").read_text()
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def _rows(server: Server, database: str) -> dict[str, list[tuple[Any, ...]]]:
    tables = [
        row[0]
        for row in server.query("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", database)
    ]
    return {table: sorted(server.query(f"SELECT * FROM `{database}`.`{table}`"), key=repr) for table in tables}


@pytest.mark.parametrize("story", STORIES, indirect=True)
def test_story_ends_as_told(story: dict[str, Any], stage: Stage) -> None:
    """Every story ends in the union of the shards, or in the error that it names with the rows before it kept."""
    failed: dict[str, str] = {}
    try:
        for step in story["steps"]:
            stage.take(step)
        stage.finish()
    except VmergeError as error:
        failed = {"error": type(error).__name__}
    if story["end"] != "union":
        assert failed == {"error": story["end"]}
        return
    assert failed == {}
    shards = [_rows(shard, stage.database) for shard in stage.shards.values()]
    union = {table: sorted(shards[0][table] + shards[1][table], key=repr) for table in shards[0]}
    assert _rows(stage.target, stage.database) == union
    for name, counts in story.get("conflicts", {}).items():
        counters = stage.board.progress(name).counters
        for kind, least in counts.items():
            assert getattr(counters, kind) >= least, f"{name}: {kind} {getattr(counters, kind)}"
