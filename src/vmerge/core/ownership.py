"""Whose a stream is, when more than one daemon runs its workflow.

Knows: what an order to start a stream goes by, and from whom it may take the stream. Never knows: where owners are
stored. Used by the supervisor, which keeps each order's claim, and by the drivers, which obey it.

Each order to start a stream has a name of its own and remembers whom it found in possession. It may take the stream
from that owner, however often the owner restarts meanwhile, and from nobody else. So an order that has lost a stream
never gets it back, whatever errors it meets and in whatever order: only a later order does.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """What an order to start a stream goes by, made when it first looks at the stream."""

    stream: str
    owner: str
    """The name of the order: ``<host>:<process id>:<random part>``."""
    found: str
    """Who had the stream then; empty when nobody ever did."""

    def covers(self, owner: str) -> bool:
        """Whether a stream of this owner is ours, or still his whom we were told to take it from."""
        return owner in (self.owner, self.found)


def place_of(owner: str) -> str:
    """Return where an operator finds an owner; empty when that is not known."""
    match owner.rsplit(":", 2):
        case [host, process, _]:
            return f"{host}, process {process}"
        case _:
            return ""
