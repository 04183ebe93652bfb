"""Table maps: bytes that a 9.7.4 server wrote, and bytes that no server would."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmerge.core.column_types import column_shapes
from vmerge.core.events import TableMap
from vmerge.core.table_map import read_table_map, write_table_map
from vmerge.errors import CorruptEvent

# CREATE TABLE mixed (id int unsigned not null, born year, name varchar(10), note text character set latin1,
#   code varbinary(4), size enum('x','é') character set latin1, marks set('a','b','c'), place point, spot vector(3),
#   hidden int invisible, primary key (name(5), id))
MINIMAL = "0a030d0ffc0ffefefff2030b2800020400f701f8010404fa030101c00306fcff00083f3f0701010d0103"
FULL = (
    MINIMAL
    + "043402696404626f726e046e616d65046e6f746504636f64650473697a65056d61726b7305706c6163650473706f740668696464656e"
    "0b0408fcff00050703016101620163060502017801e90904020500000c02ff80"
)
# CREATE TABLE plain (id bigint not null primary key, email varchar(100) unique)
PLAIN = "02080f029001020101000203fcff00"


def body(tail: str, database: str = "shop_0", table: str = "mixed") -> bytes:
    names = b"".join(bytes((len(name),)) + name.encode() + b"\0" for name in (database, table))
    return bytes(6) + b"\1\0" + names + bytes.fromhex(tail)


def test_full_metadata_is_spread_over_the_columns() -> None:
    """Every optional field lands at the columns it speaks of, at no other."""
    table = read_table_map(body(FULL))
    assert (table.name, table.flags, table.column_count) == ("shop_0.mixed", 1, 10)
    assert table.names == ("id", "born", "name", "note", "code", "size", "marks", "place", "spot", "hidden")
    assert table.unsigned == (True, True, *[False] * 8)
    assert table.collation_ids == (None, None, 255, 8, 63, 8, 255, None, 63, None)
    assert table.labels is not None
    assert table.labels == (*[None] * 5, (b"x", b"\xe9"), (b"a", b"b", b"c"), None, None, None)
    assert table.primary_key == (2, 0)
    assert table.visible == (*[True] * 9, False)
    assert table.geometries == (*[None] * 7, 1, None, None)
    assert table.dimensions == (*[None] * 8, 3, None)


def test_minimal_metadata_leaves_the_rest_unsaid() -> None:
    """Without full metadata signs, collations of text and geometries are known, and nothing else."""
    table = read_table_map(body(MINIMAL))
    assert table.names == ()
    assert table.unsigned == (True, True, *[False] * 8)
    assert table.collation_ids == (None, None, 255, 8, 63, None, None, None, 63, None)
    assert (table.labels, table.primary_key, table.visible) == (None, None, None)
    assert table.geometries == (*[None] * 7, 1, None, None)


@pytest.mark.parametrize("tail", [MINIMAL, FULL, PLAIN])
def test_a_table_map_is_read_as_it_was_written(tail: str) -> None:
    """What is stored of a table map gives the same one again."""
    table = read_table_map(body(tail))
    assert asdict(read_table_map(write_table_map(table))) == asdict(table)


def test_a_default_collation_holds_for_all_but_the_listed() -> None:
    """The short form of the collations names the exceptions by their number among the text columns."""
    default = bytes((2, 3, 45, 1, 63)).hex()  # 45 for all, 63 for the second text column
    table = read_table_map(body("030f080f0428002800" + "00" + default))
    assert table.collation_ids == (45, None, 63)


def test_shapes_say_what_a_person_calls_the_type() -> None:
    """ENUM and SET come out from behind STRING, and every shape has words."""
    table = read_table_map(body(FULL))
    shapes = column_shapes(table.types, table.metadata)
    assert shapes is not None
    assert [str(shape) for shape in shapes] == [
        "int",
        "year",
        "a varchar or varbinary of 40 bytes",
        "a text or blob",
        "a varchar or varbinary of 4 bytes",
        "enum of 1 bytes",
        "set of 1 bytes",
        "geometry",
        "vector",
        "int",
    ]


def test_a_type_from_the_future_does_not_stop_other_tables() -> None:
    """A table map with an unknown type is read; only whoever wants its rows must refuse it."""
    table = read_table_map(body("0203c8" + "00" + "00" + "010180"))
    assert table.unsigned is None
    assert column_shapes(table.types, table.metadata) is None


def test_an_unknown_optional_field_is_left_alone() -> None:
    """A later server may say more about columns than we ask."""
    assert read_table_map(body(PLAIN + "c803616263")).collation_ids == (None, 255)


@pytest.mark.parametrize(
    "tail",
    [
        FULL[:-2],  # the last field is cut
        MINIMAL[:20],  # the metadata is cut
        PLAIN + "040302696405",  # a name is longer than its field
        PLAIN + "0403026964",  # one name for two columns
        PLAIN + "0307fcff00fcff0008",  # three collations for one text column
        "020102",  # nothing behind the types
    ],
)
def test_contradictions_are_corrupt(tail: str) -> None:
    """Parts that are cut or contradict each other give an error, never half a table map."""
    with pytest.raises(CorruptEvent):
        read_table_map(body(tail))


@given(st.data())
def test_damage_is_read_or_refused(data: st.DataObject) -> None:
    """Whatever byte is changed or cut off, the answer is a table map or ``CorruptEvent``."""
    whole = bytearray(body(FULL))
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        table = read_table_map(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    except CorruptEvent:
        return
    assert isinstance(table, TableMap)
    for said in (table.unsigned, table.collation_ids, table.labels, table.visible, table.geometries):
        assert said is None or len(said) == table.column_count
