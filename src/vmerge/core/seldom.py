"""Lines of a log that repeat: told once in a while, with a count of what was left out.

Knows: which line was told when. Never knows: clocks or logs. Used by whoever may have to say the same again and again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DIGITS = re.compile(r"\d+")
_MANY = 100
"""Kinds that are remembered at most; the oldest is forgotten first, and would be told anew."""


def kind_of(text: str) -> str:
    """Return what lines have in common that differ in numbers only: ports, positions, seconds."""
    return _DIGITS.sub("#", text)


@dataclass(frozen=True, slots=True)
class Telling:
    """A line that is due."""

    untold: int
    """How often it was left out before."""

    def __str__(self) -> str:
        """What is put behind the line."""
        return f" (as {self.untold:,} times since this was last told)" if self.untold else ""


class Seldom:
    """Which kinds of lines were told, and when. Where threads share it, a race at worst tells a line twice."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[float, int]] = {}

    def clear(self) -> None:
        """Begin anew: whoever gave an order wants to hear what comes of it."""
        self._told.clear()

    def tell(self, kind: str, now: float, interval_seconds: float) -> Telling | None:
        """Say that a line of this kind is to be told; return None when that is too soon after the last one.

        ``now`` is in seconds of any clock that only grows.
        """
        before = self._told.get(kind)
        if before is None:
            while len(self._told) >= _MANY:
                self._told.pop(next(iter(self._told)), None)
            self._told[kind] = now, 0
            return Telling(0)
        told_at, untold = before
        if now - told_at < interval_seconds:
            self._told[kind] = told_at, untold + 1
            return None
        self._told[kind] = now, 0
        return Telling(untold)
