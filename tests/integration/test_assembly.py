"""The wiring of a workflow on real servers: whose states are stored, and what is proven at each start of a stream."""

from __future__ import annotations

import gc
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import yaml
from tests.operating import PASSWORD_VARIABLE, Site, insert_customers, running, wait_until

from vmerge.config import load_workflow
from vmerge.core.barrier import Arrival
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.rules import TableName
from vmerge.core.schema_policy import Note, ShadowStatement
from vmerge.core.states import StreamState
from vmerge.core.target_statement import TargetStatement
from vmerge.errors import Fenced, JointRefused, PreflightError, TargetLost
from vmerge.hosting.assembly import StreamParts, WorkflowAssembly, replica_identity
from vmerge.lab.proxy import COMMIT, Moment, Proxy
from vmerge.lab.servers import Lab, Server
from vmerge.mysql.checkpoints import SILENT_SECONDS
from vmerge.mysql.schemas import read_schemas
from vmerge.mysql.source_memory import SourceMemory, SourceTable
from vmerge.mysql.target import MySqlTarget
from vmerge.player.board import Board
from vmerge.stopping import SystemClock

pytestmark = pytest.mark.server

MakeAssembly = Callable[[], WorkflowAssembly]

TAKE_OVER = b".stream SET epoch = "
NUMBER = 10**9
"""A customer that no shard begins with."""


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Site:
    """A workflow on the shared servers, without a daemon."""
    return Site(lab, database, {"a": shard_a, "b": shard_b}, target)


@pytest.fixture
def make_assembly(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeAssembly]:
    """Makes what each daemon has of the workflow."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "secret")
    yield lambda: WorkflowAssembly(load_workflow(site.file), clock=SystemClock())


class Order:
    """An order to start stream ``a``, as a daemon's thread carries it out. The stream is entered if need be."""

    def __init__(self, assembly: WorkflowAssembly) -> None:
        self.assembly = assembly
        self.claim = assembly.claim("a")
        if assembly.find(self.claim) is None:
            assembly.enter(self.claim)

    def build(self) -> StreamParts:
        """Make the stream's parts, as each attempt does."""
        board = Board(("a", "b"))
        return self.assembly.build(self.claim, board, after_conflict=False, accepted_schema_changes=frozenset())

    @contextmanager
    def taken_over(self) -> Iterator[MySqlTarget]:
        """Take the stream over."""
        target = self.build().target
        try:
            target.open()
            yield target
        finally:
            target.close()


def row_of(site: Site) -> tuple[object, ...]:
    """Return whose the stream is, and how it is."""
    return site.target.query(f"SELECT owner, epoch, position, state FROM {site.control}.stream WHERE name = 'a'")[0]


def test_states_are_written_by_the_owner_only(site: Site, make_assembly: MakeAssembly) -> None:
    """A process whose stream was taken over cannot store a state any more, until it is told to start it anew."""
    older = Order(make_assembly())
    with older.taken_over():
        newer = Order(make_assembly())
    with newer.taken_over():
        for state in (StreamState.ERROR, StreamState.STOPPED):
            with pytest.raises(Fenced, match="was taken over by another daemon"):
                older.assembly.write(older.claim, state, "not ours")
    assert site.stored("state")["a"] == "running"
    assert site.target.query(f"SELECT kind FROM {site.control}.log WHERE stream = 'a'") == [("entered",)]
    newer.assembly.write(newer.claim, StreamState.ERROR, "ours")
    assert site.stored("state")["a"] == "error"
    again = Order(older.assembly)
    again.assembly.write(again.claim, StreamState.RUNNING, "")
    assert site.stored("state")["a"] == "running"


def test_a_stream_that_was_taken_over_is_not_taken_back(site: Site, make_assembly: MakeAssembly) -> None:
    """However an order that lost its stream goes on, it is told who has the stream now, and changes nothing."""
    older = Order(make_assembly())
    with older.taken_over():
        newer = Order(make_assembly())
    with older.taken_over() as target:  # a restart, which costs the newer order nothing
        with newer.taken_over():
            taken = row_of(site)
        told = f"taken over by another daemon ({socket.gethostname()}, process {os.getpid()})"
        with pytest.raises(Fenced, match=re.escape(told)):
            target.commit(GtidSet(), 0)
    with pytest.raises(Fenced, match=re.escape(told)):
        older.assembly.find(older.claim)
    with pytest.raises(Fenced, match=re.escape(told)), older.taken_over():
        pass
    assert row_of(site) == taken
    with newer.taken_over() as target:
        target.commit(GtidSet(), 0)


