"""The decoder on bytes: what completes a transaction, and what stops the stream."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import pytest
from tests.unit.core.binlog_bytes import (
    COMMITTED_AT,
    Dump,
    MemoryStore,
    as_plain,
    carried,
    changes,
    decode,
    gtid,
    integer,
    row,
    summary,
)

from vmerge.core.events import Heartbeat, SchemaChange, TableMap, Transaction
from vmerge.core.projection import Carried
from vmerge.errors import CorruptEvent, UnsupportedEvent

A, B, C = row(1, 1), row(2, 2), row(3, 3)


def test_a_transaction_is_whole_or_not_there() -> None:
    """A transaction comes out with its last event, carrying its own GTID, its commit time and all its rows."""
    dump = Dump().gtid(5).begin().table_map().rows(A, flags=0).rows(B).table_map("u", number=8).rows(C)
    assert dump.decode() == []
    (item,) = dump.xid().decode()
    assert isinstance(item, Transaction)
    assert (item.gtid, item.committed_at_microseconds, item.prepared) == (gtid(5), COMMITTED_AT, None)
    assert changes(item) == [("WRITE", "t", A), ("WRITE", "t", B), ("WRITE", "u", C)]
    assert item.byte_count == len(A + B + C)


def test_the_position_of_a_prefix_is_its_last_gtid() -> None:
    """However far the next transaction has been received, what is complete ends with the GTID before it."""
    dump = Dump().insert(1, A).insert(2, B).gtid(3).begin().table_map().rows(C)
    for length in range(len(dump.events) + 1):
        complete = [number for number, _ in summary(decode(dump.events[:length]))]
        assert complete == [number for number, end in ((1, 7), (2, 12)) if length >= end]


def test_rows_of_other_tables_are_left_out_and_their_gtid_stays() -> None:
    """A transaction without a row of interest still moves the position."""
    items = Dump().insert(1, A).decode(carriage=carried(lambda table: table.name != "d.t"))
    assert summary(items) == [(1, [])]
    assert isinstance(items[0], Transaction)
    assert items[0].byte_count == 0


def test_a_table_is_asked_for_once_a_shape() -> None:
    """Table maps that repeat, under whatever number, lead to one object; another shape leads to another."""
    dump = Dump().gtid(1).begin()
    for number in (7, 7, 8):
        dump.table_map(number=number).rows(A)
    dump.table_map(number=9, tail=b"\3\3\3\3\0\0").rows(row(1, 1, 1), columns=b"\3\xff").xid()
    asked: list[str] = []

    def carriage(table: TableMap) -> Carried:
        asked.append(str(table))
        return Carried(table)

    (item,) = dump.decode(carriage=carriage)
    assert isinstance(item, Transaction)
    shapes = [shape for shape, _ in item.rows]
    assert len(asked) == 2
    assert shapes[0] is shapes[1] is shapes[2]
    assert shapes[3].table is not shapes[0].table


def test_tables_beyond_all_measure_are_forgotten_between_transactions() -> None:
    """A source that numbers its tables anew all the time does not fill memory, and every row keeps its table."""
    dump = Dump()
    for number in range(1, 10_100):
        dump.gtid(number).begin().table_map(f"t{number % 3}", number=number).rows(A).xid()
    assert [rows[0][1] for _, rows in summary(dump.decode())] == [f"t{number % 3}" for number in range(1, 10_100)]


def test_large_transactions_go_to_the_store() -> None:
    """Above the limit the rows are handed to a store as they come, in order, and memory holds no more than that."""
    stores: list[MemoryStore] = []

    def open_store() -> MemoryStore:
        stores.append(MemoryStore())
        return stores[-1]

    dump = Dump().gtid(1).begin().table_map()
    for value in range(50):
        dump.rows(row(value, value))
    items = dump.xid().insert(2, A).decode(spool_above_bytes=4 * len(A), open_store=open_store)
    expected = [("WRITE", "t", row(value, value)) for value in range(50)]
    assert summary(items) == [(1, expected), (2, [("WRITE", "t", A)])]
    assert summary(items)[0] == (1, expected)  # walked a second time
    assert isinstance(items[0], Transaction)
    assert items[0].byte_count == 50 * len(A)
    assert (len(stores), stores[0].largest) == (1, 5)


# Statements


def test_a_schema_change_comes_out_by_itself() -> None:
    """A statement without BEGIN is a schema change with its database and text."""
    items = Dump().gtid(1).query("ALTER TABLE t ADD x INT", database="shop").insert(2, A).decode()
    assert items[0] == SchemaChange(gtid(1), COMMITTED_AT, "shop", "ALTER TABLE t ADD x INT")
    assert summary(items) == [(2, [("WRITE", "t", A)])]


@pytest.mark.parametrize(
    ("collation_id", "encoded", "expected"),
    [
        (255, "é".encode(), "é"),
        (8, "é€".encode("cp1252"), "é€"),
        (28, "表".encode("gbk"), "表"),
        (13, "表".encode("shift-jis"), "表"),  # its second byte is a backslash
    ],
)
def test_statements_are_read_in_their_clients_character_set(collation_id: int, encoded: bytes, expected: str) -> None:
    """A table's name in a schema change is the name that the client meant."""
    flags, mode, catalog = b"\0" + bytes(4), b"\1" + bytes(8), b"\6\3std"
    status = flags + mode + catalog + b"\3" + bytes(4) + b"\4" + integer(collation_id, 2) + bytes(4) + b"\x63?"
    (item,) = Dump().gtid(1).query(b"DROP TABLE `" + encoded + b"`", status=status).decode()
    assert isinstance(item, SchemaChange)
    assert item.statement == f"DROP TABLE `{expected}`"


