"""Rows events on bytes: what may be joined, and what is refused."""

from __future__ import annotations

import pytest
from tests.unit.core.binlog_bytes import DELETE, PARTIAL_UPDATE, UPDATE, WRITE, Dump, integer, row

from vmerge.core.events import RowsEvent, RowsKind, Transaction
from vmerge.errors import CorruptEvent, UnsupportedEvent

A, B = row(1, 1), row(2, 2)


def events_of(dump: Dump) -> list[RowsEvent]:
    """The rows of the first transaction, which is complete but for its end."""
    item = dump.xid().decode()[0]
    assert isinstance(item, Transaction)
    return list(item.rows)


def opened() -> Dump:
    return Dump().gtid(1).begin().table_map()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (WRITE, RowsKind.WRITE),
        (UPDATE, RowsKind.UPDATE),
        (DELETE, RowsKind.DELETE),
        (PARTIAL_UPDATE, RowsKind.PARTIAL_UPDATE),
    ],
)
def test_each_kind_keeps_its_images_and_columns(kind: int, expected: RowsKind) -> None:
    """An event comes out as its kind, with its images untouched and its column bitmaps as they stood."""
    ((shape, images),) = events_of(opened().rows(A + B, kind=kind))
    assert (shape.kind, images) == (expected, A + B)
    assert shape.columns == b"\2" + (b"\xff" if kind in (WRITE, DELETE) else b"\xff\xff")


@pytest.mark.parametrize(("kind", "expected"), [(23, RowsKind.WRITE), (24, RowsKind.UPDATE), (25, RowsKind.DELETE)])
def test_version_1_is_read_as_version_2(kind: int, expected: RowsKind) -> None:
    """Events of the older version have no extra data and are otherwise the same."""
    dump = opened()
    for images in (A, B):
        bitmaps = b"\xff" if kind != 24 else b"\xff\xff"
        dump.add(kind, integer(7, 6) + integer(1, 2) + b"\2" + bitmaps + images)
    first, second = events_of(dump)
    assert (first.shape.kind, first.images, second.images) == (expected, A, B)
    assert first.shape is second.shape


def test_one_object_a_shape() -> None:
    """Rows of one table, kind and flags share a shape; another kind, flag or table does not."""
    dump = opened().rows(A, flags=0).rows(A, flags=1).rows(A, kind=DELETE).rows(A, flags=2).rows(A, flags=0)
    first, ended, deleted, unchecked, again = (event.shape for event in events_of(dump))
    assert first is ended is again
    assert len({first, deleted, unchecked}) == 3
    assert (first.flags, unchecked.flags) == (0, 2)


def test_extra_data_is_not_part_of_a_shape() -> None:
    """Rows of different partitions may be joined: the number of the partition tells an applier nothing."""
    dump = opened()
    for partition in (0, 1, 256, 1, 0):
        dump.rows(row(partition, 1), extra=b"\1" + integer(partition, 2))
    events = events_of(dump.rows(A))
    assert len({event.shape for event in events}) == 1
    assert [event.images for event in events] == [*(row(partition, 1) for partition in (0, 1, 256, 1, 0)), A]


def test_many_prefixes_are_not_kept_for_ever() -> None:
    """However many partitions a table has, its rows keep their one shape."""
    dump = opened()
    for partition in range(3000):
        dump.rows(A, extra=b"\1" + integer(partition, 2))
    assert len({event.shape for event in events_of(dump)}) == 1


def test_unique_checks_are_never_relaxed() -> None:
    """The flag of unique_checks=0 is cleared: with it a target may let a second row take a unique key."""
    (first, second) = events_of(opened().rows(A, flags=0x1F).rows(B, flags=0x1B))
    assert first.shape is second.shape
    assert first.shape.flags == 0x1A


@pytest.mark.parametrize("flags", [0x20, 0x81, 0x8000])
def test_unknown_flags_are_refused(flags: int) -> None:
    """A flag of a meaning not known here could change what the rows mean."""
    with pytest.raises(UnsupportedEvent, match=r"d\.t have flags"):
        opened().rows(A, flags=flags).decode()


@pytest.mark.parametrize(
    ("kind", "bitmaps"), [(WRITE, b"\xfd"), (UPDATE, b"\xff\xfe"), (UPDATE, b"\xfd\xff"), (DELETE, b"\x01")]
)
def test_images_without_all_columns_are_refused(kind: int, bitmaps: bytes) -> None:
    """Rows of binlog_row_image=MINIMAL or NOBLOB stop the stream, whichever image lacks a column."""
    with pytest.raises(UnsupportedEvent, match=r"d\.t were written without all") as caught:
        opened().rows(A, kind=kind, columns=b"\2" + bitmaps).decode()
    assert "binlog_row_image=FULL" in caught.value.hint


@pytest.mark.parametrize("count", [1, 8, 9, 17, 64, 65, 250, 251, 252, 300, 1017, 4096])
@pytest.mark.parametrize("padding", [0x00, 0xFF])
def test_any_count_of_columns(count: int, padding: int) -> None:
    """Bitmaps are as wide as the columns need, and what their last bits say behind the last column does not matter."""
    length = bytes((count,)) if count < 251 else b"\xfc" + integer(count, 2)
    width = (count + 7) // 8
    tail = length + b"\3" * count + b"\0" + bytes(width)
    bitmap = ((1 << count) - 1 | (padding << count)).to_bytes(width + 1, "little")[:width]
    images = row(*range(count))
    dump = Dump().gtid(1).begin().table_map(tail=tail)
    dump.rows(images, columns=length + bitmap).rows(images + images, kind=UPDATE, columns=length + bitmap * 2)
    assert [event.images for event in events_of(dump)] == [images, images + images]
    short = bytes((count - 1,)) if count - 1 < 251 else b"\xfc" + integer(count - 1, 2)
    with pytest.raises(CorruptEvent, match="count of columns"):
        Dump().gtid(1).begin().table_map(tail=tail).rows(images, columns=short + bitmap).decode()


def test_a_prefix_shorter_than_itself_is_corrupt() -> None:
    """The length in front of extra data counts itself."""
    with pytest.raises(CorruptEvent, match="shorter than itself"):
        opened().add(WRITE, integer(7, 6) + integer(1, 2) + integer(1, 2) + b"\2\xff" + A).decode()
