"""Faults that stop streams, clearly, until an operator has done something; and schema changes amid which daemons die.

Each function breaks something and mends it as the operator's guide says. Used by ``test_campaign.py``.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.campaign import EQUAL_SECONDS, Fault, Scene
from tests.operating import wait_until

from vmerge.lab.servers import Server

LARGE_ROWS, LARGE_BYTES = 12, 1024 * 1024
"""More than is kept in memory of one transaction."""
SPOOL_BYTES = 4 * 1024 * 1024
NO_ROOM = "no room left in .* for the rows of a large transaction"


def wait_for_stop(scene: Scene, stream: str, pattern: str) -> None:
    """Wait until a stream has stopped with a message of this kind."""

    def has_stopped() -> bool:
        one = scene.look().get(stream)
        if one is None or one["state"] != "error":
            return False
        assert re.search(pattern, one["message"]), one["message"]
        return True

    wait_until(has_stopped, lambda: f"{stream} stops with {pattern}: {scene.look()}", EQUAL_SECONDS)
    scene.counts["clear stops that need more than a start"] += 1


def begin_anew(scene: Scene) -> None:
    """Copy the rows anew, with a workload that stands still, and let the streams begin there."""
    scene.kill_daemon()
    scene.site.copy_anew()
    scene.start_daemon()


@contextmanager
def position_purged(scene: Scene) -> Iterator[None]:
    """A source purges what a stream still needs: the stream says so and stops until its rows are copied anew."""
    stream = scene.any_stream()
    scene.kill_daemon()
    shard = scene.site.shards[stream]
    with scene.quiet():
        shard.server.query(f"INSERT INTO {shard.database}.bulk (id, content) VALUES ({scene.number}, 'purged')")
        purge(shard.server)
        scene.start_daemon()
        wait_for_stop(scene, stream, "has purged transactions that this stream needs")
        begin_anew(scene)
    yield


def purge(server: Server) -> None:
    """Purge all binlogs but the newest, which is empty."""
    server.query("FLUSH BINARY LOGS")
    (*_, newest) = server.query("SHOW BINARY LOGS")
    server.query("PURGE BINARY LOGS TO %s", newest[0])


@contextmanager
def images_become_partial(scene: Scene) -> Iterator[None]:
    """SET GLOBAL binlog_row_image = MINIMAL amid the run: rows that lack columns stop the stream in front of them."""
    stream = scene.any_stream()
    shard = scene.site.shards[stream]
    shard.server.query("SET GLOBAL binlog_row_image = MINIMAL")
    with scene.quiet():
        shard.server.query(f"INSERT INTO {shard.database}.bulk (id, content) VALUES ({scene.number}, 'whole')")
        shard.server.query(f"UPDATE {shard.database}.bulk SET content = 'part' WHERE id = {scene.number}")
        shard.server.query("SET GLOBAL binlog_row_image = FULL")
        wait_for_stop(scene, stream, "binlog_row_image|lacks columns|partial")
        begin_anew(scene)
    yield


@contextmanager
def transactions_become_anonymous(scene: Scene) -> Iterator[None]:
    """SET GLOBAL gtid_mode = OFF_PERMISSIVE amid the run: a transaction without a name stops the stream."""
    stream = scene.any_stream()
    shard = scene.site.shards[stream]
    with scene.quiet():
        for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
            shard.server.query(f"SET GLOBAL gtid_mode = {mode}")
        shard.server.query(f"INSERT INTO {shard.database}.bulk (id, content) VALUES ({scene.number}, 'anonymous')")
        wait_for_stop(scene, stream, "anonymous|1236")
        for mode in ("ON_PERMISSIVE", "ON"):
            shard.server.query(f"SET GLOBAL gtid_mode = {mode}")
        begin_anew(scene)
    yield


@contextmanager
def spool_is_full(scene: Scene) -> Iterator[None]:
    """No room for a transaction larger than memory shall hold: its stream stops, and resumes when there is room."""
    stream = scene.any_stream()
    shard = scene.site.shards[stream]
    daemon = scene.site.daemon
    assert daemon is not None
    _, hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (SPOOL_BYTES, hard))
    with shard.server.connect(shard.database) as connection, connection.cursor() as cursor:
        connection.begin()
        for number in range(LARGE_ROWS):
            values = f"{scene.number * 100 + number + 10**9}, REPEAT('x', {LARGE_BYTES})"
            cursor.execute(f"INSERT INTO bulk (id, content) VALUES ({values})")
        connection.commit()
        wait_for_stop(scene, stream, NO_ROOM)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (hard, hard))
        scene.site.client.start(scene.site.workflow, [stream], None)
        cursor.execute("DELETE FROM bulk WHERE id >= 1000000000")
        connection.commit()
    yield


@contextmanager
def daemon_killed_at_barrier(scene: Scene) -> Iterator[None]:
    """The daemon is killed while a stream waits at a schema change, and once more while the change is passed."""
    streams = sorted(scene.sources)
    scene.chance.shuffle(streams)
    statement = f"ALTER TABLE bulk ADD COLUMN c{scene.number} INT NOT NULL DEFAULT {scene.number}"
    with scene.quiet():
        wait_until(scene.site.is_at_heads, "all streams are at their heads", EQUAL_SECONDS)
        first, *others = (scene.site.shards[stream] for stream in streams)
        first.server.execute_script(statement, first.database)
        wait_until(lambda: scene.look().get(streams[0], {}).get("barrier") is not None, "a barrier is met")
        scene.kill_daemon()
        for other in others:
            other.server.execute_script(statement, other.database)
        scene.start_daemon()
        scene.hold(0.0, 1.0)
        scene.kill_daemon()
    yield


LOSSES: tuple[Fault, ...] = (
    Fault("a source has purged the position", position_purged, 2, False),
    Fault("binlog_row_image becomes MINIMAL", images_become_partial, 1, False),
    Fault("gtid_mode becomes OFF_PERMISSIVE", transactions_become_anonymous, 1, False),
    Fault("the spool's disk is full", spool_is_full, 2, False, stops=NO_ROOM),
    Fault("kill -9 of the daemon at a barrier", daemon_killed_at_barrier, 2, False),
)
