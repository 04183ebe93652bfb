"""Damaged dumps: every outcome is a value or one of our errors, and what gets through has a safe shape."""

from __future__ import annotations

from datetime import timedelta
from typing import NoReturn
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.core.binlog_bytes import DELETE, UPDATE, Dump, decode, integer, row
from tests.unit.core.test_statement import check, read_piece

from vmerge.core.events import RowsKind, SourceItem, Transaction
from vmerge.core.statement import StatementBuilder
from vmerge.errors import VmergeError
from vmerge.mysql.source import _Packets as Packets
from vmerge.mysql.source import decompress

A, B = row(1, 1), row(2, 2)
FUZZ = settings(
    max_examples=300,
    derandomize=True,
    deadline=timedelta(seconds=5),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def healthy(*, checksums: bool) -> Dump:
    """A dump with one of everything that has a body of its own."""
    dump = Dump(checksums=checksums).insert(1, A).gtid(2).begin().table_map()
    dump.rows(A, flags=0).rows(A + B, kind=UPDATE).rows(A, kind=DELETE, extra=b"\1\5\0").xid()
    with dump.gtid(3).payload():
        dump.begin().table_map("u", number=8).rows(B).xid()
    dump.gtid(4).query("DROP TABLE t", status=b"\4\x08\0\x08\0\x08\0").heartbeat()
    dump.gtid(5).query("XA START X'61',X'',1").table_map().rows(A).query("XA END X'61',X'',1").xa_prepare(b"a")
    return dump.gtid(6).query("XA COMMIT X'61',X'',1").next_file(checksums=checksums).insert(7, B)


DUMPS = {checksums: healthy(checksums=checksums).events for checksums in (True, False)}

mutations = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6)


def repaired(event: bytearray, *, checksums: bool) -> bytes:
    """Give a damaged event a right length and a right checksum, so that the damage gets as far as it can."""
    if len(event) < 23:
        return bytes(event)
    event[9:13] = integer(len(event), 4)
    if checksums:
        event[-4:] = integer(crc32(bytes(event[:-4])), 4)
    return bytes(event)


def outcome(events: list[bytes]) -> list[SourceItem]:
    """Decode; one of our errors is as good as a value."""
    try:
        return decode(events)
    except VmergeError as error:
        assert error.message
        return []


def assert_safe(items: list[SourceItem]) -> None:
    """Whatever rows got through make pieces of the shape that a server survives."""
    for item in items:
        if not isinstance(item, Transaction):
            continue
        for shape, _ in item.rows:
            count = shape.table.column_count
            assert shape.kind in RowsKind
            bitmaps = 1 if shape.kind in (RowsKind.WRITE, RowsKind.DELETE) else 2
            assert len(shape.columns) - bitmaps * ((count + 7) // 8) in (1, 3, 4, 9)
        builder = StatementBuilder(lambda table: (table.database[:64], table.table[:64]), 1000, 77)
        for piece in builder.build(item.rows, 1_700_000_000):
            if all(shape.kind in (RowsKind.WRITE, RowsKind.DELETE) for shape, _ in item.rows):
                check(read_piece(piece))


@pytest.mark.parametrize("checksums", [True, False])
def test_damage_with_a_right_checksum(checksums: bool) -> None:
    """Bytes changed, cut or added, with length and checksum made right again, never give another exception."""

    @FUZZ
    @given(st.integers(0, len(DUMPS[True]) - 1), mutations, st.integers(-30, 10))
    def run(index: int, changes: list[tuple[int, int]], grow: int) -> None:
        events = list(DUMPS[checksums])
        event = bytearray(events[index])
        for offset, value in changes:
            event[offset % len(event)] = value
        event = event[:grow] if grow < 0 else event + bytes(grow)
        events[index] = repaired(event, checksums=checksums)
        assert_safe(outcome(events))

    run()


@FUZZ
@given(st.lists(st.sampled_from(DUMPS[True]), max_size=20))
def test_healthy_events_in_any_order(events: list[bytes]) -> None:
    """Events lost, repeated or swapped never give another exception, nor rows without their table."""
    assert_safe(outcome([*DUMPS[True][:2], *events]))


@FUZZ
@given(st.binary(max_size=200), st.integers(0, 42))
def test_noise_in_every_kind_of_event(noise: bytes, kind: int) -> None:
    """A body of noise behind any type, inside a transaction, gives a value or one of our errors."""
    assert_safe(outcome(Dump().gtid(1).begin().table_map().add(kind, noise).xid().events))


@FUZZ
@given(st.binary(max_size=300))
def test_noise_as_compressed_content(noise: bytes) -> None:
    """What is no zstandard frame is refused by its reader with one of our errors."""
    try:
        assert isinstance(b"".join(decompress(noise)), bytes)
    except VmergeError as error:
        assert error.message


@FUZZ
@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.lists(st.integers(1, 40), min_size=1))
def test_packets_are_cut_alike_however_they_arrive(payloads: list[bytes], widths: list[int]) -> None:
    """The same events come out whole and in order, wherever the network cuts the stream, up to the first status."""
    stream = b"".join(integer(len(payload), 3) + b"\7" + payload for payload in payloads)
    found: list[bytes] = []

    def end(status: int, rest: bytes) -> NoReturn:
        raise Ended(bytes((status,)) + rest)

    packets = Packets(end)
    try:
        while stream:
            for width in widths:
                packets.cut(stream[:width], found)
                stream = stream[width:]
    except Ended as error:
        found.append(error.args[0])
    expected = [payload if payload[0] else payload[1:] for payload in payloads]
    last = next((index for index, payload in enumerate(payloads) if payload[0]), len(payloads))
    assert found == expected[: last + 1]


class Ended(Exception):
    """A packet was no event."""
