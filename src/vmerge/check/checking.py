"""One run of ``vmerge check``: preflight, and then the risk of conflicts between shards.

Knows: what is looked at, in which order, and the shape of the result. Never knows: how anything is printed. Used by
the command line. It changes nothing anywhere. Only ``check`` looks at risks: a start asks preflight alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from vmerge.check.collision_search import SAMPLE_STATEMENT_SECONDS, STATEMENT_SECONDS, CollisionSearch, Progress
from vmerge.core.appliers import Choice, applier_lines, appliers_data
from vmerge.core.carriage import choose
from vmerge.core.collisions import CollisionMode, CollisionReport, plan
from vmerge.core.findings import Finding, Findings, warning
from vmerge.core.risk import Counter, CounterRange, TableRisk, assess, check_counters, risk_lines
from vmerge.core.rules import TableName, TableRule
from vmerge.mysql.collisions import NotCompared, Shard, ShardLost
from vmerge.mysql.preflight import Survey, WorkflowFacts, survey
from vmerge.stopping import Clock, StopToken


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Everything that a check found."""

    findings: Findings
    tables: tuple[TableRisk, ...]
    counters: Mapping[TableName, Counter]
    collisions: CollisionReport
    appliers: Mapping[str, Mapping[TableName, Choice]]
    """By stream."""

    def as_data(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON. Every key is always there."""
        return {
            **self.findings.as_data(),
            "appliers": {stream: appliers_data(choices) for stream, choices in self.appliers.items()},
            "risk": {
                "tables": [table.as_data(self.counters.get(table.name)) for table in self.tables],
                "collisions": self.collisions.as_data(),
            },
        }

    def lines(self) -> Iterator[str]:
        """Yield it as the command line prints it."""
        for finding in self.findings.findings:
            yield finding.text_for_operator()
        for stream, choices in self.appliers.items():
            for applier, text in applier_lines(appliers_data(choices)):
                yield f"stream {stream}, by {applier}: {text}"
        yield from risk_lines(self.tables, self.counters)
        yield from self.collisions.lines()


def check_workflow(
    facts: WorkflowFacts, mode: CollisionMode, *, clock: Clock, show: Callable[[Progress], None]
) -> CheckResult:
    """Check a workflow. Ctrl-C ends the search for collisions, and what it found so far is kept."""
    seen = survey(facts)
    tables = assess(seen.streams, seen.targets)
    comparisons, uncompared = plan(tables, seen.streams, seen.targets)
    findings: list[Finding] = [*seen.findings.findings]
    counters: dict[TableName, Counter] = {}
    with ExitStack() as stack:
        shards = _shards(facts, mode, stack)
        search = CollisionSearch(comparisons, uncompared, shards, mode=mode, clock=clock, stop=StopToken())
        try:
            for table in tables:
                findings.extend(_read_counter(table, seen, shards, counters))
            for progress in search.run():
                show(progress)
        except KeyboardInterrupt:
            search.report.interrupted = True
    findings.extend(check_counters(tables, counters))
    findings.extend(search.report.findings())
    return CheckResult(Findings.of(findings), tables, counters, search.report, _appliers(seen))


def _appliers(seen: Survey) -> dict[str, dict[TableName, Choice]]:
    """Return which applier each stream's tables have; none for a table that none may have."""
    found: dict[str, dict[TableName, Choice]] = {}
    for stream in seen.streams:
        plans = {name: stream.plan(source, name, seen.targets.get(name)) for source, name in stream.carried()}
        choices = {name: choose(plan, seen.policy) for name, plan in plans.items()}
        found[stream.name] = {name: choice for name, choice in choices.items() if isinstance(choice, Choice)}
    return found


def _shards(facts: WorkflowFacts, mode: CollisionMode, stack: ExitStack) -> dict[str, Shard]:
    seconds = STATEMENT_SECONDS if mode is CollisionMode.COMPLETE else SAMPLE_STATEMENT_SECONDS
    shards = {stream.name: Shard(stream.source, statement_seconds=seconds) for stream in facts.streams}
    for shard in shards.values():
        stack.callback(shard.close)
    return shards


def _read_counter(
    table: TableRisk, seen: Survey, shards: Mapping[str, Shard], counters: dict[TableName, Counter]
) -> Iterator[Finding]:
    """Read where each shard counts, if the table's rows can meet; yield what kept us from it."""
    column = table.counting_column
    if column is None or not table.can_meet:
        return
    try:
        ranges = _ranges(table, column, seen, shards)
    except (NotCompared, ShardLost) as failure:
        yield warning("risk-unknown", "workflow", f"the shards' rows cannot be read: {failure}", "Run the check again.")
        return
    counters[table.name] = Counter(column, tuple(ranges))


def _ranges(table: TableRisk, column: str, seen: Survey, shards: Mapping[str, Shard]) -> Sequence[CounterRange]:
    """Return each shard's numbers, those of rows that its filter leaves out among them: a filter knows no index."""
    ranges = []
    for stream in seen.streams:
        for source, name in stream.carried():
            if name == table.name:
                own = _source_column(stream.rules.rule(name), column)
                numbers = shards[stream.name].number_range((source.database, source.table), own)
                least, greatest = numbers if numbers is not None else (None, None)
                ranges.append(CounterRange(stream.name, least, greatest, seen.counting[stream.name]))
    return ranges


def _source_column(rule: TableRule | None, column: str) -> str:
    """Return a target column's name at the source."""
    renamed = {} if rule is None else {ours.lower(): theirs for ours, theirs in rule.renamed.items()}
    return renamed.get(column.lower(), column)
