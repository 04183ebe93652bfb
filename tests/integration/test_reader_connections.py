"""Dumps of real servers: positions, files, restarts, lost connections and TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pymysql
import pytest
from tests.integration.reading import (
    Change,
    all_changes,
    endpoint,
    executed,
    gtids_of,
    make_source,
    opened,
    read_behind,
    read_until,
    row,
    run,
)

from vmerge.core.events import Heartbeat, SchemaChange, Transaction
from vmerge.core.position import GtidSet
from vmerge.errors import PositionPurged, SourceError, SourceLost, SourceRejected, UnsupportedEvent
from vmerge.lab.servers import Lab, Server
from vmerge.mysql.source import DumpSource, source_positions
from vmerge.mysql.tls import Tls, TlsMode

pytestmark = pytest.mark.server

StartServer = Callable[..., Server]

TABLES = """
CREATE DATABASE shop;
CREATE TABLE shop.t (id INT NOT NULL PRIMARY KEY);
CREATE TABLE shop.u (id INT NOT NULL PRIMARY KEY);
"""


OTHER_UUID = "c6d1c9e0-5d0b-4c1e-9d5e-0242ac120002"
OTHER_ID = 7_654_321
RESTORED = "cccccccc-71ca-11e1-9e33-c80aa9429562:1-100"
LAST_OF_SIX_DIGITS = 999_999


@pytest.fixture(scope="module")
def shared(lab: Lab) -> Iterator[Server]:
    """A server that the tests of this module reconfigure; each takes values of its own.

    It was restored from a backup, so that it has transactions which no binlog of it holds, and it numbers its files as
    one that is old.
    """
    server = lab.start("reader")
    server.query(f"RESET BINARY LOGS AND GTIDS TO {LAST_OF_SIX_DIGITS}")
    server.query(f"SET GLOBAL gtid_purged = '{RESTORED}'")
    server.execute_script(TABLES)
    yield server
    lab.remove(server)


@pytest.fixture
def own(start_server: StartServer) -> Server:
    """A server of this test alone, to stop and to kill."""
    server = start_server()
    server.execute_script(TABLES)
    return server


def insert(table: str, number: int) -> str:
    return f"INSERT INTO shop.{table} VALUES ({number})"


def inserted(table: str, number: int) -> list[Change]:
    return [Change("WRITE", table, row(number))]


def until_count(source: DumpSource, count: int) -> list[list[Change]]:
    """Read until so many transactions have come."""
    items = read_until(source, lambda items: sum(isinstance(item, Transaction) for item in items) >= count)
    return all_changes(items)


# Files and checksums


def test_files_and_checksums_change_under_an_open_dump(shared: Server) -> None:
    """Rotations, checksums turned off and on again lose and repeat nothing, in one dump and in one that comes later."""
    start = executed(shared)
    source = make_source(shared)
    with opened(source, start):
        for number, checksum in enumerate(("CRC32", "NONE", "NONE", "CRC32"), 100):
            shared.query(f"SET GLOBAL binlog_checksum = {checksum}")
            shared.query("FLUSH BINARY LOGS")
            run(shared, insert("t", number))
            assert until_count(source, 1) == [inserted("t", number)]
    assert all_changes(read_behind(shared, start)) == [inserted("t", number) for number in range(100, 104)]


def test_files_past_six_digits(shared: Server) -> None:
    """From a file to one whose number has a digit more, all transactions come, in their order and once."""
    start = GtidSet.parse(RESTORED)
    numbers = [int(file.rpartition(".")[2]) for file, *_ in shared.query("SHOW BINARY LOGS")]
    assert numbers[0] == LAST_OF_SIX_DIGITS
    if len(numbers) == 1:
        shared.query("FLUSH BINARY LOGS")
    run(shared, insert("t", 900))
    expected = executed(shared)
    assert start.union(gtids_of(read_behind(shared, start))) == expected
    assert all_changes(read_behind(shared, start))[-1] == inserted("t", 900)


def test_a_source_from_a_backup(shared: Server) -> None:
    """What a restored source has purged is where a stream can start at the earliest; from nothing it cannot."""
    behind_backup = GtidSet.parse(RESTORED)
    assert source_positions(endpoint(shared))[1] == behind_backup
    with pytest.raises(PositionPurged, match=RESTORED):
        make_source(shared).open(GtidSet())
    text = f"\n{RESTORED.upper()} ,\n"
    assert gtids_of(read_behind(shared, GtidSet.parse(text))) == executed(shared).subtract(behind_backup)


def test_positions_lie_anywhere(shared: Server) -> None:
    """From every position exactly what is behind it comes, also from one with holes."""
    start = executed(shared)
    run(shared, *(insert("t", number) for number in range(200, 208)))
    shared.query("FLUSH BINARY LOGS")
    run(shared, *(insert("t", number) for number in range(208, 212)))
    items = read_behind(shared, start)
    for known in ([], [0], [0, 1, 2], [1, 3, 9], range(8), range(11), range(12)):
        position = start.union(gtids_of([items[index] for index in known]))
        expected = [inserted("t", 200 + index) for index in range(12) if index not in known]
        assert all_changes(read_behind(shared, position)) == expected


def test_only_the_head_is_called_head(shared: Server) -> None:
    """While a source skips what the position has, nothing says that it is at its head; at its head something does."""
    run(shared, *(insert("t", number) for number in range(300, 310)))
    position = executed(shared)
    run(shared, insert("t", 310))
    with opened(make_source(shared), position) as source:
        items = read_until(source, lambda items: Heartbeat() in items)
    assert [type(item) for item in items] == [Transaction, Heartbeat]


def test_an_idle_source_beats(shared: Server) -> None:
    """With nothing to send every read returns within about a second, and says that the source is at its head."""
    with opened(make_source(shared), executed(shared)) as source:
        items = read_until(source, lambda items: len(items) == 2)
    assert items == [Heartbeat(), Heartbeat()]


def test_the_encoding_of_a_position_is_the_servers(shared: Server) -> None:
    """A set with several sources, holes and tags has the very bytes that the server writes at the head of a file."""
    other = "aaaaaaaa-71ca-11e1-9e33-c80aa9429562"
    for gtid in (f"{other}:1", f"{other}:2", f"{other}:5", f"{other}:tag_1:7", "AUTOMATIC:blue"):
        run(shared, f"SET gtid_next = '{gtid}'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'")
    shared.query("FLUSH BINARY LOGS")
    file = shared.query("SHOW BINARY LOG STATUS")[0][0]
    content = (shared.datadir / file).read_bytes()
    description_size = int.from_bytes(content[4 + 9 : 4 + 13], "little")
    event = content[4 + description_size :]
    size = int.from_bytes(event[9:13], "little")
    assert event[4] == 35
    body = event[19 : size - 4]
    logged = executed(shared).subtract(GtidSet.parse(RESTORED))
    assert GtidSet.decode(body) == logged
    assert logged.encode() == body


def test_positions_of_a_source(shared: Server) -> None:
    """What a source has, and what its binlogs no longer hold, are read as they are."""
    assert source_positions(endpoint(shared))[0] == executed(shared)


# What ends a dump


def test_a_position_ahead_of_the_source(shared: Server) -> None:
    """A source that lacks what the stream has applied is refused: it was restored or replaced."""
    ahead = GtidSet.parse("bbbbbbbb-71ca-11e1-9e33-c80aa9429562:1-3")
    with pytest.raises(SourceRejected, match=str(ahead)):
        make_source(shared).open(executed(shared).union(ahead))


def test_a_killed_dump(shared: Server) -> None:
    """A dump whose connection is killed on the source is lost, stays lost, and can be opened again."""
    start = executed(shared)
    source = make_source(shared)
    with opened(source, start):
        (number,) = shared.sessions("%", command="Binlog Dump GTID")
        shared.query(f"KILL {number}")
        for _ in range(2):
            with pytest.raises(SourceLost):
                read_until(source, lambda items: False)
        run(shared, insert("t", 400))
        source.open(start)
        assert until_count(source, 1) == [inserted("t", 400)]


def test_a_killed_statement_of_a_dump(shared: Server) -> None:
    """KILL QUERY ends a dump too, and is no reason to stop a stream for good."""
    with opened(make_source(shared), executed(shared)) as source:
        (number,) = shared.sessions("%", command="Binlog Dump GTID")
        shared.query(f"KILL QUERY {number}")
        with pytest.raises(SourceLost):
            read_until(source, lambda items: False)


def test_a_source_that_stops(own: Server) -> None:
    """A session that ends, as in a clean stop of the source, is a lost connection, and so is all until it is back.

    Then it empties its tables in memory, with a statement that concerns nobody else.
    """
    own.execute_script(
        "CREATE DATABASE other; CREATE TABLE other.h (id INT) ENGINE = MEMORY; INSERT INTO other.h VALUES (1)"
    )
    start = executed(own)
    source = make_source(own, "shop", at=endpoint(own, tls=Tls(TlsMode.DISABLED)))
    with opened(source, start):
        # A server that stops gives dumps another ten seconds: this one is ended a moment before.
        (number,) = own.sessions("%", command="Binlog Dump%")
        own.query(f"KILL {number}")
        with pytest.raises(SourceLost):
            read_until(source, lambda items: False)
        own.stop()
        with pytest.raises(SourceLost):
            source.open(start)
        own.spawn()
        own.wait_until_ready()
        assert own.query("SELECT * FROM other.h") == []
        run(own, insert("t", 1))
        source.open(start)
        items = read_until(source, lambda items: gtids_of(items) == executed(own).subtract(start))
        assert all_changes(items) == [inserted("t", 1)]
        assert [item.statement.split()[0] for item in items if isinstance(item, SchemaChange)] == ["TRUNCATE"]


def test_a_source_that_crashes(own: Server) -> None:
    """After a crash, with tables opened in another order, every row comes once and in its own table.

    So do those of an XA transaction that was prepared before and committed after it.
    """
    start = executed(own)
    source = make_source(own)
    with opened(source, start):
        run(own, "XA START 'x'", insert("t", 9), "XA END 'x'", "XA PREPARE 'x'")
        run(own, insert("t", 1), insert("u", 1))
        assert until_count(source, 2) == [inserted("t", 1), inserted("u", 1)]
        own.kill()
        with pytest.raises(SourceLost):
            read_until(source, lambda items: False)
    own.spawn()
    own.wait_until_ready()
    run(own, insert("u", 2), insert("t", 2), "XA COMMIT 'x'")
    expected = [inserted("t", 1), inserted("u", 1), inserted("u", 2), inserted("t", 2), inserted("t", 9)]
    assert all_changes(read_behind(own, start)) == expected


def test_a_second_reader_with_the_same_identity(shared: Server) -> None:
    """A source serves one reader of a name: the new one is served, the old one ends with an error."""
    start = executed(shared)
    first, second = make_source(shared), make_source(shared)
    with opened(first, start):
        run(shared, insert("t", 500))
        assert until_count(first, 1) == [inserted("t", 500)]
        with opened(second, start):
            with pytest.raises(SourceError):
                read_until(first, lambda items: False)
            assert until_count(second, 1) == [inserted("t", 500)]


def test_readers_of_different_names_do_not_disturb_each_other(shared: Server) -> None:
    """Two streams may read one source at a time."""
    start = executed(shared)
    other = make_source(shared, uuid=OTHER_UUID, server_id=OTHER_ID)
    with opened(make_source(shared), start) as first, opened(other, start) as second:
        for number in (600, 601):
            run(shared, insert("t", number))
            assert until_count(first, 1) == until_count(second, 1) == [inserted("t", number)]


def test_an_interrupted_read(shared: Server) -> None:
    """A read that is broken from outside raises that the source is lost, with and without TLS."""
    for tls in (None, Tls(TlsMode.REQUIRED)):
        with opened(make_source(shared, at=endpoint(shared, tls=tls)), executed(shared)) as source:
            source.interrupt()
            with pytest.raises(SourceLost):
                read_until(source, lambda items: False)


def test_a_source_that_is_not_open(shared: Server) -> None:
    """Reading before opening and after closing says so."""
    source = make_source(shared)
    with pytest.raises(SourceLost, match="not connected"):
        source.read()
    with opened(source, executed(shared)):
        pass
    with pytest.raises(SourceLost, match="not connected"):
        source.read()


# Accounts and TLS


def test_tls_is_used_where_it_is_required(shared: Server) -> None:
    """An account that may come with TLS only is served with TLS, and refused without."""
    shared.query("CREATE USER IF NOT EXISTS reader IDENTIFIED BY 'secret' REQUIRE SSL")
    shared.query("GRANT REPLICATION SLAVE ON *.* TO reader")
    start = executed(shared)
    run(shared, insert("t", 700))
    authority = str(shared.datadir / "ca.pem")
    for tls in (Tls(TlsMode.REQUIRED), Tls(TlsMode.VERIFY_CA, ca=authority)):
        at = endpoint(shared, user="reader", password="secret", tls=tls)
        with opened(make_source(shared, at=at), start) as source:
            assert until_count(source, 1) == [inserted("t", 700)]
    plain = endpoint(shared, user="reader", password="secret", tls=Tls(TlsMode.DISABLED))
    with pytest.raises(SourceRejected) as caught:
        make_source(shared, at=plain).open(start)
    assert "secret" not in caught.value.message


def test_a_certificate_that_is_not_trusted(shared: Server) -> None:
    """A server whose certificate is for another name, or from nobody known, is refused for good, not tried for ever."""
    authority = str(shared.datadir / "ca.pem")
    for tls in (Tls(TlsMode.VERIFY_IDENTITY, ca=authority), Tls(TlsMode.VERIFY_CA)):
        with pytest.raises(SourceRejected, match="certificate") as caught:
            make_source(shared, at=endpoint(shared, tls=tls)).open(executed(shared))
        assert "certificate" in caught.value.hint


@pytest.mark.parametrize("grants", [[], ["REPLICATION CLIENT"]])
def test_an_account_that_may_not_read(shared: Server, grants: list[str]) -> None:
    """Without the privilege for dumps, or with a wrong password, the source refuses, and the hint says what to do."""
    shared.query("CREATE USER IF NOT EXISTS small IDENTIFIED BY 'secret'")
    for grant in grants:
        shared.query(f"GRANT {grant} ON *.* TO small")
    at = endpoint(shared, user="small", password="secret", tls=Tls(TlsMode.REQUIRED))
    with opened(make_source(shared, at=at), executed(shared)) as source, pytest.raises(SourceRejected) as caught:
        read_until(source, lambda items: False)
    assert "Grant" in caught.value.hint
    wrong = endpoint(shared, user="small", password="other", tls=Tls(TlsMode.REQUIRED))
    with pytest.raises(SourceRejected, match="1045"):
        make_source(shared, at=wrong).open(executed(shared))


# What a source had better not do


def test_an_incident(shared: Server) -> None:
    """A source that lost events says so, and the stream stops; a position behind the incident is served."""
    shared.query("CREATE TABLE IF NOT EXISTS shop.m (b LONGTEXT) ENGINE = MyISAM")
    start = executed(shared)
    shared.query("SET GLOBAL max_binlog_stmt_cache_size = 4096")
    with pytest.raises(pymysql.err.OperationalError, match="max_binlog_stmt_cache_size"):
        run(shared, "INSERT INTO shop.m VALUES (REPEAT('x', 100000)), (REPEAT('y', 100000))")
    shared.query("SET GLOBAL max_binlog_stmt_cache_size = DEFAULT")
    behind = executed(shared)
    run(shared, insert("t", 801))
    with pytest.raises(UnsupportedEvent, match="events were lost") as caught:
        read_behind(shared, start)
    assert "copied anew" in caught.value.hint
    assert all_changes(read_behind(shared, behind)) == [inserted("t", 801)]


def test_anonymous_transactions(shared: Server) -> None:
    """A source that writes transactions without GTIDs, or may do so, is refused.

    A source that no longer does so serves a later start as if there had been none, so the error says what to do first.
    """
    start = executed(shared)
    with opened(make_source(shared), start) as source:
        shared.query("SET GLOBAL gtid_mode = ON_PERMISSIVE")
        try:
            other = make_source(shared, uuid=OTHER_UUID, server_id=OTHER_ID)
            with pytest.raises(SourceRejected, match="ON_PERMISSIVE"), opened(other, start):
                read_until(other, lambda items: False)
            run(shared, "SET gtid_next = 'ANONYMOUS'", insert("t", 802))
            with pytest.raises(SourceRejected, match="anonymous") as caught:
                read_until(source, lambda items: False)
        finally:
            shared.query("SET GLOBAL gtid_mode = ON")
    assert "carry its rows over by hand" in caught.value.hint
    run(shared, insert("t", 803))
    assert all_changes(read_behind(shared, start)) == [inserted("t", 803)]


def test_a_purged_position(shared: Server) -> None:
    """A position that needs purged transactions is refused by name; one that does not is served."""
    start = executed(shared)
    run(shared, insert("t", 805))
    shared.query("FLUSH BINARY LOGS")
    shared.query(f"PURGE BINARY LOGS TO '{shared.query('SHOW BINARY LOG STATUS')[0][0]}'")
    position = executed(shared)
    run(shared, insert("t", 806))
    with pytest.raises(PositionPurged, match=str(position.subtract(start))):
        make_source(shared).open(start)
    assert all_changes(read_behind(shared, position)) == [inserted("t", 806)]
