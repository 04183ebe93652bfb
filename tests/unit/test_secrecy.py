"""Secrets stay where they are: no command takes one, and nothing that is printed or logged has one."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import click
import pytest

from vmerge import logs
from vmerge.cli.main import main
from vmerge.hosting.control import TcpAddress
from vmerge.mysql.connect import Endpoint

WORD = "hidden-word"


def options(command: click.Command) -> Iterator[str]:
    """Every name of every parameter, of a command and of those below it."""
    for parameter in command.params:
        yield from (parameter.name or "", *parameter.opts)
    if isinstance(command, click.Group):
        for one in command.commands.values():
            yield from options(one)


def test_no_command_takes_a_secret() -> None:
    """What stands on a command line is in every user's list of processes."""
    names = list(options(main))
    assert "--token-file" in names
    assert not [name for name in names if any(word in name for word in ("password", "secret"))]
    assert [name for name in names if "token" in name] == ["token_file", "--token-file"]


def test_what_holds_a_secret_does_not_show_it() -> None:
    """A message or a traceback may show such a thing by accident."""
    shown = repr((Endpoint("target", "db", 3306, "u", WORD), TcpAddress("db", 9464, WORD)))
    assert WORD not in shown


@pytest.mark.parametrize("format", logs.LogFormat)
def test_the_traceback_of_an_internal_error_has_no_values(format: logs.LogFormat) -> None:
    """Where a defect ends in a traceback, it shows the code and not what the variables held."""
    output = io.StringIO()
    logger = logging.getLogger("vmerge")
    before = logger.handlers[:], logger.level, logger.propagate
    endpoint = Endpoint("target", "db", 3306, "u", WORD)
    try:
        logs.set_up(output=output, log_format=format)
        try:
            _fail(endpoint, endpoint.password)
        except RuntimeError:
            logger.exception("internal error with %s", endpoint)
    finally:
        logger.handlers[:], logger.level, logger.propagate = before
    assert "_fail" in output.getvalue()
    assert WORD not in output.getvalue()


def _fail(endpoint: Endpoint, password: str) -> None:
    raise RuntimeError(f"{endpoint!r} {len(password)}")
