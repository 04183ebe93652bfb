"""What a player waits for between two steps.

Knows: the kinds of pauses and who wakes them. Never knows: why a stream waits. Used by the player and its parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from vmerge.core.conflict_terms import Await
from vmerge.player.board import Board
from vmerge.stopping import Clock, StopToken


@dataclass(frozen=True, slots=True)
class Parked:
    """What a stream waits for that has something on the board: news there, or the instant."""

    until: float
    seen_news: int


Pause = Await | Parked


def wait(name: str, pause: Pause, board: Board, clock: Clock, stop: StopToken) -> None:
    """Let a stream wait until its pause or itself is over."""
    seconds = pause.until - clock.monotonic()
    match pause:
        case Parked(seen_news=seen):
            board.wait_for_news(seen, seconds, stop)
        case Await(seen_version=None):
            stop.wait(seconds)
        case Await(seen_version=int() as version):
            board.wait_for_siblings(name, version, seconds, stop)
