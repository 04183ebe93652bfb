"""GTID_TAGGED events on bytes: one that a 9.7.4 server wrote, made ones, and damaged ones."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.binlog_bytes import Dump, gtid, row, summary

from vmerge.core.position import Gtid
from vmerge.core.tagged_gtid import read_tagged_gtid, read_varlen
from vmerge.errors import CorruptEvent, UnsupportedEvent

# SET gtid_next = 'AUTOMATIC:blue' on a server with uuid ea1f03fc-…, its first transaction with that tag
REAL = bytes.fromhex(
    "027400000002d47c0d020502b103a10322c5039502750204f1030000000204040608626c756508600a680c7f68da8f3c8261061079041283120b"
)


def varlen(value: int) -> bytes:
    """As mysql::serialization writes an unsigned number: the count of further bytes as low one bits."""
    for extra in range(8):
        if value < 1 << 7 * (extra + 1):
            return (value << extra + 1 | (1 << extra) - 1).to_bytes(extra + 1, "little")
    return b"\xff" + value.to_bytes(8, "little")


def body(source: bytes, tag: str, number: int, time: int, *, must_know: int = 0, behind: bytes = b"") -> bytes:
    fields = varlen(0) + varlen(1)
    fields += varlen(1) + b"".join(varlen(byte) for byte in source)
    fields += varlen(2) + varlen(number << 1)
    fields += varlen(3) + varlen(len(tag)) + tag.encode()
    fields += varlen(4) + varlen(10 << 1) + varlen(5) + varlen(11 << 1)
    fields += varlen(6) + varlen(time) + behind
    return varlen(1) + varlen(len(fields)) + varlen(must_know) + fields


def test_a_real_event() -> None:
    """Source, tag, number and commit time are those that the server meant."""
    found, committed_at = read_tagged_gtid(REAL)
    assert found.tag == "blue"
    assert found.number == 1
    assert UUID(bytes=found.source).version == 1
    assert 1_700_000_000_000_000 < committed_at < 2_000_000_000_000_000


@given(
    st.binary(min_size=16, max_size=16),
    st.from_regex(r"[a-z_][a-z0-9_]{0,31}", fullmatch=True),
    st.integers(1, 2**62),
    st.integers(0, 2**55 - 1),
    st.binary(max_size=20),
)
def test_any_gtid_is_read_back(source: bytes, tag: str, number: int, time: int, rest: bytes) -> None:
    """Whatever a server could write comes back, and fields behind the commit time do not matter."""
    behind = varlen(7) + rest
    assert read_tagged_gtid(body(source, tag, number, time, behind=behind)) == (Gtid(source, tag, number), time)


@given(st.integers(0, 2**64 - 1))
def test_numbers_of_any_size(value: int) -> None:
    """A variable-length number takes one to nine bytes and comes back."""
    assert read_varlen(varlen(value) + b"?", 0) == (value, len(varlen(value)))


@given(st.integers(0, len(REAL) - 1))
def test_a_cut_event_is_corrupt_or_lacks_only_what_is_not_needed(length: int) -> None:
    """Cut in front of the commit time's end it is refused; behind that nothing is missing."""
    try:
        found, _ = read_tagged_gtid(REAL[:length])
    except CorruptEvent:
        return
    assert found == read_tagged_gtid(REAL)[0]


@pytest.mark.parametrize(
    "damaged",
    [
        body(bytes(16), "", 1, 0),
        body(bytes(16), "Blue", 1, 0),
        body(bytes(16), "a" * 33, 1, 0),
        body(bytes(16), "1a", 1, 0),
        body(bytes(16), "blue", 0, 0),
        body(bytes(15), "blue", 1, 0),
        varlen(1) + varlen(40) + varlen(0) + varlen(1) + varlen(256) * 16,
        b"",
        b"\xff",
    ],
)
def test_what_names_no_transaction_is_corrupt(damaged: bytes) -> None:
    """Without a proper source, tag and number there is no position."""
    with pytest.raises(CorruptEvent):
        read_tagged_gtid(damaged)


def test_a_field_that_must_be_known_is_refused() -> None:
    """A later version can say that a field must not be ignored; then the event is not read without it."""
    assert read_tagged_gtid(body(bytes(16), "blue", 1, 5, must_know=12))[1] == 5
    with pytest.raises(UnsupportedEvent):
        read_tagged_gtid(body(bytes(16), "blue", 1, 5, must_know=13))


def test_rows_are_booked_under_the_tagged_gtid() -> None:
    """A tagged transaction between untagged ones keeps its own rows."""
    dump = Dump().insert(1, row(1, 1)).add(42, body(gtid(1).source, "blue", 9, 5))
    dump.begin().table_map().rows(row(2, 2)).xid().insert(2, row(3, 3))
    items = dump.decode()
    assert [item.gtid for item in items if hasattr(item, "gtid")] == [gtid(1), gtid(9, "blue"), gtid(2)]
    assert [rows for _, rows in summary(items)] == [[("WRITE", "t", row(n, n))] for n in (1, 2, 3)]
