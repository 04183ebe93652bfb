"""Damaged dumps: every outcome is a value or one of our errors, within bounds of time and memory.

What gets through has a safe shape, and the fast lane of the decoder and the slow one come to the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import timedelta
from itertools import cycle, islice
from random import Random
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.core.binlog_bytes import Dump, MemoryStore, as_plain, decode, decode_cut, integer
from tests.unit.core.campaign import run_cases
from tests.unit.core.mutation import damaged_dump
from tests.unit.core.recordings import HISTORIES
from tests.unit.core.table_rules import Rules
from tests.unit.core.test_plan import COLUMNS, schema
from tests.unit.core.test_statement import check, read_piece

from vmerge.core import event_types
from vmerge.core.binlog import Surroundings
from vmerge.core.events import RowsEvent, RowsKind, SchemaChange, SourceItem, TableMap, Transaction
from vmerge.core.fold import fold
from vmerge.core.grouping import group_by_kind
from vmerge.core.literals import RowLiterals
from vmerge.core.projection import Carried
from vmerge.core.proof import map_differences
from vmerge.core.rowimage import ImageCutter
from vmerge.core.schema_change import read_change
from vmerge.core.statement import StatementBuilder
from vmerge.errors import UnsupportedEvent, VmergeError
from vmerge.mysql.source import _Packets as Packets
from vmerge.mysql.source import decompress

FUZZ = settings(
    max_examples=300,
    derandomize=True,
    deadline=timedelta(seconds=5),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

NO_KEYS = Rules()
BUILDER_LIMIT = 1000
CHARSETS = {8: "latin1", 33: "utf8mb3", 45: "utf8mb4", 63: "binary", 224: "utf8mb4", 255: "utf8mb4"}


def assert_safe(rows: Iterable[RowsEvent]) -> None:
    """Whatever rows got through make pieces of the shape that a server survives."""
    rows = list(rows)
    for shape, _ in rows:
        count = shape.table.column_count
        assert shape.kind in RowsKind
        bitmaps = 1 if shape.kind in (RowsKind.WRITE, RowsKind.DELETE) else 2
        assert len(shape.columns) - bitmaps * ((count + 7) // 8) in (1, 3, 4, 9)
    builder = StatementBuilder(lambda table: (table.database[:64], table.table[:64]), BUILDER_LIMIT, 77)
    for piece in builder.build(rows, 1_700_000_000):
        if all(shape.kind in (RowsKind.WRITE, RowsKind.DELETE) for shape, _ in rows):
            check(read_piece(piece, table_flags=None))


def examine(item: SourceItem) -> None:
    """Do with an item what a stream may do with it, short of a server."""
    if isinstance(item, SchemaChange):
        read_change(item.statement, item.database)
    if not isinstance(item, Transaction):
        return
    rows = list(item.rows)
    assert sum(len(images) for _, images in rows) == item.byte_count
    assert_safe(rows)
    assert_safe(group_by_kind(rows, lambda table: False) or ())
    for shape, images in rows:
        map_differences(shape.table, schema(tuple(islice(cycle(COLUMNS), shape.table.column_count))), "the target")
        if shape.kind is not RowsKind.PARTIAL_UPDATE:
            keys = range(min(2, shape.table.column_count))
            assert b"".join(image for _, image in ImageCutter(shape.table, keys).cut(images)) == images
            write(shape.table, images)
    assert_safe(fold(rows, NO_KEYS).rows())


def write(table: TableMap, images: bytes) -> None:
    """Write rows as SQL."""
    columns = schema(tuple(islice(cycle(COLUMNS), table.column_count))).columns
    literals = RowLiterals(table, columns, CHARSETS)
    for slices in literals.cut(images):
        everything = range(len(slices))
        assert len(literals.assign(slices)) == len(columns)
        assert literals.match(slices, everything) and literals.same(slices, everything)


def damaged_dump_case(chance: Random) -> str:
    """Decode a damaged dump in both ways, and use what comes out of it."""
    events = damaged_dump(chance)
    spool_above = chance.choice((1 << 30, 200))
    at = chance.randint(2, len(events))
    surroundings = Surroundings(Carried, MemoryStore, decompress, spool_above)
    items, error = decode_cut(surroundings, [events[:2], events[2:at], events[at:]])
    slow, slow_error = decode_cut(surroundings, [[event] for event in events])
    assert [as_plain(item) for item in items] == [as_plain(item) for item in slow]
    assert (type(error), str(error)) == (type(slow_error), str(slow_error))
    refused = None
    for item in items:
        try:
            examine(item)
        except VmergeError as refusal:
            refused = f"rows refused: {type(refusal).__name__}"
    return type(error).__name__ if error is not None else refused or "whole"


def test_damaged_dumps() -> None:
    """Events that are damaged, lost, repeated or moved give a value or one of our errors, the same in both lanes."""
    outcomes = run_cases(damaged_dump_case, seconds=8)
    assert outcomes.keys() >= {"whole", "CorruptEvent", "UnsupportedEvent", "rows refused: CorruptEvent"}


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_million_damaged_dumps(capsys: pytest.CaptureFixture[str]) -> None:
    """The same for a million cases, each with one to three damaged events."""
    outcomes = run_cases(damaged_dump_case, count=1_000_000, first_seed=1 << 32)
    with capsys.disabled():
        sys.stdout.write(f"\na million damaged dumps: {dict(outcomes)}\n")
    assert outcomes.total() == 1_000_000


def test_there_is_one_of_every_kind_to_damage() -> None:
    """The dumps to be damaged hold every type of event that the decoder tells apart."""
    kinds = {event[4] for history in HISTORIES for part in (history.head, *history.stretches) for event in part}
    names = {name: value for name, value in vars(event_types).items() if name.isupper() and isinstance(value, int)}
    types = {value for name, value in names.items() if not name.endswith(("_FLAG", "_FLAGS", "_LENGTH", "_RESIDUE"))}
    assert types <= kinds


def test_undamaged_dumps_are_read_to_their_end() -> None:
    """Each transaction that is to be damaged comes out whole before, or is refused for what it is."""
    whole = refused = 0
    for history in HISTORIES:
        for stretch in history.stretches:
            surroundings = Surroundings(Carried, MemoryStore, decompress, 1 << 30)
            items, error = decode_cut(surroundings, [[*history.head[:2], *stretch]])
            whole += sum(isinstance(item, (Transaction, SchemaChange)) for item in items)
            refused += error is not None
            assert error is None or isinstance(error, UnsupportedEvent)
    assert (whole, refused) == (78, 14)


@FUZZ
@given(st.binary(max_size=200), st.integers(0, 42))
def test_noise_in_every_kind_of_event(noise: bytes, kind: int) -> None:
    """A body of noise behind any type, inside a transaction, gives a value or one of our errors."""
    try:
        items = decode(Dump().gtid(1).begin().table_map().add(kind, noise).xid().events)
    except VmergeError as error:
        assert error.message
        return
    for item in items:
        assert_safe(item.rows if isinstance(item, Transaction) else ())


@FUZZ
@given(st.binary(max_size=300))
def test_noise_as_compressed_content(noise: bytes) -> None:
    """What is no zstandard frame is refused by its reader with one of our errors."""
    try:
        assert isinstance(b"".join(decompress(noise)), bytes)
    except VmergeError as error:
        assert error.message


@FUZZ
@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.lists(st.integers(1, 40), min_size=1))
def test_packets_are_cut_alike_however_they_arrive(payloads: list[bytes], widths: list[int]) -> None:
    """The same events come out whole and in order, wherever the network cuts the stream, up to the first status."""
    stream = b"".join(integer(len(payload), 3) + b"\7" + payload for payload in payloads)
    found: list[bytes] = []

    def end(status: int, rest: bytes) -> NoReturn:
        raise Ended(bytes((status,)) + rest)

    packets = Packets(end)
    try:
        while stream:
            for width in widths:
                packets.cut(stream[:width], found)
                stream = stream[width:]
    except Ended as error:
        found.append(error.args[0])
    expected = [payload if payload[0] else payload[1:] for payload in payloads]
    last = next((index for index, payload in enumerate(payloads) if payload[0]), len(payloads))
    assert found == expected[: last + 1]


class Ended(Exception):
    """A packet was no event."""
