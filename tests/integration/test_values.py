"""Hard values carried by both ways of applying. The oracle is the target's own binlog: the same raw row images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from random import Random
from typing import Any

import pytest
from pymysql.connections import Connection
from tests.conftest import StartServer
from tests.integration.applying import Carrier, joined, transactions
from tests.integration.random_values import RANDOM
from tests.integration.reading import Change, endpoint, executed, read_behind, run
from tests.integration.values import FILES, TAKES_EVERYTHING, TYPED, HardColumn, HardTable, Key, read_columns

from vmerge.core.appliers import ApplierSetting
from vmerge.core.events import RowsEvent, RowsKind, TableMap, Transaction
from vmerge.core.literals import RowLiterals
from vmerge.core.position import GtidSet
from vmerge.core.rowimage import ImageCutter, Slices, join_slices, whole_rows
from vmerge.core.schema import TableSchema
from vmerge.errors import RowMissing, TargetRejected
from vmerge.lab.servers import Server
from vmerge.mysql.connect import connect
from vmerge.mysql.schemas import read_schemas
from vmerge.mysql.target import SESSION

pytestmark = pytest.mark.server


class Writer:
    """Says to a target what the literals of its tables are. Close it after use."""

    def __init__(self, target: Server, database: str) -> None:
        session = {**SESSION, "autocommit": 1}
        self._connection: Connection[Any] = connect(endpoint(target), read_timeout_seconds=60, session=session)
        self._connection.select_db(database)
        with target.connect() as connection:
            self._schemas: dict[str, TableSchema] = {
                name[1]: schema for name, schema in read_schemas(connection, [database]).items()
            }
        query = "SELECT id, character_set_name FROM information_schema.collations"
        self._charsets = {int(number): str(charset) for number, charset in target.query(query)}
        self._literals: dict[TableMap, RowLiterals] = {}
        self._place = database.encode()

    def literals(self, table: TableMap) -> RowLiterals:
        """Those of a table map."""
        found = self._literals.get(table)
        if found is None:
            columns = self._schemas[table.table].columns
            found = self._literals[table] = RowLiterals(table, columns, self._charsets)
        return found

    def find(self, condition: bytes) -> set[int]:
        """The numbers of the rows that a condition finds."""
        return {int(number) for (number,) in self._query(b"SELECT id FROM `%s`.keyed WHERE " % self._place + condition)}

    def possible_keys(self, condition: bytes) -> str:
        """The indexes that serve a condition."""
        (plan,) = self._query(b"EXPLAIN FORMAT=TRADITIONAL SELECT id FROM `%s`.keyed WHERE " % self._place + condition)
        return str(plan[5])

    def _query(self, statement: bytes) -> Sequence[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

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
    tables = [HardTable("keyed", columns, Key.NUMBER), HardTable("keyless", columns, Key.NONE)]
    script = "".join(f"{table.definition};" for table in tables)
    make_tables(shard_a, target, database, script)
    shard_a.execute_script(TYPED, database)
    inserts = [statement for table in tables for statement in table.inserts()]
    updates = [statement for table in tables for statement in table.updates()]
    deletes = [f"DELETE FROM {table.name}" for table in tables]
    with closing(Carrier(shard_a, target, database)) as carrier:
        batches = [carrier.change_source(TAKES_EVERYTHING, *some) for some in (inserts, updates, deletes)]
    assert all(batches)
    for setting in (ApplierSetting.EVENTS, ApplierSetting.STATEMENTS):
        with closing(Carrier(shard_a, target, database, setting=setting)) as carrier:
            for batch in batches:
                assert applied(carrier, batch) == joined(batch)


def applied(carrier: Carrier, batch: Sequence[Transaction]) -> list[Change]:
    """Apply a batch; what the target's own binlog has of it."""
    start = executed(carrier.target)
    carrier.apply(batch)
    return carrier.applied_behind(start)


def test_the_values_are_many() -> None:
    """No file got lost."""
    assert sum(len(column.values) for file in FILES for column in read_columns(file)) > 900


COLUMNS_A_KEY = {"bytes": 2}
"""Of a file with long values; else more."""


@pytest.mark.parametrize("file", [file for file in FILES if file != "documents"])
def test_keys_of_every_type(shard_a: Server, target: Server, database: str, file: str) -> None:
    """Rows are found by primary keys of each type that may have one, changed and deleted by statements."""
    columns = [column for column in read_columns(file) if column.can_be_key]
    count = COLUMNS_A_KEY.get(file, 8)
    parts = [columns[at : at + count] for at in range(0, len(columns), count)]
    tables = [HardTable(f"t{number}", part, Key.ALL) for number, part in enumerate(parts)]
    make_tables(shard_a, target, database, ";".join(table.definition for table in tables))
    statements = [statement for table in tables for statement in (*table.inserts(), *table.updates())]
    statements += [f"DELETE FROM {table.name}" for table in tables]
    with closing(Carrier(shard_a, target, database, setting=ApplierSetting.STATEMENTS)) as carrier:
        batch = carrier.change_source(TAKES_EVERYTHING, *statements)
        assert applied(carrier, batch) == joined(batch)


