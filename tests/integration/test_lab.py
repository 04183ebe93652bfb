"""The lab's servers are real, apart from each other, and never outlive their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest

from vmerge.errors import PreflightError
from vmerge.lab.distribution import AptSource, find_mysqld, parse_lines, parse_stanzas
from vmerge.lab.servers import Lab, Server

pytestmark = pytest.mark.server

StartServer = Callable[..., Server]

OWNER_PROGRAM = """
import sys, time
from pathlib import Path
from vmerge.lab.servers import Lab
lab = Lab(Path(sys.argv[1]))
server = lab.start("a")
print(server.pid, lab._watchdog.pid, lab.folder, flush=True)
time.sleep(600)
"""


def test_servers_differ(shard_a: Server, shard_b: Server, target: Server) -> None:
    """Servers of one lab have their own UUID, number and port, and GTIDs are on."""
    facts = [
        server.query("SELECT @@server_uuid, @@server_id, @@port, @@gtid_mode, @@log_bin")[0]
        for server in (shard_a, shard_b, target)
    ]
    assert len({fact[0] for fact in facts}) == len({fact[1] for fact in facts}) == 3
    assert [fact[2:] for fact in facts] == [(s.port, "ON", 1) for s in (shard_a, shard_b, target)]


def test_server_answers_over_tcp(shard_a: Server) -> None:
    """The host and port of a server are those that a workflow file would name."""
    with (
        pymysql.connect(host=shard_a.host, port=shard_a.port, user="root") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT @@port")
        assert cursor.fetchall() == ((shard_a.port,),)


def test_script_runs_whole(shard_a: Server, database: str) -> None:
    """A script may hold semicolons in texts, and its last statement has run when the call returns."""
    shard_a.execute_script(
        f"CREATE DATABASE {database}; CREATE TABLE {database}.t (a INT PRIMARY KEY, b TEXT);"
        f"INSERT INTO {database}.t VALUES (1, 'x;y'); SELECT 1; INSERT INTO {database}.t VALUES (2, '');"
    )
    assert shard_a.query(f"SELECT a, b FROM {database}.t ORDER BY a") == [(1, "x;y"), (2, "")]


def test_sessions_are_seen_whatever_they_say(shard_a: Server) -> None:
    """A statement with a character outside of the basic plane hides neither its session nor its transaction."""
    with shard_a.connect() as lock, shard_a.connect() as asking, lock.cursor() as holder, asking.cursor() as cursor:
        holder.execute("SELECT GET_LOCK('seen', 0)")
        cursor.execute("SELECT CONNECTION_ID()")
        ((number,),) = cursor.fetchall()
        cursor.execute("BEGIN")
        waiter = threading.Thread(target=cursor.execute, args=("SELECT GET_LOCK('seen', 60), '\N{ROCKET}'",))
        waiter.start()
        _wait_until(lambda: shard_a.sessions("root", command="Query", state="User lock") == [number])
        assert number in shard_a.open_transactions("root")
        assert not shard_a.open_transactions("nobody")
        holder.execute("SELECT RELEASE_LOCK('seen')")
        waiter.join()
        cursor.execute("ROLLBACK")
        assert number not in shard_a.open_transactions()


def test_script_reports_a_late_error(shard_a: Server) -> None:
    """An error in any statement of a script is raised, not only in the first."""
    with pytest.raises(pymysql.err.ProgrammingError):
        shard_a.execute_script("SELECT 1; SELECT * FROM mysql.no_such_table; SELECT 2")


def test_databases_of_a_test_are_dropped(shard_a: Server) -> None:
    """The databases of finished tests are gone: only the server's own are left."""
    own = {"information_schema", "mysql", "performance_schema", "sys"}
    assert {name for (name,) in shard_a.query("SHOW DATABASES")} == own


def test_options_override_defaults(start_server: StartServer) -> None:
    """An option wins over the lab's default, whichever way its words are joined."""
    server = start_server(options={"sync_binlog": 1, "innodb-flush-log-at-trx-commit": 1, "binlog_format": "ROW"})
    assert server.query("SELECT @@sync_binlog, @@innodb_flush_log_at_trx_commit") == [(1, 1)]


def test_bad_option_is_reported_with_the_servers_words(lab: Lab) -> None:
    """A server that cannot start raises at once and quotes its error log."""
    with pytest.raises(PreflightError, match="no-such-option"):
        lab.start("refused", options={"no-such-option": 1})


