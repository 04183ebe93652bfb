"""``vmerge start``, ``stop``, ``restart`` and ``skip``: orders to streams.

Knows: how orders are given, and their outcome told. Never knows: how they are carried out. User: `main`.
"""

from __future__ import annotations

from pathlib import Path

import click

from vmerge.cli.options import DASHED_NAMES, one_or_all, state_folder_option
from vmerge.errors import DaemonError
from vmerge.hosting.control_client import ControlClient


@click.command(context_settings=DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@click.option(
    "--past-schema-change", metavar="GTID", help="Go on behind this schema change, made on the target by hand."
)
@click.option("--stop-at", metavar="GTID-SET", help="Stop by itself when all of that is applied; needs STREAM.")
@state_folder_option()
def start(
    workflow: str, stream: str | None, past_schema_change: str | None, stop_at: str | None, state_folder: Path
) -> None:
    """Start a WORKFLOW's streams, or one STREAM; also those that were stopped or have failed.

    A stream that was to stop at a position goes on beyond it, unless --stop-at names one.
    """
    started = ControlClient(state_folder).start(workflow, one_or_all(stream), past_schema_change, stop_at)
    if past_schema_change is not None and not started:
        raise DaemonError(
            "nothing was started: what runs has not stopped at that schema change",
            hint=f"See `vmerge status {workflow}`.",
        )
    if started:
        click.echo(f"Started: {', '.join(started)}. `vmerge status {workflow}` shows how they fare.")
    else:
        click.echo("Nothing to start: it runs already.")


@click.command(context_settings=DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@click.option(
    "--at", metavar="GTID-SET", help="Go on until all of that is applied and nothing behind it; needs STREAM."
)
@state_folder_option()
def stop(workflow: str, stream: str | None, at: str | None, state_folder: Path) -> None:
    """Stop a WORKFLOW's streams, or one STREAM; they stay stopped until `vmerge start`."""
    stopped = ControlClient(state_folder).stop(workflow, one_or_all(stream), at)
    if at is not None:
        click.echo(f"Stream {stream} stops by itself when it comes there; `vmerge status {workflow}` shows it.")
        return
    click.echo(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing to stop: it does not run.")


@click.command(context_settings=DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@state_folder_option()
def restart(workflow: str, stream: str | None, state_folder: Path) -> None:
    """Stop a WORKFLOW's streams, or one STREAM, and start them anew; also those that were stopped or have failed."""
    restarted = ControlClient(state_folder).restart(workflow, one_or_all(stream))
    click.echo(f"Restarted: {', '.join(restarted)}. `vmerge status {workflow}` shows how they fare.")


@click.command(context_settings=DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream")
@click.argument("gtid")
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept in the log together with who did it.")
@state_folder_option()
def skip(workflow: str, stream: str, gtid: str, reason: str, state_folder: Path) -> None:
    """Leave out the next transaction, GTID, of a STREAM of a WORKFLOW that is stopped or has failed.

    Nothing of it reaches the target, so what comes later may miss it. The stream stays as it is until `vmerge start`.
    """
    ControlClient(state_folder).skip(workflow, stream, gtid, reason)
    click.echo(f"Skipped: {gtid}. Go on with `vmerge start -- {workflow} {stream}`.")
