"""The wiring of a workflow on real servers: whose states are stored, and what is proven at each start of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.operating import PASSWORD_VARIABLE, Site

from vmerge.assembly import StreamParts, WorkflowAssembly
from vmerge.board import Board
from vmerge.config import load_workflow
from vmerge.core.states import StreamState
from vmerge.errors import Fenced
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
