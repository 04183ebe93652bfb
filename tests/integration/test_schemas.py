"""Schemas read from real servers: the server's own table maps are the oracle."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from vmerge.core.binlog import Surroundings
from vmerge.core.events import TableMap
from vmerge.core.position import GtidSet
from vmerge.core.proof import map_differences
from vmerge.core.rules import TableName
from vmerge.core.schema import ForeignKey, GenerationKind, KeyPart, TableSchema, UniqueKey, differences
from vmerge.lab.servers import Server
from vmerge.mysql.connect import Endpoint, connect
from vmerge.mysql.schemas import read_schemas
from vmerge.mysql.source import DumpSource, decompress

StartServer = Callable[..., Server]

pytestmark = pytest.mark.server

# Every type, with the lengths at which its bytes in a table map change.
TYPES = {
    "y": "year",
    "i1": "tinyint",
    "i1w": "tinyint(1)",
    "i2": "smallint unsigned",
    "i3": "mediumint",
    "i4": "int(5) zerofill",
    "i8": "bigint unsigned",
    "f4": "float",
    "f4p": "float(7,3)",
    "f8": "double",
    "n": "decimal(10,3)",
    "n_wide": "decimal(65,30) unsigned",
    "b1": "bit",
    "b8": "bit(8)",
    "b13": "bit(13)",
    "b64": "bit(64)",
    "d": "date",
    "t0": "time",
    "t3": "time(3)",
    "dt6": "datetime(6)",
    "ts2": "timestamp(2) null",
    "c0": "char(0)",
    "c": "char",
    "c63": "char(63)",
    "c64": "char(64)",
    "c255": "char(255)",
    "c_latin": "char(200) character set latin1",
    "bin": "binary(16)",
    "v0": "varchar(0)",
    "v": "varchar(10)",
    "v_ascii": "varchar(300) character set ascii",
    "v_long": "varchar(2000)",
    "v_bin": "varchar(10) collate utf8mb4_bin",
    "v_16": "varchar(10) character set utf16",
    "v_nat": "national varchar(10)",
    "vb": "varbinary(70)",
    "tt": "tinytext",
    "tx": "text",
    "mt": "mediumtext",
    "lt": "longtext character set latin1",
    "tx_short": "text(10)",
    "tb": "tinyblob",
    "bl": "blob",
    "mb": "mediumblob",
    "lb": "longblob",
    "j": "json",
    "e": "enum('a','b''c','d\\\\e','f\\ng','h,i','(é)')",
    "e_latin": "enum('x','é') character set latin1",
    "e_16": "enum('é','z') character set utf16",
    "e_bytes": "enum('a','b') character set binary",
    "e_wide": "enum(" + ",".join(f"'{number}'" for number in range(300)) + ")",
    "s": "set('a','b')",
    "s9": "set('a','b','c','d','e','f','g','h','i')",
    "s33": "set(" + ",".join(f"'{number}'" for number in range(33)) + ")",
    "g": "geometry",
    "gp": "point srid 4326",
    "gl": "linestring",
    "gm": "multipolygon",
    "gc": "geometrycollection",
    "hidden": "int invisible",
    "virt": "int generated always as (i1 + 1) virtual",
    "kept": "varchar(20) generated always as (concat('x', i1)) stored",
}

RICH = [
    "CREATE TABLE {db}.rich (id int unsigned not null primary key, " + ", ".join(map(" ".join, TYPES.items())) + ")"
]
FAMILY = [
    "CREATE TABLE {db}.parent (id int, region int, name varchar(100), note text, PRIMARY KEY (region, id), "
    "UNIQUE KEY by_name (name(10), region), UNIQUE KEY lowered ((lower(name))))",
    "CREATE TABLE {db}.child (id int primary key, p int, r int, UNIQUE KEY (p), "
    "CONSTRAINT to_parent FOREIGN KEY (r, p) REFERENCES {db}.parent (region, id) ON DELETE CASCADE)",
    "CREATE TRIGGER {db}.notice BEFORE INSERT ON {db}.child FOR EACH ROW SET NEW.p = NEW.p",
    "CREATE VIEW {db}.seen AS SELECT * FROM {db}.parent",
    "CREATE TABLE {db}.keyless (a int) ENGINE=MyISAM",
]


def endpoint(server: Server) -> Endpoint:
    return Endpoint("test", server.host, server.port, "root", "", unix_socket=str(server.socket_path))


def run(server: Server, database: str, statements: list[str]) -> None:
    server.query(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
    for statement in statements:
        server.query(statement.replace("{db}", database).replace("%", "%%"))


def read(server: Server, *databases: str) -> dict[TableName, TableSchema]:
    with connect(endpoint(server), read_timeout_seconds=60, session={}) as connection:
        return read_schemas(connection, databases)


def read_map(server: Server, database: str, metadata: str) -> TableMap:
    """Let the server write one row of the table, and return the table map that it sends."""
    seen: list[TableMap] = []

    def carriage(table: TableMap) -> None:
        if table.database == database:
            seen.append(table)

    def no_store() -> object:
        raise AssertionError("nothing is wanted")

    surroundings = Surroundings(carriage, no_store, decompress, 1 << 20)  # type: ignore[arg-type]
    source = DumpSource(endpoint(server), server_id=4711, replica_uuid=str(uuid.uuid4()), surroundings=surroundings)
    position = GtidSet.parse(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])
    server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    server.query(f"INSERT INTO {database}.rich (id) VALUES ({len(metadata)})")
    source.open(position)
    while not seen:
        source.read()
    source.close()
    return seen[0]


@pytest.fixture
def rich(shard_a: Server, database: str) -> Iterator[TableSchema]:
    """A table with every type."""
    run(shard_a, database, RICH)
    yield read(shard_a, database)[database, "rich"]


def test_every_type_is_proven_by_the_server_s_own_table_map(start_server: StartServer, database: str) -> None:
    """What the schema views say of a table agrees with the table map of its rows, column by column."""
    server = start_server()
    run(server, database, RICH)
    schema = read(server, database)[database, "rich"]
    for metadata in ("MINIMAL", "FULL"):
        table_map = read_map(server, database, metadata)
        assert bool(table_map.names) == (metadata == "FULL")
        assert map_differences(table_map, schema, "the table") == ()


def test_the_same_definition_reads_the_same_on_another_server(
    shard_b: Server, database: str, rich: TableSchema
) -> None:
    """Two servers with one CREATE TABLE have no differences, for every type."""
    run(shard_b, database, RICH)
    assert differences(rich, read(shard_b, database)[database, "rich"]) == ()


def test_details_of_columns(rich: TableSchema) -> None:
    """Labels, generation, visibility and reference systems come out as they were written."""
    columns = {column.name: column for column in rich.columns}
    assert columns["e"].labels == ("a", "b'c", "d\\e", "f\ng", "h,i", "(é)")
    assert columns["e_latin"].label_bytes == (b"x", b"\xe9")
    assert columns["e_16"].label_bytes == (b"\x00\xe9", b"\x00z")
    assert columns["i4"].type_text == "int unsigned"
    assert columns["hidden"].invisible and not columns["i4"].invisible
    assert columns["gp"].srid == 4326
    virtual, kept = columns["virt"].generated, columns["kept"].generated
    assert virtual is not None and (virtual.kind, virtual.expression) == (GenerationKind.VIRTUAL, "(`i1` + 1)")
    assert kept is not None and kept.kind is GenerationKind.STORED
    assert [column.position for column in rich.columns] == list(range(1, len(TYPES) + 2))


def test_keys_engines_and_triggers(shard_a: Server, database: str) -> None:
    """Keys come with their parts in order; views are no tables; a missing database has none."""
    run(shard_a, database, FAMILY)
    tables = read(shard_a, database, f"{database}_missing")
    assert set(tables) == {(database, name) for name in ("parent", "child", "keyless")}
    parent, child, keyless = (tables[database, name] for name in ("parent", "child", "keyless"))
    assert parent.primary_key == UniqueKey("PRIMARY", (KeyPart("region"), KeyPart("id")))
    by_name, lowered = parent.unique_keys
    assert by_name == UniqueKey("by_name", (KeyPart("name", prefix_length=10), KeyPart("region")))
    assert (lowered.name, lowered.parts[0].expression) == ("lowered", "lower(`name`)")
    assert child.foreign_keys == (
        ForeignKey("to_parent", ("r", "p"), (database, "parent"), ("region", "id"), "CASCADE", "NO ACTION"),
    )
    assert (child.has_triggers, parent.has_triggers) == (True, False)
    assert (keyless.engine, keyless.primary_key, child.engine) == ("MyISAM", None, "InnoDB")


def test_no_databases_is_no_tables(shard_a: Server) -> None:
    """Asking for nothing asks the server nothing."""
    assert read(shard_a) == {}


def test_an_invisible_primary_key_of_the_server_is_seen(shard_a: Server, database: str) -> None:
    """A key that the server made by itself is a column like any other, even where the server hides it."""
    with shard_a.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute("SET SESSION sql_generate_invisible_primary_key = ON")
        cursor.execute(f"CREATE TABLE {database}.generated (a int)")
    table = read(shard_a, database)[database, "generated"]
    assert [column.name for column in table.columns] == ["my_row_id", "a"]
    assert str(table.primary_key) == "PRIMARY (my_row_id)"
