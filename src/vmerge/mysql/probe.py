"""Which rows of the target keep a stream's rows out.

Knows: probe tables, and how a stream's rows are held against the target by them. Never knows: sources, or what follows
from a match. Used by ``mysql/lookup.py``; see docs/adr/0014-evidence.md.

Each table of the target has a probe table in the control database for each stream that asks: of the same columns and
unique keys, empty but for transactions that are rolled back. The stream's rows go there with BINLOG, the rows that they
replace go from the target's tables, and the server matches the two. So no value is decoded, and generated columns and
expressions are the server's too. Names of probe tables tell stream and definition, so no two streams meet in one and
a table that was altered gets a new one. They stay: the account may not drop them.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.effect import Effect, effect_of
from vmerge.core.events import RowsEvent, TableMap, Transaction
from vmerge.core.joint import Offer
from vmerge.core.plan import Plan
from vmerge.core.quarantine import visible
from vmerge.core.rules import TableName
from vmerge.errors import KeyConflict, RowMissing, UnsupportedEvent, VmergeError
from vmerge.mysql import sql
from vmerge.mysql.applier import Applier, open_applier
from vmerge.mysql.definitions import Definitions, read_definitions, require_unchanged
from vmerge.mysql.faults import errno_of, target_fault
from vmerge.mysql.joint_commit import membership_of
from vmerge.mysql.key_queries import KeyQuery, Literals, Match, Search, key_queries
from vmerge.mysql.source_views import quoted_name

MATCHES = 10
"""Told at most: a verdict needs one, an operator a few."""

NO_SUCH_TABLE = 1146
TOO_LONG = 3024
"""The server ended a SELECT by ``max_execution_time``."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The stream that asks, and what it knows of its tables."""

    stream: str
    server_id: int
    """Of the stream's events; another one for a stream of that name in another workflow."""
    control_database: str
    plan: Plan
    definitions: Definitions

    def probe_name(self, table: TableName) -> TableName:
        """Return the name of the stream's probe table for a table of the target as it is defined now."""
        text = repr((self.server_id, self.stream, table, self.definitions[table]))
        return self.control_database, f"probe_{sha256(text.encode('utf-8')).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class _ProbedTable:
    """One table that rows are brought to."""

    probe: TableName
    queries: tuple[KeyQuery, ...]


class _ProbeRules:
    """The rules of a plan, with the probe tables in place of the target's."""

    def __init__(self, plan: Plan, tables: Mapping[TableName, _ProbedTable]) -> None:
        self._plan = plan
        self._tables = tables
        self.appliers = plan.appliers
        self.applier = plan.applier
        self.target_schema = plan.target_schema

    def target_name(self, table_map: TableMap) -> TableName:
        """See ``ApplierRules``."""
        return self._tables[self._plan.target_name(table_map)].probe

    def is_in_circle(self, table_map: TableMap) -> bool:
        """Probe tables have no foreign keys."""
        return False


@dataclass(frozen=True, slots=True)
class _Fellow:
    """A sibling's run that is on the target as far as this look goes."""

    run: Sequence[Transaction]
    effect: Effect
    applier: Applier


