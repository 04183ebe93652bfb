"""States of streams."""

from __future__ import annotations

from itertools import product

import pytest

from vmerge.core.states import Phase, StreamState, is_free


@pytest.mark.parametrize(("state", "phase"), list(product(StreamState, Phase)))
def test_only_a_running_stream_that_is_connected_is_free(state: StreamState, phase: Phase) -> None:
    """A stream that is stopped, in error, connecting, locked out, backing off or stopping cannot release a key."""
    moves = phase in {Phase.STREAMING, Phase.APPLYING, Phase.WAITING}
    assert is_free(state, phase) is (state is StreamState.RUNNING and moves)
