"""Each kind of event, as a real server writes it: nothing is lost, and what cannot be carried is refused."""

from __future__ import annotations

import pymysql
import pytest
from tests.integration.reading import (
    Change,
    all_changes,
    changes,
    executed,
    gtids_of,
    read_behind,
    read_effect,
    row,
    run,
)
from tests.operating import wait_until

from vmerge.core.events import SchemaChange, Transaction
from vmerge.core.position import GtidSet
from vmerge.errors import UnsupportedEvent
from vmerge.lab.servers import Server

pytestmark = pytest.mark.server

TABLES = """
CREATE DATABASE {0};
CREATE TABLE {0}.t (id INT NOT NULL, a INT NOT NULL, PRIMARY KEY (id));
CREATE TABLE {0}.u (id INT NOT NULL, PRIMARY KEY (id));
"""


@pytest.fixture
def shop(shard_a: Server, database: str) -> str:
    """A database on the first shard with the tables t (id, a) and u (id)."""
    shard_a.execute_script(TABLES.format(database))
    return database


def insert(*rows: tuple[int, int]) -> str:
    return "INSERT INTO t VALUES " + ", ".join(str(values) for values in rows)


def inserted(*rows: tuple[int, int]) -> Change:
    return Change("WRITE", "t", b"".join(row(*values) for values in rows))


def test_single_statements(shard_a: Server, shop: str) -> None:
    """An INSERT, UPDATE and DELETE are a transaction each, with whole images."""
    items = read_effect(shard_a, shop, insert((1, 10)), "UPDATE t SET a = 11", "DELETE FROM t")
    assert all_changes(items) == [
        [inserted((1, 10))],
        [Change("UPDATE", "t", row(1, 10) + row(1, 11))],
        [Change("DELETE", "t", row(1, 11))],
    ]
    assert gtids_of(items).count() == 3


def test_several_tables_in_one_transaction(shard_a: Server, shop: str) -> None:
    """Tables may alternate and a statement may change two: the order of the rows is the source's."""
    update_two = "UPDATE t JOIN u USING (id) SET t.a = 5, u.id = 2"
    items = read_effect(shard_a, shop, "BEGIN", insert((1, 1)), "INSERT INTO u VALUES (1)", update_two, "COMMIT")
    assert sorted(all_changes(items)[0][2:]) == [
        Change("UPDATE", "t", row(1, 1) + row(1, 5)),
        Change("UPDATE", "u", row(1) + row(2)),
    ]
    assert all_changes(items)[0][:2] == [inserted((1, 1)), Change("WRITE", "u", row(1))]


def test_a_statement_of_several_rows_events(shard_a: Server, shop: str) -> None:
    """A statement larger than an event of 8 KB comes as several; no row is lost between them."""
    rows = [(number, -number) for number in range(1, 5001)]
    (item,) = read_effect(shard_a, shop, insert(*rows))
    assert len(changes(item)) > 5
    assert b"".join(change.images for change in changes(item)) == inserted(*rows).images


def test_savepoints(shard_a: Server, shop: str) -> None:
    """What was rolled back to a savepoint is not there; the rest is."""
    statements = ["BEGIN", insert((1, 1)), "SAVEPOINT s", insert((2, 2)), "ROLLBACK TO s", "SAVEPOINT `a b`"]
    items = read_effect(shard_a, shop, *statements, insert((3, 3)), "RELEASE SAVEPOINT `a b`", "COMMIT")
    assert all_changes(items) == [[inserted((1, 1)), inserted((3, 3))]]


def test_empty_and_rolled_back_transactions(shard_a: Server, shop: str) -> None:
    """A rolled back transaction leaves no trace; an empty one with a GTID of its own moves the position."""
    gtid = "aaaaaaaa-71ca-11e1-9e33-c80aa9429562:1"
    empty = [f"SET gtid_next = '{gtid}'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'"]
    items = read_effect(shard_a, shop, "BEGIN", insert((1, 1)), "ROLLBACK", *empty)
    assert all_changes(items) == [[]]
    assert gtids_of(items) == GtidSet.parse(gtid)


def test_engines_without_transactions(shard_a: Server, shop: str) -> None:
    """Rows of MyISAM and MEMORY, which end with COMMIT as a statement, are passed or refused, never kept for later."""
    for engine in ("MyISAM", "MEMORY"):
        start = executed(shard_a)
        run(shard_a, f"CREATE TABLE {shop}.m (id INT NOT NULL) ENGINE = {engine}")
        run(shard_a, "INSERT INTO m VALUES (1), (2)", insert((1, 1)), "DROP TABLE m", "DELETE FROM t", database=shop)
        with pytest.raises(UnsupportedEvent, match="engine without transactions"):
            read_behind(shard_a, start, shop)
        assert gtids_of(read_behind(shard_a, start, "elsewhere")) == executed(shard_a).subtract(start)


