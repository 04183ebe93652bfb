"""``python -m vmerge``: the command line."""

from vmerge.cli.entry import run

run()
