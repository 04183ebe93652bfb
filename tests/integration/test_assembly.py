"""The wiring of a workflow on real servers: whose states are stored, and what is proven at each start of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import yaml
from tests.operating import PASSWORD_VARIABLE, Site, running, wait_until

from vmerge.assembly import StreamParts, WorkflowAssembly, replica_identity
from vmerge.board import Board
from vmerge.config import load_workflow
from vmerge.core.states import StreamState
from vmerge.errors import Fenced, PreflightError
from vmerge.lab.servers import Lab, Server
from vmerge.stopping import SystemClock

pytestmark = pytest.mark.server

MakeAssembly = Callable[[], WorkflowAssembly]


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Site:
    """A workflow on the shared servers, without a daemon."""
    return Site(lab, database, {"a": shard_a, "b": shard_b}, target)


@pytest.fixture
def make_assembly(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeAssembly]:
    """Makes what each daemon has of the workflow."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "secret")
    yield lambda: WorkflowAssembly(load_workflow(site.file), clock=SystemClock())


def build(assembly: WorkflowAssembly) -> StreamParts:
    """Make stream ``a``'s parts, as its thread does."""
    if assembly.find("a") is None:
        assembly.enter("a")
    return assembly.build("a", Board(("a", "b")), after_conflict=False, accepted_schema_changes=frozenset())


def test_states_are_written_by_the_owner_only(site: Site, make_assembly: MakeAssembly) -> None:
    """A process whose stream was taken over cannot store a state any more, until it has looked for the stream anew."""
    older, newer = make_assembly(), make_assembly()
    targets = [build(assembly).target for assembly in (older, newer)]
    try:
        for target in targets:
            target.open()
        for state in (StreamState.ERROR, StreamState.STOPPED):
            with pytest.raises(Fenced, match="was taken over by another daemon"):
                older.write("a", state, "not ours")
        assert site.stored("state")["a"] == "running"
        assert site.target.query(f"SELECT kind FROM {site.control}.log WHERE stream = 'a'") == [("entered",)]
        newer.write("a", StreamState.ERROR, "ours")
        assert site.stored("state")["a"] == "error"
        older.find("a")
        older.write("a", StreamState.RUNNING, "")
        assert site.stored("state")["a"] == "running"
    finally:
        for target in targets:
            target.close()


def test_a_stream_that_is_entered_twice(site: Site, make_assembly: MakeAssembly) -> None:
    """Of two processes that enter one stream at once the second finds it entered, and leaves it as it is."""
    first, second = make_assembly(), make_assembly()
    for assembly in (first, second):
        assert assembly.find("a") is None
    first.enter("a")
    target = first.build("a", Board(("a",)), after_conflict=False, accepted_schema_changes=frozenset()).target
    target.open()
    target.close()
    second.enter("a")
    assert site.stored("epoch")["a"] == 1
    assert site.target.query(f"SELECT kind FROM {site.control}.log WHERE stream = 'a'") == [("entered",)]


CHILD = (
    "CREATE TABLE {}.child (id INT PRIMARY KEY, customer BIGINT, FOREIGN KEY (customer) REFERENCES {}.customer (id){})"
)


@pytest.mark.parametrize(
    ("on_source", "on_target", "told"),
    [
        ("CREATE TABLE {}.late (id INT) ENGINE=MyISAM", "CREATE TABLE {}.late (id INT PRIMARY KEY)", "MyISAM"),
        ("CREATE TABLE {}.late (id INT)", "CREATE TABLE {}.late (id INT)", "has no primary key"),
        ("CREATE TABLE {}.late (id INT PRIMARY KEY)", "CREATE TABLE {}.late (id INT)", "has no primary key"),
        (CHILD, CHILD.replace("{})", " ON DELETE CASCADE)"), "cascades"),
    ],
)
def test_tables_that_were_made_later(
    site: Site, make_assembly: MakeAssembly, on_source: str, on_target: str, told: str
) -> None:
    """Tables that came after the stream's first start are examined, too, once both sides have them."""
    assembly = make_assembly()
    build(assembly)
    shard = site.shards["a"]
    shard.server.query(on_source.format(shard.database, shard.database, ""))
    build(assembly)
    site.target.query(on_target.format(site.database, site.database, ""))
    with pytest.raises(PreflightError, match=told):
        build(assembly)


def test_replica_identity(site: Site, make_assembly: MakeAssembly, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source tells streams apart by all that tells their checkpoints apart, and by nothing else."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "secret")
    document = yaml.safe_load(site.file.read_text())
    here = document["target"]
    variants = [
        document,
        {**document, "limits": {"conflict_timeout_seconds": 1}},
        {**document, "workflow": "other"},
        {**document, "target": {**here, "port": here["port"] + 1}},
        {**document, "target": {**here, "control_database": "elsewhere"}},
    ]
    identities = []
    for variant in variants:
        site.file.write_text(yaml.safe_dump(variant))
        workflow = load_workflow(site.file)
        identities += [replica_identity(workflow, "a"), replica_identity(workflow, "b")]
    assert identities[0:2] == identities[2:4]
    assert len(set(identities[2:])) == len(identities[2:])


def test_generated_primary_keys_that_a_server_hides(
    lab: Lab, start_server: Callable[..., Server], shard_b: Server, database: str
) -> None:
    """A key that the server made by itself is seen alike by all sessions, whatever its default: nothing restarts."""
    shard, target = (start_server(options={"sql_generate_invisible_primary_key": "ON"}) for _ in range(2))
    site = Site(lab, database, {"a": shard, "b": shard_b}, target)
    for server, name in ((shard, site.shards["a"].database), (target, site.database)):
        server.query("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
        server.query(f"CREATE TABLE {name}.keyless (a INT)")
    with running(site):
        site.wait_for("a", is_at_head=True)
        shard.query(f"INSERT INTO {site.shards['a'].database}.keyless VALUES (1), (2)")
        wait_until(lambda: target.query(f"SELECT a FROM {site.database}.keyless") == [(1,), (2,)], "the rows came")
        assert site.streams()["a"]["restarts"] == 0
