"""The daemon as an operator meets it: start, status, stop, streams one by one, and what survives a restart."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.operating import VMERGE, Site, insert_customers, running, wait_until

from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

NewSite = Callable[[], Site]
STREAM_KEYS = {
    "stream": str,
    "state": str,
    "phase": str,
    "message": str,
    "applied": str,
    "is_at_head": bool,
    "transactions": int,
    "batches": int,
    "row_bytes": int,
    "restarts": int,
    "conflicts": dict,
    "blocked_seconds_total": float,
}
CONFIG, PREFLIGHT, DAEMON, TARGET = 2, 3, 6, 8


@pytest.fixture
def site(lab: Lab, shard_a: Server, shard_b: Server, target: Server, database: str) -> Iterator[Site]:
    """A workflow on the shared servers."""
    site = Site(lab, database, {"a": shard_a, "b": shard_b}, target)
    yield site
    site.end()


@pytest.fixture
def alone(lab: Lab, start_server: Callable[..., Server], database: str) -> Iterator[Site]:
    """A workflow on servers of its own, which may be stopped."""
    site = Site(lab, database, {"a": start_server(), "b": start_server()}, start_server())
    yield site
    site.end()


def wait_for_heads_of_all(site: Site) -> None:
    """Wait until all streams run and have nothing to do."""
    for name in site.shards:
        site.wait_for(name, is_at_head=True)


def mode_of(path: os.PathLike[str]) -> int:
    """Return a file's permissions."""
    return stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116


def test_background_daemon(site: Site) -> None:
    """``daemon start`` returns when the daemon answers; a second one is refused; ``daemon stop`` leaves nothing.

    Whatever the umask, nothing is open to others; and no password is shown anywhere.
    """
    umask = os.umask(0)
    try:
        started = site.vmerge("daemon", "start", str(site.workflows))
    finally:
        os.umask(umask)
    assert started.returncode == 0, started.stderr
    pid = site.client.status()["pid"]
    try:
        assert str(pid) in started.stdout
        again = site.vmerge("daemon", "start", str(site.workflows))
        assert again.returncode == DAEMON
        assert f"pid {pid}" in again.stderr
        shown = site.vmerge("daemon", "status")
        assert f"pid {pid}" in shown.stdout and "hosts shop" in shown.stdout
        wait_for_heads_of_all(site)
        names = {path.name: mode_of(path) for path in site.state_folder.iterdir()}
        assert names == {"daemon.lock": 0o600, "daemon.log": 0o600, "control.sock": 0o600}
        assert mode_of(site.state_folder) == 0o700
        assert "secret" in site.environment().values()
        assert "secret" not in Path(f"/proc/{pid}/cmdline").read_text()
        assert "secret" not in json.dumps(site.client.status())
    finally:
        stopped = site.vmerge("daemon", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "The daemon has stopped.\n")
    assert not (site.state_folder / "control.sock").exists()
    log = (site.state_folder / "daemon.log").read_text()
    assert "Traceback" not in log
    assert "secret" not in log
    assert log.rstrip().endswith("stopped")
    assert site.vmerge("daemon", "stop").returncode == DAEMON


def test_start_tells_why_the_background_process_ended(site: Site) -> None:
    """What keeps the daemon from starting is told by the command, not only by its log."""
    site.state_folder.mkdir(parents=True)
    (site.state_folder / "control.sock").mkdir()  # nothing can be bound there
    done = site.vmerge("daemon", "start", str(site.workflows))
    assert done.returncode == DAEMON
    assert "did not start: " in done.stderr
    assert "daemon.log" in done.stderr
    assert "Traceback" not in done.stderr


def test_start_after_kill(site: Site) -> None:
    """The lock and the socket of a killed daemon are no obstacle, and its streams resume."""
    with running(site):
        wait_for_heads_of_all(site)
    assert (site.state_folder / "control.sock").exists()
    insert_customers(site.shards["a"], 10**9, 20)
    with running(site):
        site.require_exact()


def test_states_survive_restarts(site: Site) -> None:
    """What was stopped stays stopped, and what ran resumes, after SIGTERM and a new daemon."""
    with running(site) as daemon:
        wait_for_heads_of_all(site)
        stopped = site.vmerge("stop", site.workflow, "b")
        assert (stopped.returncode, stopped.stdout) == (0, "Stopped: b.\n")
        assert site.streams()["b"]["phase"] == "idle"
        assert daemon.end() == 0
    for name, shard in site.shards.items():
        insert_customers(shard, 10**9 + ord(name), 1)
    with running(site):
        site.wait_for("a", transactions=1)
        assert site.wait_for("b", state="stopped")["message"] == "stopped by an operator"
        assert site.vmerge("stop", site.workflow, "b").stdout == "Nothing to stop: it does not run.\n"
        started = site.vmerge("start", site.workflow)
        assert started.returncode == 0
        assert started.stdout.startswith("Started: b.")
        assert site.vmerge("start", site.workflow).stdout == "Nothing to start: it runs already.\n"
        assert site.vmerge("restart", site.workflow).stdout.startswith("Restarted: a, b.")
        insert_customers(site.shards["a"], 2 * 10**9, 1)
        site.require_exact()