@pytest.mark.parametrize("status", [b"", b"\4" + integer(63, 2), b"\4" + integer(999, 2), b"\x63", b"\6\xff"])
def test_a_statement_that_cannot_be_read_says_so(status: bytes) -> None:
    """Without a known character set the text begins with what no statement begins with, so the worst is assumed."""
    (item,) = Dump().gtid(1).query(b"DROP TABLE `\xe9`", status=status).decode()
    assert isinstance(item, SchemaChange)
    assert item.statement == "? DROP TABLE `\\xe9`"


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO t VALUES ('secret')", "replace`t`values('secret')", "/*secret*/ DELETE FROM t", "XA 'secret'"],
)
def test_statement_format_is_refused_without_values(statement: str) -> None:
    """Rows written as a statement stop the stream, and the message names the statement's kind but no value."""
    with pytest.raises(UnsupportedEvent) as caught:
        Dump().gtid(7).begin().query(statement).xid().decode()
    assert str(gtid(7)) in caught.value.message
    assert "secret" not in caught.value.message + caught.value.hint
    assert "binlog_format=ROW" in caught.value.hint


def test_savepoints_change_nothing() -> None:
    """What was rolled back to a savepoint is not in the binlog, so the statement itself is passed over."""
    dump = Dump().gtid(1).begin().table_map().rows(A).query("SAVEPOINT `s`").table_map().rows(B).xid()
    assert summary(dump.decode()) == [(1, [("WRITE", "t", A), ("WRITE", "t", B)])]


def test_a_commit_statement_ends_what_no_engine_commits() -> None:
    """Engines without transactions end theirs with COMMIT as a statement: not wanted it is passed, wanted refused."""
    dump = Dump().gtid(1).begin().table_map().rows(A).query("COMMIT")
    assert summary(dump.decode(carriage=carried(lambda table: False))) == [(1, [])]
    with pytest.raises(UnsupportedEvent, match="engine without transactions"):
        dump.decode()
    with pytest.raises(UnsupportedEvent, match="engine without transactions"):
        dump.decode(spool_above_bytes=1)