def test_a_blocked_stream_learns_that_it_was_taken_over(site: Site, make_assembly: MakeAssembly) -> None:
    """A stream that meets rows which a newer daemon has applied is fenced: it does not wait for a sibling to move."""
    with closing(Order(make_assembly()).build().player) as older:
        older.open()
        insert_customers(site.shards["a"], NUMBER, 1)
        with site.target.connect(site.database) as holder, holder.cursor() as cursor:
            holder.begin()
            cursor.execute("INSERT INTO customer (id, email, name, balance) VALUES (%s, 'x', 'x', 0)", (NUMBER,))
            wait_until(lambda: older.step() is not None, "the older one has the transaction, and meets the lock")
            holder.rollback()
        with closing(Order(make_assembly()).build().player) as newer:
            newer.open()
            wait_until(lambda: newer.step() is None and has_customer(site), "the newer one has applied it")
        with pytest.raises(Fenced, match="taken over by another daemon"):
            older.step()


def has_customer(site: Site) -> bool:
    """Whether the target has the customer that the test inserted."""
    return bool(site.target.query(f"SELECT 1 FROM {site.database}.customer WHERE id = %s", NUMBER))


@pytest.mark.parametrize("moment", [Moment.BEFORE, Moment.AFTER])
def test_a_take_over_whose_answer_was_lost(
    site: Site, make_assembly: MakeAssembly, target: Server, moment: Moment
) -> None:
    """A take-over that was lost in COMMIT is ours, if it took place: the stream can be stopped, and goes on."""
    with Order(make_assembly()).taken_over():
        pass
    with Proxy(target.host, target.port) as proxy:
        site.write_workflow(places={"target": proxy})
        order = Order(make_assembly())
        for state in (StreamState.STOPPED, StreamState.RUNNING):
            proxy.cut_when(COMMIT, moment, behind=TAKE_OVER)
            with pytest.raises(TargetLost), order.taken_over():
                pass
            order.assembly.write(order.claim, state, "")
            assert site.stored("state")["a"] == state.value
        assert proxy.sprung == 2
        with order.taken_over() as opened:
            opened.commit(GtidSet(), 0)


def test_a_stream_that_is_entered_twice(site: Site, make_assembly: MakeAssembly) -> None:
    """Of two processes that enter one stream at once the second finds it entered, leaves it as it is, and is fenced."""
    first, second = make_assembly(), make_assembly()
    claims = [assembly.claim("a") for assembly in (first, second)]
    first.enter(claims[0])
    entered = row_of(site)
    second.enter(claims[1])
    assert row_of(site) == entered
    assert site.target.query(f"SELECT kind FROM {site.control}.log WHERE stream = 'a'") == [("entered",)]
    with pytest.raises(Fenced, match="taken over by another daemon"):
        second.find(claims[1])


def test_a_daemon_that_slept_changes_no_schema(site: Site, make_assembly: MakeAssembly) -> None:
    """A stream that was taken over in front of a schema change runs nothing when it wakes, and records nothing."""
    site.allow_schema_changes()
    text = f"ALTER TABLE {site.database}.customer ADD COLUMN nick INT"
    gtid = Gtid.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:7")
    parts = Order(make_assembly()).build()
    with closing(parts.target):
        position = parts.target.open()
        statement = TargetStatement((site.database, "customer"), (text,), text, is_create=False)
        carriers, member = frozenset({"a"}), parts.target.membership()
        arrival = Arrival("a", gtid, 10**15, statement, (), carriers, position, member)
        with Order(make_assembly()).taken_over(), pytest.raises(JointRefused, match="taken over"):
            parts.ledger.carry_out([arrival])
    assert not site.target.query(f"SHOW COLUMNS FROM {site.database}.customer LIKE 'nick'")
    assert not site.target.query(f"SELECT * FROM {site.control}.schema_change")