def test_mixed_engines(shard_a: Server, shop: str) -> None:
    """A source with GTIDs writes no transaction of both engines; what it writes of one that tried is whole."""
    run(shard_a, f"CREATE TABLE {shop}.m (id INT NOT NULL) ENGINE = MyISAM")
    with shard_a.connect(shop) as connection, connection.cursor() as cursor:
        start = executed(shard_a)
        cursor.execute("BEGIN")
        cursor.execute(insert((1, 1)))
        with pytest.raises(pymysql.err.OperationalError, match="1785"):
            cursor.execute("INSERT INTO m VALUES (1)")
        cursor.execute("COMMIT")
    assert all_changes(read_behind(shard_a, start, shop)) == [[inserted((1, 1))]]


# XA


@pytest.mark.parametrize("xid", ["'a'", "X'00ff27', X'5c'", "'it''s', 'b', 7"])
def test_xa_in_two_phases(shard_a: Server, shop: str, xid: str) -> None:
    """The rows come once, with the XA COMMIT, and both GTIDs are accounted for."""
    statements = [f"XA START {xid}", insert((1, 1)), f"XA END {xid}", f"XA PREPARE {xid}", f"XA COMMIT {xid}"]
    items = read_effect(shard_a, shop, *statements)
    assert all_changes(items) == [[inserted((1, 1))]]
    assert gtids_of(items).count() == 2


def test_xa_in_one_phase(shard_a: Server, shop: str) -> None:
    """XA COMMIT … ONE PHASE is one transaction with one GTID."""
    items = read_effect(shard_a, shop, "XA START 'a'", insert((1, 1)), "XA END 'a'", "XA COMMIT 'a' ONE PHASE")
    assert all_changes(items) == [[inserted((1, 1))]]
    assert gtids_of(items).count() == 1


def test_xa_rollback(shard_a: Server, shop: str) -> None:
    """What was prepared and rolled back never comes out; its two GTIDs do."""
    statements = ["XA START 'a'", insert((1, 1)), "XA END 'a'", "XA PREPARE 'a'", "XA ROLLBACK 'a'"]
    items = read_effect(shard_a, shop, *statements, insert((2, 2)))
    assert all_changes(items) == [[], [inserted((2, 2))]]
    assert gtids_of(items).count() == 3


def test_xa_across_a_restart_of_the_stream(shard_a: Server, shop: str) -> None:
    """The position has a hole for what is only prepared, so a reader that starts there gets its rows."""
    start = executed(shard_a)
    run(shard_a, "XA START 'a'", insert((1, 1)), "XA END 'a'", "XA PREPARE 'a'", database=shop)
    run(shard_a, insert((2, 2)), database=shop)
    before = read_behind(shard_a, start, shop)
    assert all_changes(before) == [[inserted((2, 2))]]
    position = start.union(gtids_of(before))
    assert not position.includes(executed(shard_a))
    run(shard_a, "XA COMMIT 'a'", insert((3, 3)), database=shop)
    after = read_behind(shard_a, position, shop)
    assert all_changes(after) == [[inserted((1, 1))], [inserted((3, 3))]]
    assert position.union(gtids_of(after)) == executed(shard_a)


def test_xa_prepared_before_the_start(shard_a: Server, shop: str) -> None:
    """A stream that starts between PREPARE and COMMIT is refused: the rows of the first half are not to be had."""
    run(shard_a, "XA START 'a'", insert((1, 1)), "XA END 'a'", "XA PREPARE 'a'", database=shop)
    start = executed(shard_a)
    run(shard_a, "XA COMMIT 'a'")
    with pytest.raises(UnsupportedEvent, match="prepared before"):
        read_behind(shard_a, start, shop)


# Session settings that change what is written


def test_tagged_gtids(shard_b: Server, database: str) -> None:
    """Tagged transactions are booked under their own GTIDs, and a position with tags is understood by the source."""
    shard_b.execute_script(TABLES.format(database))
    start = executed(shard_b)
    blue = ["SET gtid_next = 'AUTOMATIC:blue'", insert((1, 1)), "SET gtid_next = 'AUTOMATIC'"]
    items = read_effect(shard_b, database, *blue, insert((2, 2)))
    assert [item.gtid.tag for item in items if isinstance(item, Transaction)] == ["blue", ""]
    assert all_changes(items) == [[inserted((1, 1))], [inserted((2, 2))]]
    assert start.union(gtids_of(items)) == executed(shard_b)
    for known in range(3):
        position = start.union(gtids_of(items[:known]))
        assert all_changes(read_behind(shard_b, position, database)) == all_changes(items[known:])


