"""``vmerge quarantine``: rows that are kept off the target.

Knows: what is asked about them. Never knows: how they are settled. User: `main`.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from vmerge.cli.groups import Group
from vmerge.cli.options import state_folder_option
from vmerge.hosting.control_client import ControlClient
from vmerge.hosting.quarantine_desk import quarantine_page, quarantine_table


@click.group(cls=Group)
def quarantine() -> None:
    """List, show and settle rows that are kept off the target as true duplicates."""


@quarantine.command("list")
@click.argument("workflow")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@state_folder_option()
def quarantine_list(workflow: str, as_json: bool, state_folder: Path) -> None:
    """List a WORKFLOW's rows in quarantine. Values are left out, but for primary keys."""
    rows = ControlClient(state_folder).quarantine(workflow, "list")["rows"]
    click.echo(json.dumps(rows, indent=2) if as_json else quarantine_table(rows))


@quarantine.command("show")
@click.argument("workflow")
@click.argument("row", type=int)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@state_folder_option()
def quarantine_show(workflow: str, row: int, as_json: bool, state_folder: Path) -> None:
    """Show one ROW of a WORKFLOW with the proof and all its values."""
    shown = ControlClient(state_folder).quarantine(workflow, "show", row)["row"]
    click.echo(json.dumps(shown, indent=2) if as_json else quarantine_page(shown))


@quarantine.command("retry")
@click.argument("workflow")
@click.argument("row", type=int)
@state_folder_option()
def quarantine_retry(workflow: str, row: int, state_folder: Path) -> None:
    """Bring one ROW of a WORKFLOW to its table now, parked or dropped; an error names who still holds its key."""
    settled = ControlClient(state_folder).quarantine(workflow, "retry", row)["row"]
    click.echo(f"Row {row} is in {settled['table']} again.")


@quarantine.command("drop")
@click.argument("workflow")
@click.argument("row", type=int)
@state_folder_option()
def quarantine_drop(workflow: str, row: int, state_folder: Path) -> None:
    """Give one ROW of a WORKFLOW up: it stays off the target until it is deleted at its source."""
    settled = ControlClient(state_folder).quarantine(workflow, "drop", row)["row"]
    click.echo(f"Row {row} stays out of {settled['table']}.")
