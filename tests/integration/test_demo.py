"""The demo ends with equal tables, says so when they are not, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from vmerge.errors import VerificationFailed
from vmerge.lab.demo import EXIT_INTERRUPTED

pytestmark = pytest.mark.server

TIMEOUT_SECONDS = 120


class Demo:
    """A demo as a process whose servers' folders and everything else are in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            (sys.executable, "-m", "vmerge.lab.demo", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.folder)},
            process_group=0,
        )
        self._processes.append(process)
        return process

    def read_until(self, process: subprocess.Popen[str], words: str) -> str:
        """What was printed up to a line with these words; it must come before the end."""
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if words in line:
                return "".join(lines)
        raise AssertionError(f"no {words!r} in:\n{''.join(lines)}")

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        return process.returncode, output

    def leftovers(self) -> list[str]:
        """Files in the folder, and processes that name it."""
        name = os.fsencode(self.folder)
        commands = [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
        processes = [command.decode(errors="replace") for command in commands if name in command]
        return [*map(str, self.folder.iterdir()), *processes]

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def demo() -> Iterator[Demo]:
    # pytest's own folder makes the paths of Unix sockets too long.
    folder = Path(tempfile.mkdtemp(prefix="demo-"))
    demo = Demo(folder)
    yield demo
    demo.end()
    _wait_until(lambda: not demo.leftovers())
    shutil.rmtree(folder)


def test_demo_ends_equal(demo: Demo) -> None:
    """A short demo moves values, merges everything, finds equal tables, and nothing of it is left."""
    process = demo.start("--seconds", "4")
    exit_code, output = demo.finish(process)
    assert exit_code == 0, output
    assert "EQUAL" in output
    assert re.search(r"moved +[1-9]\d* e-mail addresses, [1-9]\d* customers", output)
    assert demo.leftovers() == []


def test_demo_fails_when_tables_differ(demo: Demo) -> None:
    """A row on the target that no shard has makes the demo fail and is named."""
    process = demo.start("--seconds", "3")
    demo.read_until(process, "workload:")
    (socket_path,) = demo.folder.glob("*/target/socket")
    with pymysql.connect(unix_socket=str(socket_path), user="root", autocommit=True) as connection:
        row = (4_000_000_000_000_000_000, 1, "foreign", 0)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO shop.purchase (id, customer_id, reference, amount) VALUES (%s, %s, %s, %s)", row
            )
    exit_code, output = demo.finish(process)
    assert exit_code == VerificationFailed.exit_code, output
    assert "DIFFERENT" in output
    assert "4000000000000000000: only on the target" in output
    assert demo.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_nothing(demo: Demo, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM in the middle end servers, daemon and workload, and remove every file."""
    process = demo.start("--seconds", "60")
    demo.read_until(process, " 2 s")
    process.send_signal(number)
    exit_code, output = demo.finish(process)
    assert exit_code == EXIT_INTERRUPTED, output
    assert demo.leftovers() == []


def test_killed_demo_leaves_nothing(demo: Demo) -> None:
    """A demo that is killed takes its servers, daemon, workload and files with it."""
    process = demo.start("--seconds", "60")
    demo.read_until(process, " 2 s")
    assert len(demo.leftovers()) > 4
    process.kill()
    _wait_until(lambda: not demo.leftovers())


def test_kept_demo_can_be_looked_at(demo: Demo) -> None:
    """With --keep the daemon still runs, the printed command shows its status, and Ctrl-C removes everything."""
    process = demo.start("--seconds", "2", "--keep")
    output = demo.read_until(process, "Ctrl-C")
    match = re.search(r"vmerge (status) --watch (--state-dir \S+)", output)
    assert match is not None, output
    command = (sys.executable, "-m", "vmerge", match[1], *match[2].split())
    status = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"shop +-80 +running", status)
    process.send_signal(signal.SIGINT)
    assert demo.finish(process)[0] == EXIT_INTERRUPTED
    assert demo.leftovers() == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _wait_until(is_true: Callable[[], bool], timeout_seconds: float = 20.0) -> None:
    give_up_at = time.monotonic() + timeout_seconds
    while not is_true():
        assert time.monotonic() < give_up_at, "did not happen in time"
        time.sleep(0.05)