@pytest.mark.parametrize("end", [Server.stop, Server.kill])
def test_data_and_port_survive_the_end_of_the_process(start_server: StartServer, end: Callable[[Server], None]) -> None:
    """After a clean stop and after a crash a server comes back on its port with its committed rows."""
    server = start_server()
    port, pid = server.port, server.pid
    server.execute_script(
        "CREATE DATABASE kept; CREATE TABLE kept.t (a INT PRIMARY KEY); INSERT INTO kept.t VALUES (7)"
    )
    end(server)
    assert not server.is_running
    server.restart()
    assert (server.port, server.query("SELECT a FROM kept.t")) == (port, [(7,)])
    assert server.pid != pid


def test_paused_server_goes_on(start_server: StartServer) -> None:
    """A paused server answers nothing and, once resumed, the query that came meanwhile."""
    server = start_server()
    with server.connect(read_timeout=0.3) as connection, connection.cursor() as cursor:
        server.pause()
        with pytest.raises(pymysql.err.OperationalError):
            cursor.execute("SELECT 1")
        server.resume()
    assert server.query("SELECT 1") == [(1,)]


def test_killed_owner_leaves_nothing(tmp_path: Path) -> None:
    """A lab whose owner is killed loses its servers and its folder within seconds."""
    server, _, folder = _start_and_kill_owner(tmp_path)
    _wait_until(lambda: not _is_alive(server) and not folder.exists())


def test_next_lab_cleans_up_after_owner_and_watchdog(tmp_path: Path) -> None:
    """Where even the watchdog was killed, the next lab in the same place ends the servers and removes the folder."""
    server, _, folder = _start_and_kill_owner(tmp_path, watchdog_too=True)
    assert _is_alive(server)
    with Lab(tmp_path):
        _wait_until(lambda: not _is_alive(server))
        assert not folder.exists()


def test_lab_leaves_living_neighbours_alone(tmp_path: Path) -> None:
    """A new lab does not touch one whose owner lives."""
    with Lab(tmp_path) as first, Lab(tmp_path) as second:
        assert first.folder.exists()
        assert second.folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_named_program_must_be_mysql(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VMERGE_MYSQLD that is not a MySQL server is refused by name, not replaced by another one."""
    monkeypatch.setenv("VMERGE_MYSQLD", "/bin/true")
    with pytest.raises(PreflightError, match="VMERGE_MYSQLD=/bin/true"):
        find_mysqld()


def test_package_sources_are_read_in_both_forms() -> None:
    """The older and the newer form of apt's sources say the same."""
    expected = AptSource(("deb",), ("http://mirror.test/debian",), ("bookworm",), ("main", "contrib"), "/a.gpg")
    line = "deb [arch=amd64 signed-by=/a.gpg] http://mirror.test/debian bookworm main contrib # why\n"
    stanza = (
        "# a comment\nTypes: deb\n# another\nURIs: http://mirror.test/debian\nSuites: bookworm\n"
        "Components: main\n contrib\nSigned-By: /a.gpg\n\nEnabled: no\nTypes: deb\nURIs: http://mirror.test/off\n"
    )
    assert list(parse_lines(f"# deb http://mirror.test/off x main\n{line}")) == [expected]
    assert list(parse_stanzas(stanza)) == [expected]


def _start_and_kill_owner(folder: Path, *, watchdog_too: bool = False) -> tuple[int, int, Path]:
    """The pid of the server, the pid of the watchdog and the folder of a lab whose owner was just killed."""
    with subprocess.Popen(
        (sys.executable, "-c", OWNER_PROGRAM, str(folder)), stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        server, watchdog, lab_folder = owner.stdout.readline().split()
        if watchdog_too:
            os.kill(int(watchdog), signal.SIGKILL)
        owner.kill()
    return int(server), int(watchdog), Path(lab_folder)


def _is_alive(pid: int) -> bool:
    # A killed process whose parent is dead stays a zombie until init reaps it.
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _wait_until(is_true: Callable[[], bool], timeout_seconds: float = 10.0) -> None:
    give_up_at = time.monotonic() + timeout_seconds
    while not is_true():
        assert time.monotonic() < give_up_at, "did not happen in time"
        time.sleep(0.02)
