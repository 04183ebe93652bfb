"""``vmerge run``: a workflow in the foreground.

Knows: the live status line, and how a run ends. Never knows: how streams are run. User: `main`.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import click

from vmerge import logs
from vmerge.cli.options import REFRESH_SECONDS, file_argument, log_format_option
from vmerge.config import load_workflow
from vmerge.errors import VmergeError
from vmerge.hosting.assembly import workflow_facts
from vmerge.hosting.daemon import make_supervisor, stop_signals
from vmerge.hosting.status import Snapshot, status_line, status_table, workflow_snapshot
from vmerge.memory import spare_collector
from vmerge.mysql.preflight import examine, require
from vmerge.stopping import StopToken, SystemClock

logger = logging.getLogger(__name__)


@click.command()
@file_argument()
@log_format_option()
def run(file: Path, log_format: str) -> None:
    """Run a workflow FILE in the foreground, with a live status line, until Ctrl-C or SIGTERM."""
    level = logging.INFO if not sys.stderr.isatty() else logging.WARNING
    logs.set_up(level, log_format=logs.LogFormat(log_format))
    workflow = load_workflow(file)
    clock = SystemClock()
    supervisor = make_supervisor(workflow, clock)
    require(examine(workflow_facts(workflow)))
    spare_collector()
    stop = StopToken()
    with stop_signals(stop.set):
        supervisor.start(resumes=True)
        try:
            while not stop.wait(REFRESH_SECONDS) and supervisor.is_alive():
                _show_line(workflow_snapshot(workflow.workflow, supervisor.board, clock))
            snapshot = workflow_snapshot(workflow.workflow, supervisor.board, clock)
        finally:
            supervisor.shut_down()  # also when nobody reads the status any more: threads would outlive us
    click.echo()
    click.echo(status_table([snapshot]))
    for stream, failure in supervisor.failures().items():
        raise _StreamFailed(stream, failure)


def _show_line(snapshot: Snapshot) -> None:
    """Show how it goes. A full disk behind the output is no reason to end a merge; a reader that has left is."""
    try:
        _print_line(status_line(snapshot))
    except BrokenPipeError:
        raise
    except OSError as error:
        logger.warning("the status line cannot be written: %s", error.strerror)


def _print_line(line: str) -> None:
    if sys.stdout.isatty():
        width = max(20, os.get_terminal_size().columns - 1)
        click.echo("\r" + line[:width].ljust(width), nl=False)
    else:
        click.echo(line)


class _StreamFailed(VmergeError):
    """A stream ended in error."""

    def __init__(self, stream: str, failure: VmergeError) -> None:
        super().__init__(f"stream {stream} failed: {failure.message}", hint=failure.hint)
        self.exit_code = failure.exit_code
