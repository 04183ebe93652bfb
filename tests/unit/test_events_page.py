"""docs/events.md against the code: every event and statement is treated as the page says."""

from __future__ import annotations

import pytest
from tests.unit.core.binlog_bytes import Dump, row
from tests.unit.core.test_binlog import CREATE_SELECT
from tests.unit.core.test_plan import change, plan
from tests.unit.test_docs import PAGES, rows

from vmerge.core import event_types
from vmerge.core.refusals import REFUSED
from vmerge.errors import UnsupportedEvent

PAGE = "docs/events.md"
ROWS = row(1, 1)


def verdicts(heading: str) -> dict[str, str]:
    """Each first cell of the table below a heading, with the word in bold at the beginning of its last cell."""
    section = PAGES[PAGE].read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {cells[0].strip(): cells[-1].split("**")[1] for cells in lines[1:]}


def test_every_event_is_documented_as_it_is_treated() -> None:
    """The page has exactly the event types that the reader knows, and says which are ignored and which are fatal."""
    documented = {int(cells[0]): cells[2].split("**")[1] for cells in rows(PAGE) if cells[0].isdigit()}
    constants = vars(event_types)
    first = list(constants).index("QUERY")
    known = {value for name, value in list(constants.items())[first:] if name.isupper() and isinstance(value, int)}
    words = dict.fromkeys(known, "handled") | dict.fromkeys(event_types.IGNORED, "ignored")
    assert documented == words | dict.fromkeys(REFUSED, "fatal")


def begun() -> Dump:
    """A transaction that has begun."""
    return Dump().gtid(1).begin()


def with_rows() -> Dump:
    """A transaction that has rows for the target."""
    return begun().table_map().rows(ROWS)


XID = "X'61',X'',1"
XA = Dump().gtid(1).query(f"XA START {XID}").table_map().rows(ROWS).query(f"XA END {XID}").xa_prepare(b"a").gtid(2)
PREPARED = tuple(XA.events)


def behind_prepare(statement: str) -> Dump:
    """The end of a prepared transaction."""
    dump = Dump()
    dump.events = list(PREPARED)
    return dump.query(f"{statement} {XID}")


QUERIES = {
    "`BEGIN`": [begun()],
    "`COMMIT` without rows for the target": [begun().query("COMMIT")],
    "`COMMIT` after rows for the target": [with_rows().query("COMMIT")],
    "`ROLLBACK` without rows for the target": [begun().query("ROLLBACK")],
    "`ROLLBACK` after rows for the target": [with_rows().query("ROLLBACK")],
    "`ROLLBACK TO`": [with_rows().query("ROLLBACK TO `s`"), begun().query("ROLLBACK TO `s`")],
    "`SAVEPOINT`": [with_rows().query("SAVEPOINT `s`").xid()],
    "`XA START`": [Dump().gtid(1).query(f"XA START {XID}")],
    "`XA END`": [Dump().gtid(1).query(f"XA START {XID}").query(f"XA END {XID}")],
    "`XA COMMIT`": [behind_prepare("XA COMMIT")],
    "`XA ROLLBACK`": [behind_prepare("XA ROLLBACK")],
    "`CREATE TABLE … START TRANSACTION` with rows": [begun().query(CREATE_SELECT).table_map().rows(ROWS).xid()],
    "`CREATE TABLE … START TRANSACTION` without rows for the target": [begun().query(CREATE_SELECT).xid()],
    "another statement inside a transaction": [
        begun().query(statement)
        for statement in ("INSERT INTO t VALUES (1)", "DROP TEMPORARY TABLE t", "CREATE TEMPORARY TABLE t (id INT)")
    ],
    "a statement of its own": [Dump().gtid(1).query("FLUSH TABLES")],
}


def test_every_statement_of_a_transaction_is_treated_as_documented() -> None:
    """The page has exactly the statements that are tried here, and each one is fatal or not as it says."""
    documented = verdicts("QUERY")
    assert documented.keys() == QUERIES.keys()
    for name, dumps in QUERIES.items():
        for dump in dumps:
            assert is_fatal(dump) == (documented[name] == "fatal"), name


def is_fatal(dump: Dump) -> bool:
    """Whether a stream stops there."""
    try:
        dump.decode()
    except UnsupportedEvent:
        return True
    return False


