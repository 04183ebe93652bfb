"""Faults of processes, servers, networks and locks: vmerge gets over all of them by itself.

Each function breaks something and mends it. Used by ``test_campaign.py``.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pymysql
from pymysql.cursors import Cursor
from tests.faults.campaign import EQUAL_SECONDS, Fault, Scene
from tests.faults.conftest import CHECKPOINT
from tests.operating import wait_until

from vmerge.lab.proxy import COMMIT, Moment, Pace, Proxy, Way
from vmerge.lab.servers import Server

SEEN_SECONDS = 10.0
"""How long a chance to break something is waited for."""

Do = Callable[[Scene], AbstractContextManager[None]]


def server_of(scene: Scene, place: str) -> Server:
    """Return the target, or the server of any shard."""
    return scene.servers.target if place == "target" else scene.site.shards[scene.any_stream()].server


def proxy_of(scene: Scene, place: str) -> Proxy:
    """Return the proxy of the target, or of any source."""
    return scene.target if place == "target" else scene.sources[scene.any_stream()]


# The daemon


@contextmanager
def daemon_killed(scene: Scene) -> Iterator[None]:
    """SIGKILL at any moment."""
    scene.hold(0.0, 1.0)
    scene.kill_daemon()
    yield


@contextmanager
def daemon_killed_while(scene: Scene, remedy: str) -> Iterator[None]:
    """SIGKILL as soon as a stream is seen in some stage of a conflict."""

    def is_seen() -> bool:
        return any(one["blocked"] is not None and one["blocked"]["remedy"] == remedy for one in scene.look().values())

    with contextlib.suppress(AssertionError):  # none came: it is killed all the same
        wait_until(is_seen, f"{remedy} is seen", SEEN_SECONDS)
        scene.counts[f"daemons killed while {remedy}"] += 1
    scene.kill_daemon()
    yield


@contextmanager
def daemon_restarted(scene: Scene) -> Iterator[None]:
    """SIGTERM, and a clean end."""
    scene.look()
    assert scene.site.daemon is not None
    assert scene.site.daemon.end(60) == 0, scene.site.daemon.errors
    yield


@contextmanager
def daemon_frozen(scene: Scene, shortest: float, longest: float) -> Iterator[None]:
    """SIGSTOP of the daemon for a while."""
    daemon = scene.site.daemon
    assert daemon is not None
    os.kill(daemon.pid, signal.SIGSTOP)
    scene.workload.ends_within(scene.chance.uniform(shortest, longest))
    os.kill(daemon.pid, signal.SIGCONT)
    yield


# Servers


@contextmanager
def server_crashes(scene: Scene, place: str) -> Iterator[None]:
    """SIGKILL of mysqld, which is started again after a moment."""
    server = server_of(scene, place)
    server.kill()
    scene.hold(0.0, 1.5)
    server.restart()
    yield


@contextmanager
def server_restarts(scene: Scene, place: str) -> Iterator[None]:
    """A clean shutdown and a start."""
    server_of(scene, place).restart()
    yield


@contextmanager
def server_frozen(scene: Scene, place: str, shortest: float, longest: float) -> Iterator[None]:
    """SIGSTOP of mysqld: connections stay, and nothing answers."""
    server = server_of(scene, place)
    server.pause()
    scene.hold(shortest, longest)
    server.resume()
    yield


@contextmanager
def server_read_only(scene: Scene, place: str) -> Iterator[None]:
    """super_read_only for a while, as in a fail-over."""
    server_of(scene, place).query("SET GLOBAL super_read_only = ON")
    scene.hold(0.5, 3.0)
    yield


@contextmanager
def sessions_killed(scene: Scene, place: str) -> Iterator[None]:
    """KILL of all of vmerge's sessions of one server."""
    with server_of(scene, place).connect() as other, other.cursor() as cursor:
        kill_sessions(scene, cursor)
    yield


