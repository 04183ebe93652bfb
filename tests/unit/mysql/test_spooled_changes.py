"""Changes on disk are those in memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmerge.core.fold import Change, MemoryChanges
from vmerge.core.rowimage import Key
from vmerge.core.spool_use import SpoolUse
from vmerge.errors import SpoolFailed
from vmerge.mysql.spooled_changes import SpooledChanges

parts = st.binary(max_size=3)
keys = st.lists(parts, max_size=2).map(tuple)
images = st.none() | st.binary(max_size=20)
puts = st.lists(st.tuples(keys, st.tuples(images, images)), max_size=30)


@settings(deadline=None)  # it writes files, and other work may hold those up
@given(puts, st.lists(keys, max_size=5))
def test_disk_and_memory_agree(puts: list[tuple[Key, Change]], asked: list[Key]) -> None:
    """Whatever is put, both find the same by each key and walk the same rows in the same order."""
    disk, memory = SpooledChanges(), MemoryChanges()
    for key, change in puts:
        disk.put(key, change)
        memory.put(key, change)
    for key in [*asked, *(key for key, _ in puts)]:
        assert disk.find(key) == memory.find(key)
    assert list(disk) == list(memory) == list(disk)
    disk.close()


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """The file has no name from the beginning, and counts as used disk until it is closed."""
    use = SpoolUse()
    changes = SpooledChanges(tmp_path, use)
    changes.put((b"k",), (None, b"x" * 100))
    assert list(tmp_path.iterdir()) == []
    assert use.byte_count >= 100
    changes.close()
    assert use.byte_count == 0


@pytest.fixture
def file_size_limit() -> Iterator[int]:
    """Files may not grow beyond this: to a process that is what a full disk is."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield 1 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_said(tmp_path: Path, file_size_limit: int) -> None:
    """No room ends in our error, which names the place."""
    changes = SpooledChanges(tmp_path)
    with pytest.raises(SpoolFailed, match=str(tmp_path)):
        for number in range(20_000):
            changes.put((number.to_bytes(4, "big"),), (None, b"x" * 4096))
    changes.close()


def test_a_place_that_is_not_there_is_said(tmp_path: Path) -> None:
    """A missing folder ends in our error, too."""
    with pytest.raises(SpoolFailed, match="missing"):
        SpooledChanges(tmp_path / "missing")
