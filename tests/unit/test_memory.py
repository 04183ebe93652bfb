"""The collector of a process that runs streams."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from vmerge.memory import NEW_OBJECTS, spare_collector


@pytest.fixture(autouse=True)
def untouched_collector() -> Iterator[None]:
    """What the tests set for the whole process is set back."""
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


class Ring:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.ring = self


def test_cycles_stay_bounded() -> None:
    """Cycles are still found, when as many objects are new as the module says."""
    spare_collector()
    ring = weakref.ref(Ring())
    assert ring() is not None
    kept = [[number] for number in range(NEW_OBJECTS + 1)]
    assert ring() is None
    assert kept


def test_what_was_there_is_put_aside() -> None:
    """Objects from before are not looked at again: a collection does not depend on how much was imported."""
    before = len(gc.get_objects())
    spare_collector()
    assert gc.get_freeze_count() > before // 2
    assert len(gc.get_objects()) < before // 2