def test_a_rollback_without_rows_is_an_empty_transaction() -> None:
    """ROLLBACK of nothing moves the position; with rows in front of it what is left cannot be told."""
    assert summary(Dump().gtid(1).begin().query("ROLLBACK").decode()) == [(1, [])]
    for statement in ("ROLLBACK", "ROLLBACK TO `s`"):
        with pytest.raises(UnsupportedEvent, match="rolled back in part"):
            Dump().gtid(1).begin().table_map().rows(A).query(statement).decode()


STATUS = bytes.fromhex("0000000000 012000a04500000000 0603737464 04ff00ff00ff00 0c017800")
"""As 9.7.4 writes it: flags, sql_mode, catalog, character sets, database."""
DDL_XID = b"\x11" + bytes(8)
COLLATION = b"\x12\xff\0"
THREAD_SPECIFIC = 4


@pytest.mark.parametrize(
    ("statement", "status", "flags", "passes"),
    [
        ("DROP TABLE IF EXISTS `t` /* generated by server */", STATUS + COLLATION, THREAD_SPECIFIC, True),
        ("drop tables  if exists t, u", STATUS, THREAD_SPECIFIC, True),
        ("DROP DATABASE IF EXISTS d", STATUS + COLLATION, 8, True),
        ("DROP TABLE IF EXISTS `t`", STATUS + DDL_XID + COLLATION, THREAD_SPECIFIC, False),
        ("DROP DATABASE IF EXISTS d", STATUS + DDL_XID + COLLATION, 8, False),
        ("DROP TABLE IF EXISTS `t`", STATUS + COLLATION, 0, False),  # MyISAM
        ("DROP TABLE `t`", STATUS + COLLATION, THREAD_SPECIFIC, False),
        ("TRUNCATE TABLE `t`", STATUS + COLLATION, THREAD_SPECIFIC, False),
        ("DROP TABLE IF EXISTS `t`", STATUS + b"\xfe" + DDL_XID, THREAD_SPECIFIC, False),  # an unknown variable
        ("DROP TABLE IF EXISTS `t`", STATUS + b"\x12", THREAD_SPECIFIC, False),  # cut short
        ("DROP TABLE IF EXISTS `t`", STATUS + b"\x0b\x04user", THREAD_SPECIFIC, False),
    ],
)
def test_a_drop_that_found_nothing_changes_nothing(statement: str, status: bytes, flags: int, passes: bool) -> None:
    """A DROP … IF EXISTS in which InnoDB had no part only moves the position; in doubt it is a schema change."""
    (item,) = Dump().gtid(1).query(statement, status=status, flags=flags).decode()
    expected = (
        Transaction(gtid(1), COMMITTED_AT, [], 0) if passes else SchemaChange(gtid(1), COMMITTED_AT, "d", statement)
    )
    if isinstance(item, SchemaChange):
        item = replace(item, session=())
    assert item == expected


CREATE_SELECT = "CREATE TABLE `t` (\n  `id` int NOT NULL,\n  `a` int\n) START TRANSACTION"


def test_create_table_select_keeps_its_rows() -> None:
    """The rows come out as a transaction; without any row of interest the statement comes out as a schema change."""
    dump = Dump().gtid(1).begin().query(CREATE_SELECT).table_map().rows(A).xid().insert(2, B)
    assert summary(dump.decode()) == [(1, [("WRITE", "t", A)]), (2, [("WRITE", "t", B)])]
    assert dump.decode(carriage=carried(lambda table: False))[0] == SchemaChange(
        gtid(1), COMMITTED_AT, "d", CREATE_SELECT
    )
    dump = Dump().gtid(1).begin().query(CREATE_SELECT).xid()
    assert dump.decode() == [SchemaChange(gtid(1), COMMITTED_AT, "d", CREATE_SELECT)]


# XA


