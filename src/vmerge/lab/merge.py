"""vmerge itself as a process beside a lab's servers: a daemon that hosts one workflow.

Knows: workflow files, and how to ask a daemon. Never knows: what
is in the tables. Used by the demo, the benchmark and the tests.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmerge.core.appliers import ApplierSetting
from vmerge.core.position import GtidSet
from vmerge.errors import DaemonError
from vmerge.hosting.control_client import ControlClient
from vmerge.lab.accounts import create_source_account, create_target_account
from vmerge.lab.processes import Program, ProgramFailed
from vmerge.lab.servers import Lab, Server

ACCOUNT = "vmerge"
CONTROL_DATABASE = "_vmerge"
START_TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.05

WORKFLOW = """\
workflow: {workflow}
applier: {applier}

target:
  host: {host}
  port: {port}
  user: {user}
  password_file: password
  tls: {{mode: {tls}}}

streams:
"""
STREAM = """\
  "{name}":
    host: {host}
    port: {port}
    user: {user}
    password_file: password
    tls: {{mode: {tls}}}
    databases: {{{databases}}}
    start: {start}
"""


@dataclass(frozen=True)
class Stream:
    """One shard as a workflow names it."""

    name: str
    server: Server
    databases: Mapping[str, str]
    """Source database → target database."""
    start: GtidSet | None = None
    """None: what is written from now on."""


class Merge(Program):
    """A daemon with one workflow, from its creation on. Its files are in the lab's folder."""

    def __init__(
        self,
        lab: Lab,
        name: str,
        streams: Sequence[Stream],
        target: Server,
        *,
        tls: str = "preferred",
        applier: ApplierSetting = ApplierSetting.AUTO,
    ) -> None:
        self.workflow = name
        self.streams = tuple(streams)
        self.target = target
        folder = lab.folder / f"vmerge-{name}"
        self.file = folder / "workflows" / f"{name}.yaml"
        self.state_folder = folder / "state"
        self.file.parent.mkdir(parents=True)
        password = secrets.token_urlsafe(12)
        create_accounts(streams, target, password, applier)
        secret = self.file.with_name("password")
        secret.touch(mode=0o600)
        secret.write_text(password)
        self.file.write_text(workflow_text(name, streams, target, tls, applier))
        self._client = ControlClient(self.state_folder)
        super().__init__(
            lab, f"vmerge-{name}-daemon", self.command("daemon", "start", str(self.file.parent), "--foreground")
        )

    def command(self, *words: str) -> list[str]:
        """Return the command line of a vmerge command that concerns this daemon."""
        return [sys.executable, "-m", "vmerge", *words, "--state-dir", str(self.state_folder)]

    def progress(self) -> dict[str, dict[str, Any]]:
        """Return the status of each stream by its name.

        Raises:
            ProgramFailed: the daemon is gone, or a stream has failed.
        """
        self.require_running()
        (workflow,) = self._client.status()["workflows"]
        streams = {stream["stream"]: stream for stream in workflow["streams"]}
        for name, stream in streams.items():
            if stream["state"] == "error":
                raise ProgramFailed(f"stream {name} failed: {stream['message']}")
        return streams

    def wait_until_streaming(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Return when every stream has opened its source and its target."""
        self._wait(lambda: all(self._is_streaming(stream) for stream in self.progress().values()), timeout_seconds)

    def wait_until_applied(self, ends: Mapping[str, GtidSet], timeout_seconds: float) -> None:
        """Return when every stream has applied everything up to its end."""

        def has_applied() -> bool:
            progress = self.progress()
            return all(GtidSet.parse(progress[name]["applied"]).includes(end) for name, end in ends.items())

        self._wait(has_applied, timeout_seconds)

    def wait_until_at_heads(self, timeout_seconds: float) -> None:
        """Return when every source has said that it has nothing more; an idle one says so each second."""
        self._wait(lambda: all(stream["is_at_head"] for stream in self.progress().values()), timeout_seconds)

    def stop_stream(self, stream: str) -> None:
        """As ``vmerge stop WORKFLOW STREAM``."""
        self._client.stop(self.workflow, [stream])

    def start_stream(self, stream: str) -> None:
        """As ``vmerge start WORKFLOW STREAM``."""
        self._client.start(self.workflow, [stream], None)

    @staticmethod
    def _is_streaming(stream: Mapping[str, Any]) -> bool:
        return stream["phase"] not in ("idle", "connecting", "backing off")

    def _wait(self, is_true: Callable[[], bool], timeout_seconds: float) -> None:
        give_up_at = time.monotonic() + timeout_seconds
        while not self._holds(is_true):
            if time.monotonic() > give_up_at:
                raise ProgramFailed(f"{self.name}: not done after {timeout_seconds:g} s\n{self.errors[-2000:]}")
            time.sleep(POLL_SECONDS)

    def _holds(self, is_true: Callable[[], bool]) -> bool:
        try:
            return is_true()
        except DaemonError:
            self.require_running()  # it has not opened its socket yet
            return False


def create_accounts(
    streams: Sequence[Stream], target: Server, password: str, applier: ApplierSetting = ApplierSetting.AUTO
) -> None:
    """Make vmerge's account on every server. One that was there before is made anew."""
    for stream in streams:
        create_source_account(stream.server, ACCOUNT, password, stream.databases)
    databases = sorted({name for stream in streams for name in stream.databases.values()})
    create_target_account(target, ACCOUNT, password, databases, CONTROL_DATABASE, applier=applier)


def workflow_text(
    name: str,
    streams: Sequence[Stream],
    target: Server,
    tls: str,
    applier: ApplierSetting = ApplierSetting.AUTO,
) -> str:
    """Return the workflow file."""
    text = WORKFLOW.format(
        workflow=name, applier=applier.value, host=target.host, port=target.port, user=ACCOUNT, tls=tls
    )
    for stream in streams:
        text += STREAM.format(
            name=stream.name,
            host=stream.server.host,
            port=stream.server.port,
            user=ACCOUNT,
            tls=tls,
            databases=", ".join(f"{source}: {database}" for source, database in stream.databases.items()),
            start="current" if stream.start is None else f'{{gtid: "{stream.start}"}}',
        )
    return text
