"""``python -m vmerge``: the command line."""

from vmerge.cli import main

main(prog_name="vmerge")
