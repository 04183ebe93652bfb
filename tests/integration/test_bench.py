"""The benchmark measures what it says, with right rows, at any size."""

from __future__ import annotations

import json

import pytest

from vmerge.lab.bench import MEGABYTE, Size, as_data, measure

pytestmark = pytest.mark.server


def test_tiny_benchmark_gives_every_figure() -> None:
    """Every measurement runs through, every target is equal, and the figures are one JSON object."""
    results = measure(Size(transactions=400, streams=(1, 2), large_bytes=MEGABYTE, rounds=3))
    data = json.loads(json.dumps(as_data(results)))
    assert data["is_equal"]
    assert data["ratio_to_multi_source"] > 0
    assert data["statements_ratio_to_multi_source"] > 0
    assert set(data["multi_source_transactions_per_second"]) == {"0", "4"}
    assert set(data["vmerge_transactions_per_second"]) == {"1", "2"}
    assert [result.transactions for result in results.merges] == [400, 800]
    assert data["resume_latency_seconds"]["rounds"] == 3
    assert data["large_transaction"]["peak_memory_bytes"] > MEGABYTE