@pytest.mark.parametrize("words", [("start", "nope"), ("stop", "nope"), ("status", "nope")])
def test_unknown_workflow(site: Site, words: tuple[str, ...]) -> None:
    """An unknown workflow is told with the known ones."""
    with running(site):
        done = site.vmerge(*words)
        assert done.returncode == DAEMON
        assert "`nope`" in done.stderr and "shop" in done.stderr


def test_unknown_stream(site: Site) -> None:
    """An unknown stream is told with the known ones."""
    with running(site):
        done = site.vmerge("stop", site.workflow, "nope")
        assert done.returncode == DAEMON
        assert "`nope`" in done.stderr and "a, b" in done.stderr


def test_status_json(site: Site) -> None:
    """``status --json`` is one line of JSON with every stream's fields in their types."""
    with running(site) as daemon:
        wait_for_heads_of_all(site)
        done = site.vmerge("status", "--json")
        assert done.returncode == 0 and done.stdout.count("\n") == 1
        status = json.loads(done.stdout)
        assert status["pid"] == daemon.pid
        (workflow,) = status["workflows"]
        assert workflow["workflow"] == site.workflow
        assert [stream["stream"] for stream in workflow["streams"]] == ["a", "b"]
        for stream in workflow["streams"]:
            assert {key: type(stream[key]) for key in STREAM_KEYS} == STREAM_KEYS


def test_watch_ends_on_ctrl_c(site: Site) -> None:
    """``status --watch`` shows the table again and again, and ends on SIGINT without a word and with exit code 0."""
    with running(site), site.spawn("status", "--watch") as watch:
        wait_until(lambda: watch.output.count("WORKFLOW") >= 2, "the table was shown twice")
        os.kill(watch.pid, signal.SIGINT)
        assert watch.wait(5) == 0
        assert watch.errors == ""


def test_follow_the_log(site: Site) -> None:
    """``log --follow`` tells each entry once, those to come too, and ends on SIGINT without a word."""
    with running(site):
        for stream in ("a", "b"):
            site.wait_for(stream, is_at_head=True)  # what is stopped before it was entered has no log
        pause(site, "a")
        with site.spawn("log", site.workflow, "--follow", "--json") as follower:
            wait_until(lambda: "stopped" in follower.output, "what was there is told")
            pause(site, "b")
            pause(site, "a")
            everything = site.client.log(site.workflow, None)["entries"]
            wait_until(lambda: follower.output.count("\n") >= len(everything), "what came is told")
            os.kill(follower.pid, signal.SIGINT)
            assert follower.wait(5) == 0
            assert follower.errors == ""
            assert [json.loads(line) for line in follower.output.splitlines()] == everything
    assert {(entry["stream"], entry["kind"]) for entry in everything} >= {("a", "stopped"), ("b", "stopped")}


def pause(site: Site, stream: str) -> None:
    """Stop a stream and start it again."""
    site.client.stop(site.workflow, [stream])
    site.client.start(site.workflow, [stream], None)
    site.wait_for(stream, is_at_head=True)


def test_closed_output(site: Site) -> None:
    """A reader that has seen enough (``| head``) ends the command without a traceback."""
    with running(site):
        command = (*VMERGE, "status", "--watch", "--json")
        environment = {**os.environ, **site.environment()}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(10) is not None
            assert process.stderr.read() == b""


def test_hung_daemon(site: Site) -> None:
    """A daemon that takes connections and answers nothing is told apart from none."""
    with running(site) as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
        done = site.vmerge("status")
        os.kill(daemon.pid, signal.SIGCONT)
        assert done.returncode == DAEMON
        assert "does not answer" in done.stderr


@pytest.mark.parametrize("name", ["a", "target"])
def test_hosts_and_retries_while_a_server_is_down(alone: Site, name: str) -> None:
    """A daemon that starts while a server is down hosts the workflow, says what it waits for, and goes on alone."""
    server = alone.target if name == "target" else alone.shards["a"].server
    server.kill()
    with running(alone):
        stream = alone.wait_for("a", phase="backing off")
        assert f"cannot connect to {server.host}:" in stream["message"] or "Can't connect" in stream["message"]
        assert stream["state"] == "running"
        shown = alone.vmerge("status").stdout
        assert "backing off" in shown
        server.restart()
        insert_customers(alone.shards["a"], 10**9, 5)
        alone.require_exact()


