"""The command line: parse, call, map errors to exit codes.

Knows: commands, options and how things are printed. Never knows: how they are done. The only importer of click.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from vmerge import __version__, logs
from vmerge.check.checking import check_workflow
from vmerge.check.collision_search import SAMPLE_ROWS, SAMPLE_SECONDS
from vmerge.config import load_workflow, token_from_file
from vmerge.core.collisions import CollisionMode
from vmerge.errors import ConfigError, DaemonError, PreflightError, StopTimeout, VmergeError
from vmerge.hosting.assembly import workflow_facts
from vmerge.hosting.control import LOG_ENTRIES, TcpAddress, control_socket
from vmerge.hosting.control_client import ControlClient
from vmerge.hosting.daemon import LOG_NAME, Daemon, load_workflows, make_supervisor, stop_signals
from vmerge.hosting.quarantine_desk import quarantine_page, quarantine_table
from vmerge.hosting.showing import LogTail, changes_text, log_text, show_text
from vmerge.hosting.state_folder import is_locked, locked_folder, open_private
from vmerge.hosting.status import Snapshot, status_line, status_table, workflow_snapshot
from vmerge.memory import spare_collector
from vmerge.mysql.preflight import examine, require
from vmerge.progress import ProgressLine
from vmerge.stopping import StopToken, SystemClock

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])

REFRESH_SECONDS = 1.0
FOLLOWED_ENTRIES = 200
"""Read at a time: streams write some entries a second at most, and count what is more."""
START_TIMEOUT_SECONDS = 20.0
EXIT_TIMEOUT_SECONDS = 10.0
INTERRUPTED = 130
"""As shells number an end by Ctrl-C."""

EXIT_CODES = """\b
Exit codes:
   0  done
   1  internal error
   2  the file or the command is wrong
   3  servers, accounts or schemas do not fit
   4  a key stayed held for too long
   5  a stop did not end within its bound
   6  no daemon, one too many, or an unknown workflow or stream
   7  a source failed
   8  the target failed
   9  a comparison found a difference
  10  the temporary file of a large transaction failed
 130  a check was interrupted; what it printed is not all there is
