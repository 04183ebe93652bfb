"""Evidence about a conflict: which rows of the target keep a stream's rows out, and how both stand at the sources.

Knows: in which order servers are asked, and how readings become presences. Never knows: what follows from them
(``core/verdict.py``). Used by the player, as its witness.

At the sources rows are read by primary key alone, without locks: our row at the own source, the holder at every source
that carries the table, both again, then what each source has executed. So rows that were seen alike in both readings
stood so at one moment, and a release that was seen lies within the heads.

Where our row and the holder have one primary key, the row with that key at the own source is ours, and never counts as
the holder.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.effect import effect_of, effect_of_fold
from vmerge.core.events import Transaction
from vmerge.core.evidence import Held, Presence, Testimony
from vmerge.core.fold import Fold
from vmerge.core.joint import Offer
from vmerge.core.literals import SQL_MODE
from vmerge.core.plan import Plan
from vmerge.core.position import GtidSet
from vmerge.core.quarantine import RowName
from vmerge.core.rowimage import ImageCutter
from vmerge.core.rules import StreamRules
from vmerge.errors import SourceError, SourceLost, SourceRejected, UnsupportedEvent
from vmerge.mysql import sql
from vmerge.mysql.breaker import Breaker
from vmerge.mysql.connect import SHORT_TIMEOUT_SECONDS, Endpoint, short_connection
from vmerge.mysql.definitions import Definitions
from vmerge.mysql.faults import errno_of, source_fault, target_fault
from vmerge.mysql.key_queries import FoundRow, KeyTexts, Match
from vmerge.mysql.probe import Asker, Probe
from vmerge.mysql.schemas import show_generated_keys
from vmerge.mysql.source_views import source_rows
from vmerge.mysql.target import SESSION

_READING: Mapping[str, str | int] = {
    "sql_mode": SQL_MODE,  # texts and comparisons are the same everywhere, those of zero dates too
    "time_zone": "+00:00",
    "max_execution_time": (SHORT_TIMEOUT_SECONDS - 2) * 1000,  # a server must not go on with what we gave up
    "transaction_isolation": "READ-COMMITTED",
}
_SOURCE_SESSION = {**_READING, "lock_wait_timeout": 3, "transaction_read_only": 1}
_TARGET_SESSION = {**SESSION, **_READING}

_PURPOSE = "looking into a conflict"
_NOT_THERE = frozenset({1049, 1146})
"""No such database, no such table."""
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_THREAD = re.compile("#[0-9]+")

_Keys = Sequence[KeyTexts]
"""What stands in a key in the rows that one reading found."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """The source of one stream, and which of its tables go where."""

    endpoint: Endpoint
    rules: StreamRules


class Witness:
    """Tells what a conflict of one stream rests on.

    Promise: nothing stays changed or locked on any server. Owner: the stream's thread; it opens short connections of
    its own and closes them before it returns. ``interrupt`` may be called by another.
    """

    def __init__(
        self,
        stream: str,
        target: Endpoint,
        control_database: str,
        plan: Plan,
        places: Mapping[str, SourcePlace],
        server_id: int,
        *,
        definitions: Definitions,
    ) -> None:
        """``places`` has every stream of the workflow, this one too; the plan rests on ``definitions``."""
        self._asker = Asker(stream, server_id, control_database, plan, definitions)
        self._breaker = Breaker()
        self._target = target.breakable(self._breaker)
        self._places = {
            name: replace(place, endpoint=place.endpoint.breakable(self._breaker)) for name, place in places.items()
        }

    def testify(
        self, run: Sequence[Transaction], effect: Fold | None = None, fellows: Sequence[Offer] = ()
    ) -> Testimony:
        """Tell what keeps out the stream's next transactions; only the first of them if the run cannot be followed.

        ``effect`` is that of a longer run, of which ``run`` has the first transactions. ``fellows`` are runs of
        siblings: the target is looked at as it would be with as many of them as fit.

        Raises:
            LockConflict: a row of the target is locked by another transaction, for now.
            TargetLost, SourceLost: the target or the stream's own source cannot be reached.
            RowMissing, TargetAltered, TargetRejected: as when the run is applied.
            UnsupportedEvent: this cannot be found out.
        """
        rows = effect_of(run, self._asker.plan) if effect is None else effect_of_fold(effect)
        with short_connection(self._target, _PURPOSE, target_fault, _TARGET_SESSION) as connection:
            show_generated_keys(connection)  # as the session did that read the definitions
            matches = Probe(self._asker, connection, run, rows, fellows).search()
        with contextlib.ExitStack() as stack:
            sources = _Sources(self._asker.stream)
            for name in sorted(self._places, key=lambda name: name != self._asker.stream):  # the own one first
                sources.enter(name, self._places[name], stack)
            return _hear(sources, matches)

    def find(self, run: Sequence[Transaction], effect: Fold | None, held: Held) -> RowName:
        """Return the name of the stream's own row of a testimony about this run and effect.

        Raises:
            UnsupportedEvent: it is not among the rows that the run brings.
            TargetError: as ``testify`` does.
        """
        rows = effect_of(run, self._asker.plan) if effect is None else effect_of_fold(effect)
        with short_connection(self._target, _PURPOSE, target_fault, _TARGET_SESSION) as connection:
            show_generated_keys(connection)
            row = Probe(self._asker, connection, run, rows).find(held.table, held.own_identity)
        table = row.shape.table
        ((key, _),) = ImageCutter(table, self._asker.plan.key_columns(table)).cut(row.images)
        return held.table, key

    def interrupt(self) -> None:
        """Break whatever hangs, for good, from another thread: ``testify`` raises ``TargetLost`` or ``SourceLost``."""
        self._breaker.break_off()


class _Source:
    """One source, over an open connection."""

    def __init__(self, place: SourcePlace, connection: Connection[Any]) -> None:
        self._place = place
        self._connection = connection

    def keys_of(self, match: Match, row: FoundRow) -> _Keys | None:
        """Return the key of each row with the primary key of a row; None when the stream does not carry the table."""
        query, rules = match.query, self._place.rules
        names = rules.source_names(query.table)
        if not names:
            return None
        places = [source_rows(name, query.schema, rules.rule(query.table)) for name in names]
        return [keys for rows in places for keys in self._read(query.sightings(rows, row.identity))]

    def head(self) -> GtidSet:
        """Return everything whose rows may have been seen.

        Rows of a transaction are seen a moment before its GTID is in gtid_executed; until then it is owned. Read in
        this order, it is in one of the two.
        """
        ((owned,),) = self._read(sql.READ_OWNED)
        ((executed,),) = self._read(sql.READ_EXECUTED)
        try:
            return GtidSet.parse(executed).union(_read_owned(owned))
        except ValueError as error:
            raise SourceRejected(f"{self._place.endpoint} tells GTIDs in a form that is not known here") from error

    def _read(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except (MySQLError, OSError) as error:
            if errno_of(error) in _NOT_THERE:
                return []
            raise source_fault(error, f"{_PURPOSE} on {self._place.endpoint}") from error


class _Sources:
    """The sources that answer. The own one must; another that does not, at any time, is left out altogether."""

    def __init__(self, own: str) -> None:
        self.own = own
        self._open: dict[str, _Source] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the streams whose sources have answered until now."""
        return tuple(self._open)

    def enter(self, name: str, place: SourcePlace, stack: contextlib.ExitStack) -> None:
        """Connect to a source."""
        with self._left_out_on_error(name):
            opening = short_connection(place.endpoint, _PURPOSE, source_fault, _SOURCE_SESSION)
            connection = stack.enter_context(opening)
            self._open[name] = _Source(place, connection)

    def ask(self, name: str, question: Callable[[_Source], _Answer]) -> _Answer | None:
        """Return what a source answers; None when it does not."""
        source = self._open.get(name)
        if source is None:
            return None
        with self._left_out_on_error(name):
            return question(source)
        return None

    def keys_of(self, name: str, match: Match, row: FoundRow) -> _Keys | None:
        """See ``_Source``."""
        return self.ask(name, lambda source: source.keys_of(match, row))

    @contextlib.contextmanager
    def _left_out_on_error(self, name: str) -> Iterator[None]:
        try:
            yield
        except SourceLost:
            if name == self.own:
                raise
            self._open.pop(name, None)
        except SourceError as error:
            if name == self.own:
                raise UnsupportedEvent(f"a row cannot be looked up: {error.message}", hint=error.hint) from error
            self._open.pop(name, None)


