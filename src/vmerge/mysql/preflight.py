"""Preflight: do servers, accounts and schemas fit the workflow? It reads only.

Knows: the order of the checks, and which need more than one server. Never knows: the workflow file or how findings are
printed. Used by ``vmerge check`` and before each first start.

What cannot be asked is not: an unreachable server, or one that is no MySQL, gives one finding, not a cascade; tables
are compared only between servers that could be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pymysql.err import MySQLError

from vmerge.core.appliers import ApplierPolicy, ApplierSetting
from vmerge.core.duplicates import STOP_ALWAYS, DuplicatePolicy, DuplicateRules
from vmerge.core.findings import Finding, Findings, error, warning
from vmerge.core.position import GtidSet
from vmerge.core.risk import Counting
from vmerge.core.rules import Start, StreamRules, TableName
from vmerge.core.schema import TableSchema
from vmerge.core.schema_policy import OnDdl
from vmerge.core.table_checks import StreamTables, check_duplicate_patterns, check_quarantine, check_tables
from vmerge.errors import PreflightError, ServersUnreachable
from vmerge.mysql.applier_policy import read_policy
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.faults import describe
from vmerge.mysql.preflight_server import ServerView, check_encryption, check_kind, open_server
from vmerge.mysql.preflight_source import OLDEST_SOURCE, SOURCE_VARIABLES, check_source
from vmerge.mysql.preflight_target import OLDEST_TARGET, TARGET_VARIABLES, check_packet, check_policy, check_target
from vmerge.mysql.schemas import read_schemas


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What preflight must know of one stream."""

    name: str
    source: Endpoint
    rules: StreamRules
    start: Start


@dataclass(frozen=True, slots=True)
class WorkflowFacts:
    """What preflight must know of a workflow."""

    workflow: str
    target: Endpoint
    control_database: str
    streams: tuple[StreamFacts, ...]
    duplicates: DuplicateRules = STOP_ALWAYS
    applier: ApplierSetting = ApplierSetting.AUTO
    on_ddl: OnDdl = OnDdl.STOP


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found, and the tables it was found in: none where they could not be read."""

    findings: Findings
    streams: tuple[StreamTables, ...]
    targets: Mapping[TableName, TableSchema]
    counting: Mapping[str, Counting]
    """How each stream's source counts."""
    policy: ApplierPolicy
    """What decides over the applier of each table."""


def examine(facts: WorkflowFacts) -> Findings:
    """Look at every server of a workflow. Blocks for a few time-outs a server at most; changes nothing."""
    return survey(facts).findings


def survey(facts: WorkflowFacts) -> Survey:
    """As ``examine``, and keep the tables."""
    with ExitStack() as stack:
        examination = _Examination(facts, stack)
        examination.run()
        return Survey(
            findings=Findings.of(examination.findings),
            streams=tuple(examination.streams),
            targets=examination.targets,
            counting={name: _counting(source) for name, source in examination.sources.items()},
            policy=examination.policy,
        )


def _counting(source: ServerView) -> Counting:
    return Counting(
        increment=int(source.variables.get("auto_increment_increment", "1")),
        offset=int(source.variables.get("auto_increment_offset", "1")),
    )


def require(findings: Findings) -> None:
    """Pass when the workflow can run.

    Raises:
        ServersUnreachable: the only errors are servers that cannot be reached now.
        PreflightError: there are errors; the message has one a line.
    """
    errors = findings.errors
    if not errors:
        return
    is_passing = all(finding.id == "unreachable" for finding in errors)
    failure = ServersUnreachable if is_passing else PreflightError
    lines = [f"{finding.where}: {finding.text}" for finding in errors]
    if len(errors) == 1:
        raise failure(lines[0], hint=errors[0].hint)
    raise failure(f"{len(errors)} things do not fit:\n" + "\n".join(f"  {line}" for line in lines))


