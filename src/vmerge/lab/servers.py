"""Private MySQL servers: started in a second, gone without a trace when their owner ends, however it ends.

Knows: data folders, ports, processes and how to start, stop, freeze and kill them. Never knows: vmerge's workflows,
streams or tables. Used by the demo, the tests and the benchmark.

Every server of a lab is in the process group of the lab's watchdog (``watchdog.py``), which kills the group and
removes the folder when the owner is gone. A process forked from the owner without exec keeps the watchdog waiting.
A lab belongs to one thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import Cursor

from vmerge.errors import PreflightError
from vmerge.lab.distribution import HINT, Distribution, cache_folder, exclusively, find_mysqld

Options = Mapping[str, str | int]

HOST = "127.0.0.1"
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 60.0
ANSWER_TIMEOUT_SECONDS = 5.0
POLL_SECONDS = 0.01
FOLDER_PREFIX = "vmerge-lab-"
OWNER_FILE = "owner"
PID_FILE = "mysqld.pid"
# Below the range from which kernels take the ports of outgoing connections: nothing steals the port of a server
# that is stopped for a moment.
PORTS = range(18_000, 32_000)

# Quick to make and small to copy; a server that starts on the copy uses its own values.
TEMPLATE_OPTIONS: Options = {
    "innodb-redo-log-capacity": "8M",
    "innodb-autoextend-increment": 1,
    "innodb-flush-log-at-trx-commit": 0,
    "innodb-doublewrite": "OFF",
    "skip-log-bin": "",
}
DEFAULT_OPTIONS: Options = {
    "bind-address": HOST,
    "mysqlx": "OFF",
    "secure-file-priv": "",
    "log-bin": "binlog",
    "gtid-mode": "ON",
    "enforce-gtid-consistency": "ON",
    "character-set-server": "utf8mb4",
    # A lab survives the death of its processes, which it tests, not of the machine: no flush to disk is needed.
    "sync-binlog": 0,
    "innodb-flush-log-at-trx-commit": 2,
    "innodb-buffer-pool-size": "128M",
    # Each server with it takes thousands of the few requests that a whole machine may have (fs.aio-max-nr).
    "innodb-use-native-aio": "OFF",
    "innodb-buffer-pool-load-at-startup": "OFF",
    "innodb-buffer-pool-dump-at-shutdown": "OFF",
}

# From the performance schema: the views of the information schema convert the text of every session's statement to
# utf8mb3, whatever is asked of them, and fail with 3854 while anybody's statement has a character outside of it.
SESSIONS = (
    "SELECT id FROM performance_schema.processlist "
    "WHERE user LIKE %s AND command LIKE %s AND COALESCE(state, '') LIKE %s"
)
OPEN_TRANSACTIONS = (
    "SELECT processlist_id FROM performance_schema.events_transactions_current "
    "JOIN performance_schema.threads USING (thread_id) "
    "WHERE events_transactions_current.state = 'ACTIVE' AND processlist_user LIKE %s "
    "AND processlist_id <> CONNECTION_ID()"
)


class Server:
    """One MySQL server with its own data folder. Made by ``Lab.start``, ended by the lab at the latest."""

    host = HOST

    def __init__(self, name: str, folder: Path, port: int, command: Sequence[str], group: int) -> None:
        self.name = name
        self.folder = folder
        self.port = port
        self.datadir = folder / "data"
        self.socket_path = folder / "socket"
        self.error_log_path = folder / "error.log"
        self._command = tuple(command)
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process of a running server."""
        if self._process is None:
            raise RuntimeError(f"server {self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives; a paused server lives."""
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Starts the process and returns at once; ``wait_until_ready`` waits for it."""
        if self.is_running:
            raise RuntimeError(f"server {self.name} is running")
        with self.error_log_path.open("ab") as log:  # for what mysqld says before it opens its log
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=self._group
            )

    def wait_until_ready(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Returns when the server answers a query."""
        give_up_at = time.monotonic() + timeout_seconds
        while not self._answers():
            if not self.is_running:
                raise PreflightError(f"server {self.name} ended while starting: {self._last_words()}", hint=HINT)
            if time.monotonic() > give_up_at:
                raise PreflightError(
                    f"server {self.name} is not ready after {timeout_seconds:g} s: {self._last_words()}",
                    hint=HINT,
                )
            time.sleep(POLL_SECONDS)

    def stop(self, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> None:
        """Shuts down cleanly. Does nothing to a server that is not running."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._process = None

    def kill(self) -> None:
        """Ends the process without a chance to clean up, as a crash does."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Freezes the server: connections stay open and nothing answers. Returns when all its threads stand still."""
        self._signal(signal.SIGSTOP)
        while self.is_running and not _is_stopped(self.pid):
            time.sleep(POLL_SECONDS)

    def resume(self) -> None:
        """Lets a paused server go on."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Starts on the same port and data, after a clean stop if the server is running."""
        self.stop()
        self.spawn()
        self.wait_until_ready()

    def connect(self, database: str | None = None, **options: Any) -> pymysql.connections.Connection[Cursor]:
        """A connection as root through the Unix socket, in autocommit. The caller closes it."""
        settings: dict[str, Any] = {
            "user": "root",
            "charset": "utf8mb4",
            "autocommit": True,
            "unix_socket": str(self.socket_path),
            "ssl_disabled": True,  # reading the system's certificates takes longer than all the rest
        }
        return pymysql.connect(database=database, **{**settings, **options})

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """All rows of one statement, on a connection of its own."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return list(cursor.fetchall())

    def sessions(self, account: str, *, command: str = "%", state: str = "%") -> list[int]:
        """The ids of an account's sessions whose command and state are like these patterns."""
        found = self.query(SESSIONS, account, command, state)
        return [number for (number,) in found]

    def open_transactions(self, account: str = "%") -> list[int]:
        """The ids of the sessions, other than the one that asks, that have a transaction open."""
        return [number for (number,) in self.query(OPEN_TRANSACTIONS, account)]

    def execute_script(self, sql: str, database: str | None = None) -> None:
        """Runs many statements. The server splits them; an error of any of them is raised."""
        with (
            self.connect(database, client_flag=CLIENT.MULTI_STATEMENTS) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            while cursor.nextset():
                pass

    def _answers(self) -> bool:
        # PyMySQL leaks its socket when nothing listens on a Unix socket, so it is not asked before something does.
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket_path))
            except OSError:
                return False
        try:
            with self.connect(read_timeout=ANSWER_TIMEOUT_SECONDS) as connection:
                connection.ping(reconnect=False)
        except pymysql.Error:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _last_words(self) -> str:
        return self.error_log_path.read_text(errors="replace")[-1500:]


class Lab:
    """A folder of private servers. Use it as a context manager: at its end all servers and data are gone."""

    def __init__(self, folder: Path | None = None, distribution: Distribution | None = None) -> None:
        """Makes a new folder below ``folder`` (the system's temporary folder if None)."""
        parent = (Path(tempfile.gettempdir()) if folder is None else folder).resolve()
        _remove_stale_labs(parent)
        self.distribution = find_mysqld() if distribution is None else distribution
        self._template = _data_template(self.distribution)
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
        self._owner_lock = _lock_as_owner(self.folder)
        self._watchdog = _start_watchdog(self.folder)
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def process_group(self) -> int:
        """The group that the watchdog kills when the owner is gone; for other programs of the lab, too."""
        return self._watchdog.pid

    def start(self, name: str, *, options: Options | None = None) -> Server:
        """A new, empty server that answers queries. Options are mysqld's and override ours."""
        return self.start_many([name], options=options)[0]

    def start_many(self, names: Sequence[str], *, options: Options | None = None) -> list[Server]:
        """As ``start``, for several servers at once: they start side by side."""
        servers = [self._new_server(name, options or {}) for name in names]
        for server in servers:
            server.spawn()
        for server in servers:
            server.wait_until_ready()
        return servers

    def remove(self, server: Server) -> None:
        """Kills a server and removes its data."""
        server.kill()
        shutil.rmtree(server.folder)
        self._servers.remove(server)

    def close(self) -> None:
        """Kills all servers and removes the folder. May be called twice."""
        for server in self._servers:
            server.kill()  # nobody reads the data again, and a clean shutdown takes a second or more
        self._servers.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._watchdog.poll() is None:
            self._watchdog.communicate(b".")
        self._owner_lock.close()

    def _new_server(self, name: str, options: Options) -> Server:
        folder = self.folder / name
        port = _free_port(taken={server.port for server in self._servers})
        command = _server_command(self.distribution, folder, port, options)
        folder.mkdir()
        server = Server(name, folder, port, command, group=self.process_group)
        # Without auto.cnf the server makes itself a UUID of its own.
        shutil.copytree(self._template, server.datadir, ignore=shutil.ignore_patterns("auto.cnf"))
        self._servers.append(server)
        return server


def _is_stopped(pid: int) -> bool:
    """Whether a signal has stopped every thread of a process: they follow one by one."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            if stat.read_text().rpartition(")")[2].split()[0] not in ("T", "t", "Z", "X"):
                return False
    return True


def _server_command(distribution: Distribution, folder: Path, port: int, options: Options) -> tuple[str, ...]:
    places: Options = {
        "datadir": str(folder / "data"),
        "socket": str(folder / "socket"),
        "pid-file": str(folder / PID_FILE),
        "log-error": str(folder / "error.log"),
        "port": port,
        "server-id": port,  # unique on this machine, as the port is
    }
    chosen = {name.replace("_", "-"): value for name, value in options.items()}
    return (*_program(distribution), *_arguments({**DEFAULT_OPTIONS, **places, **chosen}))


def _program(distribution: Distribution) -> tuple[str, ...]:
    # mysqld refuses to run as root unless told so by name.
    user = ("--user=root",) if os.geteuid() == 0 else ()
    return (*distribution.command, "--no-defaults", f"--basedir={distribution.basedir}", *user)


def _arguments(options: Options) -> list[str]:
    """``skip-…`` options take no value; an empty value of another option is a value."""
    return [f"--{name}" if name.startswith("skip-") else f"--{name}={value}" for name, value in options.items()]


def _data_template(distribution: Distribution) -> Path:
    """An initialised data folder, made once for each version and copied for every server."""
    template = cache_folder() / f"data-{distribution.version}"
    if template.is_dir():
        return template
    with exclusively("data"):
        if not template.is_dir():
            _initialise(distribution, template)
    return template


def _initialise(distribution: Distribution, template: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="initialising-", dir=template.parent) as folder:
        data = Path(folder) / "data"
        command = (*_program(distribution), f"--datadir={data}", "--initialize-insecure")
        done = subprocess.run(
            (*command, *_arguments(TEMPLATE_OPTIONS)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=START_TIMEOUT_SECONDS * 5,
        )
        if done.returncode != 0:
            words = done.stderr.decode(errors="replace")[-1500:]
            raise PreflightError(f"mysqld could not initialise a data folder: {words}", hint=HINT)
        data.rename(template)


def _free_port(taken: set[int]) -> int:
    # Random, so that two labs that start at the same moment do not try the same ports.
    for port in random.sample(PORTS, k=len(PORTS)):
        if port not in taken and _is_free(port):
            return port
    raise PreflightError(f"no free port between {PORTS.start} and {PORTS.stop} on {HOST}", hint=HINT)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _start_watchdog(folder: Path) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("watchdog.py")
    return subprocess.Popen(
        (sys.executable, "-I", "-S", str(script), str(folder)),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        process_group=0,
    )


def _lock_as_owner(folder: Path) -> IO[bytes]:
    """A file that stays locked as long as this process lives.

    It gets its final name after it is locked: a file of that name that can be locked has a dead owner.
    """
    draft = folder / f"{OWNER_FILE}.draft"
    lock = draft.open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    draft.rename(folder / OWNER_FILE)
    return lock


def _remove_stale_labs(parent: Path) -> None:
    """Removes what labs left whose owner *and* watchdog were killed."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*"):
        try:
            with (folder / OWNER_FILE).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _kill_leftovers(folder)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # its owner lives, is another user, or has only just begun


def _kill_leftovers(folder: Path) -> None:
    for pid_file in folder.glob(f"*/{PID_FILE}"):
        pid = int(pid_file.read_text())
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in command:  # the number may belong to another process by now
            os.kill(pid, signal.SIGKILL)
