"""Wires one workflow's parts together: its file → endpoints, plan, source, target, player.

Knows: which implementation goes where. Never knows: when a stream runs or why it ends. Used by the daemon and by
``vmerge run``, which hand it to a supervisor.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID, uuid4, uuid5

from vmerge.config import Workflow
from vmerge.core.binlog import Surroundings
from vmerge.core.conflict_terms import Limits
from vmerge.core.events import SchemaChange
from vmerge.core.findings import Findings
from vmerge.core.log_entry import LogEntry, StoredEntry
from vmerge.core.ownership import Claim, place_of
from vmerge.core.plan import Plan
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.rules import StartAt, TableName
from vmerge.core.schema_policy import OnDdl
from vmerge.core.source_facts import SourceFacts
from vmerge.core.spool_use import SpoolUse
from vmerge.core.states import StreamState
from vmerge.core.stop_position import StopPosition
from vmerge.core.table_checks import StreamTables, check_pairs, check_quarantine
from vmerge.errors import OrderRefused, TargetAltered
from vmerge.hosting.hosted import NOWHERE, shown_position
from vmerge.hosting.story import Story, stream_story
from vmerge.mysql.applier_policy import read_policy
from vmerge.mysql.breaker import Breaker
from vmerge.mysql.checkpoints import ControlTables, StoredStream
from vmerge.mysql.connect import Endpoint, short_connection
from vmerge.mysql.definitions import Definitions, read_definitions
from vmerge.mysql.faults import source_fault, target_fault
from vmerge.mysql.lookup import SourcePlace, Witness
from vmerge.mysql.preflight import StreamFacts, WorkflowFacts, examine, require
from vmerge.mysql.quarantine import QuarantineTable
from vmerge.mysql.quarantine_orders import QuarantineOrders
from vmerge.mysql.schema_changes import MySqlLedger
from vmerge.mysql.schemas import read_logs_cascades, read_schemas
from vmerge.mysql.skipping import Skip, done_with_next, move_past
from vmerge.mysql.source import DumpSource, decompress, source_past, source_positions
from vmerge.mysql.source_memory import SourceMemory, SourceTable, read_altered_at
from vmerge.mysql.source_watch import read_source_facts
from vmerge.mysql.spool import SpooledRows
from vmerge.mysql.states import MySqlStates
from vmerge.mysql.stop_positions import StopPositions
from vmerge.mysql.target import MySqlTarget
from vmerge.player.board import Board
from vmerge.player.player import Player
from vmerge.player.schema_changes import ChangeRules
from vmerge.stopping import Clock

BATCH_TRANSACTIONS = 1000
"""Measured: the gain levels off at some hundreds, and the locks of a thousand small transactions last milliseconds."""

SPOOL_ABOVE_BYTES = 8 * 1024 * 1024
"""Larger than any batch, so that ordinary work never touches the disk; small against the memory of any machine."""

HOST_CHARACTERS = 200
"""Of a host's name; what is stored of an owner has room for 255."""

_NAMESPACE = UUID("6f6d6572-6765-4d79-8173-716c73686172")


def workflow_facts(workflow: Workflow) -> WorkflowFacts:
    """Return what preflight must know of a workflow."""
    streams = tuple(
        StreamFacts(name, workflow.source_endpoint(name), workflow.rules_of(name), stream.start)
        for name, stream in workflow.streams.items()
    )
    control_database = workflow.target.control_database
    return WorkflowFacts(
        workflow.workflow,
        workflow.target_endpoint,
        control_database,
        streams,
        workflow.true_duplicates.rules,
        workflow.applier,
        workflow.on_ddl,
    )


def new_owner() -> str:
    """Return a name that no other order to start a stream has, and that says where it was given."""
    return f"{socket.gethostname()[:HOST_CHARACTERS]}:{os.getpid()}:{secrets.token_hex(4)}"


