"""Hard values through two readers: ours, written as SQL, and mysql-replication's, as Python's values.

Where the library is not exact is a list of its own below; each entry must be met, so that it is no longer than needed.
What the library gets wrong besides values is told in ``test_differential.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from pymysql.charset import charset_by_name
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from tests.integration.reading import endpoint, executed, read_behind, run
from tests.integration.second_reader import images_of, opened_library
from tests.integration.values import FILES, TAKES_EVERYTHING, TYPED, HardTable, Key, read_columns

from vmerge.core.events import Transaction
from vmerge.core.literals import RowLiterals
from vmerge.core.position import GtidSet
from vmerge.core.schema import Column
from vmerge.lab.servers import Server
from vmerge.mysql.connect import connect
from vmerge.mysql.schemas import read_schemas

pytestmark = [
    pytest.mark.server,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the library's own
]

ALWAYS = frozenset({"MINIMAL", "FULL"})
MINIMAL = frozenset({"MINIMAL"})


@dataclass(frozen=True)
class Inexact:
    """Values that the library gets wrong, or cannot read at all, and why."""

    why: str
    types: str
    """A pattern for the type of the column."""
    values: str = ".*"
    """A pattern for the value as we write it."""
    modes: frozenset[str] = ALWAYS

    def covers(self, mode: str, column: str, literal: str) -> bool:
        return (
            mode in self.modes
            and re.match(self.types, column, re.IGNORECASE) is not None
            and re.fullmatch(self.values, literal, re.DOTALL) is not None
        )


INEXACT = (
    Inexact("days, months and years of zero come as None", "DATE", r"'(0000-|\d{4}-00-|\d{4}-\d\d-00).*'"),
    Inexact("days that their month does not have are an error, or None", "DATE", r"'\d{4}-(02-3|04-31).*'"),
    Inexact("the zero timestamp is 1970", "TIMESTAMP", "'0000-.*'"),
    Inexact("the fraction of a negative time counts in the wrong direction", r"TIME\(", r"'-.*\.\d*[1-9]\d*'"),
    Inexact("the year 0 is 1900", "YEAR", "0"),
    Inexact("a set without members is None", "SET", "0"),
    Inexact("the error value of an ENUM is taken for an empty label", r"ENUM\(''", "0"),
    Inexact("labels in another character set than UTF-8 are empty", r"(ENUM|SET)\(.* CHARACTER SET"),
    Inexact("UTF-16 and UTF-32 are read with their bytes swapped", ".*CHARACTER SET utf(16|32)$"),
    Inexact(
        "Python's codecs lack codes that MySQL has: an error",
        ".*CHARACTER SET (latin1|cp125[017]|euckr|gbk|greek|hebrew|sjis|tis620|ujis)",
    ),
    Inexact("two codes of one character become one", ".*CHARACTER SET (cp932|ujis)"),
    Inexact("a document that is null is None", "JSON", r"CAST\(_utf8mb4 X'6e756c6c' AS JSON\)"),
    Inexact(
        "dates, decimals, bytes and unsigned numbers within documents lose their type, or are an error",
        "JSON",
        r"(?!CAST\(_utf8mb4).*",
    ),
    Inexact("without full metadata all numbers have a sign", ".*INT.* (UNSIGNED|ZEROFILL)", modes=MINIMAL),
    Inexact("without full metadata ENUM and SET are None", "ENUM|SET", modes=MINIMAL),
    Inexact("without full metadata bytes are read as UTF-8", ".*(BINARY|BLOB)", modes=MINIMAL),
    Inexact("without full metadata all text is read as UTF-8", ".*CHARACTER SET (?!utf8)", modes=MINIMAL),
)

UNREADABLE = ("VECTOR",)
"""Types whose table map ends the library's stream with an error, so that nothing behind it can be compared."""


def as_literal(value: object, literal: str, column: Column) -> str | None:
    """What we would write for a value of the library; None where it can stand for several values, or for none."""
    match value:
        case None:
            return "NULL"
        case str() if column.family == "bit":
            return str(int(value, 2))
        case str() if column.family == "enum":
            return str(column.labels.index(value) + 1) if value in column.labels else "0" if not value else None
        case set():
            return str(sum(1 << column.labels.index(label) for label in value)) if value <= {*column.labels} else None
        case int():
            return str(value)
        case float():
            return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
        case Decimal():
            return f"{value:f}"
        case str() | bytes():
            return as_text(value, literal)
        case datetime() | date() | timedelta():
            return as_time(value, literal)
    return None


def as_text(value: str | bytes, literal: str) -> str | None:
    """Text as its bytes, in the character set that we found for it."""
    charset = literal.partition(" ")[0][1:]
    if isinstance(value, str) and value:
        known = charset_by_name(charset.replace("utf8mb3", "utf8"))
        if known is None or charset == "binary":
            return None
        try:
            value = value.encode(known.encoding, "replace")
        except LookupError:  # Python does not have it
            return None
    return f"_{charset} X'{value.hex() if value else ''}'"


