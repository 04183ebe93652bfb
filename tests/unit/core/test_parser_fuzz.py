"""Damaged parts of events and damaged texts, one reader at a time; and claims that are not to be believed.

``test_binlog_fuzz.py`` damages whole dumps; here each reader gets far more of what only it reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
import zstandard
from tests.unit.core.binlog_bytes import Dump, decode, integer, make_event
from tests.unit.core.campaign import CASE_SECONDS, Case, bounded_memory, bounded_time, run_cases
from tests.unit.core.mutation import damaged, packed
from tests.unit.core.recordings import HISTORIES
from tests.unit.core.table_rules import Rules

from vmerge.core.column_types import ColumnType, column_shapes
from vmerge.core.events import RowsEvent, RowsKind, SourceItem, TableMap
from vmerge.core.fold import fold
from vmerge.core.json_literals import json_literal
from vmerge.core.literals import RowLiterals
from vmerge.core.payload import split_events
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.query import FIXED_BYTES, read_query
from vmerge.core.rowimage import ImageCutter, whole_rows
from vmerge.core.schema import Column
from vmerge.core.schema_change import read_change
from vmerge.core.table_map import read_table_map, write_table_map
from vmerge.core.tagged_gtid import read_tagged_gtid
from vmerge.core.xa import read_xa
from vmerge.errors import CorruptEvent
from vmerge.mysql.source import decompress

QUERY, TABLE_MAP, PAYLOAD, GTID_TAGGED = 2, 19, 40, 42
HEADER = 19
UUIDS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "ffffffff-0000-0000-0000-000000000000")
MEGABYTE = 1 << 20


def events_of(kind: int) -> list[bytes]:
    """All events of one type that there are to damage, in front of their checksums."""
    return [
        event[: -4 if history.checksums else None]
        for history in HISTORIES
        for stretch in history.stretches
        for event in stretch
        if event[4] == kind
    ]


TABLE_MAPS = [event[HEADER:] for event in events_of(TABLE_MAP)]
PAYLOADS = [event[HEADER:] for event in events_of(PAYLOAD)]
TAGGED = [event[HEADER:] for event in events_of(GTID_TAGGED)]
QUERIES = events_of(QUERY)

DOCUMENTS = [
    bytes.fromhex(text)
    for text in (
        "0400",
        "050700",
        "0c0568656c6c6f",
        "0b000000000000f8bf",
        "0ff6040302810a",
        "0f0c08000000051d4419",
        "02030016000500010004050002ffff05030061620a000c6162",
        "00010010000b0001000c0c00610c0162",
        "000200290012000100130001000015000220006162020021000502000506000c0300050700010000030a0000",
    )
]
"""Binary documents: scalars, opaque values, and small ones of several values; some are damaged as they stand."""

STATEMENTS = [
    'ALTER TABLE `a``b`.t ADD COLUMN c INT /* why */, RENAME TO "u" -- end',
    "DROP TABLE IF EXISTS a.b, /*!40005 TEMPORARY */ c # x\n, d RESTRICT",
    "RENAME TABLES a TO b, c.d TO e.f",
    "CREATE UNIQUE INDEX i USING BTREE ON t (a)",
    "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
    "TRUNCATE TABLE t",
    "DROP DATABASE `d`",
    "XA COMMIT X'61',X'62',7",
    "CREATE TABLE t (a VARCHAR(9) DEFAULT 'x''y\\'z') START TRANSACTION",
]


def table_map_case(chance: Random) -> str:
    """A table map that can be read can be written, and its columns have words."""
    table = read_table_map(damaged(chance, chance.choice(TABLE_MAPS)))
    again = read_table_map(write_table_map(table))
    assert (again.name, again.tail, again.names, again.labels) == (table.name, table.tail, table.names, table.labels)
    for shape in column_shapes(table.types, table.metadata) or ():
        assert str(shape)
    return "read"


def row_images_case(chance: Random) -> str:
    """Images of any columns are cut without a byte lost or moved, and followed as rows."""
    table, images = random_rows(chance)
    cut = [image for _, image in ImageCutter(table, range(min(2, table.column_count))).cut(images)]
    assert b"".join(cut) == images
    assert all(cut)
    event = RowsEvent(whole_rows(table, RowsKind.WRITE, 0), images)
    assert sum(len(image) for _, image in fold([event], Rules()).rows()) == len(images)
    return "cut"


def random_rows(chance: Random) -> tuple[TableMap, bytes]:
    """A table of any columns with any metadata, and noise for its rows."""
    widths = [(kind, 2 if kind in TWO_BYTES else 1 if kind in ONE_BYTE else 0) for kind in ColumnType]
    chosen = [chance.choice(widths) for _ in range(chance.choice((0, 1, 2, 3, 9, 300)))]
    types, metadata = bytes(kind for kind, _ in chosen), b"".join(chance.randbytes(width) for _, width in chosen)
    count = len(types)
    tail = (bytes((count,)) if count < 251 else b"\xfc" + integer(count, 2)) + types
    tail += (bytes((len(metadata),)) if len(metadata) < 251 else b"\xfc" + integer(len(metadata), 2)) + metadata
    table = read_table_map(bytes(8) + b"\1d\0\1t\0" + tail + bytes((count + 7) // 8))
    images = bytes((count + 7) // 8) + bytes(chance.randrange(80)) + chance.randbytes(chance.randrange(80))
    return table, images


TWO_BYTES = {ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.STRING, ColumnType.BIT, ColumnType.NEWDECIMAL}
ONE_BYTE = {
    *(ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.BLOB, ColumnType.JSON, ColumnType.GEOMETRY, ColumnType.VECTOR),
    *(ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2),
}


def tagged_gtid_case(chance: Random) -> str:
    """A tagged GTID that can be read is one that can be written."""
    gtid, committed_at = read_tagged_gtid(damaged(chance, chance.choice(TAGGED)))
    assert Gtid.parse(str(gtid)) == gtid or gtid.number >= 2**63 - 1
    assert committed_at >= 0
    return "read"


def query_case(chance: Random) -> str:
    """A statement's event gives a text, and what follows from it."""
    if chance.randrange(3):
        query = read_query(damaged(chance, chance.choice(QUERIES)).ljust(HEADER + FIXED_BYTES, b"?"), None)
    else:
        text = damaged(chance, chance.choice(STATEMENTS).encode())
        query = read_query(Dump(checksums=False).query(text, status=chance.randbytes(9)).events[-1], None)
    assert isinstance(query.creates_with_rows, bool)
    assert query.first_word.isupper() or query.first_word == "?"
    read_xa(query.statement)
    change = read_change(query.text, query.database)
    return "not understood" if change is None else "read"


