"""Arguments and options that several commands have.

Knows: their names, defaults and help. Never knows: a command. Users: the modules of commands.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from vmerge import logs

Command = TypeVar("Command", bound=Callable[..., Any])

DASHED_NAMES = {"ignore_unknown_options": True}
"""For commands that take a stream: shards have names such as ``-80``."""

REFRESH_SECONDS = 1.0
"""Between two looks of a command that goes on showing."""


def state_folder_option() -> Callable[[Command], Command]:
    """Return the option of every command that has to do with a daemon."""
    return click.option(
        "--state-dir",
        "state_folder",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="VMERGE_STATE_DIR",
        default=lambda: Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "vmerge",
        show_default="~/.local/state/vmerge",
        help="Folder of the daemon's lock, socket and log; one daemon each.",
    )


def log_format_option() -> Callable[[Command], Command]:
    """Return the option of commands that run streams."""
    return click.option(
        "--log-format",
        type=click.Choice([one.value for one in logs.LogFormat]),
        default=logs.LogFormat.TEXT.value,
        show_default=True,
        help="Lines for a person, or one JSON object a line.",
    )


def file_argument() -> Callable[[Command], Command]:
    """Return the argument of commands that take one workflow."""
    return click.argument("file", type=click.Path(path_type=Path))


def one_or_all(stream: str | None) -> Sequence[str] | None:
    """Return the streams that an optional STREAM means; None for all."""
    return None if stream is None else [stream]
