"""``vmerge daemon``: start, stop, reload and look at the daemon.

Knows: how a daemon gets into the background, and when it is up and gone. Never knows: what it does. User: `main`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from vmerge import logs
from vmerge.cli.groups import Group
from vmerge.cli.options import log_format_option, state_folder_option
from vmerge.config import token_from_file
from vmerge.errors import ConfigError, DaemonError, StopTimeout
from vmerge.hosting.control import TcpAddress, control_socket
from vmerge.hosting.control_client import ControlClient
from vmerge.hosting.daemon import LOG_NAME, Daemon, load_workflows
from vmerge.hosting.showing import changes_text
from vmerge.hosting.state_folder import is_locked, locked_folder, open_private
from vmerge.hosting.tenure import Approach
from vmerge.memory import spare_collector
from vmerge.stopping import StopToken, SystemClock

START_TIMEOUT_SECONDS = 20.0
EXIT_TIMEOUT_SECONDS = 10.0


@click.group(cls=Group)
def daemon() -> None:
    """Start, stop or look at the daemon."""


@daemon.command("start")
@click.argument("folder", type=click.Path(path_type=Path))
@state_folder_option()
@click.option("--foreground", is_flag=True, help="Stay in the foreground and log to standard error.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    # Off by default: whoever reads a status learns hosts, tables and keys.
    help="Also serve the status page there, and answer questions such as /metrics for Prometheus. Needs --token-file.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File whose only line is what askers send as `Authorization: Bearer TOKEN`; closed to other users.",
)
@click.option(
    "--standby",
    "approach",
    flag_value=Approach.STANDBY.value,
    help="Wait while another daemon runs a workflow, and take over when it ends or is silent for some seconds.",
)
@click.option(
    "--take-over",
    "approach",
    flag_value=Approach.TAKE_OVER.value,
    help="Take workflows from another daemon that runs them; it is fenced. Without this it is left alone.",
)
@log_format_option()
def daemon_start(
    folder: Path,
    state_folder: Path,
    foreground: bool,
    listen: str | None,
    token_file: Path | None,
    approach: str | None,
    log_format: str,
) -> None:
    """Start a daemon that hosts every workflow file (*.yaml, *.yml) in FOLDER."""
    workflows = load_workflows(folder)
    control_socket(state_folder)  # says so if its path is too long
    tcp = _tcp_address(listen, token_file)
    if not foreground:
        words = ["--log-format", log_format]
        words += [] if approach is None else [f"--{approach.replace(' ', '-')}"]
        words += [] if tcp is None else ["--listen", str(listen), "--token-file", str(token_file)]
        _start_in_background(folder, state_folder, words)
        return
    os.umask(0o077)  # logs, positions and spooled rows are nobody else's
    logs.set_up(log_format=logs.LogFormat(log_format))
    with locked_folder(state_folder):
        spare_collector()
        chosen = Approach.REFUSE if approach is None else Approach(approach)
        Daemon(workflows, folder.absolute(), state_folder, tcp, chosen).run()


def _tcp_address(listen: str | None, token_file: Path | None) -> TcpAddress | None:
    if (listen is None) != (token_file is None):
        raise ConfigError("--listen and --token-file go together", hint="Give both, or none.")
    if listen is None or token_file is None:
        return None
    host, _, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"--listen {listen} is not of the form HOST:PORT", hint="For example 127.0.0.1:9464.")
    return TcpAddress(host, int(port), token_from_file(token_file))


def _start_in_background(folder: Path, state_folder: Path, words: Sequence[str]) -> None:
    with locked_folder(state_folder):
        pass  # refuse at once when a daemon runs; the child takes the lock again
    log_path = state_folder.absolute() / LOG_NAME
    command = [sys.executable, "-m", "vmerge", "daemon", "start", str(folder)]
    command += ["--state-dir", str(state_folder), "--foreground", *words]
    with open_private(log_path) as log:
        begin = log.tell()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    clock, stop = SystemClock(), StopToken()
    until = clock.monotonic() + START_TIMEOUT_SECONDS
    while process.poll() is None and clock.monotonic() < until:
        if _answers(state_folder, process.pid):
            click.echo(f"The daemon runs (pid {process.pid}); its log is {log_path}.")
            return
        stop.wait(0.05)
    if process.returncode is None:
        raise DaemonError(
            f"the daemon (pid {process.pid}) does not answer after {START_TIMEOUT_SECONDS:g} s",
            hint=f"It may still be starting; its log says more: {log_path}.",
        )
    raise DaemonError(f"the daemon did not start: {_last_error(log_path, begin)}", hint=f"Its log: {log_path}.")


def _answers(state_folder: Path, pid: int) -> bool:
    try:
        return bool(ControlClient(state_folder).status()["pid"] == pid)
    except DaemonError:
        return False


def _last_error(log_path: Path, begin: int) -> str:
    """Return what a daemon said last, of what stands in its log from an offset on."""
    with log_path.open(errors="replace") as log:
        log.seek(begin)
        lines = [line.strip() for line in log if line.strip()]
    errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
    return (errors or lines or ["it said nothing"])[-1]


@daemon.command("stop")
@state_folder_option()
def daemon_stop(state_folder: Path) -> None:
    """Stop the daemon; streams that run resume with the next one."""
    ControlClient(state_folder).shut_down()
    clock, stop = SystemClock(), StopToken()
    until = clock.monotonic() + EXIT_TIMEOUT_SECONDS
    while is_locked(state_folder):
        if clock.monotonic() > until:
            raise StopTimeout("the streams have ended, but the daemon's process has not")
        stop.wait(0.02)
    click.echo("The daemon has stopped.")


@daemon.command("reload")
@state_folder_option()
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def daemon_reload(state_folder: Path, dry_run: bool, as_json: bool) -> None:
    """Have the daemon read its folder anew, and show what has changed.

    Streams of a workflow that is as it was go on. Those of one that has changed begin again from their checkpoints; a
    stopped one stays stopped. When a file cannot be used, nothing changes.
    """
    client = ControlClient(state_folder)
    changes = client.changes() if dry_run else client.reload()
    click.echo(json.dumps(changes, indent=2) if as_json else changes_text(changes))


@daemon.command("status")
@state_folder_option()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def daemon_status(state_folder: Path, as_json: bool) -> None:
    """Tell which daemon runs and what it hosts."""
    status = ControlClient(state_folder).status()
    if as_json:
        click.echo(json.dumps(status, indent=2))
        return
    names = ", ".join(workflow["workflow"] for workflow in status["workflows"]) or "no workflows"
    click.echo(f"vmerge {status['version']} runs (pid {status['pid']}), folder {status['folder']}, hosts {names}.")
    for workflow in status["workflows"]:
        if workflow["standby_for"] is not None:
            click.echo(f"Workflow {workflow['workflow']} is in standby for {workflow['standby_for']}.")