def replica_identity(workflow: Workflow, stream: str) -> UUID:
    """Return as which replica a stream reads its source; a source ends an older dump of the same replica.

    It is the same for every daemon of the workflow, and another for a workflow of that name that is merged elsewhere.
    """
    place = workflow.target.address, workflow.target.control_database
    return uuid5(_NAMESPACE, repr((*place, workflow.workflow, stream)))


@dataclass(frozen=True, slots=True)
class StreamParts:
    """One stream's player, and the handles that end its calls from another thread."""

    player: Player
    source: DumpSource
    target: MySqlTarget
    witness: Witness
    plan: Plan
    ledger: MySqlLedger
    changes: ChangeRules
    concerns: Callable[[SchemaChange], bool]

    def interrupt_source(self) -> None:
        """Break a read that hangs, of the binlog or for evidence."""
        self.source.interrupt()
        self.witness.interrupt()

    def kill_target_query(self) -> None:
        """Ask the target to end the running statement."""
        self.target.kill_query()
        self.ledger.kill_query()

    def interrupt_target(self) -> None:
        """Shut the target's socket."""
        self.target.interrupt()
        self.ledger.interrupt()


class WorkflowAssembly:
    """The parts of one workflow, made anew whenever a stream starts.

    Promise: a stream is taken over, and its state stored, only as the claim allows that is shown. Any thread may call.
    """

    def __init__(
        self, workflow: Workflow, *, clock: Clock, spool_folder: Path | None = None, breaker: Breaker | None = None
    ) -> None:
        """``breaker`` ends its own calls, and not those of the players that it makes."""
        self._workflow = workflow
        self._clock = clock
        self._spool_folder = spool_folder
        self._breaker = breaker or Breaker()
        self._tables = ControlTables(workflow.target.control_database, workflow.workflow)
        self._target = workflow.target_endpoint.breakable(self._breaker)
        stop_positions = StopPositions(workflow.target.control_database, workflow.workflow)
        self._states = MySqlStates(self._target, self._tables, stop_positions)
        self._versions: dict[str, tuple[str, str]] = {}
        """Of each stream's source and of the target, as they were when its plan was made."""
        self._story = Story(workflow.workflow)

    def for_one_order(self) -> WorkflowAssembly:
        """See ``vmerge.hosting.hosted.Assembly``."""
        return WorkflowAssembly(self._workflow, clock=self._clock, spool_folder=self._spool_folder, breaker=Breaker())

    def interrupt(self) -> None:
        """See ``vmerge.hosting.hosted.Assembly``."""
        self._breaker.break_off()

    def _source(self, stream: str) -> Endpoint:
        return self._workflow.source_endpoint(stream).breakable(self._breaker)

    def claim(self, stream: str) -> Claim:
        """See ``vmerge.hosting.hosted.Assembly``."""
        return self._states.claim(stream, new_owner())

    def find(self, claim: Claim) -> StoredStream | None:
        """See ``vmerge.hosting.hosted.Assembly``."""
        return self._states.find(claim)

    def write(self, claim: Claim, state: StreamState, message: str, stops_at: GtidSet | None = None) -> None:
        """See ``vmerge.hosting.hosted.Assembly``."""
        self._states.write(claim, state, message, stops_at)

    def require_reachable(self, stream: str, stops_at: GtidSet) -> None:
        """See ``vmerge.hosting.hosted.Assembly``."""
        stored = self._states.read(stream)
        position = GtidSet() if stored is None else stored.position
        past = source_past(self._source(stream))
        obstacle = StopPosition(stops_at).obstacle(position, past)
        if obstacle:
            raise OrderRefused(f"stream {stream} cannot stop at {stops_at}: {obstacle}")

    def skip(self, claim: Claim, gtid: Gtid, reason: str) -> GtidSet:
        """See ``vmerge.hosting.hosted.Assembly``."""
        stored = self._states.find(claim)
        if stored is None:
            raise OrderRefused(f"stream {claim.stream} was never started, so nothing stands in its way")
        reader = self._skimmer(claim.stream)
        done = done_with_next(reader, stored.position, gtid, claim.stream)
        skip = Skip(gtid, reason, place_of(claim.owner))
        return move_past(self._target, self._tables, claim, stored.position, done, skip)

    def _skimmer(self, stream: str) -> DumpSource:
        """Return a reader that sees what there is, and no row of it; as another replica than the stream's."""
        surroundings = Surroundings(
            carriage=lambda _: None,
            open_store=lambda: SpooledRows(self._spool_folder),
            decompress=decompress,
            spool_above_bytes=SPOOL_ABOVE_BYTES,
        )
        identity = uuid4()
        endpoint = self._source(stream)
        server_id = _server_id(identity)
        return DumpSource(endpoint, server_id=server_id, replica_uuid=str(identity), surroundings=surroundings)

    def append_conflicts(self, entries: Sequence[LogEntry], now: float) -> None:
        """See ``vmerge.hosting.hosted.Assembly``."""
        self._states.append_conflicts(entries, now)

    def read_log(self, streams: Sequence[str], limit: int) -> Sequence[StoredEntry]:
        """See ``vmerge.hosting.hosted.Assembly``."""
        return self._states.read_log(streams, limit)

    def ask_source(self, stream: str) -> SourceFacts:
        """See ``vmerge.hosting.hosted.Assembly``."""
        return read_source_facts(self._source(stream), self._clock.wall)

    def enter(self, claim: Claim) -> None:
        """See ``vmerge.hosting.hosted.Assembly``. Raises ``PreflightError`` when something does not fit."""
        facts = workflow_facts(self._workflow)
        streams = tuple(replace(one, source=one.source.breakable(self._breaker)) for one in facts.streams)
        require(examine(replace(facts, target=self._target, streams=streams)))
        self._states.enter(claim, lambda: self._start_position(claim.stream))

    def _start_position(self, stream: str) -> GtidSet:
        start = self._workflow.streams[stream].start
        if isinstance(start, GtidSet):
            position = start
        else:
            executed, purged = source_positions(self._source(stream))
            position = executed if start is StartAt.CURRENT else purged
        reason = start.value if isinstance(start, StartAt) else "a GTID set"
        self._story.say(stream, f"has no checkpoint; by `start` ({reason}) it begins behind {shown_position(position)}")
        return position

    def build(
        self,
        claim: Claim,
        board: Board,
        *,
        after_conflict: bool,
        accepted_schema_changes: frozenset[Gtid],
        stops_at: GtidSet = NOWHERE,
    ) -> StreamParts:
        """See ``vmerge.hosting.hosted.Assembly``."""
        workflow, stream = self._workflow, claim.stream
        plan, definitions = self._plan(stream)
        self._tell(stream, plan)
        spool_use = SpoolUse()
        board.update(stream, appliers=plan.choices(), spool=spool_use)
        identity = replica_identity(workflow, stream)
        server_id = _server_id(identity)
        surroundings = Surroundings(
            carriage=plan.carriage,
            open_store=lambda: SpooledRows(self._spool_folder, spool_use),
            decompress=decompress,
            spool_above_bytes=SPOOL_ABOVE_BYTES,
        )
        endpoint = workflow.source_endpoint(stream)
        source = DumpSource(endpoint, server_id=server_id, replica_uuid=str(identity), surroundings=surroundings)
        target = MySqlTarget(
            workflow.target_endpoint,
            claim,
            self._tables,
            QuarantineTable(workflow.target.control_database, workflow.workflow),
            plan=plan,
            definitions=definitions,
            server_id=server_id,
            spool_folder=self._spool_folder,
            spool_use=spool_use,
        )
        witness = Witness(
            stream,
            workflow.target_endpoint,
            workflow.target.control_database,
            plan,
            {name: SourcePlace(workflow.source_endpoint(name), workflow.rules_of(name)) for name in workflow.streams},
            server_id,
            definitions=definitions,
        )
        ledger = MySqlLedger(workflow.target_endpoint, workflow.target.control_database, self._tables, claim)
        changes = ChangeRules(workflow.on_ddl, accepted_schema_changes, self._carriers)

        def concerns(change: SchemaChange) -> bool:
            return plan.concerns(change) or (workflow.on_ddl is OnDdl.EXECUTE and plan.creates(change))

        player = Player(
            stream,
            source,
            target,
            witness,
            board,
            limits=Limits(BATCH_TRANSACTIONS, workflow.limits.conflict_timeout_seconds),
            clock=self._clock,
            concerns=concerns,
            changes=changes,
            interpreter=plan,
            ledger=ledger,
            after_conflict=after_conflict,
            duplicates=workflow.true_duplicates.rules,
            stop_position=StopPosition(stops_at) if stops_at else None,
        )
        return StreamParts(player, source, target, witness, plan, ledger, changes, concerns)

    def _tell(self, stream: str, plan: Plan) -> None:
        source_version, target_version = self._versions[stream]
        source = f"{self._workflow.source_endpoint(stream)}, MySQL {source_version}"
        target = f"{self._workflow.target_endpoint}, MySQL {target_version}"
        self._story.tell(stream, stream_story(self._workflow.rules_of(stream), source, target, plan.choices()))

    def quarantine_orders(self) -> QuarantineOrders:
        """Return what operators do about rows in quarantine. Any thread may call."""
        workflow = self._workflow
        control_database = workflow.target.control_database
        return QuarantineOrders(
            workflow.target_endpoint,
            control_database,
            self._tables,
            QuarantineTable(control_database, workflow.workflow),
            make_plan=self._plan,
            server_id=lambda stream: _server_id(replica_identity(workflow, stream)),
            now=self._clock.wall,
        )

    def _carriers(self, table: TableName) -> frozenset[str]:
        return frozenset(name for name in self._workflow.streams if self._workflow.rules_of(name).may_fill(table))

    def _plan(self, stream: str) -> tuple[Plan, Definitions]:
        """Return what to do with the stream's tables, and the definitions of the target's that this rests on.

        Raises:
            PreflightError: tables, perhaps made since the stream was entered, cannot be merged exactly.
        """
        databases = self._workflow.streams[stream].databases
        rules = self._workflow.rules_of(stream)
        with short_connection(self._source(stream), "reading schemas", source_fault) as connection:
            source_version = str(connection.get_server_info())  # type: ignore[no-untyped-call]  # as PyMySQL is
            sources = read_schemas(connection, databases.keys())
            logs_cascades = read_logs_cascades(connection)
            altered_at = read_altered_at(connection, databases.keys())
        endpoint = self._target
        with short_connection(endpoint, "reading schemas", target_fault) as connection:
            target_version = str(connection.get_server_info())  # type: ignore[no-untyped-call]  # as PyMySQL is
            self._versions[stream] = source_version, target_version
            targets = read_schemas(connection, databases.values())
            definitions = read_definitions(connection, [name for name in targets if rules.may_fill(name)])
            policy = read_policy(connection, self._workflow.applier, endpoint.user, databases.values())
            if read_schemas(connection, databases.values()) != targets:
                raise TargetAltered("tables on the target were altered while they were read")
        unfit = [
            *check_pairs(StreamTables(stream, rules, sources, logs_cascades), targets, policy),
            *check_quarantine(self._workflow.true_duplicates.rules, definitions, targets),
        ]
        require(Findings.of(unfit))
        tables = {
            target: SourceTable(schema, altered_at.get(name))
            for name, schema in sources.items()
            if (target := rules.target_name(*name)) in targets
        }
        with short_connection(endpoint, "recalling schemas", target_fault) as connection:
            memory = SourceMemory(self._workflow.target.control_database, self._workflow.workflow, stream)
            earlier = memory.recall(connection, tables)
        return Plan(rules, sources.values(), targets.values(), policy, earlier), definitions


def _server_id(identity: UUID) -> int:
    """Return a number in a range that people do not use by hand."""
    return identity.int & 0x7FFFFFFF | 0x40000000