def xa(dump: Dump, number: int, gtrid: bytes, images: bytes) -> Dump:
    """The first half, up to XA PREPARE."""
    text = f"X'{gtrid.hex()}',X'',1"
    dump.gtid(number).query(f"XA START {text}").table_map().rows(images).query(f"XA END {text}")
    return dump.xa_prepare(gtrid)


@pytest.mark.parametrize("gtrid", [b"a", b"\0\xff'", bytes(range(64))])
def test_xa_rows_come_with_the_commit(gtrid: bytes) -> None:
    """A prepared transaction comes out at its XA COMMIT, with both GTIDs and the time of the second."""
    dump = xa(Dump(), 1, gtrid, A)
    assert dump.decode() == []
    (item,) = dump.gtid(2, committed_at=77).query(f"XA COMMIT X'{gtrid.hex()}',X'',1").decode()
    assert isinstance(item, Transaction)
    assert (item.gtid, item.prepared, item.committed_at_microseconds) == (gtid(2), gtid(1), 77)
    assert (changes(item), item.byte_count) == ([("WRITE", "t", A)], len(A))


def test_xa_transactions_may_be_interleaved() -> None:
    """Each end finds its own prepared half, whatever was prepared, ended or committed in between."""
    dump = xa(xa(Dump(), 1, b"a", A), 2, b"b", B).insert(3, C)
    dump.gtid(4).query("XA COMMIT X'61',X'',1")
    xa(dump, 5, b"a", C)
    dump.gtid(6).query("XA ROLLBACK X'62',X'',1").gtid(7).query("XA COMMIT X'61',X'',1")
    items = dump.decode()
    prepared = {item.gtid: item.prepared for item in items if isinstance(item, Transaction)}
    assert prepared == {gtid(3): None, gtid(4): gtid(1), gtid(6): gtid(2), gtid(7): gtid(5)}
    assert [rows for _, rows in summary(items)] == [[("WRITE", "t", C)], [("WRITE", "t", A)], [], [("WRITE", "t", C)]]


def test_xa_in_one_phase_is_one_transaction() -> None:
    """XA COMMIT … ONE PHASE is written as a PREPARE that is the commit."""
    text = "X'61',X'',1"
    dump = Dump().gtid(1).query(f"XA START {text}").table_map().rows(A).query(f"XA END {text}")
    assert summary(dump.xa_prepare(b"a", one_phase=True).decode()) == [(1, [("WRITE", "t", A)])]


def test_the_end_of_an_unknown_xa_transaction() -> None:
    """What was prepared before the start is needed for a COMMIT, which stops the stream, and not for a ROLLBACK."""
    with pytest.raises(UnsupportedEvent, match="before the start position"):
        Dump().gtid(2).query("XA COMMIT X'61',X'',1").decode()
    assert summary(Dump().gtid(2).query("XA ROLLBACK X'61',X'',1").decode()) == [(2, [])]


def test_prepared_transactions_do_not_fill_memory() -> None:
    """However many are prepared, no more of their rows than the limit stays in memory."""
    stores: list[MemoryStore] = []

    def open_store() -> MemoryStore:
        stores.append(MemoryStore())
        return stores[-1]

    dump = Dump()
    for number in range(1, 11):
        xa(dump, number, bytes((number,)), row(number, number))
    for number in range(10, 0, -1):
        dump.gtid(10 + number).query(f"XA COMMIT X'{number:02x}',X'',1")
    items = dump.decode(spool_above_bytes=3 * len(A), open_store=open_store)
    assert summary(items) == [(10 + number, [("WRITE", "t", row(number, number))]) for number in range(10, 0, -1)]
    assert len(stores) == 7


@pytest.mark.parametrize(
    "dump",
    [
        Dump().gtid(1).begin().xa_prepare(b"a"),
        xa(xa(Dump(), 1, b"a", A), 2, b"a", B),
        xa(Dump(), 1, b"a", A).gtid(2).begin().table_map().rows(B).query("XA COMMIT X'61',X'',1"),
    ],
)
def test_xa_out_of_order_is_corrupt(dump: Dump) -> None:
    """A PREPARE without a START, an xid prepared twice and an end with rows of its own stop the stream."""
    with pytest.raises(CorruptEvent):
        dump.decode()


