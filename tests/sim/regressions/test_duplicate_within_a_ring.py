"""A duplicate that no member of a ring can see alone: both rows stand behind what the members block each other with."""

from __future__ import annotations

import pytest
from tests.sim.history import History
from tests.sim.rows import Change, delete, insert
from tests.sim.test_verdicts import TABLE, judge_end, settle
from tests.sim.world import Settings, World


def _add(*row: int | str | None) -> tuple[Change]:
    return (insert("u", *row),)


def _drop(*row: int | str | None) -> tuple[Change]:
    return (delete("u", *row),)


# A's second transaction needs B's row 2 gone, B's fourth needs A's row 4 gone. In the end A's row 2 and B's row 1 both
# have ("x", "q"), and neither ever comes to the target.
HISTORY = History(
    (TABLE,),
    (
        (_add(4, "a", None, "p"), _add(2, None, "x", "q"), _drop(4, "a", None, "p")),
        (
            _add(2, None, None, "p"),
            _add(4, None, None, "p"),
            _drop(4, None, None, "p"),
            _add(1, "a", "x", "q"),
            _drop(2, None, None, "p"),
        ),
    ),
)


@pytest.mark.parametrize("chunk", [1, 100])
def test_a_duplicate_within_a_ring_is_proven(chunk: int) -> None:
    """Evidence counts the runs that did not fit together, so the duplicated pair is named."""
    world = World(HISTORY, Settings(batch=1, chunk=chunk, calm=1))
    settle(world)
    assert judge_end(world) > 0
