"""What the log says of what was decided at a start: by the workflow's file, and by what the servers are.

Knows: the words. Never knows: when they are due. Used by the assembly and by whoever makes a supervisor.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from vmerge.config import Workflow
from vmerge.core.appliers import ApplierKind, Choice
from vmerge.core.rules import StreamRules, TableName

logger = logging.getLogger(__name__)

_NAMED_TABLES = 5
"""So many tables are named in one line; of more the first ones."""

_REASONS = 8
"""So many lines about tables with one applier for one reason."""


class Story:
    """Tells the log of one workflow's starts. Each stream's thread tells its own."""

    def __init__(self, workflow: str) -> None:
        self._workflow = workflow
        self._told: dict[str, list[str]] = {}

    def tell(self, stream: str, lines: Iterable[str]) -> None:
        """Tell what a stream's start rests on, unless it is what was told last: a stream may restart all night."""
        news = list(lines)
        if news == self._told.get(stream):
            return
        self._told[stream] = news
        for line in news:
            self.say(stream, line)

    def say(self, stream: str, line: str) -> None:
        """Tell one thing."""
        logger.info("%s", line, extra={"stream": f"{self._workflow}/{stream}"})


def workflow_story(workflow: Workflow) -> str:
    """Return one line about a workflow as its file has it."""
    limits = workflow.limits
    return (
        f"workflow {workflow.workflow}: {', '.join(workflow.streams)} into {workflow.target_endpoint}, "
        f"control database {workflow.target.control_database}; applier {workflow.applier.value}, "
        f"on_ddl {workflow.on_ddl.value}, true duplicates {workflow.true_duplicates.rules.default.value}; "
        f"a conflict is given up after {limits.conflict_timeout_seconds:g} s, "
        f"a stop ends within {limits.stop_timeout_seconds:g} s"
    )


def stream_story(rules: StreamRules, source: str, target: str, choices: Mapping[TableName, Choice]) -> Iterator[str]:
    """Yield lines about a stream: servers with versions, databases, tables by applier, and rules."""
    places = ", ".join(f"{ours} to {theirs}" for ours, theirs in rules.databases.items())
    yield f"carries {places}, from {source}, to {target}"
    found: defaultdict[Choice, list[str]] = defaultdict(list)
    for (database, table), choice in choices.items():
        found[choice].append(f"{database}.{table}")
    for choice, tables in list(found.items())[:_REASONS]:
        rows = "row events" if choice.kind is ApplierKind.EVENTS else "statements"
        yield f"sends {_counted(tables)} as {rows} ({choice.reason})"
    if len(found) > _REASONS:
        yield "sends more tables for other reasons: see `vmerge show`"
    ruled = [f"{database}.{table}" for database, table in rules.table_rules]
    if ruled:
        yield f"changes or filters the rows of {_counted(ruled)} by rules"
    if rules.exclude:
        yield f"leaves out {', '.join(pattern.text for pattern in rules.exclude)}"
    if not choices:
        yield "finds no table that both sides have"


def _counted(tables: list[str]) -> str:
    named = ", ".join(sorted(tables)[:_NAMED_TABLES])
    more = ", …" if len(tables) > _NAMED_TABLES else ""
    return f"{len(tables)} table{'' if len(tables) == 1 else 's'} ({named}{more})"
