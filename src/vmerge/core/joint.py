"""What several blocked streams commit together.

Knows: the runs that streams offer, and how far into each of them a joint commit may reach. Never knows: servers,
threads, or who leads. Used by ``vmerge/joint.py``, the board (which keeps the offers) and ``mysql/target.py``.

How far
-------
The shards' own states at any one instant can stand side by side. So runs that are cut at one instant, by the commit
times that their sources wrote, fit together, apart from what the sources' clocks differ by; and so do whole runs when
nothing more is under way. So the ends of all runs are tried, one after the other. A part that does not fit is left out
by whoever applies them, and tried again with the next offer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmerge.core.events import Transaction
from vmerge.core.fold import Fold
from vmerge.core.long_run import LongRun
from vmerge.core.position import GtidSet
from vmerge.core.stretch import Stretch, gtids_of


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A blocked stream's next transactions, put into the hands of whoever leads.

    While the offer stands the stream itself applies nothing.
    """

    stream: str
    version: int
    """The siblings' version seen before the stream's last attempt: as long as it holds, nobody has moved since."""
    blocked_since: float
    """Monotonic."""
    made_at: float
    """Monotonic."""
    position: GtidSet
    """The stream's checkpoint."""
    run: tuple[Transaction, ...]
    """The first ones, as many as are kept."""
    long_run: LongRun | None
    """All that has arrived, if that is more than is kept. It does not grow while the offer stands."""
    membership: object
    """What the target must know of a member; made and read by targets only."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The beginning of an offer's run: what one member brings into a joint commit."""

    offer: Offer
    run: tuple[Transaction, ...]
    """At least one; the first ones if ``effect`` is there."""
    effect: Fold | None
    """The net effect of a long run; None: that of ``run``."""
    position: GtidSet
    """The member's checkpoint after the commit."""
    stretch: Stretch

    @classmethod
    def of_run(cls, offer: Offer, count: int) -> Part:
        """Take so many of the transactions that are kept."""
        run = offer.run[:count]
        return cls(offer, run, None, offer.position.advanced(gtids_of(run)), Stretch.of(run))

    @classmethod
    def whole(cls, offer: Offer) -> Part:
        """Take all that has arrived."""
        long_run = offer.long_run
        if long_run is None or long_run.stretch is None:
            return cls.of_run(offer, len(offer.run))
        return cls(offer, offer.run, long_run.effect, long_run.position, long_run.stretch)

    @property
    def stream(self) -> str:
        """The member."""
        return self.offer.stream


def candidates(offers: Sequence[Offer]) -> Iterator[tuple[Part, ...]]:
    """Yield what is worth a try, at least two parts each: all runs cut where one of them ends, the first end first.

    The last one is all runs whole. The others matter when runs are of unequal length, in time: what is behind the end
    of one of them may fit with those that reach as far, without it.
    """
    tried: set[tuple[tuple[str, int], ...]] = set()
    ends = sorted({offer.run[-1].committed_at_microseconds for offer in offers})
    whole = tuple(Part.whole(offer) for offer in offers)
    for parts in (*(_parts(offers, instant) for instant in ends), whole):
        lengths = tuple((part.stream, part.stretch.count) for part in parts)
        if len(parts) > 1 and lengths not in tried:
            tried.add(lengths)
            yield parts


def _parts(offers: Sequence[Offer], instant: int) -> tuple[Part, ...]:
    parts = []
    for offer in offers:
        count = next(
            (at for at, one in enumerate(offer.run) if one.committed_at_microseconds > instant), len(offer.run)
        )
        if count:
            parts.append(Part.of_run(offer, count))
    return tuple(parts)