def payload_case(chance: Random) -> str:
    """The events inside a payload come whole."""
    for event in split_events(damaged(chance, chance.choice(PAYLOADS)), decompress):
        assert int.from_bytes(event[9:13], "little") == len(event)
    return "read"


def gtid_text_case(chance: Random) -> str:
    """A text is a set, which its own text gives again, or it is refused with what is wrong with it."""
    text = damaged(chance, random_set_text(chance).encode()).decode("utf-8", "replace")
    try:
        found = GtidSet.parse(text)
    except ValueError as error:
        return refused(error)
    assert GtidSet.parse(str(found)) == found
    assert GtidSet.decode(found.encode()) == found
    assert found.union(found) == found
    assert found.subtract(found).is_empty()
    return "read"


def gtid_encoding_case(chance: Random) -> str:
    """The same for the encoding."""
    try:
        found = GtidSet.decode(damaged(chance, GtidSet.parse(random_set_text(chance)).encode()))
    except ValueError as error:
        return refused(error)
    assert GtidSet.decode(found.encode()) == found
    assert GtidSet.parse(str(found)) == found
    return "read"


def refused(error: ValueError) -> str:
    """These are not our errors: who reads a set knows where it came from, and says so."""
    assert type(error) is ValueError
    assert str(error)
    return "refused"


def random_set_text(chance: Random) -> str:
    pieces = []
    for _ in range(chance.randint(0, 3)):
        tag = chance.choice(("", "", ":blue_1", ":_"))
        first = chance.choice((1, 7, 10**6, 2**63 - 3))
        pieces.append(f"{chance.choice(UUIDS)}{tag}:{first}{chance.choice(('', f'-{first + 1}'))}:{first + 1}")
    return ",".join(pieces)


def document_case(chance: Random) -> str:
    """A damaged document is an expression of bounded length, or is refused."""
    document = damaged(chance, chance.choice(DOCUMENTS))
    expression = json_literal(4)(bytes(4) + document)
    assert expression.isascii()
    assert len(expression) < 1000 * (len(document) + 10)
    return "written"


def literals_case(chance: Random) -> str:
    """Values of any columns are written as SQL, or refused."""
    table, images = random_rows(chance)
    columns = tuple(Column(f"c{number}", number, "int", True) for number in range(table.column_count))
    literals = RowLiterals(table, columns, {})
    for slices in literals.cut(images):
        assert len(literals.assign(slices)) == len(columns)
        assert literals.same(slices, range(len(columns)))
    return "written"


