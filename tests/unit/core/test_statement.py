"""The BINLOG builder: what a server would read in the pieces is what was put in, in a shape that cannot hurt it."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap
from vmerge.core.statement import StatementBuilder, format_description

TABLE_MAP, OVERHEAD = 19, 23


def table(name: str, columns: int) -> TableMap:
    types = b"\3" * columns
    tail = bytes((columns,)) + types + b"\0" + bytes((columns + 7) // 8)
    return TableMap("source", name, 1, types, b"", bytes((columns + 7) // 8), tail, (), None)


# "t" twice, in two shapes, as before and after an ALTER; "wide" with a map of its own weight.
TABLES = [table("t", 1), table("t", 2), table("u", 1), table("wide", 200)]
FLAGS = [0, 2, 16, 18]
SHAPES = [
    RowsShape(t, kind, flags, bytes((t.column_count,)) + b"\xff" * ((t.column_count + 7) // 8))
    for t in TABLES
    for kind in (RowsKind.WRITE, RowsKind.UPDATE, RowsKind.DELETE, RowsKind.PARTIAL_UPDATE)
    for flags in FLAGS
]

row_events = st.builds(RowsEvent, st.sampled_from(SHAPES), st.binary(min_size=1, max_size=60))
runs = st.lists(st.tuples(row_events, st.integers(1, 4)), max_size=25)


@dataclass
class Piece:
    """One piece as a server reads it."""

    tables: dict[int, tuple[str, str, bytes]]
    rows: list[tuple[int, int, int, bytes, bytes]]
    """Kind, table number, flags, column part, images."""
    size: int


def read_events(piece: bytes) -> list[tuple[int, bytes]]:
    """Cut a piece into its events, checking what stands in and behind each header."""
    events = []
    offset = 0
    while offset < len(piece):
        size = int.from_bytes(piece[offset + 9 : offset + 13], "little")
        event, offset = piece[offset : offset + size], offset + size
        assert len(event) == size >= OVERHEAD
        assert int.from_bytes(event[-4:], "little") == crc32(event[:-4])
        assert int.from_bytes(event[:4], "little") == 1_700_000_000
        assert int.from_bytes(event[5:9], "little") == 77
        events.append((event[4], event[19:-4]))
    return events


def read_piece(piece: bytes, *, table_flags: int | None = 1) -> Piece:
    """Read table maps, then rows; anything in another order fails, and so do other flags of a table than these."""
    result = Piece({}, [], len(piece))
    for kind, body in read_events(piece):
        number = int.from_bytes(body[:6], "little")
        if kind == TABLE_MAP:
            assert not result.rows, "a table map stands behind rows"
            assert number not in result.tables
            assert table_flags is None or int.from_bytes(body[6:8], "little") == table_flags
            database, rest = body[9 : 9 + body[8]], body[9 + body[8] + 1 :]
            name, tail = rest[1 : 1 + rest[0]], rest[1 + rest[0] + 1 :]
            result.tables[number] = (database.decode(), name.decode(), tail)
        else:
            assert body[8:10] == b"\2\0", "extra data"
            width = (body[10] + 7) // 8  # of the one bitmap that all shapes here have
            flags = int.from_bytes(body[6:8], "little")
            result.rows.append((kind, number, flags, body[10 : 11 + width], body[11 + width :]))
    return result


def check(piece: Piece) -> None:
    """The invariant of the module, for one piece."""
    assert piece.tables
    assert piece.rows
    ends = [flags & 1 for _, _, flags, _, _ in piece.rows]
    assert ends == [0] * (len(ends) - 1) + [1], "the end of the statement is not at the last rows, or not only there"
    assert {number for _, number, _, _, _ in piece.rows} == set(piece.tables), "a table without rows or without a map"
    assert len({names[:2] for names in piece.tables.values()}) == len(piece.tables), "a table stands twice"
    assert len({flags & ~1 for _, _, flags, _, _ in piece.rows}) == 1, "rows of different flags in one statement"


def flat(pieces: list[Piece]) -> list[tuple[int, str, bytes, int, bytes]]:
    """The rows of all pieces, neighbours of one kind, table, shape and flags joined."""
    rows: list[tuple[int, str, bytes, int, bytes]] = []
    for piece in pieces:
        for kind, number, flags, _, images in piece.rows:
            _, name, tail = piece.tables[number]
            rows.append((kind, name, tail, flags & ~1, images))
    return joined(rows)


def joined(rows: list[tuple[int, str, bytes, int, bytes]]) -> list[tuple[int, str, bytes, int, bytes]]:
    result: list[tuple[int, str, bytes, int, bytes]] = []
    for row in rows:
        if result and result[-1][:-1] == row[:-1]:
            result[-1] = (*row[:-1], result[-1][-1] + row[-1])
        else:
            result.append(row)
    return result


def target_name(source: TableMap) -> tuple[str, str]:
    return "target", source.table


@given(runs, st.sampled_from([1, 100, 200, 300, 1000, 1 << 22]))
def test_every_piece_has_the_shape_and_nothing_is_lost(run: list[tuple[RowsEvent, int]], limit: int) -> None:
    """For any rows: each piece is table maps, then rows with one end; order and content are the source's."""
    rows = [event for event, count in run for _ in range(count)]
    pieces = [read_piece(piece) for piece in StatementBuilder(target_name, limit, 77).build(rows, 1_700_000_000)]
    for piece in pieces:
        check(piece)
        assert {names[0] for names in piece.tables.values()} <= {"target"}
        # Larger than the limit only when it is a single event, which cannot be cut.
        assert piece.size <= limit or len(piece.rows) == 1
    expected = [(int(shape.kind), shape.table.table, shape.table.tail, shape.flags, images) for shape, images in rows]
    assert flat(pieces) == joined(expected)