@contextmanager
def server_full(scene: Scene) -> Iterator[None]:
    """No connection is left for vmerge, and those it has are killed."""
    target = scene.servers.target
    with target.connect() as other, other.cursor() as cursor:
        cursor.execute("SET GLOBAL max_connections = 1")
        kill_sessions(scene, cursor)
        scene.hold(0.5, 3.0)
        cursor.execute("SET GLOBAL max_connections = DEFAULT")
    yield


def kill_sessions(scene: Scene, cursor: Cursor) -> None:
    """KILL what vmerge has open, in a session that is open already: there may be no room for another."""
    cursor.execute("SELECT id FROM performance_schema.processlist WHERE user = %s", (scene.site.user,))
    for (number,) in cursor.fetchall():
        with contextlib.suppress(pymysql.OperationalError):  # it has just ended by itself
            cursor.execute(f"KILL {number}")
            scene.counts["sessions killed"] += 1


# The network


@contextmanager
def cut(scene: Scene) -> Iterator[None]:
    """All connections break at once."""
    scene.counts["connections cut"] += sum(one.cut() for one in (scene.target, *scene.sources.values()))
    yield


@contextmanager
def refused(scene: Scene, place: str) -> Iterator[None]:
    """Connections break, and new ones are refused for a while."""
    proxy_of(scene, place).refuse()
    scene.hold(0.5, 3.0)
    yield


@contextmanager
def cut_in_commit(scene: Scene, moment: Moment) -> Iterator[None]:
    """The connection to the target breaks in COMMIT."""
    before = scene.target.sprung
    scene.target.cut_when(COMMIT, moment, behind=CHECKPOINT)
    wait_until(lambda: scene.target.sprung > before, lambda: f"a COMMIT is met: {scene.look()}", EQUAL_SECONDS)
    yield


@contextmanager
def cut_within(scene: Scene, place: str, way: Way) -> Iterator[None]:
    """A connection breaks in the middle of whatever flows, an event or a statement."""
    proxy = proxy_of(scene, place)
    before = proxy.sprung
    proxy.cut_within(way, scene.chance.randrange(1, 30_000))
    wait_until(lambda: proxy.sprung > before, lambda: f"so many bytes flow: {scene.look()}", EQUAL_SECONDS)
    yield


@contextmanager
def stalled(scene: Scene, place: str, shortest: float, longest: float) -> Iterator[None]:
    """Packets are swallowed for a while, in one direction or both."""
    ways = scene.chance.choice(((), (Way.TO_SERVER,), (Way.TO_CLIENT,)))
    proxy = proxy_of(scene, place)
    proxy.freeze(*ways)
    scene.hold(shortest, longest)
    yield


@contextmanager
def slow(scene: Scene, place: str, pace: Pace) -> Iterator[None]:
    """Bytes trickle, or every answer takes its time."""
    proxy_of(scene, place).slow_down(pace)
    scene.hold(1.0, 4.0)
    yield


# Locks from outside


@contextmanager
def locked(scene: Scene, statement: str, shortest: float, longest: float) -> Iterator[None]:
    """Somebody holds a lock on the target."""
    with scene.servers.target.connect(scene.site.database) as holder, holder.cursor() as cursor:
        holder.begin()
        cursor.execute(statement)
        scene.hold(shortest, longest)
    yield


@contextmanager
def source_locked(scene: Scene) -> Iterator[None]:
    """Somebody makes a backup of a shard."""
    server = scene.site.shards[scene.any_stream()].server
    with server.connect() as holder, holder.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        scene.hold(0.5, 3.0)
    yield


ROW_LOCKS = "SELECT id FROM seat FOR UPDATE"
TABLE_LOCK = "LOCK TABLES seat WRITE"
GLOBAL_LOCK = "FLUSH TABLES WITH READ LOCK"
BACKUP_LOCK = "LOCK INSTANCE FOR BACKUP"
TRICKLE, LATENCY = Pace(200, 0.01), Pace(64 * 1024, 0.1)


