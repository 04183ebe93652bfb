"""Which transactions share a target transaction."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vmerge.core.batch import BATCH_BYTES, choose_batch
from vmerge.core.events import SchemaChange, SourceItem, Transaction
from vmerge.core.position import Gtid

SOURCE = bytes(16)

sizes = st.sampled_from([0, 1, 100, BATCH_BYTES // 2, BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 5 * BATCH_BYTES])


def transaction(number: int, byte_count: int = 10) -> Transaction:
    """Return a transaction of that size."""
    return Transaction(Gtid(SOURCE, "", number), 0, (), byte_count)


def schema_change(number: int) -> SchemaChange:
    """Return a schema change."""
    return SchemaChange(Gtid(SOURCE, "", number), 0, "shop", "ALTER TABLE t ADD c INT")


@given(st.lists(sizes, max_size=12), st.integers(1, 8), st.none() | st.integers(0, 11))
def test_a_batch_is_the_longest_head_within_all_bounds(sizes: list[int], limit: int, change_at: int | None) -> None:
    """It is a head of what is pending, within count and size, behind no schema change, and nothing more would fit."""
    pending: list[SourceItem] = [transaction(number, size) for number, size in enumerate(sizes, 1)]
    if change_at is not None:
        pending.insert(change_at, schema_change(99))
    batch = choose_batch(pending, limit)
    assert batch == pending[: len(batch)]
    assert len(batch) <= limit
    assert len(batch) <= 1 or sum(one.byte_count for one in batch) <= BATCH_BYTES
    if len(batch) < len(pending):
        following = pending[len(batch)]
        if isinstance(following, Transaction) and len(batch) < limit:
            assert batch
            assert sum(one.byte_count for one in batch) + following.byte_count > BATCH_BYTES


def test_a_transaction_above_the_bound_is_alone() -> None:
    """It is not kept back, and nothing shares its target transaction, not even one without rows."""
    huge = transaction(1, BATCH_BYTES + 1)
    assert choose_batch([huge, transaction(2, 0)], 10) == [huge]
    assert choose_batch([transaction(1), huge], 10) == [transaction(1)]


def test_nothing_is_chosen_from_nothing() -> None:
    """Without pending items, or with a schema change at their head, there is no batch."""
    assert choose_batch([], 10) == []
    assert choose_batch([schema_change(1), transaction(2)], 10) == []
