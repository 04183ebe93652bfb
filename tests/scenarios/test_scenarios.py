"""Runs every story below this folder on real servers, with the real players driven step by step.

A story is a folder with a ``story.yaml``:

    property   one sentence that holds
    hazards    the classes of fault that it plays, such as ``[B002]``; see ``tests/hazards.yaml``
    schema     SQL run in the database of every server
    only       more SQL for some servers, such as ``{target: SQL}``, run behind it
    settings   global variables of some servers while it is played, such as ``{a: {binlog_row_metadata: FULL}}``
    workflow   more keys of the workflow file, such as ``{tables: ["*.u"]}``
    rules      rules of single tables, by the names of these on the target
    shards     how many: 2 unless said, called a, b and c
    steps      what happens, in real order, each in a session of its own. ``- a: SQL`` is one transaction on shard a,
               ``- at a: SQL`` is run on shard a as it stands, ``- target: SQL`` runs there; ``- all: SQL`` is one
               transaction on each shard, where ``@base`` is 0 on a, 1000 on b, 2000 on c, for keys that do not meet;
               ``- play: a commits`` steps a's player until it has committed; ``a applies`` leaves its batch open,
               ``a waits`` ends when it met a key or a lock and waits, ``a runs`` goes on to its shard's head,
               ``a restarts`` closes it and opens another; ``all run`` lets all go on to their shards' heads.
               ``- hindered: {a: {b: held up}}`` steps all until a waits at a schema change and knows that of b
               ``- operator: retry b`` settles the row of b in quarantine (``retry`` or ``drop``; with ``unheard``
               behind it the player is not told), ``refused b`` is a retry that must fail.
               After the last step all players run to their shards' heads
    statements what of this is otherwise where rows go as statements, such as ``{end: PreflightError}``
    reach      how many transactions a blocked player keeps ahead, if not as many as usual
    duplicates ``quarantine`` or ``stop``, for every table; ``stop`` if left out
    parked     the rows in quarantine in the end, which the union is without, such as ``{u: [[2, 25]]}``
    end        ``union``: the target has the rows of the shards, as raw bytes (``images.py``), or as rules make them
               (``lab/comparison.py``); ``rows``: what ``rows`` says; or the class of the first error that stops a
               stream; the others still run to their heads
    says       what that error's message says, a list
    rows       the rows of some tables of the target in the end, such as ``{u: [[1, 25]]}``; needed unless ``union``
    commits    how many transactions of some streams were committed in all, such as ``{a: 1}``
    conflicts  least counts expected, such as ``{b: {waits: 1}}``
    none       counts that must be 0, such as ``[waits, jumps]``, for every stream
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import drop_databases
from tests.scenarios.images import Images, take_rows
from tests.scenarios.stage import Stage

from vmerge.core.appliers import ApplierSetting
from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

ALWAYS_BY_STATEMENTS = frozenset(
    {
        "enum_and_set_values",
        "family_values_swap",
        "foreign_row_is_proven",
        "hot_key",
        "jump_permutes_values",
        "key_on_a_virtual_column_is_proven",
        "parked_row_comes_back",
        "row_reborn_in_one_batch",
        "target_altered_under_a_stream",
        "trigger_made_under_a_stream",
        "trigger_on_the_target",
        "true_duplicate_is_proven",
        "two_keys_in_a_ring_of_three",
        "values_shifted_in_one_statement",
    }
)
STORIES = sorted(path.parent.name for path in Path(__file__).parent.glob("*/story.yaml"))


@pytest.fixture(scope="session")
def shard_c(lab: Lab) -> Server:
    """A third source, for the stories that need one."""
    return lab.start("shard_c")


@pytest.fixture
def stage(
    request: pytest.FixtureRequest,
    story: dict[str, Any],
    shard_a: Server,
    shard_b: Server,
    target: Server,
    database: str,
    tmp_path: Path,
) -> Iterator[Stage]:
    shards = {"a": shard_a, "b": shard_b}
    if story.get("shards") == 3:
        shards["c"] = request.getfixturevalue("shard_c")
    stage = Stage(shards, target, database, tmp_path / "workflow.yaml")
    yield stage
    stage.close()
    for server in shards.values():
        drop_databases(server, database)


@pytest.fixture
def story(request: pytest.FixtureRequest) -> dict[str, Any]:
    name, applier = request.param
    text = (Path(__file__).parent / name / "story.yaml").read_text()
    content: dict[str, Any] = yaml.safe_load(text)
    if applier is ApplierSetting.STATEMENTS:
        content |= content.get("statements", {})
        content["workflow"] = {"applier": applier.value} | content.get("workflow", {})
    return content


def _played() -> Iterator[Any]:
    """Every story with events where they may be, and with statements: some of these always, all of them when asked."""
    for name in STORIES:
        yield pytest.param((name, ApplierSetting.AUTO), id=name)
        marks = () if name in ALWAYS_BY_STATEMENTS else pytest.mark.long
        yield pytest.param((name, ApplierSetting.STATEMENTS), id=f"{name}-statements", marks=marks)


@pytest.mark.parametrize("story", list(_played()), indirect=True)
def test_story_ends_as_told(story: dict[str, Any], stage: Stage) -> None:
    """Every story ends in the union of the shards, or in the error that it names with the rows before it kept."""
    stage.run(story)
    if story["end"] in ("union", "rows"):
        assert not stage.failures
    else:
        assert [type(error).__name__ for error in stage.failures[:1]] == [story["end"]], stage.failures
        message = stage.failures[0].message
        assert all(text in message for text in story.get("says", ())), message
    _require_told(stage, story)
    if story["end"] == "union":
        _require_union(stage, story)


def _require_told(stage: Stage, story: dict[str, Any]) -> None:
    """Check what else the story says of its end."""
    for table, rows in story.get("rows", {}).items():
        assert _rows(stage.target, stage.database, table) == Counter(map(tuple, rows))
    for name, count in story.get("commits", {}).items():
        assert stage.transactions(name) == count
    for name, counts in story.get("conflicts", {}).items():
        counters = stage.board.progress(name).counters
        for kind, least in counts.items():
            assert getattr(counters, kind) >= least, f"{name}: {kind} {getattr(counters, kind)}"
    for kind in story.get("none", ()):
        counted = {name: getattr(stage.board.progress(name).counters, kind) for name in stage.shards}
        assert not any(counted.values()), f"{kind}: {counted}"


def _require_union(stage: Stage, story: dict[str, Any]) -> None:
    """Compare the target with the shards, byte for byte; without rules this takes all rows away."""
    parked = story.get("parked", {})
    if any(rules.table_rules for rules in stage.rules.values()):
        assert not stage.differences()
        assert not stage.orders.list()
        return
    for table, rows in parked.items():
        shards = sum((_rows(shard, stage.database, table) for shard in stage.shards.values()), Counter())
        assert shards - _rows(stage.target, stage.database, table) == Counter(map(tuple, rows))
    assert len(stage.orders.list()) == sum(map(len, parked.values()))
    union = sum((take_rows(shard, stage.database) for shard in stage.shards.values()), Images())
    merged = take_rows(stage.target, stage.database)
    assert merged - union == Images()
    missing = union - merged
    assert Counter(row[0] for row in missing.elements()) == {table: len(rows) for table, rows in parked.items()}


def _rows(server: Server, database: str, table: str) -> Counter[tuple[Any, ...]]:
    return Counter(server.query(f"SELECT * FROM `{database}`.`{table}`"))