CASES = (
    document_case,
    literals_case,
    table_map_case,
    row_images_case,
    tagged_gtid_case,
    query_case,
    payload_case,
    gtid_text_case,
    gtid_encoding_case,
)


@pytest.mark.parametrize("case", CASES)
def test_damaged_parts(case: Case) -> None:
    """What is damaged gives a value that holds together, or an error that says so."""
    assert len(run_cases(case, seconds=0.5)) > 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES)
def test_many_damaged_parts(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for three hundred thousand cases of each."""
    outcomes = run_cases(case, count=300_000, first_seed=1 << 32)
    with capsys.disabled():
        sys.stdout.write(f"\n{case.__name__}: {dict(outcomes)}\n")
    assert outcomes.total() == 300_000


# Claims


def squeezed(piece: bytes, count: int, *, claimed: int) -> bytes:
    """The body of an event that holds a piece so many times, and claims another size."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return packed(b"".join(compressor.compress(piece) for _ in range(count)) + compressor.flush(), claimed)


def transaction(*parts: tuple[int, bytes]) -> Callable[[], list[SourceItem]]:
    """Decode a transaction of these events: type and body of each."""
    dump = Dump().gtid(1).begin()
    for kind, body in parts:
        dump.add(kind, body)
    return lambda: decode(dump.xid().events)


def table_of(count: int, field: bytes = b"") -> tuple[int, bytes]:
    """A table map of so many ENUM columns."""
    head = integer(7, 6) + b"\1\0\1d\0\1t\0" + b"\xfd" + integer(count, 3) + b"\xfe" * count
    return TABLE_MAP, head + b"\xfd" + integer(2 * count, 3) + b"\xf7\1" * count + bytes((count + 7) // 8) + field


def rows_of(count: int) -> tuple[int, bytes]:
    """A row of that table."""
    bitmap = b"\xff" * ((count + 7) // 8)
    return 30, integer(7, 6) + b"\1\0\2\0\xfd" + integer(count, 3) + bitmap + bytes(5 * count)


def zeros() -> bytes:
    """The body of an event that is no larger than it claims, and claims all there is."""
    head = make_event(30, b"", checksum=False)
    return squeezed(head[:9] + integer(2**32 - 1, 4) + bytes(MEGABYTE - 13), 600, claimed=2**40)


Run = Callable[[], object]

CLAIMS: dict[str, Callable[[], Run]] = {
    "content beyond the size that is claimed": lambda: transaction(
        (PAYLOAD, squeezed(make_event(28, bytes(MEGABYTE), checksum=False), 2000, claimed=1000))
    ),
    "an event of 4 GB inside": lambda: transaction((PAYLOAD, zeros())),
    "small events without end": lambda: transaction(
        (PAYLOAD, squeezed(make_event(28, b"", checksum=False) * 50_000, 1000, claimed=10**6))
    ),
    "no columns": lambda: transaction(table_of(0), rows_of(0)),
    "more columns than a table can have": lambda: transaction(table_of(500_000), rows_of(500_000)),
    "the same field again and again": lambda: transaction(table_of(4096, b"\x07\0" * 1_000_000)),
    "labels without end": lambda: transaction(table_of(1, b"\6\x09\xfe" + integer(2**63, 8) + bytes(MEGABYTE))),
    "sets without end": lambda: partial(GtidSet.decode, integer(2**48, 8)),
    "intervals without end": lambda: partial(GtidSet.decode, integer(1, 8) + bytes(16) + integer(2**62, 8)),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_are_not_believed(name: str) -> None:
    """A size or a count that an event only claims takes neither memory nor time."""
    run = CLAIMS[name]()
    with bounded_memory(64 * MEGABYTE), bounded_time(CASE_SECONDS), pytest.raises((CorruptEvent, ValueError)):
        run()


@pytest.mark.parametrize(
    "part", [" ", "`", "'", '"', "/* ", "/* */", "--", "--\n", "\\", "''", "START ", "(", ";", "x"]
)
def test_long_statements(part: str) -> None:
    """A statement takes time in proportion to its length, whatever it is full of."""
    much = part.encode() * (MEGABYTE // len(part) // 32)
    statements = (b"XA COMMIT a" + much + b"b", b"CREATE TABLE t " + much + b"START TRANSACTION " + much)
    for statement in (*statements, b"ALTER TABLE t " + much, b"DROP TABLE t" + much + b",", much):
        query = read_query(Dump(checksums=False).query(statement).events[-1], None)
        with bounded_memory(512 * MEGABYTE), bounded_time(CASE_SECONDS):
            assert isinstance(query.creates_with_rows, bool)
            read_xa(query.statement)
            read_change(query.text, query.database)