"""


_DASHED_NAMES = {"ignore_unknown_options": True}
"""For commands that take a stream: shards have names such as ``-80``."""


class _Group(click.Group):
    """Commands whose errors become one message, a hint and the documented exit code."""

    def invoke(self, context: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(context)
        except VmergeError as error:
            _die(error)

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


def _state_folder_option() -> Callable[[Command], Command]:
    return click.option(
        "--state-dir",
        "state_folder",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="VMERGE_STATE_DIR",
        default=lambda: Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "vmerge",
        show_default="~/.local/state/vmerge",
        help="Folder of the daemon's lock, socket and log; one daemon each.",
    )


def _log_format_option() -> Callable[[Command], Command]:
    return click.option(
        "--log-format",
        type=click.Choice([one.value for one in logs.LogFormat]),
        default=logs.LogFormat.TEXT.value,
        show_default=True,
        help="Lines for a person, or one JSON object a line.",
    )


def _file_argument() -> Callable[[Command], Command]:
    return click.argument("file", type=click.Path(path_type=Path))


@click.group(cls=_Group, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vmerge")
def main() -> None:
    """Merge several live MySQL shards into one MySQL, exactly once."""


@main.command()
@_file_argument()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--collisions",
    type=click.Choice([mode.value for mode in CollisionMode]),
    # A check is run before every start, so it must end soon and cost the shards little.
    default=CollisionMode.SAMPLE.value,
    show_default=True,
    help=f"Look for rows of several shards that hold one unique key now: in the first and last {SAMPLE_ROWS:,} values "
    f"of each key, for {SAMPLE_SECONDS:g} s at most; in all of them; or not at all.",
)
def check(file: Path, as_json: bool, collisions: str) -> None:
    """Load, validate and preflight a workflow FILE, and tell the risk of conflicts. Changes nothing.

    Ctrl-C ends the search for collisions; what was found until then is printed, and the exit code is 130.
    """
    workflow = load_workflow(file)
    clock = SystemClock()
    progress = ProgressLine(sys.stderr, clock)
    try:
        result = check_workflow(workflow_facts(workflow), CollisionMode(collisions), clock=clock, show=progress.show)
    finally:
        progress.end()
    count = len(result.findings.errors)
    if as_json:
        click.echo(json.dumps(result.as_data(), indent=2))
    else:
        for line in result.lines():
            click.echo(line)
        verdict = f"{count} error{'s' if count > 1 else ''}: workflow {workflow.workflow} cannot run."
        click.echo(verdict if count else f"Workflow {workflow.workflow} can run.")
    if count:
        sys.exit(PreflightError.exit_code)
    if result.collisions.interrupted:
        sys.exit(INTERRUPTED)


@main.command()
@_file_argument()
@_log_format_option()
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


@main.group(cls=_Group)
def daemon() -> None:
    """Start, stop or look at the daemon."""


@daemon.command("start")
@click.argument("folder", type=click.Path(path_type=Path))
@_state_folder_option()
@click.option("--foreground", is_flag=True, help="Stay in the foreground and log to standard error.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    # Off by default: whoever reads a status learns hosts, tables and keys.
    help="Also answer questions over HTTP there, such as /metrics for Prometheus. Needs --token-file.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File whose only line is what askers send as `Authorization: Bearer TOKEN`; closed to other users.",
)
@_log_format_option()
def daemon_start(
    folder: Path, state_folder: Path, foreground: bool, listen: str | None, token_file: Path | None, log_format: str
) -> None:
    """Start a daemon that hosts every workflow file (*.yaml, *.yml) in FOLDER."""
    workflows = load_workflows(folder)
    control_socket(state_folder)  # says so if its path is too long
    tcp = _tcp_address(listen, token_file)
    if not foreground:
        words = ["--log-format", log_format]
        words += [] if tcp is None else ["--listen", str(listen), "--token-file", str(token_file)]
        _start_in_background(folder, state_folder, words)
        return
    os.umask(0o077)  # logs, positions and spooled rows are nobody else's
    logs.set_up(log_format=logs.LogFormat(log_format))
    with locked_folder(state_folder):
        spare_collector()
        Daemon(workflows, folder.absolute(), state_folder, tcp).run()


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
@_state_folder_option()
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
@_state_folder_option()
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
@_state_folder_option()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def daemon_status(state_folder: Path, as_json: bool) -> None:
    """Tell which daemon runs and what it hosts."""
    status = ControlClient(state_folder).status()
    if as_json:
        click.echo(json.dumps(status, indent=2))
        return
    names = ", ".join(workflow["workflow"] for workflow in status["workflows"]) or "no workflows"
    click.echo(f"vmerge {status['version']} runs (pid {status['pid']}), folder {status['folder']}, hosts {names}.")


@main.command(context_settings=_DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@click.option(
    "--past-schema-change", metavar="GTID", help="Go on behind this schema change, made on the target by hand."
)
@_state_folder_option()
def start(workflow: str, stream: str | None, past_schema_change: str | None, state_folder: Path) -> None:
    """Start a WORKFLOW's streams, or one STREAM; also those that were stopped or have failed."""
    started = ControlClient(state_folder).start(workflow, _one_or_all(stream), past_schema_change)
    if past_schema_change is not None and not started:
        raise DaemonError(
            "nothing was started: what runs has not stopped at that schema change",
            hint=f"See `vmerge status {workflow}`.",
        )
    if started:
        click.echo(f"Started: {', '.join(started)}. `vmerge status {workflow}` shows how they fare.")
    else:
        click.echo("Nothing to start: it runs already.")