class Probe:
    """One effect, held against the target over one connection, which has autocommit off.

    Promise: what it changes it rolls back. Owner: the stream's thread. Methods raise PyMySQL's errors, too.
    """

    def __init__(
        self,
        asker: Asker,
        connection: Connection[Any],
        run: Sequence[Transaction],
        effect: Effect,
        fellows: Sequence[Offer] = (),
    ) -> None:
        """Make the probe tables that are missing: statements that commit.

        Raises:
            UnsupportedEvent: the rows of a table cannot be looked up.
        """
        self._asker = asker
        self._connection = connection
        self._run = run
        self._effect = effect
        self._target_name = asker.plan.target_name
        self._tables: dict[TableName, _ProbedTable] = {}
        probe_definitions: dict[TableName, str] = {}
        for table_map in dict.fromkeys(row.shape.table for row in effect.inserts):
            planned = asker.plan.table(table_map.database, table_map.table)
            if planned is None or planned.target is None:
                raise LookupError(f"{table_map.name} is not carried")
            name = planned.target_name
            if name not in self._tables:
                self._tables[name] = _ProbedTable(asker.probe_name(name), tuple(key_queries(planned.target)))
                probe_definitions.update(self._made(self._tables[name].probe, name))
        connection.rollback()  # a session with an open transaction takes no format description
        self._applier = open_applier(connection, asker.plan, asker.definitions, asker.server_id)
        self._probe_applier = self._applier.twin(_ProbeRules(asker.plan, self._tables), probe_definitions)
        self._fellows = list(self._followed(fellows))

    def _followed(self, offers: Sequence[Offer]) -> Iterator[_Fellow]:
        """Yield those of the fellows whose runs can be followed."""
        for offer in offers:
            member = membership_of(offer.membership)
            applier = self._applier.twin(member.plan, member.definitions)
            with contextlib.suppress(UnsupportedEvent):
                run = visible(offer.run, member.quarantine, member.plan)
                yield _Fellow(run, effect_of(run, member.plan), applier)

    def _made(self, probe: TableName, table: TableName) -> Definitions:
        """Make a probe table unless it is there: the statement would be in the target's binlog each time."""
        try:
            made = read_definitions(self._connection, [probe])
        except MySQLError as error:
            if errno_of(error) != NO_SUCH_TABLE:
                raise
            require_unchanged(self._connection, [table], self._asker.definitions)
            self._execute(sql.CREATE_PROBE_TABLE.format(probe=quoted_name(probe), table=quoted_name(table)))
            made = read_definitions(self._connection, [probe])
        if _shape(made[probe]) != _shape(self._asker.definitions[table]):
            raise UnsupportedEvent(
                f"table {'.'.join(probe)} on the target is not like {'.'.join(table)}, which it was made for",
                hint="Drop it: it is made anew when it is needed.",
            )
        return made

    def search(self) -> tuple[Match, ...]:
        """Return some of what keeps the rows out: nothing only if the target takes them all.

        Raises:
            LockConflict: a row is locked by another transaction.
            RowMissing: a row to delete is not there.
            UnsupportedEvent: they are kept out, and by what cannot be found.
        """
        while (misfit := self._misfit()) is not None:
            self._fellows.remove(misfit)
        rows = self._effect.inserts
        found = self._matches((), rows, Search.INDEXED)
        if found or self._takes(rows):
            return found
        # Rows may also keep out each other, when the target is stricter than the source. So find the first that does
        # not fit behind those in front of it.
        count = bisect_left(range(len(rows) + 1), True, key=lambda length: not self._takes(rows[:length]))
        for search in Search:
            found = self._matches(rows[: count - 1], rows[count - 1 : count], search)
            if found:
                return found
        if count > len(rows) or self._takes(rows):  # by now: a sibling has committed in between
            return ()
        table = ".".join(self._target_name(rows[count - 1].shape.table))
        raise UnsupportedEvent(f"a row of {table} is kept out of the target by a row that cannot be found")

    def _misfit(self) -> _Fellow | None:
        """Return a fellow whose rows do not fit beside the others', behind what all of them and we take away."""
        with self._transaction():
            self._apply(self._applier, self._effect.deletes)
            for fellow in self._fellows:
                if not self._fits(fellow, fellow.effect.deletes):
                    return fellow
            for fellow in self._fellows:
                if not self._fits(fellow, fellow.effect.inserts):
                    return fellow
            return None

    def _fits(self, fellow: _Fellow, rows: Sequence[RowsEvent]) -> bool:
        try:
            self._apply(fellow.applier, rows, fellow.run)
        except (KeyConflict, RowMissing, UnsupportedEvent):  # it stands elsewhere by now, or needs others than are here
            return False
        return True

    def render(self, table: TableName, columns: Sequence[str]) -> tuple[Any, ...]:
        """Return these expressions of the one row that is brought to a table, as the server reads its image."""
        probe = quoted_name(self._tables[table].probe)
        with self._transaction():
            self._execute(sql.EMPTY_PROBE_TABLE.format(probe=probe))
            self._apply(self._probe_applier, self._effect.inserts)
            (row,) = self._rows(sql.READ_PROBED.format(columns=", ".join(columns), probe=probe))
            return row

    def find(self, table: TableName, identity: Literals) -> RowsEvent:
        """Return the row that is brought to a table with this primary key, in the words of a match.

        Raises:
            UnsupportedEvent: there is none.
        """
        rows = [row for row in self._effect.inserts if self._target_name(row.shape.table) == table]
        found = self._found(rows, self._tables[table], identity) if rows else None
        if found is None:
            raise UnsupportedEvent(f"a row of {'.'.join(table)} that is kept out cannot be found in the binlog")
        return found

    def _found(self, rows: Sequence[RowsEvent], table: _ProbedTable, identity: Literals) -> RowsEvent | None:
        """Look for a row in halves: the server compares, and nothing is decoded."""
        if self._lacks(rows, table, identity):
            return None
        if len(rows) == 1:
            return rows[0]
        middle = len(rows) // 2
        return self._found(rows[:middle], table, identity) or self._found(rows[middle:], table, identity)

    def _lacks(self, rows: Sequence[RowsEvent], table: _ProbedTable, identity: Literals) -> bool:
        """Whether none of the rows has a primary key; False when they keep out each other, so that it is not known."""
        with self._transaction():
            self._execute(sql.EMPTY_PROBE_TABLE.format(probe=quoted_name(table.probe)))
            try:
                self._apply(self._probe_applier, rows)
            except KeyConflict:
                return False
            return not self._rows(table.queries[0].sightings(quoted_name(table.probe), identity))

    def _takes(self, rows: Sequence[RowsEvent]) -> bool:
        """Whether the target takes rows: the only proof that nothing was overlooked."""
        with self._transaction():
            try:
                self._bring(rows)
            except KeyConflict:
                return False
            return True

    def _matches(self, before: Sequence[RowsEvent], rows: Sequence[RowsEvent], search: Search) -> tuple[Match, ...]:
        """Match rows with the target as it is when it has taken others before.

        Nothing when rows keep out each other: then they must be fewer.
        """
        with self._transaction():
            for table in self._tables.values():
                self._execute(sql.EMPTY_PROBE_TABLE.format(probe=quoted_name(table.probe)))
            try:
                self._bring(before)
                self._apply(self._probe_applier, rows)
            except KeyConflict:
                return ()
            found: list[Match] = []
            for name, table in self._tables.items():
                brought = sum(self._target_name(row.shape.table) == name for row in rows)
                found.extend(self._matches_of(table, brought, search))
            require_unchanged(self._connection, self._tables, self._asker.definitions)
            return tuple(found[:MATCHES])

    def _matches_of(self, table: _ProbedTable, brought: int, search: Search) -> Iterator[Match]:
        """Match the rows of one table: all at once by keys that can be joined, by the others those that were found."""
        probe = quoted_name(table.probe)
        owns: list[Literals] = []
        for query in table.queries:
            if brought and query.is_joinable:
                for match in self._read(query, query.match(probe, None, search)):
                    owns.append(match.own.identity)
                    yield match
        others = [query for query in table.queries if not query.is_joinable]
        if others and brought == 1 and not owns:
            owns = [others[0].literals(row) for row in self._rows(others[0].identities(probe))]
        for query in others:
            for own in dict.fromkeys(owns):
                yield from self._read(query, query.match(probe, own, search))

    def _read(self, query: KeyQuery, statement: str) -> list[Match]:
        return [query.read_match(row) for row in self._rows(statement)]

    def _bring(self, rows: Sequence[RowsEvent]) -> None:
        """Take the deletes away, and bring the fellows' rows and ours to the target's own tables."""
        self._apply(self._applier, self._effect.deletes)
        for fellow in self._fellows:
            self._apply(fellow.applier, fellow.effect.deletes, fellow.run)
        for fellow in self._fellows:
            self._apply(fellow.applier, fellow.effect.inserts, fellow.run)
        self._apply(self._applier, rows)

    def _apply(self, applier: Applier, rows: Sequence[RowsEvent], run: Sequence[Transaction] | None = None) -> None:
        if not rows:
            return
        try:
            applier.apply(self._run if run is None else run, rows)
        except MySQLError as error:
            # Not by way of a name here: the fault would hold this frame, and with it the rows, in a cycle.
            raise self._fault_of(error) from error

    def _fault_of(self, error: MySQLError) -> VmergeError:
        fault = target_fault(error, "looking for what keeps rows out")
        if isinstance(fault, RowMissing) and not self._effect.is_net:
            return UnsupportedEvent("rows cannot be followed: one appears and vanishes in one transaction")
        return fault

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Begin with whatever comes first; end without a trace."""
        try:
            yield
        finally:
            if self._connection.open:
                self._connection.rollback()

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            return self._execute(statement)
        except MySQLError as error:
            if errno_of(error) == TOO_LONG:
                raise UnsupportedEvent("a key of the target has no index that helps to find a row") from error
            raise

    def _execute(self, statement: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def _shape(definition: str) -> list[str]:
    """Return what a definition and that of a table LIKE it have in common: no name of its own, no foreign keys."""
    lines = definition.split("\n")[1:]
    return [line.removesuffix(",") for line in lines if not line.startswith("  CONSTRAINT ")]
