"""Small scope, searched to the end: every history, every interleaving, batches of every size, a crash at every step.

Each test asserts, for every history: whatever the order, the merge ends in the union of the shards. From no moment on
is there no way to it. What ``World.check`` promises held after every single step.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import pytest
from tests.sim.enumeration import HOT_ROWS, HOT_VALUE, HOT_VALUES, Universe, histories
from tests.sim.history import History
from tests.sim.search import Search, Tally
from tests.sim.world import Settings

BATCHES = (1, 2, 3)


def search_all(found: Iterable[History], tally: Tally, *, crashes: int, chunk: int = 100, reach: int = 100) -> None:
    """Search each history with each batch size."""
    for history in found:
        tally.histories += 1
        for batch in BATCHES:
            settings = Settings(batch=batch, chunk=chunk, calm=2, jump_after_seconds=0.0, reach=reach)
            ends = Search(history, settings, crashes, tally).run()
            assert ends == {history.end}, f"{history} ended in {ends}"


@pytest.mark.parametrize("lengths", [(1, 2), (2, 2)])
def test_moving_rows_with_a_crash_at_every_step(lengths: tuple[int, int], tally: Tally) -> None:
    """All histories in which two rows come, go and move between shards end well, with one crash anywhere."""
    found = histories(HOT_ROWS, lengths, with_initial_rows=True)
    search_all(found, tally, crashes=1)


@pytest.mark.parametrize("lengths", [(1, 2), (2, 2), (2, 3)])
def test_one_hot_value_with_a_crash_at_every_step(lengths: tuple[int, int], tally: Tally) -> None:
    """All histories of one unique value that goes from row to row end well, with one crash anywhere."""
    search_all(histories(HOT_VALUE, lengths, with_initial_rows=True), tally, crashes=1)


def test_two_hot_values(tally: Tally) -> None:
    """Every eighth history of two rows with nullable unique values ends well."""
    found = histories(HOT_VALUES, (2, 2), with_initial_rows=True)
    search_all(islice(found, 0, None, 8), tally, crashes=0)


def test_small_chunks(tally: Tally) -> None:
    """A source that delivers two transactions at a time changes nothing of that."""
    found = histories(HOT_ROWS, (2, 3), with_initial_rows=True)
    search_all(islice(found, 0, None, 2), tally, crashes=0, chunk=2)


def test_runs_that_are_not_kept(tally: Tally) -> None:
    """A player that keeps one transaction ahead, and lets longer runs pass by, ends as well."""
    found = histories(HOT_VALUE, (2, 3), with_initial_rows=True)
    search_all(islice(found, 0, None, 2), tally, crashes=1, chunk=2, reach=1)


LONG: list[tuple[Universe, tuple[int, int], int]] = [
    (HOT_ROWS, (2, 3), 1),
    (HOT_VALUES, (1, 2), 2),
    (HOT_VALUES, (2, 2), 1),
    (HOT_VALUES, (2, 3), 0),
    (HOT_ROWS, (3, 3), 2),
    (HOT_VALUE, (3, 3), 1),
]


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize(("universe", "lengths", "crashes"), LONG)
def test_everything(universe: Universe, lengths: tuple[int, int], crashes: int, tally: Tally) -> None:
    """All histories of a universe end well, with so many crashes anywhere."""
    search_all(histories(universe, lengths, with_initial_rows=True), tally, crashes=crashes)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_three_and_three_over_two_hot_values(tally: Tally) -> None:
    """Every 50th history of three transactions on each shard, two rows and nullable unique values, ends well."""
    found = histories(HOT_VALUES, (3, 3), with_initial_rows=True)
    search_all(islice(found, 0, None, 50), tally, crashes=0)