@pytest.mark.parametrize("file", FILES)
def test_conditions_tell_values_apart(target: Server, database: str, file: str) -> None:
    """The condition for a value's bytes finds all rows that have them and no other; the one for keys uses the index."""
    table = HardTable("keyed", read_columns(file), Key.NUMBER)
    target.execute_script(f"CREATE DATABASE {database}; USE {database}; {table.definition}")
    target.execute_script(TYPED, database)
    start = executed(target)
    run(target, TAKES_EVERYTHING, *table.inserts(), database=database)
    (table_map, *_), rows = read_rows(target, start, database)
    keyed = [at for at, column in enumerate(table.columns, 1) if column.can_be_key]
    if keyed:
        target.query(f"ALTER TABLE {database}.keyed {', '.join(f'ADD KEY k{at} (c{at - 1})' for at in keyed)}")
    with closing(Writer(target, database)) as writer:
        literals = writer.literals(table_map)
        for at in range(1, len(table.columns) + 1):
            for row in rows:
                same, match = literals.same(row, [at]), literals.match(row, [at])
                equals = {number for number, other in enumerate(rows) if other[at] == row[at]}
                assert writer.find(same) == equals, same
                assert writer.find(match) >= equals, match
                assert at not in keyed or writer.possible_keys(match) == f"k{at}", match


def read_rows(server: Server, start: GtidSet, database: str) -> tuple[list[TableMap], list[Slices]]:
    """What was inserted behind a position: table maps, and the rows in columns."""
    events = [event for item in transactions(read_behind(server, start, database)) for event in item.rows]
    rows = [row for event in events for row in ImageCutter(event.shape.table, ()).slices(event.images)]
    return [event.shape.table for event in events], rows


@pytest.mark.parametrize(
    ("key", "count"),
    [(Key.NUMBER, 300), (Key.NONE, 100), pytest.param(Key.NUMBER, 20_000, marks=pytest.mark.long)],
)
def test_random_values(shard_a: Server, target: Server, database: str, key: Key, count: int) -> None:
    """Random bytes of each type are in the target's binlog as they were, when written, changed and deleted.

    With a key many rows share a statement, so their values meet in it.
    """
    table = HardTable("keyed", [HardColumn(kind, ("NULL",)) for kind, _ in RANDOM], key)
    make_tables(shard_a, target, database, table.definition)
    draw = Random(4)
    befores, afters = ([random_row(draw, number) for number in range(count)] for _ in range(2))
    with closing(Carrier(shard_a, target, database, setting=ApplierSetting.STATEMENTS)) as carrier:
        batch = carrier.change_source("INSERT INTO keyed (id) VALUES (0)")
        shape = next(iter(batch[0].rows)).shape
        images = {
            RowsKind.WRITE: befores,
            RowsKind.UPDATE: [row for pair in zip(befores, afters, strict=True) for row in pair],
            RowsKind.DELETE: afters,
        }
        for kind, rows in images.items():
            event = RowsEvent(whole_rows(shape.table, kind, shape.flags), b"".join(rows))
            start = executed(target)
            carrier.apply([batch[0]._replace(rows=(event,))])
            _, found = read_rows(target, start, carrier.target_database)
            assert found == list(ImageCutter(shape.table, ()).slices(event.images))


def random_row(draw: Random, number: int) -> bytes:
    """The image of a row, a tenth of its values NULL."""
    values = [make(draw) if draw.random() < 0.9 else None for _, make in RANDOM]
    return join_slices([number.to_bytes(4, "little"), *values])


