"""The decoder on bytes that no healthy source sends: every one of them stops the stream."""

from __future__ import annotations

import pytest
from tests.unit.core.binlog_bytes import (
    DELETE,
    UPDATE,
    Dump,
    decode,
    gtid,
    integer,
    make_event,
    row,
    summary,
)

from vmerge.errors import CorruptEvent, UnsupportedEvent, VmergeError

A, B, C = row(1, 1), row(2, 2), row(3, 3)


# The allow-list


@pytest.mark.parametrize("kind", sorted({0, 1, *range(6, 13), *range(20, 23), *range(43, 256)}))
def test_unknown_events_stop_the_stream_unless_the_source_says_otherwise(kind: int) -> None:
    """A type that is not on the list is fatal; with the source's own flag for it, it is passed over."""
    with pytest.raises(UnsupportedEvent, match=f"type {kind},"):
        Dump().gtid(1).begin().add(kind, b"?" * 8).xid().decode()
    assert summary(Dump().gtid(1).begin().add(kind, b"?" * 8, flags=0x80).xid().decode()) == [(1, [])]


@pytest.mark.parametrize("kind", [3, 5, 13, 14, 28, 29, 35, 36, 37])
def test_events_that_carry_no_rows_are_passed_over(kind: int) -> None:
    """These are ignored on purpose, inside and outside of transactions."""
    dump = Dump().add(kind, b"?" * 8).gtid(1).begin().table_map().add(kind, b"?" * 8).rows(A).xid()
    assert summary(dump.decode()) == [(1, [("WRITE", "t", A)])]


@pytest.mark.parametrize(
    ("kind", "words"), [(34, "without a GTID"), (26, "events were lost"), (17, "LOAD DATA"), (18, "LOAD DATA")]
)
def test_events_that_cannot_be_carried_are_refused_by_name(kind: int, words: str) -> None:
    """Anonymous transactions, incidents and LOAD DATA as a statement stop the stream, each with its reason."""
    with pytest.raises(UnsupportedEvent, match=words):
        Dump().add(kind, b"?" * 60).decode()


@pytest.mark.parametrize(
    "dump",
    [
        Dump().xid(),
        Dump().query("COMMIT"),
        Dump().query("DROP TABLE t"),
        Dump().xa_prepare(b"a"),
        Dump().table_map().rows(A),
        Dump().gtid(1).begin().rows(A),
        Dump().gtid(1).begin().gtid(2),
        Dump().gtid(1).table_map().rows(A).query("DROP TABLE t"),
        Dump().gtid(1).begin().table_map().rows(A, columns=b"\3\xff"),
        Dump().gtid(1).begin().format_description(checksums=True),
        Dump().gtid(0),
        Dump().gtid(2**63 - 1),
        Dump().gtid(1).add(2, b"?" * 40),
    ],
)
def test_events_out_of_place_are_corrupt(dump: Dump) -> None:
    """Whatever stands where no source puts it stops the stream."""
    with pytest.raises(CorruptEvent):
        dump.decode()


def test_nothing_is_read_before_the_format_description() -> None:
    """Without it nobody can tell whether events have checksums."""
    with pytest.raises(CorruptEvent, match="before the format description"):
        decode([make_event(16, integer(1, 8))])


def test_an_unknown_checksum_algorithm_is_refused() -> None:
    """A file whose events are checked in an unknown way is not read unchecked."""
    dump = Dump()
    description = bytearray(dump.events[-1])
    description[-5] = 2
    with pytest.raises(UnsupportedEvent, match="algorithm 2"):
        decode([dump.events[0], bytes(description)])


# Damage


def flipped(event: bytes) -> list[bytes]:
    """The event with each of its bits turned, one at a time."""
    copies = []
    for bit in range(len(event) * 8):
        copy = bytearray(event)
        copy[bit // 8] ^= 1 << bit % 8
        copies.append(bytes(copy))
    return copies


def test_every_flipped_bit_is_caught() -> None:
    """A single wrong bit in any event of a file with checksums stops the stream, the format description included."""
    dump = Dump().insert(1, A).gtid(2).begin().table_map().rows(A + B, kind=UPDATE).rows(C, kind=DELETE).xid()
    with dump.gtid(3).payload():
        dump.begin().table_map().rows(A).xid()
    dump.gtid(4).query("DROP TABLE t").heartbeat()
    for index in range(1, len(dump.events)):  # the fake rotate in front holds only a name for messages
        for damaged in flipped(dump.events[index]):
            with pytest.raises((CorruptEvent, UnsupportedEvent)):
                decode([*dump.events[:index], damaged, *dump.events[index + 1 :]])


def test_a_file_without_checksums_does_not_hide_that_it_had_some() -> None:
    """A format description whose algorithm was turned off by a wrong bit is caught by its own checksum."""
    dump = Dump().insert(1, A)
    description = bytearray(dump.events[1])
    description[-5] = 0
    with pytest.raises(CorruptEvent, match="format description"):
        decode([dump.events[0], bytes(description), *dump.events[2:]])


@pytest.mark.parametrize("index", range(1, 7))
def test_cut_events_are_caught_without_checksums(index: int) -> None:
    """An event that is shorter or longer than its header says stops the stream, also in a file without checksums."""
    dump = Dump(checksums=False).insert(1, A)
    for damaged in (dump.events[index][:-1], dump.events[index] + b"\0", dump.events[index][:10], b""):
        with pytest.raises(VmergeError):
            decode([*dump.events[:index], damaged, *dump.events[index + 1 :]])


def test_a_message_says_where() -> None:
    """The file, the position and the transaction are in the text of an error."""
    dump = Dump().insert(1, A).gtid(2).begin().add(99, b"")
    with pytest.raises(UnsupportedEvent) as caught:
        dump.decode()
    assert "binlog.000001" in caught.value.message
    assert f"position {dump.position}" in caught.value.message
    assert str(gtid(2)) in caught.value.message
