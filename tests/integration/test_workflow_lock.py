"""The lock of a workflow on a real server: who has it, how it is lost, and that its loss is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.operating import wait_until

from vmerge.errors import TargetLost
from vmerge.lab.proxy import Moment, Proxy
from vmerge.lab.servers import Server
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.control_layout import LAYOUT, ControlLayout
from vmerge.mysql.tls import Tls, TlsMode
from vmerge.mysql.workflow_lock import LEASE_SECONDS, MySqlWorkflowLock

pytestmark = pytest.mark.server


class Locks:
    """Locks of one workflow, as several daemons ask for it."""

    def __init__(self, server: Server, control: str) -> None:
        self.server = server
        self.control = control
        self._made: list[MySqlWorkflowLock] = []

    def of(self, process: int, port: int | None = None) -> MySqlWorkflowLock:
        """Return the lock of the daemon with this process number, perhaps by way of another port."""
        access = self.server.host, port or self.server.port, "root", ""
        endpoint = Endpoint("target", *access, tls=Tls(TlsMode.DISABLED))
        lock = MySqlWorkflowLock(endpoint, self.control, "w", f"host{process}:{process}:x")
        self._made.append(lock)
        return lock

    def close(self) -> None:
        """Let go of all."""
        for lock in self._made:
            lock.close()


@pytest.fixture
def locks(target: Server, database: str) -> Iterator[Locks]:
    """Locks on the shared target."""
    locks = Locks(target, database)
    yield locks
    locks.close()


def make_tables(locks: Locks) -> None:
    """Make the control tables, as the first stream does that is entered."""
    with locks.server.connect() as connection:
        ControlLayout(locks.control).create(connection)


def test_who_has_the_lock_is_told(locks: Locks) -> None:
    """With control tables by host and process, before there are any by the session; never by an earlier name."""
    first, second = locks.of(1), locks.of(2)
    assert first.acquire(0) is None and first.keep()
    assert "no control tables" in first.prepare()
    assert str(second.acquire(0)).startswith("session ")
    make_tables(locks)
    assert f"of layout {LAYOUT}" in first.prepare()
    assert first.keep()
    assert second.acquire(0) == "host1, process 1"
    locks.server.query(f"UPDATE {locks.control}.daemon SET session = session + 1")
    assert str(second.acquire(0)).startswith("session ")
    first.close()
    assert second.acquire(5) is None
    assert first.acquire(0) == "host2, process 2"
    assert locks.server.query(f"SELECT owner FROM {locks.control}.daemon") == [("host2:2:x",)]


def test_a_lock_that_is_seized(locks: Locks) -> None:
    """Who takes it has it, and who had it notices with the next word, and sees by whom."""
    make_tables(locks)
    first, second = locks.of(1), locks.of(2)
    assert first.acquire(0) is None
    second.seize()
    assert second.acquire(5) is None
    with pytest.raises(TargetLost):
        first.keep()
    assert not first.keep()
    assert first.acquire(0) == "host2, process 2"


def test_a_connection_that_is_lost_unheard(locks: Locks) -> None:
    """A daemon whose session outlived its connection has its lock again at once: it ends that session itself."""
    with Proxy(locks.server.host, locks.server.port) as proxy:
        lock = locks.of(1, proxy.port)
        assert lock.acquire(0) is None
        proxy.cut_when(b"IS_USED_LOCK", Moment.UNHEARD)
        with pytest.raises(TargetLost):
            lock.keep()
        assert str(locks.of(2).acquire(0)).startswith("session ")
        assert lock.acquire(3) is None
        assert lock.keep()


@pytest.mark.long
def test_a_holder_that_says_nothing(locks: Locks) -> None:
    """Its session ends by itself, within the lease and not before."""
    first, second = locks.of(1), locks.of(2)
    assert first.acquire(0) is None
    assert second.acquire(LEASE_SECONDS - 3) is not None
    wait_until(lambda: second.acquire(2) is None, "the lock is free")
    with pytest.raises(TargetLost):
        first.keep()
