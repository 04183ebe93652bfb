"""The decoder's fast lane: what it takes, what it leaves, and that nobody can tell.

``Dump.decode`` decodes everything with and without the lane, and compares: so do all tests of the decoder.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.binlog_bytes import (
    DELETE,
    UPDATE,
    Dump,
    MemoryStore,
    as_plain,
    carried,
    decode,
    decode_cut,
    decompress,
    row,
    summary,
)
from tests.unit.core.test_binlog_fuzz import FUZZ
from tests.unit.core.test_tagged_gtid import body

from vmerge.core.binlog import BinlogDecoder, Surroundings
from vmerge.core.events import Transaction
from vmerge.core.source_tables import SourceTables
from vmerge.core.usual import UsualTransactions
from vmerge.errors import UnsupportedEvent, VmergeError

A, B = row(1, 1), row(2, 2)
SPOOL_ABOVE = 4 * len(A)
SERVER = bytes(range(16))

STEPS: list[Callable[[Dump], object]] = [
    lambda dump: dump.insert(1, A),
    lambda dump: dump.insert(2, B),
    lambda dump: dump.gtid(3).begin().table_map().rows(A, kind=DELETE).xid(),
    lambda dump: dump.gtid(4).begin().table_map().rows(A, flags=0).table_map("u", number=8).rows(B, kind=UPDATE).xid(),
    lambda dump: dump.gtid(5).begin().table_map("u", number=7).rows(B).xid(),
    lambda dump: dump.gtid(6).begin().table_map("unwanted", number=9).rows(b"?", columns=b"\1\0").xid(),
    lambda dump: dump.gtid(7).begin().rows(A, number=7).xid(),
    lambda dump: dump.gtid(8).begin().table_map().rows(A).table_map("u", number=7).rows(B).query("COMMIT"),
    lambda dump: dump.gtid(9).begin().table_map().rows(A + A + A + A + A).xid(),
    lambda dump: dump.gtid(10).query("BEGIN", status=b"\0\1\2\3\4").table_map().rows(B).rows(A, extra=b"\1\5\0").xid(),
    lambda dump: dump.gtid(11).query("DROP TABLE t"),
    lambda dump: dump.add(42, body(SERVER, "blue", 12, 99)).begin().table_map().rows(A).xid(),
    lambda dump: dump.gtid(0).begin().table_map().rows(A).xid(),
    lambda dump: dump.heartbeat(),
    lambda dump: dump.next_file(checksums=True),
    lambda dump: dump.next_file(checksums=False),
    lambda dump: dump.xid(),
    lambda dump: dump.gtid(13),
    lambda dump: dump.add(30, b"cut"),
]


def surroundings() -> Surroundings:
    return Surroundings(carried(lambda table: table.table != "unwanted"), MemoryStore, decompress, SPOOL_ABOVE)


@FUZZ
@given(st.lists(st.sampled_from(STEPS), max_size=15), st.lists(st.integers(1, 80)), st.none() | st.integers(0, 10_000))
def test_cuts_cannot_be_told(steps: list[Callable[[Dump], object]], cuts: list[int], damaged: int | None) -> None:
    """However a dump is cut into sequences, and wherever it is damaged, the same items and the same error come out."""
    dump = Dump().insert(1, A)
    for step in steps:
        step(dump)
    events = dump.events
    if damaged is not None:
        victim = bytearray(events[damaged % len(events)])
        victim[damaged % len(victim)] ^= 1
        events[damaged % len(events)] = bytes(victim)
    ends = [0, *sorted({2, *(cut for cut in cuts if cut < len(events))}), len(events)]
    expected, expected_error = decode_cut(surroundings(), [[event] for event in events])
    items, error = decode_cut(surroundings(), [events[begin:end] for begin, end in pairwise(ends)])
    assert [as_plain(item) for item in items] == [as_plain(item) for item in expected]
    assert (type(error), str(error)) == (type(expected_error), str(expected_error))


@pytest.mark.parametrize("step", STEPS)
def test_each_step_between_usual_ones(step: Callable[[Dump], object]) -> None:
    """Whatever stands between transactions that the lane takes, decoding with and without it comes to the same."""
    dump = Dump().insert(20, A).gtid(21).begin().table_map("u", number=8).rows(B, kind=UPDATE).xid().insert(22, A)
    step(dump)
    dump.gtid(23).begin().table_map("u", number=8).rows(B, kind=UPDATE).xid().insert(24, A).heartbeat().heartbeat()
    with contextlib.suppress(VmergeError):
        dump.decode(carriage=surroundings().carriage, spool_above_bytes=SPOOL_ABOVE)


@pytest.mark.parametrize("extra", [b"", b"\1\5\0"])
def test_a_known_beginning_is_known_to_its_end(extra: bytes) -> None:
    """Rows of a wide table that lack their last column are refused, though they begin as others did before."""
    wide = b"\x14" + b"\3" * 20 + b"\0" + bytes(3)
    dump = Dump()
    for number, bitmap in ((1, b"\xff\xff\x0f"), (2, b"\xff\xff\x0f"), (3, b"\xff\xff\x07")):
        dump.gtid(number).begin().table_map(tail=wide).rows(bytes(83), columns=b"\x14" + bitmap, extra=extra).xid()
    assert len(decode(dump.events[:-5])) == 2
    with pytest.raises(UnsupportedEvent):
        dump.decode()


def test_a_number_that_means_another_table() -> None:
    """Rows belong to the table that their number meant last, also when it meant others before."""
    dump = Dump()
    for number, table in enumerate("tutuu", 1):
        dump.gtid(number).begin().table_map(table, number=7).rows(A).xid()
    assert summary(dump.decode()) == [(n, [("WRITE", table, A)]) for n, table in enumerate("tutuu", 1)]


def lane(dump: Dump) -> UsualTransactions:
    """A lane that knows the tables of a dump."""
    tables = SourceTables(surroundings().carriage)
    for event in dump.events:
        if event[4] == 19:
            tables.take_map(event[19:-4])
    return UsualTransactions(tables, SPOOL_ABOVE)


def usual() -> Dump:
    dump = Dump().insert(1, A).gtid(2).begin().table_map().rows(A, flags=0).rows(B, kind=UPDATE).xid()
    dump.gtid(3).begin().table_map().rows(A, flags=0).table_map("u", number=8).rows(B).xid()
    dump.gtid(4).begin().table_map("unwanted", number=9).rows(A).xid()
    return dump.add(42, body(SERVER, "blue", 5, 99)).begin().table_map().rows(B, kind=DELETE).xid()


def test_it_takes_what_is_usual() -> None:
    """Plain and tagged GTIDs, several rows events, several tables and unwanted ones all go through the lane."""
    dump = usual()
    taken: list[Transaction] = []
    assert lane(dump).take(dump.events, 2, taken) == len(dump.events)
    decoded = dump.decode(carriage=surroundings().carriage)
    assert [as_plain(item) for item in taken] == [as_plain(item) for item in decoded]


@pytest.mark.parametrize("missing", range(1, 5))
def test_it_leaves_a_transaction_that_is_not_whole(missing: int) -> None:
    """What the end of the sequence cuts short is left from its GTID on, and nothing of it is taken."""
    dump = Dump().insert(1, A).insert(2, B)
    taken: list[Transaction] = []
    assert lane(dump).take(dump.events[:-missing], 2, taken) == 7
    assert summary(taken) == [(1, [("WRITE", "t", A)])]


def test_it_never_learns_a_table() -> None:
    """A table map under a new number is the decoder's: the lane stops before its transaction and changes nothing."""
    known, new = Dump().insert(1, A), Dump().gtid(2).begin().table_map("u", number=7).rows(A).xid()
    one = lane(known)
    taken: list[Transaction] = []
    assert one.take(new.events, 2, taken) == 2
    assert one.take(known.events, 2, taken) == len(known.events)
    assert summary(taken) == [(1, [("WRITE", "t", A)])]


def test_nothing_is_tied_into_cycles() -> None:
    """Transactions are freed when they are let go: the daemon's process hardly ever looks for cycles."""
    dump = usual().next_file(checksums=True)
    decoder = BinlogDecoder(surroundings())
    list(decoder.decode(dump.events))
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            list(decoder.decode(dump.events))
        assert gc.collect() == 0
    finally:
        gc.enable()
