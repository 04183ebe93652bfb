"""mysql-replication as a second, independent reader of a real server's binlog, for the tests of this folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import UpdateRowsEvent

from vmerge.core.position import GtidSet
from vmerge.lab.servers import Server


@contextlib.contextmanager
def opened_library(server: Server, start: GtidSet, events: list[type]) -> Iterator[Any]:
    """The library's stream of events of these kinds behind a position; it ends where the binlog ends now."""
    settings = {"host": "localhost", "user": "root", "password": "", "unix_socket": str(server.socket_path)}
    stream = BinLogStreamReader(
        connection_settings={**settings, "ssl_disabled": True},
        server_id=7_000_001,
        blocking=False,
        auto_position=str(start),
        only_events=events,
        enable_logging=False,
    )
    try:
        yield stream
    finally:
        stream.close()


def images_of(event: Any) -> list[tuple[Any, ...]]:
    """The images in a rows event, column by column; an update has two a row. Raises whatever the library raises."""
    parts = ("before_values", "after_values") if isinstance(event, UpdateRowsEvent) else ("values",)
    return [tuple(row[part].values()) for row in event.rows for part in parts]