@pytest.mark.parametrize("count", [1, 3, 20_000])
def test_compressed_transactions(shard_a: Server, shop: str, count: int) -> None:
    """A compressed transaction of any size holds the same rows as without compression."""
    rows = [(number, number * 7) for number in range(count)]
    on = "SET SESSION binlog_transaction_compression = ON"
    (item,) = read_effect(shard_a, shop, on, "BEGIN", insert(*rows), "DELETE FROM t WHERE id = 0", "COMMIT")
    *inserts, deleted = changes(item)
    assert b"".join(change.images for change in inserts) == inserted(*rows).images
    assert deleted == Change("DELETE", "t", row(0, 0))


def test_partial_json(shard_a: Server, shop: str) -> None:
    """A partial update keeps its kind: it is not taken for an update with a whole image."""
    run(shard_a, f"CREATE TABLE {shop}.j (id INT NOT NULL, j JSON)", f"INSERT INTO {shop}.j VALUES (1, '{{\"a\": 1}}')")
    partial = "SET SESSION binlog_row_value_options = PARTIAL_JSON"
    (item,) = read_effect(shard_a, shop, partial, "UPDATE j SET j = JSON_SET(j, '$.a', 2)")
    assert [change.kind for change in changes(item)] == ["PARTIAL_UPDATE"]


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_images_without_all_columns(shard_a: Server, shop: str, image: str) -> None:
    """A session that leaves columns out stops the stream."""
    run(shard_a, f"CREATE TABLE {shop}.b (id INT NOT NULL PRIMARY KEY, a INT, b BLOB)")
    run(shard_a, f"INSERT INTO {shop}.b VALUES (1, 1, 'x')")
    with pytest.raises(UnsupportedEvent, match="without all their columns"):
        read_effect(shard_a, shop, f"SET SESSION binlog_row_image = {image}", "UPDATE b SET a = 2")


@pytest.mark.parametrize("mode", ["STATEMENT", "MIXED"])
def test_statement_format(shard_a: Server, shop: str, mode: str) -> None:
    """Rows written as a statement stop the stream, without a value in the message; what came before is not lost."""
    start = executed(shard_a)
    run(shard_a, insert((1, 1)), f"SET SESSION binlog_format = {mode}", insert((424242, 2)), database=shop)
    with pytest.raises(UnsupportedEvent, match=r"holds a statement \(INSERT\)") as caught:
        read_behind(shard_a, start, shop)
    assert "424242" not in caught.value.message + caught.value.hint


def test_load_data(shard_a: Server, shop: str) -> None:
    """LOAD DATA is rows in a row stream, and is refused in a statement stream."""
    file = shard_a.folder / f"{shop}.txt"
    file.write_text("1\t1\n2\t2\n")
    load = f"LOAD DATA INFILE '{file}' INTO TABLE"
    assert all_changes(read_effect(shard_a, shop, f"{load} t")) == [[inserted((1, 1), (2, 2))]]
    with pytest.raises(UnsupportedEvent, match="LOAD DATA"):
        read_effect(shard_a, shop, "SET SESSION binlog_format = STATEMENT", f"{load} u (id, @a)")


def test_the_event_scheduler(shard_a: Server, shop: str) -> None:
    """What an event of the scheduler writes comes like everything else, and its own end is a harmless statement."""
    start = executed(shard_a)
    run(shard_a, f"CREATE EVENT once ON SCHEDULE AT CURRENT_TIMESTAMP DO {insert((1, 1))}", database=shop)
    of_database = "SELECT COUNT(*) FROM information_schema.events WHERE event_schema = %s"
    wait_until(lambda: shard_a.query(of_database, shop) == [(0,)], "the event is over")
    items = read_behind(shard_a, start, shop)
    assert all_changes(items) == [[inserted((1, 1))]]
    assert [item.statement.split()[0] for item in items if isinstance(item, SchemaChange)] == ["CREATE", "DROP"]


def test_temporary_tables(shard_a: Server, shop: str) -> None:
    """Temporary tables leave nothing in a row stream."""
    temporary = ["CREATE TEMPORARY TABLE temp (id INT)", "INSERT INTO temp VALUES (1)"]
    items = read_effect(shard_a, shop, *temporary, "INSERT INTO u SELECT id FROM temp", "DROP TEMPORARY TABLE temp")
    assert all_changes(items) == [[Change("WRITE", "u", row(1))]]


# Schema changes


