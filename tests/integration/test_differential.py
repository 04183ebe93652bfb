"""A second, independent reader of the same binlog: mysql-replication, wherever it is exact.

Where it is not exact the comparison would say nothing, so the workload keeps clear of it (each measured):

- compressed transactions: all rows are dropped without a word
- tagged GTIDs: the rows come without any GTID, and a file that begins with tags cannot be read
- XA in two phases: the rows come at PREPARE, under the first GTID
- partial JSON: only the first difference of a column
- a checksum setting that has changed since the file was written: four bytes are lost from each event
- values of many types: the list is in ``test_differential_values.py``, which compares them. Here are integers only
- reopening: it starts over from its first position
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any

import pytest
from pymysqlreplication.event import GtidEvent, QueryEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from tests.integration.reading import Replay, executed, read_behind, record_behind, run
from tests.integration.second_reader import images_of, opened_library

from vmerge.core.events import RowsEvent, RowsKind, SchemaChange, SourceItem, Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.lab.servers import Server

pytestmark = [
    pytest.mark.server,
    pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning"),  # the library's own connection
]

Row = tuple[int, ...]
Change = tuple[str, str, list[Row]]
"""Kind, table, and the images of its rows; an update has two a row."""

Found = tuple[Gtid, str, list[Change]]
"""GTID, text of a schema change (or nothing), rows with neighbours of one kind and table joined."""

COLUMNS = {"one": 1, "two": 2, "wide": 70}


def make_tables(server: Server, database: str) -> None:
    server.query(f"CREATE DATABASE {database}")
    for table, count in COLUMNS.items():
        others = "".join(f", c{number} INT NOT NULL" for number in range(1, count))
        server.query(f"CREATE TABLE {database}.{table} (id INT NOT NULL PRIMARY KEY{others})")


def workload(seed: int) -> Iterator[str]:
    """Statements of one session: transactions of several tables, large ones, savepoints, rollbacks, schema changes."""
    choose = random.Random(seed)
    number = 0
    for step in range(60):
        table = choose.choice(list(COLUMNS))
        rows = choose.choice((1, 1, 1, 3, 40))
        numbers = range(number, number + rows)
        number += rows
        values = ", ".join(str((each, *[each * 3] * (COLUMNS[table] - 1))).replace(",)", ")") for each in numbers)
        statements = [
            f"INSERT INTO {table} VALUES {values}",
            f"UPDATE {table} SET id = -id WHERE id > {number - 20}",
            f"DELETE FROM {table} WHERE id % 7 = {step % 7}",
        ]
        chosen = choose.sample(statements, choose.randint(1, 3))
        match choose.randint(0, 5):
            case 0 | 1:
                yield from chosen
            case 2:
                yield from ("BEGIN", *chosen, f"INSERT INTO one VALUES ({number + 100_000})", "COMMIT")
            case 3:
                yield from ("BEGIN", *chosen, "SAVEPOINT s", "DELETE FROM two", "ROLLBACK TO s", "COMMIT")
            case 4:
                yield from ("BEGIN", *chosen, "ROLLBACK")
            case _:
                yield from (f"CREATE TABLE temp{step} (id INT)", f"DROP TABLE temp{step}", "FLUSH BINARY LOGS")


def read_by_library(server: Server, start: GtidSet, end: GtidSet) -> list[Found]:
    """The same stretch of binlog through mysql-replication."""
    kinds = [GtidEvent, QueryEvent, XidEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent]
    found: list[Found] = []
    with opened_library(server, start, kinds) as stream:
        for event in stream:
            if isinstance(event, GtidEvent):
                found.append((Gtid.parse(event.gtid), "", []))
            elif isinstance(event, QueryEvent):
                gtid, _, rows = found[-1]
                if event.query not in ("BEGIN", "COMMIT") and not event.query.startswith("SAVEPOINT"):
                    found[-1] = gtid, event.query, rows
            elif not isinstance(event, XidEvent):
                append(found[-1][2], library_change(event))
    return [each for each in found if end.contains(each[0])]


def library_change(event: Any) -> Change:
    kind = {WriteRowsEvent: "WRITE", UpdateRowsEvent: "UPDATE", DeleteRowsEvent: "DELETE"}[type(event)]
    return kind, f"{event.schema}.{event.table}", images_of(event)


def as_found(items: Sequence[SourceItem]) -> list[Found]:
    """What our reader yields, in the same form."""
    found: list[Found] = []
    for item in items:
        if isinstance(item, SchemaChange):
            found.append((item.gtid, item.statement, []))
            continue
        assert isinstance(item, Transaction)
        changes: list[Change] = []
        for event in item.rows:
            append(changes, our_change(event))
        found.append((item.gtid, "", changes))
    return found


def our_change(event: RowsEvent) -> Change:
    """Images of NOT NULL integers: a bit a column for NULL, then four bytes each."""
    shape, images = event
    count = shape.table.column_count
    layout = Struct(f"<{(count + 7) // 8}x{count}i")
    return RowsKind(shape.kind).name, shape.table.name, list(layout.iter_unpack(images))


def append(changes: list[Change], change: Change) -> None:
    if changes and changes[-1][:2] == change[:2]:
        changes[-1][2].extend(change[2])
    else:
        changes.append(change)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("metadata", ["MINIMAL", "FULL"])
def test_two_readers_agree(untagged: Server, database: str, seed: int, metadata: str) -> None:
    """Both readers find the same GTIDs, schema changes, tables, rows and values in the same order."""
    make_tables(untagged, database)
    start = executed(untagged)
    untagged.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        run(untagged, *workload(seed), database=database)
    finally:
        untagged.query("SET GLOBAL binlog_row_metadata = DEFAULT")
    end = executed(untagged)
    ours = as_found(read_behind(untagged, start))
    theirs = read_by_library(untagged, start, end)
    assert ours == theirs
    assert sum(len(rows) for _, _, changes in ours for _, _, rows in changes) > 300


def test_it_does_not_matter_how_a_dump_arrives(untagged: Server, database: str) -> None:
    """The same comes out of a dump in large chunks, whose events are read together, and in pieces below an event."""
    make_tables(untagged, database)
    start = executed(untagged)
    run(untagged, *workload(5), database=database)
    expected = as_found(read_behind(untagged, start))
    recorded = record_behind(untagged, start)
    for width in (30, 1000, 1 << 20):
        assert as_found(Replay(recorded, width).read_all()) == expected
