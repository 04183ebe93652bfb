"""``vmerge status``, ``show``, ``log`` and ``events``: what streams do and did.

Knows: when it is shown anew. Never knows: how it comes about or is laid out. User: `main`.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import click

from vmerge.cli.options import DASHED_NAMES, REFRESH_SECONDS, one_or_all, state_folder_option
from vmerge.errors import DaemonError
from vmerge.hosting.control_client import ControlClient
from vmerge.hosting.control_paths import LOG_ENTRIES
from vmerge.hosting.daemon import stop_signals
from vmerge.hosting.showing import LogTail, event_line, log_text, show_text
from vmerge.hosting.status import Snapshot, status_table
from vmerge.stopping import StopToken

FOLLOWED_ENTRIES = 200
"""Read at a time: streams write some entries a second at most, and count what is more."""


@click.command()
@click.argument("workflow", required=False)
@click.option("--watch", is_flag=True, help="Show it anew every second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; with --watch one line a second.")
@state_folder_option()
def status(workflow: str | None, watch: bool, as_json: bool, state_folder: Path) -> None:
    """Show what the streams do, of one WORKFLOW or all."""
    client = ControlClient(state_folder)
    stop = StopToken()
    with stop_signals(stop.set):
        while True:
            _show_status(client.status(), workflow, as_json=as_json, clears=watch and sys.stdout.isatty())
            if not watch or stop.wait(REFRESH_SECONDS):
                return


def _show_status(snapshot: Snapshot, workflow: str | None, *, as_json: bool, clears: bool) -> None:
    workflows = [one for one in snapshot["workflows"] if workflow in (None, one["workflow"])]
    if workflow is not None and not workflows:
        known = ", ".join(one["workflow"] for one in snapshot["workflows"]) or "none"
        raise DaemonError(f"the daemon hosts no workflow `{workflow}`", hint=f"It hosts: {known}.")
    if as_json:
        click.echo(json.dumps({**snapshot, "workflows": workflows}))
        return
    if clears:
        click.clear()
    click.echo(status_table(workflows))


@click.command(context_settings=DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@state_folder_option()
def show(workflow: str, stream: str | None, as_json: bool, state_folder: Path) -> None:
    """Show all evidence about a WORKFLOW's conflicts, or one STREAM's, and who waits for whom.

    Row values of the keys in question are shown, too; they are in no log.
    """
    snapshot = ControlClient(state_folder).show(workflow, one_or_all(stream))
    click.echo(json.dumps(snapshot, indent=2) if as_json else show_text(snapshot))


@click.command(context_settings=DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=LOG_ENTRIES, show_default=True, help="How many entries."
)
@click.option("--follow", is_flag=True, help="Then go on with new entries until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; with --follow one entry a line.")
@state_folder_option()
def log(workflow: str, stream: str | None, limit: int, follow: bool, as_json: bool, state_folder: Path) -> None:
    """Show the last entries of a WORKFLOW's log, or one STREAM's: states, conflicts and how they ended."""
    client, streams = ControlClient(state_folder), one_or_all(stream)
    snapshot = client.log(workflow, streams, limit)
    if not follow:
        click.echo(json.dumps(snapshot, indent=2) if as_json else log_text(snapshot["entries"]))
        return
    tail, stop = LogTail(), StopToken()
    with stop_signals(stop.set):
        while True:
            for entry in tail.news(snapshot["entries"]):
                click.echo(json.dumps(entry) if as_json else log_text([entry]))
            if stop.wait(REFRESH_SECONDS):
                return
            snapshot = client.log(workflow, streams, FOLLOWED_ENTRIES)


@click.command()
@click.argument("workflow", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line, with all facts.")
@state_folder_option()
def events(workflow: str | None, as_json: bool, state_folder: Path) -> None:
    """Show what happens to the streams of a WORKFLOW, or of all, as it happens, until Ctrl-C.

    States, restarts, conflicts with what is done about them and how they end, verdicts, schema changes, quarantine.
    """
    with contextlib.suppress(KeyboardInterrupt):
        for event in ControlClient(state_folder).events(workflow):
            click.echo(json.dumps(event) if as_json else event_line(event))
        raise DaemonError("the daemon has ended, or has dropped this reader as too slow", hint="")