@main.command(context_settings=_DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@_state_folder_option()
def stop(workflow: str, stream: str | None, state_folder: Path) -> None:
    """Stop a WORKFLOW's streams, or one STREAM; they stay stopped until `vmerge start`."""
    stopped = ControlClient(state_folder).stop(workflow, _one_or_all(stream))
    click.echo(f"Stopped: {', '.join(stopped)}." if stopped else "Nothing to stop: it does not run.")


def _one_or_all(stream: str | None) -> Sequence[str] | None:
    return None if stream is None else [stream]


@main.command()
@click.argument("workflow", required=False)
@click.option("--watch", is_flag=True, help="Show it anew every second until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; with --watch one line a second.")
@_state_folder_option()
def status(workflow: str | None, watch: bool, as_json: bool, state_folder: Path) -> None:
    """Show what the streams do, of one WORKFLOW or all."""
    client = ControlClient(state_folder)
    stop = StopToken()
    with stop_signals(stop.set):
        while True:
            _show_status(client.status(), workflow, as_json=as_json, clears=watch and sys.stdout.isatty())
            if not watch or stop.wait(REFRESH_SECONDS):
                return


def _show_status(snapshot: Snapshot, workflow: str | None, *, as_json: bool, clears: bool) -> None:
    workflows = [one for one in snapshot["workflows"] if workflow in (None, one["workflow"])]
    if workflow is not None and not workflows:
        known = ", ".join(one["workflow"] for one in snapshot["workflows"]) or "none"
        raise DaemonError(f"the daemon hosts no workflow `{workflow}`", hint=f"It hosts: {known}.")
    if as_json:
        click.echo(json.dumps({**snapshot, "workflows": workflows}))
        return
    if clears:
        click.clear()
    click.echo(status_table(workflows))


@main.command(context_settings=_DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@_state_folder_option()
def show(workflow: str, stream: str | None, as_json: bool, state_folder: Path) -> None:
    """Show all evidence about a WORKFLOW's conflicts, or one STREAM's, and who waits for whom.

    Row values of the keys in question are shown, too; they are in no log.
    """
    snapshot = ControlClient(state_folder).show(workflow, _one_or_all(stream))
    click.echo(json.dumps(snapshot, indent=2) if as_json else show_text(snapshot))


@main.command(context_settings=_DASHED_NAMES)
@click.argument("workflow")
@click.argument("stream", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=LOG_ENTRIES, show_default=True, help="How many entries."
)
@click.option("--follow", is_flag=True, help="Then go on with new entries until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON; with --follow one entry a line.")
@_state_folder_option()
def log(workflow: str, stream: str | None, limit: int, follow: bool, as_json: bool, state_folder: Path) -> None:
    """Show the last entries of a WORKFLOW's log, or one STREAM's: states, conflicts and how they ended."""
    client, streams = ControlClient(state_folder), _one_or_all(stream)
    snapshot = client.log(workflow, streams, limit)
    if not follow:
        click.echo(json.dumps(snapshot, indent=2) if as_json else log_text(snapshot["entries"]))
        return
    tail, stop = LogTail(), StopToken()
    with stop_signals(stop.set):
        while True:
            for entry in tail.news(snapshot["entries"]):
                click.echo(json.dumps(entry) if as_json else log_text([entry]))
            if stop.wait(REFRESH_SECONDS):
                return
            snapshot = client.log(workflow, streams, FOLLOWED_ENTRIES)


@main.group(cls=_Group)
def quarantine() -> None:
    """List, show and settle rows that are kept off the target as true duplicates."""


@quarantine.command("list")
@click.argument("workflow")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@_state_folder_option()
def quarantine_list(workflow: str, as_json: bool, state_folder: Path) -> None:
    """List a WORKFLOW's rows in quarantine. Values are left out, but for primary keys."""
    rows = ControlClient(state_folder).quarantine(workflow, "list")["rows"]
    click.echo(json.dumps(rows, indent=2) if as_json else quarantine_table(rows))


@quarantine.command("show")
@click.argument("workflow")
@click.argument("row", type=int)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@_state_folder_option()
def quarantine_show(workflow: str, row: int, as_json: bool, state_folder: Path) -> None:
    """Show one ROW of a WORKFLOW with the proof and all its values."""
    shown = ControlClient(state_folder).quarantine(workflow, "show", row)["row"]
    click.echo(json.dumps(shown, indent=2) if as_json else quarantine_page(shown))


@quarantine.command("retry")
@click.argument("workflow")
@click.argument("row", type=int)
@_state_folder_option()
def quarantine_retry(workflow: str, row: int, state_folder: Path) -> None:
    """Bring one ROW of a WORKFLOW to its table now, parked or dropped; an error names who still holds its key."""
    settled = ControlClient(state_folder).quarantine(workflow, "retry", row)["row"]
    click.echo(f"Row {row} is in {settled['table']} again.")


@quarantine.command("drop")
@click.argument("workflow")
@click.argument("row", type=int)
@_state_folder_option()
def quarantine_drop(workflow: str, row: int, state_folder: Path) -> None:
    """Give one ROW of a WORKFLOW up: it stays off the target until it is deleted at its source."""
    settled = ControlClient(state_folder).quarantine(workflow, "drop", row)["row"]
    click.echo(f"Row {row} stays out of {settled['table']}.")


if __name__ == "__main__":
    main()
