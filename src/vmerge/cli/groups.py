"""Groups of commands whose errors become one message, a hint and the documented exit code.

Knows: how a command ends. Never knows: what it does. Users: `main`, and the modules of commands that have a group.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn

import click

from vmerge.cli.exit_codes import INTERRUPTED
from vmerge.errors import StopTimeout, VmergeError


class Group(click.Group):
    """Commands whose errors become one message, a hint and the documented exit code."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(context)
        except VmergeError as error:
            _die(error)
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def main(self, *words: Any, **options: Any) -> Any:
        """Parse and run a command line."""
        try:
            return super().main(*words, **options)
        except OSError as error:
            _die_of_output(error)


def _die_of_output(error: OSError) -> NoReturn:
    """End because what is printed, or a file, cannot be written; whoever has closed a pipe wants no word about it."""
    if not isinstance(error, BrokenPipeError):
        with contextlib.suppress(OSError):
            click.echo(f"Error: {error.filename or 'the output'} cannot be written: {error.strerror}", err=True)
    os._exit(1)


def _die(error: VmergeError) -> NoReturn:
    click.echo(f"Error: {error.message}", err=True)
    if error.hint:
        click.echo(f"Hint: {error.hint}", err=True)
    sys.stdout.flush()
    if isinstance(error, StopTimeout):
        os._exit(error.exit_code)  # a thread hangs: the interpreter would wait for it
    sys.exit(error.exit_code)
