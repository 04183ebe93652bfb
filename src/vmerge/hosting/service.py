"""The service manager's side of the daemon: systemd is told when it is ready, alive and stopping.

Knows: the notification socket and the watchdog's period, as the service manager puts them into the environment. Never
knows: what makes the daemon ready or alive. Used by the daemon.
Source: sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

SOCKET_VARIABLE = "NOTIFY_SOCKET"
PERIOD_VARIABLE = "WATCHDOG_USEC"
PID_VARIABLE = "WATCHDOG_PID"

_SHARE = 1 / 3
"""Of the watchdog's period: how often the daemon speaks, so that one late time is no death."""


class ServiceManager:
    """Speaks to the service manager, if one has started the daemon.

    Promise: a service manager that does not listen costs nothing and fails nothing. Owner: the daemon's main thread.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get(SOCKET_VARIABLE, "")
        self._period = _period_seconds(environment)

    @property
    def pause_seconds(self) -> float | None:
        """How long the daemon may say nothing; None when nobody listens for it."""
        return None if self._period is None else self._period * _SHARE

    def ready(self, status: str) -> None:
        """All is set up; ``status`` is a sentence for an operator."""
        self._send(f"READY=1\nSTATUS={status}")

    def tell(self, status: str) -> None:
        """``status`` is a new sentence for an operator."""
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        """The main thread runs and gets the locks that it needs."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address.startswith(("/", "@")):
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), address)
        except OSError:
            pass  # a merge is not ended because nobody wants to hear of it


def _period_seconds(environment: Mapping[str, str]) -> float | None:
    """Return the watchdog's period, if it is meant for this process."""
    period = environment.get(PERIOD_VARIABLE, "")
    if not (period.isascii() and period.isdigit()) or int(period) == 0:
        return None
    if environment.get(PID_VARIABLE, str(os.getpid())) != str(os.getpid()):
        return None
    return int(period) / 1_000_000
