"""States of streams."""

from __future__ import annotations

from itertools import product

import pytest

from vmerge.core.states import Phase, StreamState, is_free, may_change


@pytest.mark.parametrize(("current", "following"), list(product(StreamState, StreamState)))
def test_only_a_stopped_stream_cannot_fail(current: StreamState, following: StreamState) -> None:
    """Every change is legal but one: nothing runs in a stopped stream that could fail."""
    is_illegal = (current, following) == (StreamState.STOPPED, StreamState.ERROR)
    assert may_change(current, following) is not is_illegal


@pytest.mark.parametrize(("state", "phase"), list(product(StreamState, Phase)))
def test_only_a_running_stream_that_is_connected_is_free(state: StreamState, phase: Phase) -> None:
    """A stream that is stopped, in error, connecting, backing off or stopping cannot release a key by itself."""
    moves = phase in {Phase.STREAMING, Phase.APPLYING, Phase.WAITING}
    assert is_free(state, phase) is (state is StreamState.RUNNING and moves)