def test_stop_of_a_stream_that_was_never_entered(alone: Site) -> None:
    """A stop while a first start is tried again and again works; what cannot be stored is told, not passed over."""
    alone.target.kill()
    with running(alone):
        alone.wait_for("a", phase="backing off")
        done = alone.vmerge("stop", alone.workflow)
        assert done.returncode == TARGET
        assert "the streams have ended, but that they are stopped could not be stored" in done.stderr
        assert {stream["phase"] for stream in alone.streams().values()} == {"idle"}
        alone.target.restart()
        assert alone.vmerge("stop", alone.workflow).returncode == 0
        assert {stream["state"] for stream in alone.streams().values()} == {"stopped"}
        alone.vmerge("start", alone.workflow)
        alone.require_exact()


def test_stop_while_the_target_is_down_since_the_start(alone: Site) -> None:
    """A stop that finds the stream's row only now stores the state in it."""
    with running(alone) as daemon:
        wait_for_heads_of_all(alone)
        daemon.kill()
    alone.target.kill()
    with running(alone):
        alone.wait_for("a", phase="backing off")
        assert alone.vmerge("stop", alone.workflow).returncode == TARGET
        alone.target.restart()
        assert alone.vmerge("stop", alone.workflow).returncode == 0
        assert set(alone.stored("state").values()) == {"stopped"}


def test_idle_streams_belong_to_the_newer_daemon(site: Site) -> None:
    """On idle shards the newer daemon ends the older one's dumps, and no word of the older reaches its states."""
    newer = site.twin()
    with running(site):
        wait_for_heads_of_all(site)
        with running(newer, "--take-over"):
            for name in site.shards:
                site.wait_for(name, state="error")
            wait_for_heads_of_all(newer)
            site.vmerge("stop", site.workflow)
            assert set(newer.stored("state").values()) == {"running"}
            newer.require_exact()


def test_wrong_workflow_ends_in_error(site: Site) -> None:
    """A workflow that does not fit its servers ends in the state error with the finding, and nothing is changed."""
    site.target.query(f"DROP TABLE {site.database}.purchase")
    with running(site):
        message = site.wait_for("a", state="error")["message"]
        assert "purchase" in message
        assert not site.stored("state")
        checked = site.vmerge("check", str(site.file))
        assert checked.returncode == PREFLIGHT
        assert "purchase" in checked.stdout
        assert checked.stdout.endswith("errors: workflow shop cannot run.\n")
    with running(site):
        site.wait_for("a", state="error")


def test_error_stays_until_start(site: Site) -> None:
    """A stream that failed stays so through stop and restart, with its reason, until an operator starts it."""
    reason = {}
    with running(site) as daemon:
        wait_for_heads_of_all(site)
        shard = site.shards["a"]
        site.target.query(f"DELETE FROM {site.database}.customer WHERE id = 1")
        shard.server.query(f"UPDATE {shard.database}.customer SET name = 'x' WHERE id = 1")
        reason["first"] = site.wait_for("a", state="error")["message"]
        assert site.stored("state")["a"] == "error"
        site.vmerge("stop", site.workflow)
        assert site.streams()["a"]["state"] == "error"
        assert daemon.end() == 0
    with running(site):
        assert site.wait_for("a", state="error")["message"] == reason["first"]
        assert site.stored("message")["a"] == reason["first"]
        site.vmerge("start", site.workflow, "a")
        wait_until(lambda: site.stored("state")["a"] == "error", "it fails again")


def test_past_schema_change(site: Site) -> None:
    """An ALTER stops its stream; made on the target by hand, it is passed once and for good, and rows go on."""
    shard = site.shards["a"]
    alter = "ALTER TABLE {}.customer ADD COLUMN phone VARCHAR(20)"
    with running(site) as daemon:
        wait_for_heads_of_all(site)
        shard.server.query(alter.format(shard.database))
        shard.server.query(f"UPDATE {shard.database}.customer SET phone = '+41' WHERE id = 1")
        message = site.wait_for("a", state="error")["message"]
        assert "ADD COLUMN phone" in message
        gtid = message.rpartition("--past-schema-change ")[2].partition(" ")[0]
        site.vmerge("stop", site.workflow, "b")
        site.shards["b"].server.query(alter.format(site.shards["b"].database))
        site.target.query(alter.format(site.database))
        refused = site.vmerge("start", site.workflow, "a", "--past-schema-change", "nonsense")
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
        assert site.vmerge("start", site.workflow, "a", "--past-schema-change", gtid).returncode == 0
        wait_until(
            lambda: site.target.query(f"SELECT phone FROM {site.database}.customer WHERE id = 1") == [("+41",)], "rows"
        )
        daemon.kill()
    with running(site):
        site.wait_for("a", is_at_head=True)
        site.vmerge("start", site.workflow, "b")
        gtid_b = site.wait_for("b", state="error")["message"].rpartition("--past-schema-change ")[2].partition(" ")[0]
        site.vmerge("start", site.workflow, "b", "--past-schema-change", gtid_b)
        site.require_exact()


