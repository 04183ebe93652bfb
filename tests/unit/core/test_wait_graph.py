"""Who waits for whom: edges from findings, and cycles."""

from __future__ import annotations

import pytest

from vmerge.core.blocked import Blocked
from vmerge.core.verdict import Finding, Transient, Unproven
from vmerge.core.wait_graph import Edge, cycles_of, edges_of


def waiting_for(*streams: str) -> Blocked:
    """Return a wait that these streams will end."""
    return blocked(Transient(None, streams))


def blocked(finding: Finding | None) -> Blocked:
    """Return a wait with a finding."""
    return Blocked(0.0, 1, "u:1", "customer.email", (), finding)


def test_every_blocked_stream_has_an_edge() -> None:
    """Each stream that can end a wait is an edge, and a wait that nothing is known of has one to nobody."""
    waits = {"a": waiting_for("b", "c"), "b": blocked(None), "c": blocked(Unproven("no source answers"))}
    assert edges_of(waits) == (Edge("a", "b"), Edge("a", "c"), Edge("b", None), Edge("c", None))


@pytest.mark.parametrize(
    ("waits", "cycles"),
    [
        ({"a": ("b",)}, ()),
        ({"a": ("a",)}, ()),
        ({"a": ("b",), "b": ("a",)}, (("a", "b"),)),
        ({"a": ("b",), "b": ("c",), "c": ("a",)}, (("a", "b", "c"),)),
        ({"a": ("b",), "b": ("c",), "c": ("b",)}, (("b", "c"),)),
        ({"a": ("b",), "b": ("a",), "c": ("a", "d"), "d": ("c",)}, (("a", "b"), ("c", "d"))),
        ({"a": ("b", "c"), "b": (), "c": ()}, ()),
    ],
    ids=["a chain", "itself", "two", "three", "a tail", "two rings", "nothing known"],
)
def test_cycles(waits: dict[str, tuple[str, ...]], cycles: tuple[tuple[str, ...], ...]) -> None:
    """Streams that wait for each other are one cycle, and nobody else is in it."""
    edges = edges_of({stream: waiting_for(*streams) for stream, streams in waits.items()})
    assert cycles_of(edges) == cycles