def test_schema_changes(shard_a: Server, shop: str) -> None:
    """Every statement that is no row change comes out with its text, its database and its GTID."""
    statements = [
        "ALTER TABLE t ADD b INT",
        "TRUNCATE TABLE u",
        "CREATE TABLE `é` (id INT)",
        "DROP TABLE `é`",
        "CREATE USER IF NOT EXISTS nobody",
        "DROP USER nobody",
        "FLUSH TABLES",
    ]
    items = read_effect(shard_a, shop, *statements)
    texts = [item.statement for item in items if isinstance(item, SchemaChange)]
    assert [text.split(" /*")[0].replace(", ALGORITHM=INSTANT", "") for text in texts[:3]] == statements[:3]
    assert [text.split()[0] for text in texts] == [statement.split()[0] for statement in statements]
    assert {item.database for item in items if isinstance(item, SchemaChange)} == {shop}
    assert gtids_of(items).count() == len(statements)


def test_statements_of_clients_with_other_character_sets(shard_a: Server, shop: str) -> None:
    """The names in a schema change are right whatever the client speaks."""
    for charset in ("latin1", "gbk", "utf8mb4"):
        (created, dropped) = read_effect(shard_a, shop, "CREATE TABLE `ü` (id INT)", "DROP TABLE `ü`", charset=charset)
        assert isinstance(created, SchemaChange)
        assert isinstance(dropped, SchemaChange)
        assert created.statement == "CREATE TABLE `ü` (id INT)"
        assert "`ü`" in dropped.statement


def test_create_table_select(shard_a: Server, shop: str) -> None:
    """The rows of CREATE TABLE … SELECT are not lost; without rows it comes out as the schema change that it is."""
    run(shard_a, insert((1, 1), (2, 2)), database=shop)
    items = read_effect(shard_a, shop, "CREATE TABLE c SELECT * FROM t", "CREATE TABLE e SELECT * FROM t WHERE id = 9")
    assert changes(items[0]) == [Change("WRITE", "c", row(1, 1) + row(2, 2))]
    assert isinstance(items[1], SchemaChange)
    assert items[1].statement.startswith("CREATE TABLE `e`")


def test_rows_around_a_schema_change(shard_a: Server, shop: str) -> None:
    """Rows of both shapes of an altered table come with the shape that they have."""
    items = read_effect(
        shard_a, shop, insert((1, 1)), "ALTER TABLE t ADD b INT NOT NULL", "INSERT INTO t VALUES (2, 2, 2)"
    )
    before, _, after = items
    assert (changes(before), changes(after)) == ([inserted((1, 1))], [Change("WRITE", "t", row(2, 2, 2))])
    assert isinstance(before, Transaction)
    assert isinstance(after, Transaction)
    counts = [shape.table.column_count for item in (before, after) for shape, _ in item.rows]
    assert counts == [2, 3]


# Size

FULL_PACKET = (1 << 24) - 1
AROUND_THE_BLOB = 1 + 19 + 6 + 2 + 2 + 1 + 1 + 1 + 4 + 4 + 4
"""Packet status, header, table, flags, extra length, column count, bitmap, null bits, id, blob length, checksum."""


@pytest.mark.parametrize(
    "packet", [FULL_PACKET - 1, FULL_PACKET, FULL_PACKET + 1, 2 * FULL_PACKET, 2 * FULL_PACKET + 1]
)
def test_rows_larger_than_a_packet(shard_a: Server, shop: str, packet: int) -> None:
    """A row whose event just fits into packets of 16 MiB, or just does not, arrives whole."""
    run(shard_a, f"CREATE TABLE {shop}.big (id INT NOT NULL PRIMARY KEY, b LONGBLOB)")
    size = packet - AROUND_THE_BLOB
    (item,) = read_effect(
        shard_a,
        shop,
        f"INSERT INTO big VALUES (1, REPEAT('xyz!', {size // 4 + 1}) )".replace("REPEAT", "LEFT(REPEAT").replace(
            ") )", f"), {size}))"
        ),
    )
    (change,) = changes(item)
    assert change.images[:9] == row(1) + size.to_bytes(4, "little")
    assert change.images[9:] == (b"xyz!" * (size // 4 + 1))[:size]


def test_large_transactions_are_spooled(shard_a: Server, shop: str) -> None:
    """A transaction above the limit is read from its file: every row, in order, twice."""
    start = executed(shard_a)
    rows = [(number, number) for number in range(30_000)]
    run(shard_a, insert(*rows), insert((-1, -1)), database=shop)
    large, small = read_behind(shard_a, start, shop, spool_above_bytes=100_000)
    assert isinstance(large, Transaction)
    assert not isinstance(large.rows, list)
    for _ in range(2):
        assert b"".join(change.images for change in changes(large)) == inserted(*rows).images
    assert changes(small) == [inserted((-1, -1))]
