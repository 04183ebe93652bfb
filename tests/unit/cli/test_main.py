"""The command line without servers: help, exit codes, and one clear message for each wrong use."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import socketserver
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vmerge import __version__
from vmerge.cli.exit_codes import MEANINGS
from vmerge.cli.main import main
from vmerge.hosting.control import SOCKET_NAME
from vmerge.hosting.state_folder import LOCK_NAME, is_locked, locked_folder

COMMANDS = (
    (),
    ("check",),
    ("run",),
    ("daemon",),
    ("daemon", "start"),
    ("daemon", "stop"),
    ("daemon", "status"),
    ("start",),
    ("stop",),
    ("restart",),
    ("skip",),
    ("events",),
    ("status",),
    ("show",),
    ("log",),
)
ASKING = (
    ("status",),
    ("show", "w"),
    ("log", "w"),
    ("start", "w"),
    ("stop", "w"),
    ("restart", "w"),
    ("events",),
    ("stop", "w", "s", "--at", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"),
    ("skip", "w", "s", "3e11fa47-71ca-11e1-9e33-c80aa9429562:5", "--reason", "why"),
    ("daemon", "stop"),
    ("daemon", "status"),
)

USAGE, DAEMON = 2, 6


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands run in this process: what they set for the whole of it is set back."""
    monkeypatch.setenv("CLI_PASSWORD", "secret")
    logger, umask = logging.getLogger("vmerge"), os.umask(0o022)
    os.umask(umask)
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before
    os.umask(umask)


def invoke(*words: str | Path) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="vmerge")


def require_message(result: Result, exit_code: int, *parts: str) -> None:
    """One message, a hint, the exit code, and no traceback."""
    assert result.exit_code == exit_code, result.output
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    for part in parts:
        assert part in result.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    """Each command has a help text with a purpose, whether it is asked with --help or -h."""
    result = invoke(*words, "--help")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: vmerge")
    assert result.output == invoke(*words, "-h").output


def test_help_documents_exit_codes() -> None:
    """``vmerge --help`` lists every exit code with its meaning, a line each."""
    lines = invoke("--help").output.partition("Exit codes:\n")[2].splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [[str(code), text] for code, text in MEANINGS.items()]


def test_version() -> None:
    """``vmerge --version`` tells the version."""
    assert __version__ in invoke("--version").output