def test_a_document_changed_in_place(shard_a: Server, target: Server, database: str) -> None:
    """The room that an update in place leaves in a document is carried by events only, the document itself by both."""
    make_tables(shard_a, target, database, "CREATE TABLE keyed (id INT PRIMARY KEY, c0 JSON)")
    insert = """INSERT INTO keyed VALUES (1, '{"a": "xxxxxxxxxxxxxxxxxxxx", "b": [1, 2, 3]}')"""
    updates = ["c0 = JSON_SET(c0, '$.a', 'y')", "c0 = JSON_REMOVE(c0, '$.b[0]')", "c0 = JSON_SET(c0, '$.b[1]', X'00')"]
    statements = [insert, *(f"UPDATE keyed SET {update}" for update in updates), "DELETE FROM keyed"]
    with closing(Carrier(shard_a, target, database)) as carrier:
        batch = carrier.change_source(*statements)
        assert applied(carrier, batch) == joined(batch)
    table = next(row.shape.table for row in batch[0].rows)
    start = executed(target)
    with closing(Carrier(shard_a, target, database, setting=ApplierSetting.STATEMENTS)) as carrier:
        for transaction in batch:
            carrier.apply([transaction])
    with closing(Writer(target, carrier.target_database)) as writer:
        literals = writer.literals(table)
        arrived = [literals.assign(row) for row in read_rows(target, start, carrier.target_database)[1]]
        sent = [literals.assign(row) for one in batch for event in one.rows for row in literals.cut(event.images)]
    assert arrived == sent


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
def test_documents_that_mysql_takes_for_equal(shard_a: Server, target: Server, database: str, key: str) -> None:
    """Statements find a document only as its source had it, and stop where an UPDATE would leave it as it is."""
    make_tables(shard_a, target, database, f"CREATE TABLE keyed (id INT {key}, c0 JSON, x INT)")
    table = f"{database}_merged.keyed"
    with closing(Carrier(shard_a, target, database, setting=ApplierSetting.STATEMENTS)) as carrier:
        carrier.carry("""INSERT INTO keyed VALUES (1, '{"a": 1}', 0), (2, '{"a": 1}', 0)""")
        sent, arrived = carrier.carry("""UPDATE keyed SET c0 = '{"a": 1.0}', x = id""")
        assert arrived == sent
        target.query(f"""UPDATE {table} SET c0 = '{{"a": 1}}', x = 3 WHERE id = 2""")
        target.query(f"UPDATE {table} SET x = 2 WHERE id = 2")
        batch = carrier.change_source("DELETE FROM keyed")
        with pytest.raises(RowMissing):
            carrier.apply(batch)
    for server, name in ((shard_a, f"{database}.keyed"), (target, table)):
        server.query(f"DELETE FROM {name}")
        server.query(f"ALTER TABLE {name} DROP COLUMN x")
    with closing(Carrier(shard_a, target, database, setting=ApplierSetting.STATEMENTS)) as carrier:
        carrier.carry("""INSERT INTO keyed VALUES (1, '{"a": 1}')""")
        updates = [f"""UPDATE keyed SET c0 = '{{"a": {number}}}'""" for number in (2, 1.0)]
        batch = carrier.change_source(*updates)
        folded = [RowsEvent(event.shape, halves(event, batch)) for event in batch[0].rows]
        with pytest.raises(TargetRejected, match="takes for equal"):
            carrier.applier.apply(batch, folded)
        carrier.connection.rollback()


def halves(event: RowsEvent, batch: Sequence[Transaction]) -> bytes:
    """The first image of the first transaction and the last of the last one: what a rule may leave of an update."""
    cutter = ImageCutter(event.shape.table, ())
    images = [image for one in batch for row in one.rows for _, image in cutter.cut(row.images)]
    return images[0] + images[-1]


def test_wide_rows(shard_a: Server, target: Server, database: str) -> None:
    """Rows of 1,017 columns, as many as InnoDB takes, are written, changed and deleted, with NULLs anywhere."""
    names = [f"c{number}" for number in range(1016)]
    columns = ", ".join(f"{name} TINYINT" for name in names)
    make_tables(shard_a, target, database, f"CREATE TABLE keyed (id INT PRIMARY KEY, {columns})")
    values = [", ".join("NULL" if at % divisor == 0 else "-1" for at in range(1016)) for divisor in (2, 7, 1017)]
    inserts = [f"INSERT INTO keyed VALUES ({number}, {row})" for number, row in enumerate(values)]
    statements = [*inserts, "UPDATE keyed SET c1015 = 5, c0 = NULL", "DELETE FROM keyed"]
    with closing(Carrier(shard_a, target, database, setting=ApplierSetting.STATEMENTS)) as carrier:
        batch = carrier.change_source(*statements)
        assert applied(carrier, batch) == joined(batch)


@pytest.mark.long
@pytest.mark.parametrize("setting", [ApplierSetting.EVENTS, ApplierSetting.STATEMENTS])
def test_rows_of_100_mebibytes(start_server: StartServer, database: str, setting: ApplierSetting) -> None:
    """Rows of that size arrive when max_allowed_packet has a bit more than twice their bytes."""
    source, target = (start_server(options={"max-allowed-packet": "256M"}) for _ in range(2))
    make_tables(source, target, database, "CREATE TABLE keyed (id INT PRIMARY KEY, b LONGBLOB, j JSON)")
    statements = [
        "INSERT INTO keyed VALUES (1, REPEAT(X'00FF275C', 26214400), NULL)",
        "INSERT INTO keyed VALUES (2, NULL, JSON_ARRAY(REPEAT('x', 33554432), 1, X'00'))",
        "UPDATE keyed SET b = NULL, j = NULL",
        "DELETE FROM keyed",
    ]
    with closing(Carrier(source, target, database, setting=setting)) as carrier:
        batch = carrier.change_source(*statements)
        assert applied(carrier, batch) == joined(batch)


def make_tables(source: Server, target: Server, database: str, definitions: str) -> None:
    """Make the same tables on both sides."""
    for server, name in ((source, database), (target, f"{database}_merged")):
        server.execute_script(f"CREATE DATABASE {name}; USE {name}; {definitions}")
