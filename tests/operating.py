"""vmerge as an operator has it: workflow files, a state folder, a daemon that is started, asked, stopped and killed.

Everything goes through the command line and the control socket of real processes. Used by the tests of the daemon, of
``vmerge run`` and of faults.
"""

from __future__ import annotations

import copy
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol

import yaml

from vmerge.core.accounts import target_grants
from vmerge.core.appliers import ApplierSetting
from vmerge.core.position import GtidSet
from vmerge.core.schema_policy import OnDdl
from vmerge.errors import DaemonError
from vmerge.hosting.control_client import ControlClient
from vmerge.lab.accounts import allow, create_source_account, create_target_account
from vmerge.lab.comparison import Shard, compare
from vmerge.lab.processes import Program
from vmerge.lab.servers import Lab, Server
from vmerge.lab.shop import ShopShard, create_shop, seed_shop
from vmerge.stopping import StopToken, SystemClock

VMERGE = (sys.executable, "-m", "vmerge")
PASSWORD_VARIABLE = "SITE_PASSWORD"
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.02

_numbers = itertools.count(1)
_never = StopToken()


class Place(Protocol):
    """Where a server, or a proxy in front of it, listens."""

    host: str

    @property
    def port(self) -> int: ...


def wait_until(holds: Callable[[], bool], what: str | Callable[[], str], seconds: float = WAIT_SECONDS) -> None:
    """Return as soon as a condition holds; fail when it does not in time.

    ``what`` is a function where the text tells how things are: it is asked at the end.
    """
    clock = SystemClock()
    until = clock.monotonic() + seconds
    while not holds():
        if clock.monotonic() >= until:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        _never.wait(POLL_SECONDS)


class Access(Enum):
    """What the servers ask of vmerge's accounts."""

    PASSWORD = "password"
    CERTIFICATE = "certificate"
    """TLS with a client's certificate, too: a connection that is made without these settings is refused."""