def _read_owned(text: str) -> GtidSet:
    """Read gtid_owned: as a GTID set, but with a thread behind each number, and without commas in front of uuids."""
    return GtidSet.parse(_THREAD.sub("", _UUID.sub(r",\g<0>", text)))


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was found of the two rows of a match at one time."""

    own: _Keys
    holder: Mapping[str, _Keys | None]
    """By stream; None where that was not to be found out."""


def _hear(sources: _Sources, matches: Sequence[Match]) -> Testimony:
    """Ask the sources about the rows of each match, twice, and then for their heads."""
    first, second = _read_all(sources, matches), _read_all(sources, matches)
    heads = {name: head for name in sources.names if (head := sources.ask(name, _Source.head)) is not None}
    held = (_held(match, [before, after], sources) for match, before, after in zip(matches, first, second, strict=True))
    return Testimony(tuple(held), heads)


def _read_all(sources: _Sources, matches: Sequence[Match]) -> list[_Reading]:
    owns = [sources.keys_of(sources.own, match, match.own) for match in matches]
    holders = [{name: sources.keys_of(name, match, match.holder) for name in sources.names} for match in matches]
    return [_Reading(own or (), holder) for own, holder in zip(owns, holders, strict=True)]


def _held(match: Match, readings: Sequence[_Reading], sources: _Sources) -> Held:
    presences = {}
    for name in sources.names:
        seen = [keys for reading in readings if (keys := reading.holder.get(name)) is not None]
        if len(seen) < len(readings):
            continue
        if name == sources.own and match.shares_primary_key:
            seen = [_without_one(keys, match.own.key) for keys in seen]
        presences[name] = _presence(seen, match.holder.key)
    return Held(
        table=match.query.table,
        key=match.query.key.name,
        key_columns=tuple(map(str, match.query.key.parts)),
        key_values=match.shown_key,
        own=match.own.shown,
        holder=match.holder.shown,
        own_presence=_presence([reading.own for reading in readings], match.own.key),
        holder_presences=presences,
        own_identity=match.own.identity,
    )


def _without_one(keys: _Keys, key: KeyTexts) -> _Keys:
    """Leave out our own row: the one with our values if there is one."""
    left = list(keys)
    if key in left:
        left.remove(key)
    else:
        left = left[1:]
    return left


def _presence(readings: Sequence[_Keys], key: KeyTexts) -> Presence:
    if all(key in keys for keys in readings):
        return Presence.ALIVE
    if any(readings):
        return Presence.CHANGED
    return Presence.GONE
