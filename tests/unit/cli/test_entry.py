"""Ctrl-C at any time of a command: no traceback, and the exit code of an interrupted one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from vmerge.cli.exit_codes import INTERRUPTED
from vmerge.hosting.control import SOCKET_NAME

INTERRUPTED_WHILE_LOADING = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.{handler})
from vmerge.cli.entry import run
sys.argv[1:] = ["--version"]
run()
"""


@pytest.mark.parametrize("module", ["click", "pydantic", "vmerge.cli.main"])
def test_loading_is_interrupted_without_a_word(module: str) -> None:
    """Ctrl-C while a library or a module of ours loads ends the process with 130, and prints nothing."""
    done = load(module, "default_int_handler")
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_whoever_wants_it_ignored_gets_it_ignored() -> None:
    """A process that was started with SIGINT ignored, as by a shell in the background, does not end by it."""
    done = load("click", "SIG_IGN")
    assert (done.returncode, done.stderr) == (0, "")


def load(module: str, handler: str) -> subprocess.CompletedProcess[str]:
    """Ask for the version in a process that gets SIGINT as it begins to load a module."""
    program = INTERRUPTED_WHILE_LOADING.format(module=module, handler=handler)
    command = (sys.executable, "-c", program)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


HANGING_AT_THE_END = """
import threading
import click
from vmerge.cli.groups import Group
from vmerge.errors import StopTimeout

@click.group(cls=Group)
def group(): pass

@group.command()
def stop():
    threading.Thread(target=threading.Event().wait).start()
    raise StopTimeout("workflow shop: did not stop within the bound: a (was applying)")

group(["stop"])
"""


def test_a_process_with_a_thread_that_hangs_ends_all_the_same() -> None:
    """What did not stop within its bound is named, and the process does not wait for it: it ends with exit code 5."""
    done = subprocess.run(
        (sys.executable, "-c", HANGING_AT_THE_END), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "a (was applying)" in done.stderr) == (5, True)


def test_a_command_is_interrupted_without_a_traceback(tmp_path: Path) -> None:
    """Ctrl-C while the daemon keeps a command waiting for its answer ends it with 130."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen()
        command = [sys.executable, "-m", "vmerge", "start", "w", "--state-dir", str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with process, listener.accept()[0]:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
    assert (process.returncode, output) == (INTERRUPTED, "")
    assert "Traceback" not in errors


def test_a_terminal_without_a_letter_shows_its_number(tmp_path: Path) -> None:
    """What the output's encoding does not have is written as its number; the command ends as ever."""
    server = "host: 127.0.0.1, port: {port}, user: Łukasz, password_env: ENTRY_PASSWORD"
    streams = f"streams: {{a: {{{server.format(port=2)}, databases: {{x: y}}}}}}"
    file = tmp_path / "w.yaml"
    file.write_text(f"workflow: w\ntarget: {{{server.format(port=1)}}}\n{streams}\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "ENTRY_PASSWORD": "secret"}
    command = (sys.executable, "-m", "vmerge", "check", str(file))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (done.returncode, done.stderr) == (3, "")
    assert "cannot connect to 127.0.0.1:1 as \\u0141ukasz" in done.stdout