@given(runs)
def test_a_builder_keeps_nothing_between_batches(run: list[tuple[RowsEvent, int]]) -> None:
    """The same rows give the same bytes, however often they are built: what is remembered changes nothing."""
    rows = [event for event, count in run for _ in range(count)]
    builder = StatementBuilder(target_name, 300, 77)
    first = list(builder.build(rows, 1_700_000_000))
    assert list(builder.build(iter(rows), 1_700_000_000)) == first


def test_a_single_event_above_the_limit_is_alone() -> None:
    """Only rows that came as one event exceed the limit, with their own table map and nothing else."""
    shape = SHAPES[0]
    rows = [RowsEvent(shape, b"a"), RowsEvent(shape, b"b" * 1000), RowsEvent(shape, b"c"), RowsEvent(shape, b"d")]
    pieces = [read_piece(piece) for piece in StatementBuilder(target_name, 500, 77).build(rows, 1_700_000_000)]
    assert [[images for *_, images in piece.rows] for piece in pieces] == [[b"a"], [b"b" * 1000], [b"cd"]]


def test_table_maps_count_for_the_limit() -> None:
    """Many tables with little in each do not make a piece that is larger than the limit."""
    tables = [table(f"t{number}", 200) for number in range(100)]
    rows = [RowsEvent(RowsShape(t, RowsKind.WRITE, 0, b"\xc8" + b"\xff" * 25), b"x") for t in tables]
    pieces = [read_piece(piece) for piece in StatementBuilder(target_name, 4000, 77).build(rows, 1_700_000_000)]
    assert max(piece.size for piece in pieces) <= 4000
    assert len(pieces) < 15
    assert [name for piece in pieces for _, name, _ in piece.tables.values()] == [t.table for t in tables]


def test_two_source_tables_of_one_name_never_meet() -> None:
    """A batch may hold tables of two databases that become one on the target: each gets a statement of its own."""
    rows = [RowsEvent(shape, b"x") for shape in (SHAPES[0], SHAPES[32], SHAPES[0])]
    builder = StatementBuilder(lambda _: ("target", "t"), 1 << 20, 77)
    pieces = [read_piece(piece) for piece in builder.build(rows, 1_700_000_000)]
    assert [len(piece.tables) for piece in pieces] == [1, 1, 1]


def test_names_are_the_targets() -> None:
    """Names of any length and script stand in the table map with their length in bytes."""
    name = "表" * 64
    (piece,) = StatementBuilder(lambda _: (name, "é"), 1 << 20, 77).build([RowsEvent(SHAPES[0], b"x")], 1_700_000_000)
    assert [names[:2] for names in read_piece(piece).tables.values()] == [(name, "é")]


def test_many_tables_are_not_remembered_for_ever() -> None:
    """A builder that has seen tables beyond all measure still makes the right shape."""
    builder = StatementBuilder(target_name, 1 << 20, 77)
    for start in range(0, 25_000, 5_000):
        tables = [table(f"t{number}", 1) for number in range(start, start + 5_000)]
        rows = [RowsEvent(RowsShape(t, RowsKind.WRITE, 0, b"\1\xff"), b"x") for t in tables]
        pieces = [read_piece(piece) for piece in builder.build(rows, 1_700_000_000)]
        for piece in pieces:
            check(piece)
        assert [name for piece in pieces for _, name, _ in piece.tables.values()] == [t.table for t in tables]


def test_no_rows_no_pieces() -> None:
    """Nothing is sent for a batch without rows."""
    assert list(StatementBuilder(target_name, 1000, 77).build([], 0)) == []


def test_the_format_description_speaks_of_checksums() -> None:
    """The events that follow have CRC32 checksums, and so has the description itself."""
    event = format_description(77)
    assert crc32(event) == 0x2144DF1C
    assert (event[4], int.from_bytes(event[9:13], "little"), event[-5]) == (15, len(event), 1)


@pytest.mark.parametrize("flags", FLAGS)
def test_foreign_key_flags_reach_the_target(flags: int) -> None:
    """A row is applied with the foreign key treatment of its source session, never with a neighbour's."""
    shapes = [RowsShape(TABLES[0], RowsKind.WRITE, each, b"\1\xff") for each in (flags, 0, flags)]
    rows = [RowsEvent(shape, bytes((index,))) for index, shape in enumerate(shapes)]
    pieces = [read_piece(piece) for piece in StatementBuilder(target_name, 1 << 20, 77).build(rows, 1_700_000_000)]
    sent = [(each & ~1, image) for piece in pieces for _, _, each, _, images in piece.rows for image in images]
    assert sent == [(flags, 0), (0, 1), (flags, 2)]
