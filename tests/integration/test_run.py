"""``vmerge run``: the foreground, for a person at a terminal and for a container."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.operating import VMERGE, Site, insert_customers, wait_until

from vmerge.lab.processes import Program
from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

PREFLIGHT, TARGET_FAILED = 3, 8


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Site:
    """A workflow on the shared servers."""
    return Site(lab, database, {"a": shard_a, "b": shard_b}, target)


@pytest.fixture
def running(site: Site) -> Iterator[Program]:
    """``vmerge run``, which has applied something."""
    insert_customers(site.shards["a"], 10**9, 10)
    with site.spawn("run", str(site.file)) as program:
        wait_until(lambda: bool(site.stored("state")) and site.is_at_heads(), "both streams are at their heads")
        yield program


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_on_a_signal(site: Site, running: Program, number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end it cleanly, with a last table and exit code 0, and the target exact."""
    os.kill(running.pid, number)
    assert running.wait(15) == 0, running.errors
    assert "WORKFLOW" in running.output
    assert f"{number.name} received, stopping" in running.errors
    assert "Traceback" not in running.errors
    site.require_exact()


def test_shows_a_status_line(running: Program) -> None:
    """It prints a line with every stream's transactions and lag each second."""
    wait_until(lambda: "a 10 tx, lag" in running.output and "| b 0 tx" in running.output, "a status line")


def test_failure_of_all_streams_ends_it(site: Site, running: Program) -> None:
    """When no stream runs any more it ends with the failure's message, hint and exit code."""
    site.target.query(f"DELETE FROM {site.database}.customer")
    for shard in site.shards.values():
        shard.server.query(f"UPDATE {shard.database}.customer SET name = 'x' ORDER BY id LIMIT 1")
    assert running.wait(30) == TARGET_FAILED
    assert "Error: stream a failed: " in running.errors
    assert "Hint: " in running.errors
    assert set(site.stored("state").values()) == {"error"}


def test_failed_streams_run_again(site: Site, running: Program) -> None:
    """Running is an operator's word: streams that had stopped or failed are started."""
    os.kill(running.pid, signal.SIGTERM)
    running.wait(15)
    site.target.query(f"UPDATE {site.control}.stream SET state = 'error', message = 'as a test'")
    insert_customers(site.shards["b"], 10**9 + 50, 10)
    with site.spawn("run", str(site.file)):
        site.require_exact()
        assert set(site.stored("state").values()) == {"running"}


def test_closed_output_ends_it(site: Site) -> None:
    """When nobody reads its status any more (``| head``), it stops its streams and ends without a traceback."""
    command = (*VMERGE, "run", str(site.file))
    environment = {**os.environ, **site.environment()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 1
        assert b"Traceback" not in process.stderr.read()


def test_server_that_is_down(site: Site) -> None:
    """A person who runs it in the foreground is told at once that a server cannot be reached."""
    site.file.write_text(site.file.read_text().replace(f"port: {site.target.port}", "port: 1"))
    done = site.vmerge("run", str(site.file))
    assert done.returncode == PREFLIGHT
    assert "\nError: target: cannot connect" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_changes_nothing(site: Site) -> None:
    """``vmerge check`` finds a fitting workflow fit, and leaves no control tables behind."""
    done = site.vmerge("check", str(site.file))
    assert done.returncode == 0, done.stderr
    assert "Workflow shop can run." in done.stdout
    assert not site.stored("state")
