"""What servers say about a conflict, as values.

Knows: what was seen of two rows that cannot be on the target together, and where. Never knows: how it was read, or
what follows from it: ``core/verdict.py`` judges. Made by ``mysql/lookup.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from vmerge.core.position import GtidSet
from vmerge.core.rules import TableName


class Presence(Enum):
    """How a row was found at a source, by its primary key, in two readings with reads of other servers in between."""

    ALIVE = "alive"
    """There both times, with the same values in the key in question."""
    CHANGED = "changed"
    """There at least once, but not both times with these values."""
    GONE = "gone"
    """Not there, both times."""


@dataclass(frozen=True, slots=True)
class Held:
    """One row of the stream's that a row of the target keeps out, by one unique key.

    ``own`` is the row as the stream's transactions, up to the last one that was asked about, leave it. ``holder`` is
    the row that stands on the target. Primary keys are texts for the operator, such as ``id=17``.
    """

    table: TableName
    """On the target."""
    key: str
    """The name of the key; ``PRIMARY`` is the primary key."""
    key_columns: tuple[str, ...]
    """The key's parts, such as ``email`` or ``name(10)``."""
    key_values: tuple[str, ...]
    """What stands in them in ``own``: row values, so never for a log."""
    own: str
    holder: str
    own_presence: Presence
    """At the stream's own source."""
    holder_presences: Mapping[str, Presence]
    """The holder at each stream's source that carries the table, the own one among them; a stream that could not be
    asked is left out."""
    own_identity: tuple[str, ...] = ()
    """``own`` in the witness's own words, by which it finds the row again."""


@dataclass(frozen=True, slots=True)
class Testimony:
    """All that was seen at one time.

    Order of the readings: ``own`` at the own source, ``holder`` at every source, both again, then ``heads``.
    """

    held: tuple[Held, ...]
    """Some of the rows that are kept out, at least one if there are any; none when the target would now take them."""
    heads: Mapping[str, GtidSet]
    """What each source has executed, read last: a release that was seen above lies within it. A source that could not
    be asked is left out."""