def as_time(value: datetime | date | timedelta, literal: str) -> str:
    """Dates and times with as many fractional digits as we have."""
    digits = len(literal.strip("'").partition(".")[2])
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        seconds, fraction = divmod(abs(micros), 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
        text = ("-" if micros < 0 else "") + clock
    elif isinstance(value, datetime):
        text = value.isoformat(" ", "microseconds")
    else:
        return f"'{value.isoformat()}'"
    return f"'{text[: len(text) - 6 + digits].rstrip('.')}'"


DOCUMENT = re.compile(r"CAST\(_utf8mb4 X'([0-9a-f]*)' AS JSON\)")


def is_same(value: object, literal: str, column: Column) -> bool:
    """Whether the library's value is the one that we write."""
    document = DOCUMENT.fullmatch(literal)
    if document is not None:
        text = json.dumps(as_document(value))
        return value is not None and text == json.dumps(json.loads(bytes.fromhex(document[1])))
    return as_literal(value, literal, column) == literal


def as_document(value: object) -> object:
    """The library keeps the texts of a document as bytes."""
    match value:
        case bytes():
            return value.decode()
        case dict():
            return {as_document(key): as_document(each) for key, each in value.items()}
        case list():
            return [as_document(each) for each in value]
        case Decimal():
            return str(value)
        case datetime() | date() | timedelta():
            return repr(value)
    return value


def make_tables() -> Iterator[HardTable]:
    """A table for each column, as an event that the library cannot read keeps no other value from being compared."""
    number = 0
    for file in FILES:
        for column in read_columns(file):
            if not column.type.startswith(UNREADABLE):
                number += 1
                yield HardTable(f"t{number}", [column], Key.NUMBER)


def write(server: Server, database: str, tables: Sequence[HardTable]) -> None:
    """Insert every value, make it the next one, and delete it: an event each."""
    statements = [*filter(None, map(str.strip, TYPED.split(";"))), TAKES_EVERYTHING]
    for table in tables:
        deletes = (f"DELETE FROM {table.name} WHERE id = {row}" for row in range(table.height))
        statements += [table.definition, "BEGIN", *table.inserts(), *table.updates(), *deletes, "COMMIT"]
    run(server, *statements, database=database)


Written = tuple[str, list[str]]
"""A table, and the values of its hard column in one event, as SQL."""

ID = Column("id", 1, "int", nullable=False)


def read_ours(server: Server, database: str, start: GtidSet, columns: dict[str, Column]) -> list[Written]:
    """What our reader finds in the events of the tables."""
    query = "SELECT id, character_set_name FROM information_schema.collations"
    charsets = {int(number): str(charset) for number, charset in server.query(query)}
    found: list[Written] = []
    for item in read_behind(server, start, database):
        for shape, images in item.rows if isinstance(item, Transaction) else ():
            column = columns.get(shape.table.table)
            if column is not None:
                # As for a column of another character set: then a literal names its own.
                literals = RowLiterals(shape.table, (ID, replace(column, charset=None)), charsets)
                values = [literals.assign(row)[1].decode() for row in literals.cut(images)]
                found.append((shape.table.table, values))
    return found


def read_theirs(server: Server, start: GtidSet) -> list[tuple[str, list[object]]]:
    """What the library finds there: values, or what it raised instead of them, which is then the only one."""
    found: list[tuple[str, list[object]]] = []
    with opened_library(server, start, [WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent]) as stream:
        for event in stream:
            try:
                values: list[object] = [row[1] for row in images_of(event)]
            except Exception as error:  # whatever it is, the list below must know of it
                values = [error]
            found.append((event.table, values))
    return found


def compare(
    mode: str,
    ours: list[Written],
    theirs: list[tuple[str, list[object]]],
    tables: dict[str, HardTable],
    columns: dict[str, Column],
) -> tuple[int, set[int], list[str]]:
    """Count what agrees; collect the entries of the list that were met, and what differs without being in it."""
    agreed, met, unknown = 0, set[int](), list[str]()
    for (table, literals), (other, values) in zip(ours, theirs, strict=True):
        assert table == other
        kind, column = tables[table].columns[0].type, columns[table]
        wrong = literals
        if not isinstance(values[0], Exception):
            pairs = [*zip(literals, values, strict=True)]
            wrong = [literal for literal, value in pairs if not is_same(value, literal, column)]
            agreed += len(pairs) - len(wrong)
        entries = {number for number, one in enumerate(INEXACT) for each in wrong if one.covers(mode, kind, each)}
        met |= entries
        if wrong and not entries:
            unknown.append(f"{kind}: {wrong} are {values} to the library")
    return agreed, met, unknown


@pytest.mark.parametrize("mode", sorted(ALWAYS))
def test_two_readers_agree_on_values(untagged: Server, database: str, mode: str) -> None:
    """Of every type and value, inserted, updated and deleted, both find the same, but for what is on the list."""
    tables = {table.name: table for table in make_tables()}
    untagged.query(f"CREATE DATABASE {database}")
    start = executed(untagged)
    untagged.query(f"SET GLOBAL binlog_row_metadata = {mode}")
    try:
        write(untagged, database, [*tables.values()])
        theirs = [found for found in read_theirs(untagged, start) if found[0] in tables]
    finally:
        untagged.query("SET GLOBAL binlog_row_metadata = DEFAULT")
    with closing(connect(endpoint(untagged), read_timeout_seconds=60, session={})) as connection:
        schemas = read_schemas(connection, [database])
    columns = {name[1]: schema.columns[1] for name, schema in schemas.items() if name[1] in tables}
    agreed, met, unknown = compare(mode, read_ours(untagged, database, start, columns), theirs, tables, columns)
    assert unknown == []
    assert met == {number for number, one in enumerate(INEXACT) if mode in one.modes}
    assert agreed > 1000