def test_a_daemon_that_slept_notes_no_schema_change(site: Site, make_assembly: MakeAssembly) -> None:
    """What a stream keeps of its source's tables, and of a tool's shadow tables, is its owner's to change alone."""
    parts, gtids = (
        Order(make_assembly()).build(),
        [Gtid.parse(f"3e11fa47-71ca-11e1-9e33-c80aa9429562:{number}") for number in (7, 8)],
    )
    shadow = ("shop", "_customer_gho")
    with closing(parts.target):
        parts.target.open()
        fresh = Order(make_assembly()).build()
        with closing(fresh.target):
            fresh.target.open()
            for number, gtid in enumerate(gtids):
                fresh.ledger.note(gtid, ShadowStatement(shadow, Note.ADDS), f"statement {number}")
            for late in (Note.BEGINS, Note.ADDS):
                with pytest.raises(Fenced, match="taken over by another daemon"):
                    parts.ledger.note(gtids[0], ShadowStatement(shadow, late), "statement 0")
            with pytest.raises(Fenced, match="taken over by another daemon"):
                parts.ledger.outdate(None, 10**15)
            assert fresh.ledger.collected(shadow) == ["statement 0", "statement 1"]
    described = f"SELECT COUNT(*), COUNT(description) FROM {site.control}.source_table WHERE stream = 'a'"
    (count, known), *_ = site.target.query(described)
    assert count == known > 0


def silent_accounts(site: Site) -> list[tuple[str, bool]]:
    """Return the account of each session of the target, and whether it has said nothing for a while."""
    return [(row[1], row[4] == "Sleep" and row[5] >= SILENT_SECONDS) for row in site.target.query("SHOW PROCESSLIST")]


def test_a_session_that_hangs_is_not_waited_for(site: Site, make_assembly: MakeAssembly) -> None:
    """A take-over ends the earlier session if its client says nothing, and the rows that it holds are free at once."""
    with closing(Order(make_assembly()).build().player) as older:
        older.open()
        insert_customers(site.shards["a"], NUMBER, 1)
        wait_until(lambda: older.step() is None and older.is_in_flight, "the older one has rows in flight")
        wait_until(lambda: (site.user, True) in silent_accounts(site), "it has said nothing for a while")
        with closing(Order(make_assembly()).build().player) as newer:
            newer.open()
            while not newer.is_in_flight:
                assert newer.step() is None, "nothing is waited for"
            newer.step()
            assert has_customer(site)
        with pytest.raises(TargetLost):
            older.step()


def test_a_table_is_not_described_late(site: Site, make_assembly: MakeAssembly, target: Server) -> None:
    """A description that was read before the stream passed a further change is not kept."""
    Order(make_assembly()).build()
    memory = SourceMemory(site.control, site.workflow, "a")
    table = (site.database, "customer")
    with target.connect() as connection:
        memory.outdate(connection, [table], 100)
        stale = read_schemas(connection, [site.database])[table]

        class Meanwhile(dict[TableName, SourceTable]):
            """A source's tables; when they are gone through, the stream passes a change in another process."""

            def items(self) -> Any:
                memory.outdate(connection, [table], 200)
                return super().items()

        memory.recall(connection, Meanwhile({table: SourceTable(stale, 99)}))
        stored = f"SELECT description, passed_at FROM {site.control}.source_table WHERE target_table = 'customer'"
        assert site.target.query(stored) == [(None, 200)]
        memory.recall(connection, {table: SourceTable(stale, 200)})
        assert site.target.query(stored)[0][0] is not None


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
    order = Order(make_assembly())
    order.build()
    shard = site.shards["a"]
    shard.server.query(on_source.format(shard.database, shard.database, ""))
    order.build()
    site.target.query(on_target.format(site.database, site.database, ""))
    with pytest.raises(PreflightError, match=told):
        order.build()


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


def test_failed_attempts_leave_nothing_to_the_collector(site: Site, make_assembly: MakeAssembly) -> None:
    """What a failed attempt held is freed without a search for cycles, however often a blocked stream tries."""
    with closing(Order(make_assembly()).build().player) as player:
        player.open()
        insert_customers(site.shards["a"], NUMBER, 3)
        site.target.query(
            f"INSERT INTO {site.database}.customer (id, email, name, balance) VALUES (%s, 'x', 'x', 0)", NUMBER
        )
        wait_until(lambda: player.step() is not None, "the stream meets the row")
        gc.collect()
        gc.disable()
        try:
            assert sum(player.step() is not None for _ in range(20)) > 1
            assert gc.collect() == 0
        finally:
            gc.enable()