def test_module_is_the_command() -> None:
    """``python -m vmerge`` is the command line, under its own name."""
    done = subprocess.run((sys.executable, "-m", "vmerge", "--help"), capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: vmerge ")


@pytest.mark.parametrize("words", [("nonsense",), ("status", "--nonsense"), ("start",), ("check",), ("run", "a", "b")])
def test_wrong_use(words: tuple[str, ...]) -> None:
    """Unknown commands and options, and arguments too few or too many, are told with the usage and exit code 2."""
    result = invoke(*words)
    assert result.exit_code == USAGE
    assert "Usage:" in result.stderr


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_no_daemon(words: tuple[str, ...], tmp_path: Path) -> None:
    """Whatever is asked of a daemon that does not run says so, where it was looked for, and how to start it."""
    require_message(invoke(*words, "--state-dir", tmp_path), DAEMON, str(tmp_path), "vmerge daemon start")


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_socket_of_a_killed_daemon(words: tuple[str, ...], tmp_path: Path) -> None:
    """A socket that a killed daemon left behind is no daemon."""
    path = short_folder(tmp_path) / SOCKET_NAME
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    require_message(invoke(*words, "--state-dir", path.parent), DAEMON, "no daemon runs")


@pytest.mark.parametrize("words", [*ASKING, ("daemon", "start")], ids=" ".join)
def test_socket_path_too_long(words: tuple[str, ...], tmp_path: Path) -> None:
    """A state folder whose path is too long for a socket is told with the excess, before anything is made."""
    folder = tmp_path / ("x" * 120)
    if words[-1] == "start":
        (tmp_path / "w.yaml").write_text(workflow())
        words = (*words, str(tmp_path))
    require_message(invoke(*words, "--state-dir", folder), DAEMON, "too long", "--state-dir")
    assert not folder.exists()


@pytest.mark.parametrize("words", [("status",), ("show", "w"), ("log", "w"), ("daemon", "status")], ids=" ".join)
def test_a_daemon_of_another_version(words: tuple[str, ...], tmp_path: Path) -> None:
    """An answer without what this version shows is told as such, and how to get a daemon of this version."""
    with older_daemon(short_folder(tmp_path)) as folder:
        require_message(invoke(*words, "--state-dir", folder), DAEMON, "another version", "vmerge daemon stop")


class OlderDaemon(BaseHTTPRequestHandler):
    """Answers every question with a stream of which little is told."""

    def do_GET(self) -> None:  # the name that the library calls
        answer = json.dumps({"workflows": [{"streams": [{"stream": "a"}]}], "streams": [{}], "entries": [{}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def older_daemon(folder: Path) -> Iterator[Path]:
    """Serve a state folder for a while."""
    with socketserver.UnixStreamServer(str(folder / SOCKET_NAME), OlderDaemon) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder
        server.shutdown()
        thread.join()


def test_state_folder_not_writable(tmp_path: Path) -> None:
    """A state folder that cannot be made says why."""
    (tmp_path / "w.yaml").write_text(workflow())
    (tmp_path / "file").touch()
    result = invoke("daemon", "start", tmp_path, "--state-dir", tmp_path / "file" / "state")
    require_message(result, DAEMON, "cannot be used", "--state-dir")


@pytest.mark.parametrize("content", [None, "workflow: [", "workflow: w\nstreems: {}\n", ""])
def test_bad_workflow_file(content: str | None, tmp_path: Path) -> None:
    """A file that is missing, no YAML or no workflow is told with its path, by every command that loads it."""
    path = tmp_path / "w.yaml"
    if content is not None:
        path.write_text(content)
    for words in (("check", path), ("run", path)):
        require_message(invoke(*words), USAGE, "w.yaml")
    if content is not None:
        result = invoke("daemon", "start", tmp_path, "--state-dir", tmp_path / "state")
        require_message(result, USAGE, "w.yaml")
        assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_bad_folder(name: str, tmp_path: Path) -> None:
    """A daemon without any workflow file is not started: the folder is a wrong one."""
    (tmp_path / "empty").mkdir()
    require_message(invoke("daemon", "start", tmp_path / name, "--state-dir", tmp_path / "state"), USAGE, name)
    assert not (tmp_path / "state").exists()


def test_daemon_runs_already(tmp_path: Path) -> None:
    """A second daemon with one state folder is refused, with the first one's process id."""
    (tmp_path / "w.yaml").write_text(workflow())
    state = short_folder(tmp_path)
    with locked_folder(state):
        assert is_locked(state)
        for words in ((), ("--foreground",)):
            result = invoke("daemon", "start", tmp_path, "--state-dir", state, *words)
            require_message(result, DAEMON, "runs already", str(os.getpid()), "vmerge daemon stop")
    assert not is_locked(state)


def test_lock_is_private(tmp_path: Path) -> None:
    """A state folder and what a daemon opens in it are closed to other users, whatever the umask."""
    os.umask(0)
    with locked_folder(tmp_path / "state"):
        pass
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state" / LOCK_NAME).stat().st_mode) == 0o600


def test_check_reports_unreachable_servers_as_json(tmp_path: Path) -> None:
    """``check --json`` prints the findings as one JSON document, and exits with 3 when there are errors."""
    path = tmp_path / "w.yaml"
    path.write_text(workflow())
    result = invoke("check", path, "--json")
    assert result.exit_code == 3
    findings = json.loads(result.stdout)
    assert findings["can_run"] is False
    assert {finding["id"] for finding in findings["findings"]} == {"unreachable"}
    assert "secret" not in result.output


def test_check_tells_each_finding_once(tmp_path: Path) -> None:
    """``check`` prints each finding once, then how many keep the workflow from running, and exits with 3."""
    path = tmp_path / "w.yaml"
    path.write_text(workflow())
    result = invoke("check", path)
    assert result.exit_code == 3
    lines = result.output.splitlines()
    assert [line.partition(": cannot connect")[0] for line in lines[::2]] == [
        "error: target",
        "error: stream a",
        "2 errors: workflow w cannot run.",
    ]
    assert len(lines) == 5


def short_folder(tmp_path: Path) -> Path:
    """Return a folder whose path a socket fits into."""
    folder = tmp_path / "s"
    folder.mkdir()
    return folder


def workflow() -> str:
    """Return a workflow whose servers do not run: nobody listens on port 1."""
    server = "host: 127.0.0.1, port: {port}, user: u, password_env: CLI_PASSWORD"
    return (
        f"workflow: w\ntarget: {{{server.format(port=1)}}}\n"
        f"streams:\n  a: {{{server.format(port=2)}, databases: {{x: y}}}}\n"
    )


@pytest.mark.parametrize("words", [["--help"], ["check", "absent.yaml"]])
def test_output_that_cannot_be_written_gives_one_line(words: list[str]) -> None:
    """A full disk behind the output ends a command with a message and no traceback."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "vmerge", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_a_state_folder_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    """The daemon's lock must be writable: one message, and the exit code of the daemon's errors."""
    (tmp_path / "daemon.lock").symlink_to("/dev/full")
    workflows = tmp_path / "workflows"
    workflows.mkdir()
    (workflows / "w.yaml").write_text(workflow())
    require_message(invoke("daemon", "start", workflows, "--state-dir", tmp_path), 6, "cannot be")
