"""Compressed transactions on bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.binlog_bytes import Dump, integer, make_event, row, summary

from vmerge.core.events import SchemaChange
from vmerge.core.payload import split_events
from vmerge.errors import CorruptEvent, UnsupportedEvent

A, B = row(1, 1), row(2, 2)


def never(compressed: bytes | memoryview) -> list[bytes]:
    raise AssertionError("nothing here is compressed")


def uncompressed(content: bytes, header: bytes = b"\2\3\xfc\xff\0\0") -> bytes:
    return header + content


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_a_compressed_transaction_is_like_any_other(compressed: bool, checksums: bool) -> None:
    """Its rows, its GTID and the transactions around it are those of the same transaction uncompressed."""
    dump = Dump(checksums=checksums).insert(1, A).gtid(2)
    with dump.payload(compressed=compressed):
        dump.begin().table_map().rows(A, flags=0).rows(B).xid()
    dump.insert(3, B)
    expected = [(1, [("WRITE", "t", A)]), (2, [("WRITE", "t", A), ("WRITE", "t", B)]), (3, [("WRITE", "t", B)])]
    assert summary(dump.decode()) == expected


def test_all_rows_of_a_large_one_come() -> None:
    """Not only the first event inside counts, and a large one spools like any other."""
    dump = Dump().gtid(1)
    with dump.payload():
        dump.begin().table_map()
        for value in range(101):
            dump.rows(row(value, value))
        dump.xid()
    assert summary(dump.decode(spool_above_bytes=50)) == [(1, [("WRITE", "t", row(n, n)) for n in range(101)])]


def test_xa_and_statements_inside() -> None:
    """What ends a transaction may stand inside a payload, whichever way it ends."""
    dump = Dump().gtid(1)
    with dump.payload():
        dump.query("XA START X'61',X'',1").table_map().rows(A).query("XA END X'61',X'',1").xa_prepare(b"a")
    dump.gtid(2).query("XA COMMIT X'61',X'',1").gtid(3)
    with dump.payload():
        dump.begin().table_map().rows(B).xid()
    assert summary(dump.decode()) == [(2, [("WRITE", "t", A)]), (3, [("WRITE", "t", B)])]
    dump = Dump().gtid(1)
    with dump.payload():
        dump.query("DROP TABLE t")
    assert isinstance(dump.decode()[0], SchemaChange)
    dump = Dump().gtid(1)
    with dump.payload():
        dump.begin().query("COMMIT")
    assert summary(dump.decode()) == [(1, [])]


def test_statement_format_inside_is_refused() -> None:
    """Compression hides nothing from the allow-list."""
    dump = Dump().gtid(1)
    with dump.payload():
        dump.begin().query("INSERT INTO t VALUES ('secret')").xid()
    with pytest.raises(UnsupportedEvent, match="INSERT"):
        dump.decode()
    dump = Dump().gtid(1)
    with dump.payload():
        dump.begin().add(99, b"")
    with pytest.raises(UnsupportedEvent, match="type 99"):
        dump.decode()


@pytest.mark.parametrize("kind", [3, 4, 15, 26, 27, 33, 34, 35, 40, 41, 42])
def test_events_of_the_stream_are_not_taken_from_inside(kind: int) -> None:
    """What belongs to the stream is corrupt inside a transaction; nested payloads would never end."""
    dump = Dump().gtid(1)
    with dump.payload():
        dump.begin().add(kind, bytes(90))
    with pytest.raises(CorruptEvent):
        dump.decode()


def test_two_transactions_in_one_payload_are_corrupt() -> None:
    """Nothing may follow what completed the transaction: the first would be lost."""
    dump = Dump().gtid(1)
    with dump.payload():
        dump.begin().table_map().rows(A).xid().table_map()
    with pytest.raises(CorruptEvent):
        dump.decode()
    dump = Dump()
    with dump.payload():
        dump.begin().table_map().rows(A).xid()
    with pytest.raises(CorruptEvent, match="outside of any transaction"):
        dump.decode()


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("cut", [1, 31, 60])
def test_a_cut_payload_is_corrupt(compressed: bool, cut: int) -> None:
    """A payload that ends too early is never taken for a shorter transaction, even cut between two events."""
    dump = Dump().gtid(1)
    with dump.payload(compressed=compressed, cut=cut):
        dump.begin().table_map().rows(A).rows(B).rows(A).rows(B).xid()
    with pytest.raises(CorruptEvent):
        dump.insert(2, A).decode()


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 64))
def test_events_come_out_as_they_went_in(bodies: list[bytes], width: int) -> None:
    """However the content is cut into pieces, the events inside come whole and in order."""
    events = [make_event(30, body, checksum=False) for body in bodies]
    content = b"".join(events)
    pieces = [content[start : start + width] for start in range(0, len(content), width)]
    header = b"\3\3\xfc" + integer(len(content), 2) + b"\0"
    assert list(split_events(header, lambda _: pieces)) == events
    assert list(split_events(uncompressed(content), never)) == events


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\2",
        b"\2\3\xfc\xff\0",
        b"\xff",
        b"\0",
        uncompressed(integer(0, 18)),
        uncompressed(make_event(30, b"", checksum=False), b"\2\3\xfc\xff\0\1\1\x05\0"),
        uncompressed(make_event(30, b"", checksum=False), b"\2\3\xfc\xff\0\3\1\x05\0"),
        uncompressed(integer(0, 9) + integer(18, 4) + integer(0, 6)),
    ],
)
def test_damaged_payloads_are_corrupt(body: bytes) -> None:
    """A header that is cut or contradicts the content is refused."""
    with pytest.raises(CorruptEvent):
        list(split_events(body, never))


def test_another_compression_is_refused() -> None:
    """A method that a later version may bring is named, not guessed."""
    with pytest.raises(UnsupportedEvent, match="method 7"):
        list(split_events(b"\2\1\7\0", never))
