"""Who waits for whom, from the findings about blocked streams.

Knows: edges and cycles. Never knows: how the findings came about, or what is done about a cycle: the joint commit is
the conflict machine's. Used by ``showing.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vmerge.core.blocked import Blocked


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream waits for another one, or for its own later transactions; ``awaited`` is None before that is known."""

    waiter: str
    awaited: str | None


def edges_of(blocked: Mapping[str, Blocked]) -> tuple[Edge, ...]:
    """Return the edges of all blocked streams, in their order; each has one at least."""
    return tuple(Edge(waiter, awaited) for waiter, wait in blocked.items() for awaited in wait.awaited or (None,))


def cycles_of(edges: Iterable[Edge]) -> tuple[tuple[str, ...], ...]:
    """Return the sets of streams that wait for each other, directly or through others. Nobody alone is a cycle."""
    awaited: dict[str, set[str]] = {}
    for edge in edges:
        if edge.awaited is not None:
            awaited.setdefault(edge.waiter, set()).add(edge.awaited)
    reached = {stream: _reach(stream, awaited) for stream in awaited}
    cycles: list[tuple[str, ...]] = []
    for stream in awaited:
        if any(stream in cycle for cycle in cycles):
            continue
        mutual = tuple(other for other in awaited if other in reached[stream] and stream in reached[other])
        if len(mutual) > 1:
            cycles.append(mutual)
    return tuple(cycles)


def _reach(stream: str, awaited: Mapping[str, set[str]]) -> set[str]:
    """Return everybody whom a stream waits for in the end."""
    reached: set[str] = set()
    ahead = [stream]
    while ahead:
        for other in awaited.get(ahead.pop(), ()):
            if other not in reached:
                reached.add(other)
                ahead.append(other)
    return reached
