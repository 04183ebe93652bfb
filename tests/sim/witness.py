"""Evidence in the simulator: what the target and the sources say about a conflict.

Knows: that every source has done all of its history, and which rows of the target keep a run's net effect out. Never
knows: players. Used by the world. It looks at whole states, where ``mysql/lookup.py`` asks servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.sim.database import SimDatabase
from tests.sim.ends import SimRules, quarantine_of
from tests.sim.history import History
from tests.sim.rows import Change, Row, RowKey, decode, is_consistent, unique_entries

from vmerge.core.effect import effect_of, effect_of_fold
from vmerge.core.events import Transaction
from vmerge.core.evidence import Held, Presence, Testimony
from vmerge.core.fold import Fold
from vmerge.core.joint import Offer
from vmerge.core.position import GtidSet
from vmerge.core.quarantine import RowName, visible
from vmerge.core.rowimage import ImageCutter


def _without(rows: dict[RowKey, Row], changes: Sequence[Change]) -> dict[RowKey, Row]:
    """Return rows without those that changes take away."""
    gone = {(one.table, one.before[0]) for one in changes if one.before is not None}
    return {key: row for key, row in rows.items() if key not in gone}


class SimWitness:
    """Asks the database and the ends of all shards."""

    def __init__(self, history: History, database: SimDatabase, stream: str) -> None:
        self._history = history
        self._database = database
        self._stream = stream
        self._shards = {chr(ord("A") + index): history.shard(index, length) for index, length in enumerate(history.end)}

    def testify(
        self, run: Sequence[Transaction], effect: Fold | None = None, fellows: Sequence[Offer] = ()
    ) -> Testimony:
        """See ``Witness``."""
        changes = self._changes(run if effect is None else effect)
        rows = _without(dict(self._database.rows), changes)
        for fellow in fellows:
            theirs = self._changes(visible(fellow.run, quarantine_of(fellow), SimRules(self._database)))
            with_theirs = _without(rows, theirs)
            coming = {(one.table, one.after[0]): one.after for one in theirs if one.after is not None}
            if not with_theirs.keys() & coming.keys():
                with_theirs |= coming
                if is_consistent(self._history.tables_by_name, with_theirs):
                    rows = with_theirs
        inserts = [(one.table, one.after) for one in changes if one.after is not None]
        held: list[Held] = []
        for table, row in inserts:
            found = list(self._held(table, row, rows))
            held += found
            if not found:  # the run's own rows may keep out each other
                rows[table, row[0]] = row
        heads = {
            name: GtidSet.parse(f"{self._source(index)}:1-{length}") if length else GtidSet()
            for index, (name, length) in enumerate(zip(self._shards, self._history.end, strict=True))
        }
        return Testimony(tuple(held), heads)

    def _changes(self, run: Sequence[Transaction] | Fold) -> list[Change]:
        """Return the net effect of a run, row by row."""
        if isinstance(run, Fold):
            return [decode(event) for event in run.rows()]
        effect = Fold(SimRules(self._database))
        effect.add(event for transaction in run for event in transaction.rows)
        return self._changes(effect)

    def find(self, run: Sequence[Transaction], effect: Fold | None, held: Held) -> RowName:
        """See ``Witness``."""
        rules = SimRules(self._database)
        for event in (effect_of(run, rules) if effect is None else effect_of_fold(effect)).inserts:
            row = decode(event).after
            table = event.shape.table
            if row is not None and (table.table, f"id={row[0]}") == (held.table[1], held.own):
                ((key, _),) = ImageCutter(table, (0,)).cut(event.images)
                return held.table, key
        raise AssertionError(f"{held} is not in the run")

    def _source(self, index: int) -> str:
        text = bytes([index + 1] * 16).hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def _held(self, table: str, row: Row, rows: dict[RowKey, Row]) -> Iterator[Held]:
        schema = self._history.tables_by_name[table]
        for (name, _), other in rows.items():
            if name != table:
                continue
            if other[0] == row[0]:
                yield self._found(table, "PRIMARY", (0,), row, other)
            theirs = dict(unique_entries(schema, other))
            for number, values in unique_entries(schema, row):
                if theirs.get(number) == values:
                    yield self._found(table, f"unique_{number}", schema.unique[number], row, other)

    def _found(self, table: str, key: str, columns: tuple[int, ...], own: Row, holder: Row) -> Held:
        return Held(
            table=("shop", table),
            key=key,
            key_columns=tuple(f"c{column}" for column in columns),
            key_values=tuple(str(own[column]) for column in columns),
            own=f"id={own[0]}",
            holder=f"id={holder[0]}",
            own_presence=self._presence(self._stream, table, own, columns),
            holder_presences={name: self._presence(name, table, holder, columns) for name in self._shards},
        )

    def _presence(self, stream: str, table: str, row: Row, columns: tuple[int, ...]) -> Presence:
        found = self._shards[stream].get((table, row[0]))
        if found is None:
            return Presence.GONE
        same = all(found[column] == row[column] for column in columns)
        return Presence.ALIVE if same else Presence.CHANGED
