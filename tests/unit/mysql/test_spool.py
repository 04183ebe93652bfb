"""Rows in a temporary file: all of them, in order, in little memory, and gone afterwards."""

from __future__ import annotations

import gc
import os
import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.spool_use import SpoolUse
from vmerge.errors import SpoolFailed
from vmerge.mysql.spool import SpooledRows

TABLE = TableMap("d", "t", 1, b"\3", b"", b"\0", b"\1\3\0\0", (), None)
SHAPES = [RowsShape(TABLE, kind, flags, b"\1\xff") for kind in RowsKind for flags in (0, 2)]

batches = st.lists(st.lists(st.builds(RowsEvent, st.sampled_from(SHAPES), st.binary(max_size=100)), max_size=20))


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """Files may not grow beyond this: to a process that is what a full disk is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield 1 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@settings(deadline=None)  # it writes files, and other work may hold those up
@given(batches)
def test_rows_come_back_in_order(batches: list[list[RowsEvent]]) -> None:
    """Every walk gives all rows, in order, with the very same shapes."""
    store = SpooledRows()
    for batch in batches:
        store.extend(batch)
    expected = [event for batch in batches for event in batch]
    for _ in range(2):
        found = list(store)
        assert found == expected
        assert all(a.shape is b.shape for a, b in zip(found, expected, strict=True))


def test_walks_are_independent() -> None:
    """Walks that are interleaved with each other and with appending each see every row once."""
    store = SpooledRows()
    rows = [RowsEvent(SHAPES[0], bytes((number,)) * 1000) for number in range(200)]
    store.extend(rows[:100])
    first = iter(store)
    begun = [next(first) for _ in range(50)]
    store.extend(rows[100:])
    assert list(store) == rows
    assert begun + list(first) == rows


@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024, 256 * 1024 + 1, 3_000_000])
def test_events_larger_than_the_buffer(size: int) -> None:
    """Images of any size between small ones come back as they were."""
    rows = [RowsEvent(SHAPES[0], b"a"), RowsEvent(SHAPES[1], os.urandom(size)), RowsEvent(SHAPES[0], b"b")]
    store = SpooledRows()
    store.extend(rows * 2)
    assert list(store) == rows * 2


def test_memory_stays_bounded() -> None:
    """A transaction of 256 MB in events of 8 KB takes a few buffers of memory, however often it is walked."""
    images = bytes(8192)
    tracemalloc.start()
    store = SpooledRows()
    for _ in range(1024):
        store.extend([RowsEvent(SHAPES[0], images)] * 32)
    lengths = [sum(len(event.images) for event in store) for _ in range(2)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lengths == [256 << 20] * 2
    assert peak < 4 << 20


def test_the_file_has_no_name_and_is_closed(tmp_path: Path) -> None:
    """Nothing is to be seen in the folder, and the descriptor is given back with the object, without a warning."""
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    store = SpooledRows(tmp_path)
    store.extend([RowsEvent(SHAPES[0], b"x" * 1_000_000)])
    walk = iter(store)
    next(walk)
    assert list(tmp_path.iterdir()) == []
    del store, walk
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_full_disk_is_a_clear_error(tmp_path: Path, file_size_limit: int) -> None:
    """What does not fit raises an error that names the folder and says what to do."""
    store = SpooledRows(tmp_path)
    with pytest.raises(SpoolFailed) as caught:
        store.extend([RowsEvent(SHAPES[0], bytes(file_size_limit + 1))])
    assert str(tmp_path) in caught.value.message
    assert "no room" in caught.value.message
    assert "the folder that the message names" in caught.value.hint


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    """A folder that cannot be used is named."""
    with pytest.raises(SpoolFailed, match="nowhere"):
        SpooledRows(tmp_path / "nowhere")


def test_its_size_is_told_while_it_is_there() -> None:
    """What a stream has on disk counts every file of it that is in use, and none that is gone."""
    use = SpoolUse()
    stores = [SpooledRows(use=use), SpooledRows(use=use)]
    rows = [RowsEvent(SHAPES[0], bytes(300_000))] * 3
    for store in stores:
        store.extend(rows)
    assert [len(store) for store in stores] == [3, 3]
    assert 6 * 300_000 <= use.byte_count <= 6 * 300_100
    stores.pop()
    del store
    assert 3 * 300_000 <= use.byte_count <= 3 * 300_100
    stores.pop()
    assert use.byte_count == 0
