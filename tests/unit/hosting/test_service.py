"""The service manager hears what it must, and its absence harms nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmerge.hosting.service import PERIOD_VARIABLE, PID_VARIABLE, SOCKET_VARIABLE, ServiceManager


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        yield listening


def test_told(receiver: socket.socket) -> None:
    """Ready, alive and stopping arrive as systemd reads them."""
    manager = ServiceManager({SOCKET_VARIABLE: receiver.getsockname()})
    manager.ready("hosts shop")
    manager.alive()
    manager.stopping()
    assert [receiver.recv(100) for _ in range(3)] == [b"READY=1\nSTATUS=hosts shop", b"WATCHDOG=1", b"STOPPING=1"]


def test_abstract_socket() -> None:
    """An address that begins with @ is one without a file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0vmerge-test-{os.getpid()}")
        listening.settimeout(5)
        ServiceManager({SOCKET_VARIABLE: f"@vmerge-test-{os.getpid()}"}).alive()
        assert listening.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/notify"], ids=["none", "no path", "nobody listens"])
def test_nobody_listens(address: str) -> None:
    """Without anybody who listens nothing happens."""
    ServiceManager({SOCKET_VARIABLE: address}).ready("hosts shop")


@pytest.mark.parametrize(
    ("environment", "pause"),
    [
        ({}, None),
        ({PERIOD_VARIABLE: "30000000"}, 10.0),
        ({PERIOD_VARIABLE: "30000000", PID_VARIABLE: str(os.getpid())}, 10.0),
        ({PERIOD_VARIABLE: "30000000", PID_VARIABLE: "1"}, None),
        ({PERIOD_VARIABLE: "0"}, None),
        ({PERIOD_VARIABLE: "soon"}, None),
    ],
)
def test_watchdog_period(environment: dict[str, str], pause: float | None) -> None:
    """The daemon speaks three times in a watchdog's period, if the watchdog is its own."""
    assert ServiceManager(environment).pause_seconds == pause
