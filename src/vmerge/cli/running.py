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
from vmerge.core.seldom import Seldom
from vmerge.errors import VmergeError
from vmerge.hosting.assembly import workflow_facts
from vmerge.hosting.daemon import stop_signals
from vmerge.hosting.hosted import NOWHERE, Order
from vmerge.hosting.status import Snapshot, status_line, status_table, workflow_snapshot
from vmerge.hosting.tenure import Approach
from vmerge.hosting.wiring import make_supervisor, make_tenure
from vmerge.memory import spare_collector
from vmerge.mysql.preflight import examine, require
from vmerge.stopping import StopToken, SystemClock

logger = logging.getLogger(__name__)

TOLD_AGAIN_SECONDS = 60.0
"""The log has an error that repeats at most this often."""


@click.command()
@file_argument()
@log_format_option()
def run(file: Path, log_format: str) -> None:
    """Run a workflow FILE in the foreground, with a live status line, until Ctrl-C or SIGTERM."""
    level = logging.INFO if not sys.stderr.isatty() else logging.WARNING
    logs.set_up(level, log_format=logs.LogFormat(log_format))
    workflow = load_workflow(file)
    clock = SystemClock()
    supervisor = make_supervisor(workflow, clock, make_tenure(workflow, clock, Approach.REFUSE))
    require(examine(workflow_facts(workflow)))
    spare_collector()
    line, stop = _StatusLine(), StopToken()
    with stop_signals(stop.set):
        supervisor.start(order=Order(resumes=True, stops_at=NOWHERE))
        try:
            while not stop.wait(REFRESH_SECONDS) and supervisor.is_alive():
                line.show(workflow_snapshot(workflow.workflow, supervisor.board, clock))
            snapshot = workflow_snapshot(workflow.workflow, supervisor.board, clock)
        finally:
            supervisor.shut_down()  # also when nobody reads the status any more: threads would outlive us
    click.echo()
    click.echo(status_table([snapshot]))
    for stream, failure in supervisor.failures().items():
        raise _StreamFailed(stream, failure)


UNCHANGED_LINES = 60
"""So many equal status lines are one: a log is not filled, and still says once a minute that all is well."""


class _StatusLine:
    """The line that tells how it goes: on a terminal written over the one before, elsewhere written when it changes."""

    def __init__(self) -> None:
        self._last = ""
        self._unchanged = 0
        self._clock = SystemClock()
        self._told = Seldom()

    def show(self, snapshot: Snapshot) -> None:
        """Show it. A full disk behind the output is no reason to end a merge; a reader that has left is."""
        try:
            self._print(status_line(snapshot))
        except BrokenPipeError:
            raise
        except OSError as error:
            telling = self._told.tell("status line", self._clock.monotonic(), TOLD_AGAIN_SECONDS)
            if telling is not None:
                logger.warning("the status line cannot be written: %s%s", error.strerror, telling)

    def _print(self, line: str) -> None:
        if sys.stdout.isatty():
            width = max(20, os.get_terminal_size().columns - 1)
            click.echo("\r" + line[:width].ljust(width), nl=False)
            return
        self._unchanged = self._unchanged + 1 if line == self._last else 0
        self._last = line
        if self._unchanged % UNCHANGED_LINES == 0:
            click.echo(line)


class _StreamFailed(VmergeError):
    """A stream ended in error."""

    def __init__(self, stream: str, failure: VmergeError) -> None:
        super().__init__(f"stream {stream} failed: {failure.message}", hint=failure.hint)
        self.exit_code = failure.exit_code