def test_past_schema_change_of_a_running_stream(site: Site) -> None:
    """Passing a schema change that nothing has stopped at is told, not swallowed."""
    with running(site):
        wait_for_heads_of_all(site)
        gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"
        done = site.vmerge("start", site.workflow, "a", "--past-schema-change", gtid)
        assert done.returncode == DAEMON
        assert "nothing was started" in done.stderr


def test_truncate_stops_the_stream(site: Site) -> None:
    """TRUNCATE of one shard's table would empty the siblings' rows too: the stream stops and says so."""
    shard = site.shards["a"]
    with running(site):
        wait_for_heads_of_all(site)
        before = site.target.query(f"SELECT COUNT(*) FROM {site.database}.purchase")
        shard.server.query(f"TRUNCATE TABLE {shard.database}.purchase")
        message = site.wait_for("a", state="error")["message"]
        assert "TRUNCATE TABLE" in message and "delete this shard's rows only" in message
        assert site.target.query(f"SELECT COUNT(*) FROM {site.database}.purchase") == before
        assert site.streams()["b"]["state"] == "running"


def test_reload(site: Site) -> None:
    """A reload shows what has changed and restarts that alone; an unusable or empty folder changes nothing."""
    with running(site):
        wait_for_heads_of_all(site)
        site.client.stop(site.workflow, ["a"])
        assert site.vmerge("daemon", "reload").stdout == "Nothing has changed.\n"
        usual = site.file.read_text()
        site.file.write_text(usual + "\nnonsense: 1\n")
        refused = site.vmerge("daemon", "reload")
        assert refused.returncode == CONFIG and "nonsense" in refused.stderr
        site.file.rename(site.file.with_suffix(".off"))
        assert site.vmerge("daemon", "reload").returncode == CONFIG
        assert site.streams()["b"]["phase"] == "streaming"

        site.write_workflow(limits={"conflict_timeout_seconds": 77})
        line = "limits.conflict_timeout_seconds: 120.0 → 77.0"
        assert line in site.vmerge("daemon", "reload", "--dry-run").stdout
        before = site.stored("epoch")
        shown = site.vmerge("daemon", "reload", "--json")
        assert json.loads(shown.stdout) == {"added": [], "removed": [], "changed": {site.workflow: [line]}}
        insert_customers(site.shards["b"], 2000, 5)
        site.wait_for("b", is_at_head=True, transactions=5)
        assert site.streams()["a"]["state"] == "stopped"
        after = site.stored("epoch")
        assert (after["a"], after["b"] > before["b"]) == (before["a"], True)
        site.client.start(site.workflow, ["a"], None)
        site.require_exact()


def test_reload_adds_and_removes(site: Site) -> None:
    """A workflow whose file comes is begun, and one whose file goes is ended; a third does not notice."""
    with running(site):
        wait_for_heads_of_all(site)
        document = yaml.safe_load(site.file.read_text())
        document |= {"workflow": "second", "streams": {"a": document["streams"]["a"]}}
        document["streams"]["a"]["databases"] = {"nowhere": "nowhere_else"}
        other = site.file.with_name("second.yaml")
        other.write_text(yaml.safe_dump(document))
        assert site.vmerge("daemon", "reload").stdout == "Workflow second: added.\n"
        epochs = site.stored("epoch")
        other.unlink()
        assert site.vmerge("daemon", "reload").stdout == "Workflow second: removed.\n"
        assert [one["workflow"] for one in site.client.status()["workflows"]] == [site.workflow]
        assert site.stored("epoch") == epochs
        site.require_exact()


def test_several_workflows(site: Site) -> None:
    """One daemon hosts every file of its folder, and stops them side by side."""
    document = yaml.safe_load(site.file.read_text())
    document["workflow"] = "second"
    for stream in document["streams"].values():
        stream["databases"] = {source: f"{target}_second" for source, target in stream["databases"].items()}
    (site.workflows / "second.yml").write_text(yaml.safe_dump(document))
    with running(site) as daemon:
        names = [workflow["workflow"] for workflow in site.client.status()["workflows"]]
        assert names == ["second", "shop"]
        assert "second" in site.vmerge("status", "second").stdout
        assert daemon.end() == 0


