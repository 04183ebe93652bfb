"""The command line: every command, and the exit codes.

Knows: which commands there are. Never knows: what they do. Users: `entry`, and tests.
"""

from __future__ import annotations

import click

from vmerge import __version__
from vmerge.cli.checking import check
from vmerge.cli.daemon import daemon
from vmerge.cli.exit_codes import EXIT_CODES
from vmerge.cli.groups import Group
from vmerge.cli.quarantine import quarantine
from vmerge.cli.running import run
from vmerge.cli.streams import restart, skip, start, stop
from vmerge.cli.watching import events, log, show, status


@click.group(cls=Group, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vmerge")
def main() -> None:
    """Merge several live MySQL shards into one MySQL, exactly once."""


for _command in (check, run, daemon, start, stop, restart, skip, status, show, log, events, quarantine):
    main.add_command(_command)
