"""The command line's way to the daemon of a state folder.

Knows: the paths of ``control_paths.py``, and how long an answer may take. Never knows: how a request is carried out.
Used by the command line and the lab.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

from vmerge.errors import DaemonError, VmergeError
from vmerge.hosting.control import control_socket
from vmerge.hosting.control_paths import EVENTS, LOG_ENTRIES
from vmerge.hosting.status import Snapshot

_ANSWER_SECONDS = 5.0
_SILENCE_SECONDS = 60.0
"""Several times as long as a feed says nothing."""
_TARGET_ANSWER_SECONDS = 30.0
"""Longer than a target that hangs keeps the daemon waiting."""
_STOP_ANSWER_SECONDS = 700.0
"""Longer than any stop may take."""
_ORDER_ANSWER_SECONDS = 60.0
"""Longer than the few short sessions that an order about a row opens."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_seconds: float) -> None:
        super().__init__("localhost", timeout=timeout_seconds)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class ControlClient:
    """Asks the daemon of a state folder. Every call raises ``DaemonError`` when none runs there, or it hangs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def status(self) -> Snapshot:
        """Return what the daemon hosts and does."""
        return self._request("GET", "/v1/status", None, _ANSWER_SECONDS)

    def show(self, workflow: str, streams: Sequence[str] | None) -> Snapshot:
        """Return all evidence about some streams' conflicts, or all, and who waits for whom."""
        return self._request("GET", _question("/v1/show", workflow, streams), None, _TARGET_ANSWER_SECONDS)

    def log(self, workflow: str, streams: Sequence[str] | None, limit: int = LOG_ENTRIES) -> Snapshot:
        """Return the last entries of the log about some streams, or all."""
        path = _question("/v1/log", workflow, streams, limit=limit)
        return self._request("GET", path, None, _TARGET_ANSWER_SECONDS)

    def start(
        self,
        workflow: str,
        streams: Sequence[str] | None,
        past_schema_change: str | None = None,
        stop_at: str | None = None,
    ) -> Sequence[str]:
        """Start streams; return the names of those that did not run already."""
        body = {"workflow": workflow, "streams": streams, "past_schema_change": past_schema_change, "stop_at": stop_at}
        # A start waits for the end of a stop that is under way.
        started: list[str] = self._request("POST", "/v1/start", body, _STOP_ANSWER_SECONDS)["streams"]
        return started

    def stop(self, workflow: str, streams: Sequence[str] | None, at: str | None = None) -> Sequence[str]:
        """Stop streams; return the names of those that ran, when they have ended, or of that which has a position."""
        body = {"workflow": workflow, "streams": streams, "at": at}
        stopped: list[str] = self._request("POST", "/v1/stop", body, _STOP_ANSWER_SECONDS)["streams"]
        return stopped

    def skip(self, workflow: str, stream: str, gtid: str, reason: str) -> Snapshot:
        """Skip a stream's next transaction; return its name and where the stream stands then."""
        body = {"workflow": workflow, "stream": stream, "gtid": gtid, "reason": reason}
        return self._request("POST", "/v1/skip", body, _STOP_ANSWER_SECONDS)

    def restart(self, workflow: str, streams: Sequence[str] | None) -> Sequence[str]:
        """Stop streams and start them anew; return their names."""
        body = {"workflow": workflow, "streams": streams}
        restarted: list[str] = self._request("POST", "/v1/restart", body, _STOP_ANSWER_SECONDS)["streams"]
        return restarted

    def quarantine(self, workflow: str, order: str, id: int | None = None) -> Snapshot:
        """Give an order about rows in quarantine: ``list``, or ``show``, ``retry``, ``drop`` with a row's number."""
        body = {"workflow": workflow, "order": order, "id": id}
        return self._request("POST", "/v1/quarantine", body, _ORDER_ANSWER_SECONDS)

    def events(self, workflow: str | None) -> Iterator[Snapshot]:
        """Yield what happens in one workflow, or all, as it happens, until the daemon ends or drops us."""
        connection = _UnixConnection(control_socket(self._folder), _SILENCE_SECONDS)
        try:
            connection.request("GET", EVENTS if workflow is None else _question(EVENTS, workflow, None))
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise _RemoteError(json.loads(response.read()))
            while line := response.readline():
                if line.strip():
                    yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._explain(error) from error
        finally:
            connection.close()

    def changes(self) -> Snapshot:
        """Return how the daemon's folder differs from what it hosts."""
        return self._request("GET", "/v1/changes", None, _ANSWER_SECONDS)

    def reload(self) -> Snapshot:
        """Have the folder hosted as it is now; return what has changed."""
        return self._request("POST", "/v1/reload", {}, _STOP_ANSWER_SECONDS)

    def shut_down(self) -> None:
        """Tell the daemon to end; returns when its streams have ended, a moment before the process has."""
        self._request("POST", "/v1/shutdown", None, _STOP_ANSWER_SECONDS)

    def _request(self, method: str, path: str, body: dict[str, Any] | None, timeout_seconds: float) -> Snapshot:
        connection = _UnixConnection(control_socket(self._folder), timeout_seconds)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer: Snapshot = json.loads(response.read(), object_hook=_Answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._explain(error) from error
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise _RemoteError(answer)
        return answer

    def _explain(self, error: Exception) -> DaemonError:
        match error:
            case PermissionError():
                return DaemonError(
                    f"the daemon in {self._folder} is another user's",
                    hint="Ask as that user, or name your --state-dir.",
                )
            case TimeoutError():
                return DaemonError(
                    f"the daemon in {self._folder} takes connections and does not answer",
                    hint="See whether its process is stopped or starved, and what its log says last.",
                )
            case FileNotFoundError() | ConnectionRefusedError():
                return DaemonError(
                    f"no daemon runs in {self._folder}",
                    hint="Start it with `vmerge daemon start FOLDER`, or name its --state-dir.",
                )
            case _:
                return DaemonError(f"the daemon in {self._folder} ended before it answered: {error}")


def _question(path: str, workflow: str, streams: Sequence[str] | None, **values: int) -> str:
    """Return the address of a GET about some streams."""
    pairs = [("workflow", workflow), *(("stream", stream) for stream in streams or ())]
    return f"{path}?{urlencode([*pairs, *values.items()])}"


class _Answer(dict[str, Any]):
    """A part of an answer. What it lacks, a daemon of an older version did not know of."""

    def __missing__(self, key: str) -> NoReturn:
        raise DaemonError(
            f"the daemon's answer has no `{key}`: it is of another version than this command",
            hint="Restart the daemon with this version; `vmerge daemon stop` ends it, and streams resume.",
        )


class _RemoteError(VmergeError):
    """An error that the daemon answered with."""

    def __init__(self, answer: Snapshot) -> None:
        super().__init__(str(answer["error"]), hint=str(answer["hint"]))
        self.exit_code = int(answer["exit_code"])