class Site:
    """One workflow, ``shop``, over shards with the shop's tables. ``places`` says where a server is reached instead."""

    workflow = "shop"

    def __init__(
        self,
        lab: Lab,
        database: str,
        shards: Mapping[str, Server],
        target: Server,
        *,
        places: Mapping[str, Place] | None = None,
        limits: Mapping[str, float] | None = None,
        customers: int = 100,
        applier: ApplierSetting = ApplierSetting.AUTO,
        access: Access = Access.PASSWORD,
    ) -> None:
        """With statements the account has the privileges that these need, and not that of row events."""
        self._applier = applier
        self._access = access
        self._lab = lab
        self.database = database
        self.control = f"{database}_control"
        self.shards = {
            name: ShopShard(server, f"{database}_{index}") for index, (name, server) in enumerate(shards.items())
        }
        self.target = target
        self.user = f"u_{database}"[:32]
        self._folder = lab.folder / f"site{next(_numbers)}"
        self.workflows = self._folder / "workflows"
        self.workflows.mkdir(parents=True)
        self.file = self.workflows / "shop.yaml"
        self.state_folder = self._folder / "state"
        self.client = ControlClient(self.state_folder)
        self._create_tables(customers)
        self._create_accounts()
        self.begin_here()
        self.write_workflow(places=places, limits=limits)
        self.daemon: Program | None = None

    def begin_here(self) -> None:
        """Let streams without a checkpoint begin behind what their sources have by now, in files yet to be written."""
        self._starts = {name: _executed(shard.server) for name, shard in self.shards.items()}

    def _create_tables(self, customers: int) -> None:
        merged = ShopShard(self.target, self.database)
        for place in (*self.shards.values(), merged):
            create_shop(place.server, place.database)
        seed_shop(tuple(self.shards.values()), merged, customers)

    def _create_accounts(self) -> None:
        requires = "NONE" if self._access is Access.PASSWORD else "X509"
        for shard in self.shards.values():
            create_source_account(shard.server, self.user, "secret", [shard.database], requires=requires)
        create_target_account(
            self.target,
            self.user,
            "secret",
            [self.database],
            self.control,
            applier=self._applier,
            requires=requires,
        )

    def allow_schema_changes(self) -> None:
        """Let the target's account run schema changes."""
        allow(self.target, self.user, target_grants([self.database], self.control, self._applier, OnDdl.EXECUTE))

    def _tls(self, server: Server) -> dict[str, str]:
        if self._access is Access.PASSWORD:
            return {"mode": "disabled"}
        # Servers make these files themselves; all of a lab have the same, as they are copies.
        files = {"ca": "ca.pem", "certificate": "client-cert.pem", "key": "client-key.pem"}
        return {"mode": "verify_ca", **{key: str(server.datadir / name) for key, name in files.items()}}

    def document(self, places: Mapping[str, Place] | None = None) -> dict[str, Any]:
        """Return the workflow file as data."""
        servers: dict[str, Place] = {name: shard.server for name, shard in self.shards.items()}
        servers |= {"target": self.target, **(places or {})}
        access = {
            name: {
                "host": place.host,
                "port": place.port,
                "user": self.user,
                "password_env": PASSWORD_VARIABLE,
                "tls": self._tls(self.target if name == "target" else self.shards[name].server),
            }
            for name, place in servers.items()
        }
        streams = {
            name: {
                **access[name],
                "databases": {shard.database: self.database},
                "start": {"gtid": self._starts[name]},
            }
            for name, shard in self.shards.items()
        }
        target = {**access["target"], "control_database": self.control}
        return {"workflow": self.workflow, "target": target, "streams": streams}

    def write_workflow(
        self, *, places: Mapping[str, Place] | None = None, limits: Mapping[str, float] | None = None
    ) -> None:
        """Write the workflow file."""
        document = {**self.document(places), "limits": {"conflict_timeout_seconds": 120, **(limits or {})}}
        self.file.write_text(yaml.safe_dump(document))

    # Processes

    def environment(self) -> dict[str, str]:
        """Return what vmerge's processes get."""
        return {PASSWORD_VARIABLE: "secret", "VMERGE_STATE_DIR": str(self.state_folder)}

    def vmerge(self, *words: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            (*VMERGE, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env={**os.environ, **self.environment()},
        )

    def spawn(self, *words: str) -> Program:
        """Start a command that goes on; whoever calls ends it."""
        return Program(self._lab, f"vmerge{next(_numbers)}", (*VMERGE, *words), self.environment())

    def twin(self) -> Site:
        """Return the same workflow with another state folder and another daemon."""
        other = copy.copy(self)
        other.state_folder = self._folder / f"state{next(_numbers)}"
        other.client = ControlClient(other.state_folder)
        other.daemon = None
        return other

    def start_daemon(self, *words: str, waits: bool = True) -> Program:
        """Start a daemon as a child, so that its end can be seen."""
        self.daemon = self.spawn("daemon", "start", str(self.workflows), "--foreground", *words)
        if waits:
            wait_until(self.answers, "the daemon answers")
        return self.daemon

    def end(self) -> None:
        """Kill the daemon if it still lives."""
        if self.daemon is not None:
            self.daemon.kill()

    def answers(self) -> bool:
        """Whether a daemon answers; fails when ours has ended."""
        if self.daemon is not None:
            self.daemon.require_running()
        try:
            self.client.status()
        except DaemonError:
            return False
        return True

    def goes_on(self) -> bool:
        """Whether the daemon goes on; it must answer then."""
        return self.daemon is not None and self.daemon.is_running and self.answers()

    # What it does

    def streams(self) -> dict[str, dict[str, Any]]:
        """Return each stream's status by name."""
        (workflow,) = self.client.status()["workflows"]
        return {stream["stream"]: stream for stream in workflow["streams"]}

    def wait_for(self, stream: str, seconds: float = WAIT_SECONDS, **values: object) -> dict[str, Any]:
        """Wait until a stream's status has these values, and return it."""
        status: dict[str, Any] = {}

        def has_values() -> bool:
            nonlocal status
            status = self.streams()[stream]
            return all(status[key] == value for key, value in values.items())

        wait_until(has_values, lambda: f"{stream} has {values}; it has {status}", seconds)
        return status

    def stored(self, column: str) -> dict[str, Any]:
        """Return what the control table has of each stream; nothing before it exists."""
        exists = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = 'stream'"
        if not self.target.query(exists, self.control):
            return {}
        return dict(self.target.query(f"SELECT name, {column} FROM {self.control}.stream"))

    def is_at_heads(self) -> bool:
        """Whether every checkpoint is what its source has executed."""
        positions = self.stored("position")
        heads = {name: _executed(shard.server) for name, shard in self.shards.items()}
        return all(GtidSet.parse(positions.get(name, "")) == GtidSet.parse(head) for name, head in heads.items())

    def require_exact(self, seconds: float = 60.0) -> None:
        """Wait for the heads; then the target must be the union of the shards, byte for byte.

        Nobody may write any more. Checkpoints are compared with what the sources have executed.
        """
        wait_until(self.is_at_heads, lambda: f"all streams are at their heads; they are {self._words()}", seconds)
        shards = [Shard(shard.server, {shard.database: self.database}) for shard in self.shards.values()]
        comparison = compare(shards, self.target)
        assert comparison.is_equal, str(comparison)

    def _words(self) -> str:
        try:
            return str({name: (one["state"], one["phase"], one["message"]) for name, one in self.streams().items()})
        except DaemonError as error:
            return error.message


def _executed(server: Server) -> str:
    return str(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])


@contextmanager
def running(site: Site, *words: str) -> Iterator[Program]:
    """Run a site's daemon, killed at the end of the test whatever happened."""
    try:
        yield site.start_daemon(*words)
    finally:
        site.end()


def insert_customers(shard: ShopShard, first: int, count: int) -> None:
    """Insert customers that no workload knows, each in a transaction of its own."""
    with shard.server.connect(shard.database) as connection, connection.cursor() as cursor:
        for number in range(first, first + count):
            cursor.execute(
                "INSERT INTO customer (id, email, name, balance) VALUES (%s, %s, 'Test', 0)",
                (number, f"c{number}@example.org"),
            )