def ask(port: int, path: str, token: str | None = None, method: str = "GET") -> tuple[int, str]:
    """Ask a daemon over TCP; return status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_questions_over_tcp(site: Site, tmp_path: Path) -> None:
    """Over TCP a daemon answers questions of those who know the token, probes of everybody, and takes no orders."""
    token = "a long and secret word".replace(" ", "-")
    file = tmp_path / "token"
    file.write_text(token + "\n")
    file.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ("--listen", f"127.0.0.1:{port}", "--token-file", str(file))
    started = site.vmerge("daemon", "start", str(site.workflows), *words)
    assert started.returncode == 0, started.stderr
    try:
        wait_for_heads_of_all(site)
        insert_customers(site.shards["a"], 1000, 5)
        wait_until(lambda: site.streams()["a"]["transactions"] >= 5, "five transactions are through")
        assert ask(port, "/healthz")[0] == ask(port, "/readyz")[0] == 200
        status, text = ask(port, "/metrics", token)
        assert status == 200
        assert f'vmerge_transactions_total{{stream="a",workflow="{site.workflow}"}} ' in text
        assert json.loads(ask(port, "/v1/status", token)[1])["workflows"]
        assert [ask(port, "/metrics", wrong)[0] for wrong in (None, "", "guess", token + "x")] == [401] * 4
        assert ask(port, "/v1/shutdown", method="POST")[0] == 401
        assert ask(port, "/v1/shutdown", token, method="POST")[0] == 403
        site.vmerge("stop", site.workflow, "a")
        assert ask(port, "/readyz")[0] == 200
    finally:
        assert site.vmerge("daemon", "stop").returncode == 0
    log = (site.state_folder / "daemon.log").read_text()
    assert token not in log


@pytest.mark.parametrize(
    ("words", "mode", "says"),
    [
        (("--listen", "127.0.0.1:9464"), 0o600, "go together"),
        (("--listen", "9464", "--token-file", "TOKEN"), 0o600, "HOST:PORT"),
        (("--listen", "127.0.0.1:9464", "--token-file", "TOKEN"), 0o644, "open to every user"),
        (("--listen", "127.0.0.1:9464", "--token-file", "SHORT"), 0o600, "shorter than"),
        (("--listen", "192.0.2.1:9464", "--token-file", "TOKEN"), 0o600, "nothing can listen"),
    ],
    ids=["no token", "no host", "open file", "short token", "foreign address"],
)
def test_refused_listening(site: Site, tmp_path: Path, words: tuple[str, ...], mode: int, says: str) -> None:
    """A daemon that cannot listen safely where it shall does not start, and says why."""
    for name, token in (("TOKEN", "a-long-and-secret-word"), ("SHORT", "word")):
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(mode)
    places = [str(tmp_path / word) if word in ("TOKEN", "SHORT") else word for word in words]
    refused = site.vmerge("daemon", "start", str(site.workflows), *places)
    assert refused.returncode in (CONFIG, DAEMON)
    assert says in refused.stderr and "Traceback" not in refused.stderr
    assert not site.answers()


def test_under_a_service_manager(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service manager hears that the daemon is ready, lives and stops; its log can be JSON from beginning to end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", receiver.getsockname())
        monkeypatch.setenv("WATCHDOG_USEC", "300000")
        program = site.spawn("daemon", "start", str(site.workflows), "--foreground", "--log-format", "json")
        assert receiver.recv(1000) == f"READY=1\nSTATUS=hosts {site.workflow}".encode()
        assert receiver.recv(1000) == b"WATCHDOG=1"
        os.kill(program.pid, signal.SIGSTOP)
        receiver.settimeout(1)
        with pytest.raises(TimeoutError):  # three times the period: the manager would end what hangs
            while True:
                receiver.recv(1000)
        os.kill(program.pid, signal.SIGCONT)
        receiver.settimeout(30)
        wait_for_heads_of_all(site)
        os.kill(program.pid, signal.SIGTERM)
        while receiver.recv(1000) != b"STOPPING=1":
            pass
        assert program.wait(30) == 0
    entries = [json.loads(line) for line in program.errors.splitlines()]
    assert entries[0]["message"].startswith("vmerge ") and entries[-1]["message"] == "stopped"
    assert {entry["stream"] for entry in entries} == {None, *(f"{site.workflow}/{name}" for name in site.shards)}
