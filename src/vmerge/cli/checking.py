"""``vmerge check``.

Knows: how a check is printed. Never knows: what it looks at. User: `main`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from vmerge.check.account_statements import account_statements
from vmerge.check.checking import check_workflow
from vmerge.check.collision_search import SAMPLE_ROWS, SAMPLE_SECONDS
from vmerge.cli.exit_codes import INTERRUPTED
from vmerge.cli.options import file_argument
from vmerge.config import load_workflow
from vmerge.core.collisions import CollisionMode
from vmerge.errors import PreflightError
from vmerge.hosting.assembly import workflow_facts
from vmerge.progress import ProgressLine
from vmerge.stopping import SystemClock


@click.command()
@file_argument()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--collisions",
    type=click.Choice([mode.value for mode in CollisionMode]),
    # A check is run before every start, so it must end soon and cost the shards little.
    default=CollisionMode.SAMPLE.value,
    show_default=True,
    help=f"Look for rows of several shards that hold one unique key now: in the first and last {SAMPLE_ROWS:,} values "
    f"of each key, for {SAMPLE_SECONDS:g} s at most; in all of them; or not at all.",
)
@click.option(
    "--grants",
    "only_grants",
    is_flag=True,
    help="Only print the accounts that the workflow needs, as SQL with the least privileges. Asks no server.",
)
def check(file: Path, as_json: bool, collisions: str, only_grants: bool) -> None:
    """Load, validate and preflight a workflow FILE, and tell the risk of conflicts. Changes nothing.

    Ctrl-C ends the search for collisions; what was found until then is printed, and the exit code is 130.
    """
    workflow = load_workflow(file)
    if only_grants:
        for line in account_statements(workflow_facts(workflow)):
            click.echo(line)
        return
    clock = SystemClock()
    progress = ProgressLine(sys.stderr, clock)
    try:
        result = check_workflow(workflow_facts(workflow), CollisionMode(collisions), clock=clock, show=progress.show)
    finally:
        progress.end()
    count = len(result.findings.errors)
    if as_json:
        click.echo(json.dumps(result.as_data(), indent=2))
    else:
        for line in result.lines():
            click.echo(line)
        verdict = f"{count} error{'s' if count > 1 else ''}: workflow {workflow.workflow} cannot run."
        click.echo(verdict if count else f"Workflow {workflow.workflow} can run.")
    if count:
        sys.exit(PreflightError.exit_code)
    if result.collisions.interrupted:
        sys.exit(INTERRUPTED)