def of_both(
    words: str, do: Callable[..., AbstractContextManager[None]], *, weight: int = 2, is_usual: bool = False
) -> tuple[Fault, ...]:
    """Return a fault of the target and the same of a source."""
    places = {"target": "the target", "source": "a source"}
    return tuple(
        Fault(words.format(shown), partial(do, place=place), weight=weight, is_usual=is_usual)
        for place, shown in places.items()
    )


FAULTS: tuple[Fault, ...] = (
    Fault("kill -9 of the daemon", daemon_killed, weight=6),
    *(
        Fault(f"kill -9 of the daemon while {remedy}", partial(daemon_killed_while, remedy=remedy), is_quick=False)
        for remedy in ("waiting", "looking up", "jumping", "joining")
    ),
    Fault("clean restart of the daemon", daemon_restarted),
    Fault("SIGSTOP of the daemon, short", partial(daemon_frozen, shortest=0.5, longest=2.0)),
    Fault("SIGSTOP of the daemon for 31 s", partial(daemon_frozen, shortest=31, longest=35), 1, is_quick=False),
    *of_both("crash of {}", server_crashes, weight=3),
    *of_both("clean restart of {}", server_restarts, weight=3),
    *of_both("{} is read-only", server_read_only, is_usual=True),
    *of_both("KILL of all sessions of {}", sessions_killed, is_usual=True),
    *of_both("{} refuses connections", refused, is_usual=True),
    Fault("SIGSTOP of the target, short", partial(server_frozen, place="target", shortest=0.5, longest=3)),
    Fault("SIGSTOP of the target for 61 s", partial(server_frozen, place="target", shortest=61, longest=64), 1, False),
    Fault("SIGSTOP of a source, short", partial(server_frozen, place="source", shortest=0.5, longest=3)),
    Fault("SIGSTOP of a source for 11 s", partial(server_frozen, place="source", shortest=11, longest=13), 1, False),
    Fault("max_connections reached on the target", server_full),
    Fault("all connections cut", cut, weight=3, is_usual=True),
    Fault("connection lost in COMMIT, before the server got it", partial(cut_in_commit, moment=Moment.BEFORE), 3),
    Fault("connection lost in COMMIT, after its answer", partial(cut_in_commit, moment=Moment.AFTER), 3),
    Fault("connection lost in COMMIT, unheard", partial(cut_in_commit, moment=Moment.UNHEARD), 1, is_quick=False),
    Fault("dump cut within an event", partial(cut_within, place="source", way=Way.TO_CLIENT), 3),
    Fault("connection to the target cut within a statement", partial(cut_within, place="target", way=Way.TO_SERVER), 3),
    *of_both("network to {} stalled, short", partial(stalled, shortest=0.5, longest=3)),
    Fault("network to a source stalled for 11 s", partial(stalled, place="source", shortest=11, longest=13), 1, False),
    *of_both("network to {} trickles", partial(slow, pace=TRICKLE)),
    *of_both("network to {} has latency", partial(slow, pace=LATENCY)),
    Fault("row locks on the target, short", partial(locked, statement=ROW_LOCKS, shortest=0.5, longest=2)),
    Fault("row locks on the target for 8 s", partial(locked, statement=ROW_LOCKS, shortest=8, longest=10), 1, False),
    Fault("table lock on the target, short", partial(locked, statement=TABLE_LOCK, shortest=0.5, longest=2)),
    Fault("table lock on the target for 8 s", partial(locked, statement=TABLE_LOCK, shortest=8, longest=10), 1, False),
    Fault("global read lock on the target", partial(locked, statement=GLOBAL_LOCK, shortest=0.5, longest=3)),
    Fault("backup lock on the target", partial(locked, statement=BACKUP_LOCK, shortest=0.5, longest=2), 1),
    Fault("global read lock on a source", source_locked, 1),
)
