"""Dumps to damage: what real servers wrote, and what no server here can be made to write.

The files in ``recorded`` are binlog files as a server left them (``tests/integration/record_binlogs.py`` makes them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.unit.core.binlog_bytes import DELETE, UPDATE, Dump, row

FOLDER = Path(__file__).parent / "recorded"
MAGIC = b"\xfebin"
FORMAT_DESCRIPTION, BEGINS = 15, frozenset({33, 34, 42})

A, B = row(1, 1), row(2, 2)


@dataclass(frozen=True)
class History:
    """One dump, cut where the source's transactions begin."""

    name: str
    checksums: bool
    head: Sequence[bytes]
    """Up to the format description and what follows it."""
    stretches: Sequence[Sequence[bytes]]
    """Each begins with a GTID; what stands between two transactions belongs to the one before."""


def cut(content: bytes) -> Iterator[bytes]:
    """The events that stand one behind the other."""
    offset = 0
    while offset < len(content):
        size = int.from_bytes(content[offset + 9 : offset + 13], "little")
        yield content[offset : offset + size]
        offset += size


def as_history(name: str, events: Iterable[bytes]) -> History:
    parts: list[list[bytes]] = [[]]
    checksums = True
    for event in events:
        if event[4] == FORMAT_DESCRIPTION:
            checksums = event[-5] == 1
        if event[4] in BEGINS:
            parts.append([])
        parts[-1].append(event)
    return History(name, checksums, parts[0], parts[1:])


def recorded() -> list[History]:
    """What servers wrote. A dump begins with an event that tells the file's name, and no file has that."""
    start = Dump().events[0]
    files = sorted(FOLDER.glob("*.binlog"))
    return [as_history(file.stem, [start, *cut(file.read_bytes().removeprefix(MAGIC))]) for file in files]


def made(*, checksums: bool) -> History:
    """One of everything that has a body of its own, and the events that take a cluster or an old server to write."""
    dump = Dump(checksums=checksums).insert(1, A).gtid(2).begin().table_map()
    dump.rows(A, flags=0).rows(A + B, kind=UPDATE).rows(A, kind=DELETE, extra=b"\1\5\0").xid()
    with dump.gtid(3).payload():
        dump.begin().table_map("u", number=8).rows(B).xid()
    with dump.gtid(4).payload(compressed=False):
        dump.begin().table_map("u", number=8).rows(B).xid()
    dump.gtid(5).query("DROP TABLE t", status=b"\4\x08\0\x08\0\x08\0").heartbeat().heartbeat(kind=41)
    dump.gtid(6).query("XA START X'61',X'',1").table_map().rows(A).query("XA END X'61',X'',1").xa_prepare(b"a")
    dump.gtid(7).query("XA COMMIT X'61',X'',1").next_file(checksums=checksums).insert(8, B)
    dump.gtid(9).begin().table_map()
    for kind, images in ((23, A), (24, A + B), (25, A)):
        bitmaps = b"\xff\xff" if kind == 24 else b"\xff"
        dump.add(kind, dump.table_number.to_bytes(6, "little") + b"\1\0\2" + bitmaps + images)
    dump.xid().gtid(10).begin().add(36, bytes(40)).add(28, b"?").add(99, b"new", flags=0x80).table_map().rows(A).xid()
    dump.add(37, b"view".ljust(60, b"\0")).gtid(11).begin().add(26, b"\1\0\4lost")
    return as_history(f"made, {'with' if checksums else 'without'} checksums", dump.events)


HISTORIES = [*recorded(), made(checksums=True), made(checksums=False)]