# The stream


@pytest.mark.parametrize("has_checksum", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_the_first_fake_rotate_may_have_a_checksum_or_not(has_checksum: bool, checksums: bool) -> None:
    """Both forms are read, whatever the file behind it says."""
    dump = Dump(checksums=checksums, fake_rotate_has_checksum=has_checksum).insert(1, A)
    assert summary(dump.decode()) == [(1, [("WRITE", "t", A)])]


@pytest.mark.parametrize("before", [True, False])
def test_checksums_change_between_files(before: bool) -> None:
    """Each file's own format description says whether its events have checksums, in both directions of a change."""
    dump = Dump(checksums=before).insert(1, A).next_file(checksums=not before).insert(2, B).next_file(checksums=before)
    dump.insert(3, C)
    assert summary(dump.decode()) == [(number, [("WRITE", "t", image)]) for number, image in ((1, A), (2, B), (3, C))]


def test_table_numbers_mean_other_tables_after_a_crash() -> None:
    """A file that follows a crash numbers tables anew: the same numbers may be other tables."""
    dump = Dump().gtid(1).begin().table_map("t", number=7).rows(A).table_map("u", number=8).rows(B).xid()
    dump.after_crash(checksums=True)
    dump.gtid(2).begin().table_map("u", number=7).rows(A).table_map("t", number=8).rows(B).xid()
    assert [rows for _, rows in summary(dump.decode())] == [
        [("WRITE", "t", A), ("WRITE", "u", B)],
        [("WRITE", "u", A), ("WRITE", "t", B)],
    ]
    with pytest.raises(CorruptEvent, match="without a table map"):
        Dump().insert(1, A).after_crash(checksums=True).gtid(2).begin().rows(B, number=7).decode()


def test_positions_within_files_mean_nothing() -> None:
    """Events whose positions are 0, or wrap in a file of more than 4 GiB, are read like all others."""
    whole = Dump().insert(1, A).insert(2, B).insert(3, C).heartbeat()
    expected = summary(whole.decode())
    assert len(expected) == 3
    wrapping = Dump()
    wrapping.position = 2**32 - 100
    assert summary(wrapping.insert(1, A).insert(2, B).insert(3, C).heartbeat().decode()) == expected
    bare = [without_position(event) for event in whole.events]
    assert [as_plain(item) for item in decode(bare)] == [as_plain(item) for item in whole.decode()]


def without_position(event: bytes) -> bytes:
    """The same event with position 0 and its checksum set right."""
    content = event[:13] + bytes(4) + event[17:-4]
    return content + crc32(content).to_bytes(4, "little")


def test_only_a_repeated_position_means_the_head() -> None:
    """While a source skips what we have, its heartbeats run ahead of what it sent: they say nothing."""
    assert Dump().heartbeat(position=5000).insert(1, A).decode()[0:1] != [Heartbeat()]
    assert Dump().heartbeat(position=5000).heartbeat(position=5000).decode() == [Heartbeat()]
    assert Dump().heartbeat(position=5000).heartbeat(position=6000).decode() == []
    assert Dump().insert(1, A).heartbeat().heartbeat(kind=41).decode()[1:] == [Heartbeat(), Heartbeat()]


def test_a_heartbeat_inside_a_transaction_says_nothing() -> None:
    """The source is not at its head while the transaction that it sends is incomplete."""
    dump = Dump().gtid(1).begin().heartbeat().heartbeat().table_map().rows(A).heartbeat().xid().heartbeat()
    assert summary(dump.decode()) == [(1, [("WRITE", "t", A)])]
    assert dump.decode().count(Heartbeat()) == 1
