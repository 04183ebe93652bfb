"""Values of row images as SQL. That servers give the same bytes back is tested in tests/integration/test_values.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.test_binlog_fuzz import FUZZ

from vmerge.core.column_types import ColumnType
from vmerge.core.events import TableMap
from vmerge.core.literals import RowLiterals
from vmerge.core.rowimage import Slices
from vmerge.core.schema import Column
from vmerge.errors import CorruptEvent, SourceError, UnsupportedEvent

CHARSETS = {8: "latin1", 63: "binary", 255: "utf8mb4"}
SECOND = timedelta(seconds=1)


def make(
    types: Sequence[int],
    metadata: bytes = b"",
    *,
    unsigned: bool | None = False,
    collation: int | None = 255,
    charset: str | None = "utf8mb4",
) -> RowLiterals:
    """Columns a, b, c … of these types, alike in all else."""
    count = len(types)
    names = [chr(ord("a") + index % 26) * (index // 26 + 1) for index in range(count)]
    table = TableMap(
        "d",
        "t",
        1,
        bytes(types),
        metadata,
        b"",
        b"",
        (),
        None if unsigned is None else (unsigned,) * count,
        None if collation is None else (collation,) * count,
    )
    columns = [Column(name, index + 1, "?", True, charset=charset) for index, name in enumerate(names)]
    return RowLiterals(table, columns, CHARSETS)


@pytest.mark.parametrize(
    ("kind", "metadata", "value", "expected"),
    [
        (ColumnType.LONGLONG, "", "0000000000000080", "-9223372036854775808"),
        (ColumnType.INT24, "", "ffffff", "-1"),
        (ColumnType.YEAR, "", "00", "0"),
        (ColumnType.YEAR, "", "ff", "2155"),
        (ColumnType.BIT, "0101", "01ff", "511"),
        (ColumnType.FLOAT, "04", "00000080", "-0.0e0"),
        (ColumnType.DOUBLE, "08", "0100000000000000", "5e-324"),
        (ColumnType.NEWDECIMAL, "0a02", "7ffffffee7", "-1.24"),
        (ColumnType.NEWDECIMAL, "0202", "8a", "0.10"),
        (ColumnType.DATE, "", "5fca0f", "'2021-02-31'"),
        (ColumnType.DATETIME2, "02", "8000000000" + "01", "'0000-00-00 00:00:00.01'"),
        (ColumnType.TIMESTAMP2, "00", "00000000", "'0000-00-00 00:00:00'"),
        (ColumnType.TIMESTAMP2, "06", "7fffffff0f423f", "'2038-01-19 03:14:07.999999'"),
        (ColumnType.TIME2, "01", "7ffffff6", "'-00:00:00.1'"),
        (ColumnType.TIME2, "00", "4b9105", "'-838:59:59'"),
        (ColumnType.ENUM, "", "00", "0"),
        (ColumnType.GEOMETRY, "04", "0200000000ff", "_binary X'00ff'"),
    ],
)
def test_literals_of_single_values(kind: ColumnType, metadata: str, value: str, expected: str) -> None:
    """Values are printed from their bits."""
    data = bytes.fromhex(metadata) if kind is not ColumnType.ENUM else b""
    types, data = ([kind], data) if kind is not ColumnType.ENUM else ([ColumnType.STRING], bytes((kind, 1)))
    assert make(types, data).assign((bytes.fromhex(value),)) == (expected.encode(),)


def test_a_timestamp_of_each_day() -> None:
    """Each day from 1970 to 2038 is the day that the calendar has."""
    literals = make([ColumnType.TIMESTAMP2], b"\0")
    start = datetime(1970, 1, 1, tzinfo=UTC)
    for day in range(1, 24_855):
        seconds = day * 86_400 + day % 86_400
        moment = start + seconds * SECOND
        expected = f"'{moment:%Y-%m-%d %H:%M:%S}'"
        assert literals.assign((seconds.to_bytes(4, "big"),)) == (expected.encode(),)


def test_null_has_conditions_of_its_own() -> None:
    """NULL is written as NULL and found by IS NULL."""
    literals = make([ColumnType.LONG])
    assert literals.assign((None,)) == (b"NULL",)
    assert literals.match((None,), [0]) == literals.same((None,), [0]) == b"`a` IS NULL"


def test_names_are_quoted() -> None:
    """A backtick in a column's name stays within the name."""
    table = TableMap("d", "t", 1, b"\3", b"", b"", b"", (), (False,))
    literals = RowLiterals(table, [Column("a`b", 1, "int", True)], CHARSETS)
    assert literals.match((b"\1\0\0\0",), [0]) == b"`a``b` = 1"


def test_the_error_value_of_an_enum_is_told() -> None:
    """Only a row with index 0 needs a lenient statement; NULL does not."""
    literals = make([ColumnType.STRING], bytes((ColumnType.ENUM, 2)))
    assert [literals.is_lenient((value,)) for value in (b"\0\0", b"\0\1", None)] == [True, False, False]


def test_text_of_another_character_set_is_compared_as_the_target_has_it() -> None:
    """A guard of text converts what the source has, for a target's column of another character set."""
    same = make([ColumnType.VARCHAR], b"\x0a\0", collation=8, charset="utf8mb4").same((b"\1\xe9",), [0])
    assert same == b"CAST(`a` AS BINARY) = CAST(CONVERT(_latin1 X'e9' USING utf8mb4) AS BINARY)"