ALONE = {
    "`ALTER TABLE`, `RENAME TABLE`, `TRUNCATE`, `CREATE INDEX`, `DROP INDEX` of a carried table": [
        "ALTER TABLE customer ADD x INT",
        "RENAME TABLE customer TO x",
        "TRUNCATE customer",
        "CREATE INDEX i ON customer (id)",
        "DROP INDEX i ON customer",
        "TRUNCATE order_1",  # the target lacks it; a table may have been made there meanwhile
    ],
    "`DROP TABLE`, `DROP DATABASE` of what the target has": ["DROP TABLE customer", "DROP DATABASE shop_0"],
    "`DROP TABLE`, `DROP DATABASE` of what the target had not when the stream started": [
        "DROP TABLE order_1",
        "DROP TABLE IF EXISTS order_1, order_2",
        "DROP DATABASE other",
    ],
    "`ALTER TABLE … DISABLE KEYS`, `ENABLE KEYS`, as in a restored dump": [
        "/*!40000 ALTER TABLE `customer` DISABLE KEYS */",
        "ALTER TABLE customer ENABLE KEYS",
    ],
    "any of these for tables outside the rules": ["ALTER TABLE invoice ADD x INT", "TRUNCATE other.customer"],
    "`CREATE TABLE`, `CREATE TABLE … LIKE`, with `IF NOT EXISTS` or not": [
        "CREATE TABLE customer (id INT)",
        "CREATE TABLE IF NOT EXISTS order_1 LIKE customer",
    ],
    "`CREATE TEMPORARY TABLE`, `DROP TEMPORARY TABLE`": [
        "CREATE TEMPORARY TABLE customer SELECT 1",
        "DROP TEMPORARY TABLE IF EXISTS customer",
        "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `customer`",
    ],
    "`ALTER TABLE`, `TRUNCATE` of a temporary table": ["ALTER TABLE temporary_one ADD x INT", "TRUNCATE temporary_one"],
    "views, triggers, routines, events of the scheduler, libraries": [
        f"{verb} {kind} customer"
        for kind in ("VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "LIBRARY")
        for verb in ("CREATE", "ALTER", "DROP")
    ],
    "accounts, roles, privileges, passwords": [
        "CREATE USER customer",
        "RENAME USER customer TO order_1",
        "DROP ROLE customer",
        "GRANT ALL ON shop_0.customer TO a",
        "REVOKE ALL ON shop_0.customer FROM a",
        "SET PASSWORD FOR a = 'x'",
        "SET DEFAULT ROLE a TO b",
    ],
    "defaults of databases, tablespaces, servers, reference systems": [
        "ALTER DATABASE shop_0 READ ONLY = 1",
        "CREATE TABLESPACE customer ADD DATAFILE 'x.ibd'",
        "ALTER TABLESPACE customer RENAME TO x",
        "DROP TABLESPACE customer",
        "CREATE SERVER customer FOREIGN DATA WRAPPER mysql OPTIONS (USER 'x')",
        "DROP SPATIAL REFERENCE SYSTEM 990001",
    ],
    "`ANALYZE`, `CHECK`, `OPTIMIZE`, `REPAIR`, `FLUSH`, `SET`, `INSTALL`, `CLONE` and the like": [
        "ANALYZE TABLE customer UPDATE HISTOGRAM ON email",
        "CHECK TABLE customer",
        "OPTIMIZE TABLE customer",
        "REPAIR TABLE customer",
        "FLUSH TABLES customer",
        "SET @x = 1",
        "INSTALL PLUGIN customer SONAME 'x'",
        "UNINSTALL COMPONENT 'customer'",
        "CLONE LOCAL DATA DIRECTORY 'customer'",
    ],
    "one that is not understood, in or about a carried database": ["FROBNICATE customer", "DROP TABLE customer NEWLY"],
}


@pytest.mark.parametrize(("name", "statement"), [(name, one) for name, examples in ALONE.items() for one in examples])
def test_every_own_statement_is_treated_as_documented(name: str, statement: str) -> None:
    """A statement of its own stops the stream or is passed, as the page says of its kind."""
    assert plan().concerns(change(statement)) == (verdicts("Statements of their own")[name] == "stops the stream")


def test_every_kind_of_own_statement_is_tried() -> None:
    """The page has exactly the kinds that are tried here, and the one that the decoder itself sees."""
    found_nothing = "`DROP … IF EXISTS` that found nothing at the source"  # test_a_drop_that_found_nothing_…
    assert verdicts("Statements of their own").keys() == ALONE.keys() | {found_nothing}
