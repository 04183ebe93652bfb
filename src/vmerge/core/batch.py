"""Which whole transactions share one target transaction.

Knows: sizes and counts. Never knows: rows, servers or conflicts. Used by the player.
"""

from __future__ import annotations

from collections.abc import Iterable

from vmerge.core.events import SourceItem, Transaction

BATCH_BYTES = 2 * 1024 * 1024
"""Row images in one batch: large enough that COMMIT does not count, small enough that its locks are brief."""


def choose_batch(pending: Iterable[SourceItem], limit: int) -> list[Transaction]:
    """Return the transactions at the head of ``pending`` that may be applied together.

    At least one if the head is a transaction; none if it is not. A schema change ends a batch, and a transaction that
    is itself larger than ``BATCH_BYTES`` is alone.
    """
    batch: list[Transaction] = []
    size = 0
    for item in pending:
        if not isinstance(item, Transaction):
            break
        size += item.byte_count
        if batch and (size > BATCH_BYTES or len(batch) >= limit):
            break
        batch.append(item)
    return batch