@pytest.mark.parametrize(
    ("kind", "metadata", "value", "reason"),
    [
        (ColumnType.FLOAT, "04", "0000c07f", "not finite"),
        (ColumnType.DATE, "", "ff0100", "month 15"),
        (ColumnType.TIMESTAMP2, "00", "80000000", "2038"),
        (ColumnType.TIMESTAMP2, "02", "0000000001", "first second"),
        (ColumnType.TIME2, "00", "ffffff", "hours"),
        (ColumnType.DATETIME2, "00", "0000000000", "a DATETIME of the year"),
        (ColumnType.NEWDECIMAL, "0a02", "7fffffffff", "negative zero"),
        (ColumnType.NEWDECIMAL, "0202", "ff", "too many digits"),
        (ColumnType.GEOMETRY, "04", "00000000", "without any byte"),
        (ColumnType.JSON, "04", "00000000", "without any byte"),
        (ColumnType.JSON, "04", "03000000" + "0c05ff", "is cut"),
        (ColumnType.JSON, "04", "04000000" + "0fff0100", "column type 255"),
        (ColumnType.JSON, "04", "05000000" + "0ff6020000", "another length"),
    ],
)
def test_values_that_no_statement_gives(kind: ColumnType, metadata: str, value: str, reason: str) -> None:
    """They are refused with the column and the reason, whatever the SQL is for."""
    literals = make([ColumnType.TINY, kind], bytes.fromhex(metadata))
    row: Slices = (b"\1", bytes.fromhex(value))
    for refuse in (lambda: literals.assign(row), lambda: literals.same(row, [0, 1]), lambda: literals.match(row, [1])):
        with pytest.raises(SourceError, match=rf"column `b` of d\.t.*{reason}"):
            refuse()


def test_a_source_that_does_not_tell_enough() -> None:
    """Without signs of numbers, character sets or a known collation nothing is written."""
    for types, metadata, unsigned, collation in (
        ([ColumnType.LONG], b"", None, 255),
        ([ColumnType.BLOB], b"\1", True, None),
        ([ColumnType.BLOB], b"\1", True, 9999),
        ([ColumnType.DATETIME], b"", True, None),
    ):
        with pytest.raises(UnsupportedEvent, match=r"column `a` of d\.t "):
            make(types, metadata, unsigned=unsigned, collation=collation)


def test_containers_that_lie_in_each_other() -> None:
    """A damaged document whose arrays share their elements is refused at once, not walked for ever."""
    levels = 60
    document = bytearray(b"\2")
    for level in range(levels):
        following = 4 + 2 * 3
        child = b"\2" + following.to_bytes(2, "little")
        document += (2).to_bytes(2, "little") + b"\xff\xff" + (child * 2 if level < levels - 1 else b"\4\0\0" * 2)
    value = len(document).to_bytes(4, "little") + bytes(document)
    with pytest.raises(CorruptEvent, match="lie in each other"):
        make([ColumnType.JSON], b"\4").assign((value,))


# Damage

DOCUMENTS = [
    bytes.fromhex(document)
    for document in (
        "0002003600120001001300010 00c1400022900616203787878 02000d00050100050200".replace(" ", ""),
        "0201000b000f07000f0200ff",
        "02010011000f07000b08e05ef87cefffffff",
        "0201000d000f0700f6040302810a",
        "02010011000f0700070860ea00053144a519",
        "0201000f000a0700ffffffffffffff7f",
        "0201000b00080700 00000100".replace(" ", ""),
        "0201000b000f0700100201ff",
        "0402",
    )
]
TYPES = [kind for kind in ColumnType if kind not in (ColumnType.ENUM, ColumnType.SET)]
types = st.lists(st.tuples(st.sampled_from(TYPES), st.binary(min_size=2, max_size=2)), min_size=1, max_size=6)


def outcome(literals: RowLiterals, row: Slices) -> None:
    """Write a row in each form; one of our errors is as good as SQL."""
    columns = range(len(row))
    for form in (literals.assign, lambda row: literals.match(row, columns), lambda row: literals.same(row, columns)):
        try:
            assert form(row)
        except SourceError as error:
            assert error.message
    literals.is_lenient(row)


@FUZZ
@given(types, st.binary(max_size=400), st.booleans(), st.sampled_from([8, 63, 255, 7, None]))
def test_noise_in_images_of_any_columns(
    shapes: list[tuple[ColumnType, bytes]], noise: bytes, unsigned: bool, collation: int | None
) -> None:
    """Random types with random metadata and random images give SQL or one of our errors."""
    widths = {ColumnType.VARCHAR: 2, ColumnType.BIT: 2, ColumnType.NEWDECIMAL: 2, ColumnType.VAR_STRING: 2}
    widths |= {ColumnType.STRING: 2}
    singles = {ColumnType.FLOAT, ColumnType.DOUBLE, ColumnType.TIMESTAMP2, ColumnType.DATETIME2, ColumnType.TIME2}
    singles |= {ColumnType.VECTOR, ColumnType.JSON, ColumnType.BLOB, ColumnType.GEOMETRY}
    metadata = b"".join(data[: widths.get(kind, int(kind in singles))] for kind, data in shapes)
    try:
        literals = make([kind for kind, _ in shapes], metadata, unsigned=unsigned, collation=collation)
        for row in literals.cut(noise):
            outcome(literals, row)
    except SourceError as error:
        assert error.message


@FUZZ
@given(
    st.sampled_from(DOCUMENTS), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=5), st.binary()
)
def test_damaged_documents(document: bytes, changes: list[tuple[int, int]], noise: bytes) -> None:
    """Documents with bytes changed, cut or added give SQL or one of our errors."""
    damaged = bytearray(document)
    for at, value in changes:
        damaged[at % len(damaged)] = value
    for each in (bytes(damaged), bytes(damaged) + noise, bytes(damaged)[: len(noise)], noise):
        outcome(make([ColumnType.JSON], b"\4"), (pack("<I", len(each)) + each,))