class _Examination:
    """One run over all servers. Connections stay open until the stack closes, as tables are compared at the end."""

    def __init__(self, facts: WorkflowFacts, stack: ExitStack) -> None:
        self._facts = facts
        self._stack = stack
        self._target: ServerView | None = None
        self.sources: dict[str, ServerView] = {}
        self.findings: list[Finding] = []
        self.streams: list[StreamTables] = []
        self.targets: Mapping[TableName, TableSchema] = {}
        self.policy = ApplierPolicy(facts.applier)

    def run(self) -> None:
        self._target = self._open(self._facts.target, TARGET_VARIABLES, OLDEST_TARGET)
        if self._target is not None:
            self._examine(self._target, self._check_target(self._target))
        checkpoints = self._checkpoints()
        self.findings.extend(self._check_names(checkpoints))
        for stream in self._facts.streams:
            source = self._open(stream.source, SOURCE_VARIABLES, OLDEST_SOURCE)
            if source is None:
                continue
            self.sources[stream.name] = source
            checks = check_source(
                source, stream.source.user, tuple(stream.rules.databases), stream.start, checkpoints.get(stream.name)
            )
            self._examine(source, checks)
        if self._target is not None:
            self.findings.extend(check_packet(self._target, self.sources.values()))
        self.findings.extend(self._check_identities())
        self._compare()

    def _open(self, endpoint: Endpoint, variables: Sequence[str], oldest: tuple[int, int, int]) -> ServerView | None:
        server = open_server(endpoint, variables)
        if isinstance(server, Finding):
            self.findings.append(server)
            return None
        self._stack.callback(server.close)
        unfit = list(check_kind(server, oldest))
        self.findings.extend(unfit)
        if unfit:
            return None
        self._examine(server, check_encryption(server, endpoint))
        return server

    def _examine(self, server: ServerView, checks: Iterator[Finding]) -> None:
        try:
            self.findings.extend(checks)
        except (MySQLError, OSError) as failure:
            self.findings.append(_lost(server, failure))

    def _check_target(self, target: ServerView) -> Iterator[Finding]:
        databases = {name for stream in self._facts.streams for name in stream.rules.databases.values()}
        user = self._facts.target.user
        facts = self._facts
        yield from check_target(target, user, sorted(databases), facts.control_database, facts.on_ddl)
        self.policy = read_policy(target.connection, self._facts.applier, user, databases)
        yield from check_policy(target, self.policy)

    def _checkpoints(self) -> dict[str, GtidSet]:
        """Return the positions of streams that have run before; none when they cannot be read."""
        if self._target is None:
            return {}
        tables = ControlTables(self._facts.control_database, self._facts.workflow)
        try:
            streams = tables.read_streams(self._target.connection)
        except (MySQLError, OSError):
            return {}  # what is wrong with the control database has been told already
        return {name: stream.position for name, stream in streams.items()}

    def _check_names(self, checkpoints: Mapping[str, GtidSet]) -> Iterator[Finding]:
        """Find a stream that was renamed: under its new name it would start anew and leave out what came in between."""
        names = {stream.name for stream in self._facts.streams}
        if names <= checkpoints.keys():
            return
        for name in sorted(checkpoints.keys() - names):
            yield error(
                "checkpoint-without-stream",
                self._facts.target.role,
                f"holds a checkpoint of stream `{name}`, which the workflow no longer names, and a new stream has none",
                f"Name the stream `{name}` again. If that shard is done with, delete its row from "
                f"{self._facts.control_database}.stream.",
            )

    def _check_identities(self) -> Iterator[Finding]:
        """Find one server behind two addresses."""
        seen: dict[str, ServerView] = {}
        for server in filter(None, (self._target, *self.sources.values())):
            other = seen.setdefault(server.variables.get("server_uuid", ""), server)
            if other is not server:
                yield error(
                    "same-server",
                    server.where,
                    f"is the same server as {other.where} (server_uuid {server.variables.get('server_uuid')})",
                    "Give each its own server. If it is a copy, stop it, delete auto.cnf and start it again.",
                )

    def _compare(self) -> None:
        """Compare tables where both sides were reached; what an earlier finding hides is not told as missing."""
        target = self._target
        if target is None or not self.sources:
            return
        databases = {name for stream in self._facts.streams for name in stream.rules.databases.values()}
        server = target
        try:
            targets = read_schemas(server.connection, sorted(databases))
            streams = []
            for stream in self._facts.streams:
                if stream.name in self.sources:
                    server = self.sources[stream.name]
                    streams.append(_tables_of(stream, server))
        except (MySQLError, OSError) as failure:
            self.findings.append(_lost(server, failure))
            return
        self.streams, self.targets = streams, targets
        obscured = {finding.where for finding in self.findings if finding.id in ("database-missing", "privilege")}
        unseen = databases - {database for database, _ in targets} if target.where in obscured else set()
        is_whole = len(streams) == len(self._facts.streams) and not obscured - {target.where}
        self.findings.extend(
            check_tables(streams, targets, self.policy, unseen_databases=unseen, judge_patterns=is_whole)
        )
        names = {name for stream in streams for _, name in stream.carried()}
        self.findings.extend(check_quarantine(self._facts.duplicates, names, targets))
        if is_whole:
            self.findings.extend(check_duplicate_patterns(self._facts.duplicates, names))
        self.findings.extend(self._check_partial_images(names))
        self.findings.extend(self._check_ruled_documents())

    def _check_ruled_documents(self) -> Iterator[Finding]:
        """Find sources that may write partial images for tables with rules."""
        for stream in self.streams:
            source = self.sources[stream.name]
            affected = [
                ".".join(name)
                for name in sorted(stream.rules.table_rules)
                if name in self.targets and any(column.family == "json" for column in self.targets[name].columns)
            ]
            if affected and source.variables.get("binlog_row_value_options"):
                yield warning(
                    "rule-partial-images",
                    source.where,
                    f"binlog_row_value_options is set, and rules change rows of {', '.join(affected)}: a partial "
                    "update of a document would stop the stream",
                    "SET PERSIST binlog_row_value_options=''.",
                )

    def _check_partial_images(self, names: Iterable[TableName]) -> Iterator[Finding]:
        """Find sources that may write partial images for tables whose duplicates are set aside."""
        duplicates, targets = self._facts.duplicates, self.targets
        affected = [
            ".".join(name)
            for name in sorted(names)
            if name in targets
            and duplicates.policy(name) is DuplicatePolicy.QUARANTINE
            and any(column.family == "json" for column in targets[name].columns)
        ]
        for source in self.sources.values():
            if affected and source.variables.get("binlog_row_value_options"):
                yield error(
                    "quarantine-partial-images",
                    source.where,
                    f"binlog_row_value_options is set, and duplicates of {', '.join(affected)} go to quarantine, where "
                    "rows with partial images cannot be followed",
                    "SET PERSIST binlog_row_value_options='', or give these tables the policy `stop`.",
                )


def _tables_of(stream: StreamFacts, source: ServerView) -> StreamTables:
    return StreamTables(
        name=stream.name,
        rules=stream.rules,
        tables=read_schemas(source.connection, stream.rules.databases),
        logs_cascades=source.variables.get("innodb_native_foreign_keys") == "OFF",
    )


def _lost(server: ServerView, failure: Exception) -> Finding:
    return error("unreachable", server.where, f"the examination broke off: {describe(failure)}", "Run the check again.")
