"""Hard values carried by both ways of applying. The oracle is the target's own binlog: the same raw row images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pymysql.connections import Connection
from tests.integration.applying import Carrier, joined, transactions
from tests.integration.reading import endpoint, executed, read_behind
from tests.integration.values import FILES, TAKES_EVERYTHING, TYPED, HardTable, read_columns

from vmerge.core.events import RowsEvent, RowsKind, TableMap, Transaction
from vmerge.core.literals import LENIENT_HINT, SQL_MODE, RowLiterals
from vmerge.core.rowimage import Slices
from vmerge.core.schema import TableSchema
from vmerge.lab.servers import Server
from vmerge.mysql.connect import connect
from vmerge.mysql.schemas import read_schemas

pytestmark = pytest.mark.server


class Writer:
    """Writes rows into a target as the literals say. Close it after use."""

    def __init__(self, target: Server, database: str) -> None:
        session: dict[str, str | int] = {"sql_mode": SQL_MODE, "time_zone": "+00:00"}
        self._connection: Connection[Any] = connect(endpoint(target), read_timeout_seconds=60, session=session)
        with target.connect() as connection:
            self._schemas: dict[str, TableSchema] = {
                name[1]: schema for name, schema in read_schemas(connection, [database]).items()
            }
        query = "SELECT id, character_set_name FROM information_schema.collations"
        self._charsets = {int(number): str(charset) for number, charset in target.query(query)}
        self._literals: dict[TableMap, RowLiterals] = {}
        self.database = database

    def literals(self, table: TableMap) -> RowLiterals:
        """Those of a table map."""
        found = self._literals.get(table)
        if found is None:
            columns = self._schemas[table.table].columns
            found = self._literals[table] = RowLiterals(table, columns, self._charsets)
        return found

    def apply(self, batch: Sequence[Transaction]) -> None:
        """Write all rows of transactions; each statement meets one row."""
        for transaction in batch:
            for event in transaction.rows:
                for statement in self._statements(event):
                    assert self.send(statement) == 1, statement[:2000]

    def send(self, statement: bytes) -> int:
        """Run a statement; the count of rows that it met."""
        return self._connection.query(statement)

    def _statements(self, event: RowsEvent) -> Iterator[bytes]:
        table, literals = event.shape.table, self.literals(event.shape.table)
        schema = self._schemas[table.table]
        name = f"`{self.database}`.`{table.table}`".encode()
        rows = literals.cut(event.images)
        for row in rows:
            hint = LENIENT_HINT if literals.is_lenient(row) else b""
            if event.shape.kind is RowsKind.WRITE:
                yield b"INSERT %s INTO %s VALUES (%s)" % (hint, name, b", ".join(literals.assign(row)))
                continue
            condition = self._condition(literals, schema, row)
            if event.shape.kind is RowsKind.DELETE:
                yield b"DELETE FROM %s WHERE %s LIMIT 1" % (name, condition)
                continue
            after = next(rows)
            hint = LENIENT_HINT if literals.is_lenient(after) else b""
            pairs = zip(schema.columns, literals.assign(after), strict=True)
            sets = b", ".join(b"`%s` = %s" % (column.name.encode(), literal) for column, literal in pairs)
            yield b"UPDATE %s %s SET %s WHERE %s LIMIT 1" % (hint, name, sets, condition)

    def _condition(self, literals: RowLiterals, schema: TableSchema, row: Slices) -> bytes:
        """The key by its index, and every column by its bytes."""
        key = literals.match(row, schema.primary_key_positions or range(len(row)))
        return key + b" AND " + literals.same(row, range(len(row)))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@pytest.fixture(params=["MINIMAL", "FULL"])
def metadata(request: pytest.FixtureRequest, shard_a: Server) -> Iterator[str]:
    """How much a source's table maps tell."""
    before = shard_a.query("SELECT @@GLOBAL.binlog_row_metadata")[0][0]
    shard_a.query("SET GLOBAL binlog_row_metadata = %s", request.param)
    yield request.param
    shard_a.query("SET GLOBAL binlog_row_metadata = %s", before)


@pytest.mark.parametrize("file", FILES)
def test_hard_values(shard_a: Server, target: Server, database: str, metadata: str, file: str) -> None:
    """Every value arrives with the source's bytes when it is inserted, becomes another or another becomes it, and goes.

    With and without a primary key, by events and by statements.
    """
    columns = read_columns(file)
    tables = [HardTable("keyed", columns, has_key=True), HardTable("keyless", columns, has_key=False)]
    script = "".join(f"{table.definition};" for table in tables)
    written = f"{database}_written"
    for server, name in ((shard_a, database), (target, f"{database}_merged"), (target, written)):
        server.execute_script(f"CREATE DATABASE {name}; USE {name}; {script}")
    shard_a.execute_script(TYPED, database)
    carrier, writer = Carrier(shard_a, target, database), Writer(target, written)
    try:
        for statements in (
            [statement for table in tables for statement in table.inserts()],
            [statement for table in tables for statement in table.updates()],
            [f"DELETE FROM {table.name}" for table in tables],
        ):
            batch = carrier.change_source(TAKES_EVERYTHING, *statements)
            assert batch
            for applier, name in ((carrier, f"{database}_merged"), (writer, written)):
                start = executed(target)
                applier.apply(batch)
                assert joined(transactions(read_behind(target, start, name))) == joined(batch)
    finally:
        carrier.close()
        writer.close()
