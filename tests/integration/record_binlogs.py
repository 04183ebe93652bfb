"""Makes the recordings of ``tests/unit/core/recorded`` anew: binlog files as a real server writes them.

    python -m tests.integration.record_binlogs

Needed only when a recording is to hold more. The files differ each time in times and uuids, in nothing else.
"""

from __future__ import annotations

from pathlib import Path

from vmerge.lab.servers import Lab, Options

FOLDER = Path(__file__).parents[1] / "unit" / "core" / "recorded"

SMALL_EVENTS: Options = {"binlog-row-event-max-size": 256}

TYPES = {
    "i1": ("TINYINT", "-128", "127"),
    "i2": ("SMALLINT UNSIGNED", "65535", "0"),
    "i3": ("MEDIUMINT", "-8388608", "NULL"),
    "i8": ("BIGINT UNSIGNED", "18446744073709551615", "9"),
    "f": ("FLOAT", "-0.0", "1e-45"),
    "d": ("DOUBLE", "5e-324", "1.7976931348623157e308"),
    "n": ("DECIMAL(65,30)", "-99999999999999999999999999999999999.999999999999999999999999999999", "0"),
    "b": ("BIT(13)", "b'1010101010101'", "b'0'"),
    "da": ("DATE", "'0000-00-00'", "'2020-05-00'"),
    "ti": ("TIME(6)", "'-838:59:58.999999'", "'00:00:00.1'"),
    "dt": ("DATETIME(3)", "'9999-12-31 23:59:59.999'", "'0000-00-00'"),
    "ts": ("TIMESTAMP(6) NULL", "'2038-01-19 03:14:07.999999'", "'0000-00-00'"),
    "y": ("YEAR", "0", "2155"),
    "c": ("CHAR(3) CHARACTER SET latin1", "'é'", "''"),
    "cw": ("CHAR(200)", "'表'", "'a'"),
    "bi": ("BINARY(4)", "X'0061'", "X''"),
    "v": ("VARCHAR(20) CHARACTER SET utf16", "'😀'", "'x'"),
    "vw": ("VARCHAR(300) CHARACTER SET sjis", "'ソ'", "''"),
    "vb": ("VARBINARY(70)", "X'00FF'", "NULL"),
    "tt": ("TINYTEXT", "'t'", "''"),
    "te": ("TEXT CHARACTER SET gb18030", "'〇'", "NULL"),
    "lb": ("LONGBLOB", "REPEAT(X'0AFF', 150)", "X''"),
    "j": ("JSON", """'{"a": [1, 2.5, -3, null, true, "x"], "b": {"c": {}}}'""", "'null'"),
    "jo": ("JSON", "JSON_OBJECT('d', CAST('12:00:01.5' AS TIME(6)), 'n', 1.50, 'b', X'FF')", "'[]'"),
    "e": ("ENUM('x','é') CHARACTER SET latin1", "'é'", "''"),
    "ew": ("ENUM(" + ",".join(f"'{n}'" for n in range(260)) + ")", "'259'", "NULL"),
    "s": ("SET('a','b','c','d','e','f','g','h','i')", "'a,i'", "''"),
    "g": ("GEOMETRY", "ST_GeomFromText('POINT(1 -2)', 4326)", "NULL"),
    "gp": ("LINESTRING", "ST_GeomFromText('LINESTRING(0 0, 1 1)')", "NULL"),
    "vec": ("VECTOR(3)", "STRING_TO_VECTOR('[1,-2.5,3e10]')", "NULL"),
    "gen": ("INT GENERATED ALWAYS AS (i1 + 1) STORED", "DEFAULT", "DEFAULT"),
}
"""Column: type, value, and another value."""

VALUES = [", ".join(pair[number] for pair in TYPES.values()) for number in (1, 2)]
SETS = ", ".join(f"{name} = {pair[2]}" for name, pair in TYPES.items() if name != "gen")

ROWS = [
    "SET sql_mode = ''",
    "CREATE TABLE types (id INT PRIMARY KEY, " + ", ".join(f"{name} {pair[0]}" for name, pair in TYPES.items()) + ")",
    f"INSERT INTO types VALUES (1, {VALUES[0]})",
    f"INSERT INTO types VALUES (2, {VALUES[1]}), (3, {VALUES[0]})",
    f"UPDATE types SET {SETS} WHERE id <> 2",
    "DELETE FROM types",
    "CREATE TABLE parts (id INT NOT NULL, k VARCHAR(9) NOT NULL, v INT, PRIMARY KEY (k, id)) "
    "PARTITION BY KEY (k) PARTITIONS 3",
    "INSERT INTO parts VALUES (1, 'a', 1), (2, 'b', NULL), (3, 'c', 3)",
    "UPDATE parts SET k = CONCAT(k, 'x'), v = 4",
    "DELETE FROM parts WHERE id < 3",
    "CREATE TABLE wide (id INT PRIMARY KEY, " + ", ".join(f"c{n} INT" for n in range(70)) + ")",
    "INSERT INTO wide (id, c3, c69) VALUES (1, 2, 3), (4, 5, 6)",
    "UPDATE wide SET c68 = id",
    "CREATE TABLE doc (id INT PRIMARY KEY, a JSON, b JSON)",
    """INSERT INTO doc VALUES (1, '{"a": 1, "b": [1, 2, 3], "c": "long enough to be worth it"}', '[1, 2]')""",
    "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    "UPDATE doc SET a = JSON_SET(a, '$.a', 2, '$.b[1]', 7), b = JSON_SET(b, '$[0]', 5)",
    "SET SESSION binlog_row_value_options = ''",
    "SET SESSION foreign_key_checks = 0, unique_checks = 0",
    "INSERT INTO parts VALUES (9, 'z', 9)",
]

