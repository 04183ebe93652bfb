"""Carries rows from one real server to another through reader, builder and applier, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError
from tests.integration.reading import Change, changes, endpoint, executed, read_behind, run

from vmerge.core.appliers import ApplierPolicy, ApplierSetting
from vmerge.core.events import RowsEvent, SourceItem, Transaction
from vmerge.core.plan import Plan
from vmerge.core.position import GtidSet
from vmerge.core.rules import StreamRules, TableName
from vmerge.core.schema import TableSchema
from vmerge.errors import TargetError
from vmerge.lab.servers import Server
from vmerge.mysql.applier import Applier, open_applier
from vmerge.mysql.connect import Endpoint, connect
from vmerge.mysql.definitions import read_definitions
from vmerge.mysql.faults import target_fault
from vmerge.mysql.schemas import read_schemas
from vmerge.mysql.target import SESSION


class Carrier:
    """Rows of one database of a source, on their way into a database of another name on a target.

    Close it after use.
    """

    def __init__(
        self,
        source: Server,
        target: Server,
        database: str,
        *,
        at: Endpoint | None = None,
        setting: ApplierSetting = ApplierSetting.AUTO,
    ) -> None:
        self.source = source
        self.target = target
        self.source_database = database
        self.target_database = f"{database}_merged"
        self._policy = ApplierPolicy(setting)
        self.connection: Connection[Any] = connect(
            at or endpoint(target), read_timeout_seconds=60, session={**SESSION, "innodb_lock_wait_timeout": 1}
        )
        self.applier = self.make_applier()

    def make_applier(self) -> Applier:
        """One that knows the target's tables as they are now."""
        tables = self.target.query(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = %s",
            self.target_database,
        )
        names = [(str(schema), str(table)) for schema, table in tables]
        with self.target.connect() as connection:
            definitions = read_definitions(connection, names)
        return open_applier(self.connection, self.plan(), definitions, 99)

    def plan(self, setting: ApplierSetting | None = None) -> Plan:
        """What a stream does with the tables as they are now, under another setting if one is given."""
        policy = self._policy if setting is None else ApplierPolicy(setting)
        rules = StreamRules.build({self.source_database: self.target_database})
        sides = (self.source, self.source_database), (self.target, self.target_database)
        sources, targets = (self._schemas(server, database) for server, database in sides)
        return Plan(rules, sources.values(), targets.values(), policy)

    @staticmethod
    def _schemas(server: Server, database: str) -> dict[TableName, TableSchema]:
        with server.connect() as connection:
            return read_schemas(connection, [database])

    def change_source(self, *statements: str) -> list[Transaction]:
        """Run statements in one session of the source and read what they did."""
        start = executed(self.source)
        run(self.source, *statements, database=self.source_database)
        return transactions(read_behind(self.source, start, self.source_database))

    def apply(self, batch: Sequence[Transaction]) -> None:
        """Apply in one target transaction and commit; on an error roll back and raise it as the drivers class it."""
        self.connection.begin()
        try:
            self.applier.apply(batch, rows_of(batch))
            self.connection.commit()
        except MySQLError as error:
            raise self.rolled_back(error) from error
        except TargetError:
            self.connection.rollback()
            raise

    def rolled_back(self, error: MySQLError) -> TargetError:
        """The error as ``mysql/faults.py`` classes it."""
        if self.connection.open:
            self.connection.rollback()
        return target_fault(error, "applying")

    def carry(self, *statements: str) -> tuple[list[Change], list[Change]]:
        """Run statements on the source, apply what they did; return the rows in both binlogs, neighbours joined."""
        start = executed(self.target)
        batch = self.change_source(*statements)
        self.apply(batch)
        return joined(batch), self.applied_behind(start)

    def applied_behind(self, start: GtidSet) -> list[Change]:
        """The rows that the target's own binlog has behind a position."""
        return joined(transactions(read_behind(self.target, start, self.target_database)))

    def close(self) -> None:
        self.connection.close()


def transactions(items: Sequence[SourceItem]) -> list[Transaction]:
    return [item for item in items if isinstance(item, Transaction)]


def joined(batch: Sequence[Transaction]) -> list[Change]:
    """The rows of all transactions, with the images of neighbours of one kind and table joined."""
    result: list[Change] = []
    for change in (change for transaction in batch for change in changes(transaction)):
        if result and result[-1][:2] == change[:2]:
            result[-1] = result[-1]._replace(images=result[-1].images + change.images)
        else:
            result.append(change)
    return result


def rows_of(batch: Sequence[Transaction]) -> Iterator[RowsEvent]:
    """All rows of whole transactions, in order."""
    for transaction in batch:
        yield from transaction.rows