TRANSACTIONS = [
    "CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL)",
    "CREATE TABLE u (id INT PRIMARY KEY, a VARCHAR(20))",
    "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE = MyISAM",
    "INSERT INTO t VALUES (1, 1)",
    "BEGIN",
    "INSERT INTO t VALUES (2, 2), (3, 3)",
    "SAVEPOINT s",
    "INSERT INTO u VALUES (1, 'gone')",
    "ROLLBACK TO s",
    "INSERT INTO u VALUES (2, 'two')",
    "UPDATE t JOIN u USING (id) SET t.a = 5, u.a = 'both'",
    "COMMIT",
    "INSERT INTO plain VALUES (1)",
    "INSERT INTO t SELECT seq, seq FROM (WITH RECURSIVE n AS (SELECT 10 seq UNION ALL SELECT seq + 1 FROM n "
    "WHERE seq < 120) SELECT seq FROM n) AS numbers",
    "XA START 'a', 'b', 7",
    "INSERT INTO t VALUES (200, 1)",
    "XA END 'a', 'b', 7",
    "XA PREPARE 'a', 'b', 7",
    "XA COMMIT 'a', 'b', 7",
    "XA START 'one'",
    "INSERT INTO t VALUES (201, 1)",
    "XA END 'one'",
    "XA COMMIT 'one' ONE PHASE",
    "XA START 'c'",
    "DELETE FROM t WHERE id = 201",
    "XA END 'c'",
    "XA PREPARE 'c'",
    "XA ROLLBACK 'c'",
    "SET SESSION binlog_rows_query_log_events = ON",
    "UPDATE t SET a = 9 WHERE id = 1",
    "SET SESSION binlog_rows_query_log_events = OFF",
    "SET gtid_next = 'AUTOMATIC:blue_1'",
    "INSERT INTO u VALUES (7, 'tagged')",
    "DELETE FROM u WHERE id = 7",
    "SET gtid_next = 'AUTOMATIC'",
    "SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:1000000000000'",
    "COMMIT",
    "SET gtid_next = 'AUTOMATIC'",
    "CREATE TABLE made SELECT * FROM t WHERE id < 3",
    "ALTER TABLE made ADD COLUMN b INT COMMENT 'é', RENAME TO remade",
    "CREATE USER somebody",
    "TRUNCATE TABLE remade",
    "DROP TABLE remade",
]

STATEMENTS = [
    "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(40))",
    "SET SESSION binlog_format = STATEMENT",
    "INSERT INTO t (a) VALUES (RAND())",
    "SET @value = 'é'",
    "INSERT INTO t (a) VALUES (@value), (NULL)",
    "LOAD DATA INFILE '{file}' INTO TABLE t (a)",
    "CREATE TEMPORARY TABLE passing (id INT)",
    "INSERT INTO passing VALUES (1)",
    "DROP TEMPORARY TABLE passing",
    "SET NAMES gbk",
    "CREATE TABLE gb (id INT COMMENT 'x')",
]

COMPRESSED = [
    "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(300))",
    "SET SESSION binlog_transaction_compression = ON",
    "INSERT INTO t VALUES (1, REPEAT('a', 300))",
    "BEGIN",
    "INSERT INTO t VALUES (2, REPEAT('b', 300))",
    "UPDATE t SET a = REPEAT('c', 300)",
    "COMMIT",
    "XA START 'x'",
    "INSERT INTO t VALUES (3, REPEAT('d', 300))",
    "XA END 'x'",
    "XA PREPARE 'x'",
    "XA COMMIT 'x'",
]

ANONYMOUS = ["CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)"]

FULL_METADATA = "SET GLOBAL binlog_row_metadata = FULL"


def record(lab: Lab, name: str, statements: list[str], *, before: str = "DO 1", options: Options | None = None) -> None:
    """Run statements on a server of their own and keep the binlog file into which they went."""
    server = lab.start(name, options={**SMALL_EVENTS, **(options or {})})
    server.query("CREATE DATABASE d")
    file = server.folder / "lines"
    file.write_text("one\ntwo\n")
    server.query(before)
    server.query("FLUSH BINARY LOGS")
    with server.connect("d") as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.replace("{file}", str(file)))
    server.stop()  # its last event is a STOP
    newest = max(server.datadir.glob("binlog.0*"))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.binlog").write_bytes(newest.read_bytes())
    lab.remove(server)


def main() -> None:
    """Record everything."""
    with Lab() as lab:
        record(lab, "rows", ROWS)
        record(lab, "rows_full", ROWS, before=FULL_METADATA)
        record(lab, "transactions", TRANSACTIONS)
        record(lab, "statements", STATEMENTS)
        record(lab, "compressed", COMPRESSED)
        record(lab, "unchecked", TRANSACTIONS[:14], before="SET GLOBAL binlog_checksum = NONE")
        record(lab, "anonymous", ANONYMOUS, options={"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"})


if __name__ == "__main__":
    main()
