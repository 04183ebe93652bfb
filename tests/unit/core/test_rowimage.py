"""Row images cut into columns, and put together again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.test_binlog_fuzz import FUZZ
from tests.unit.core.test_plan import rows_of

from vmerge.core.column_types import ColumnShape, ColumnType
from vmerge.core.proof import expected_shape
from vmerge.core.rowimage import ImageCutter, join_slices
from vmerge.core.schema import Column
from vmerge.errors import CorruptEvent

TYPES = (
    *("tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "date", "year", "json", "point"),
    *("time", "time(1)", "datetime(6)", "timestamp(3)", "decimal(20,7)", "decimal(9,9)", "bit(1)", "bit(64)"),
    *("tinytext", "mediumtext", "char(10)", "char(255)", "varchar(63)", "varchar(64)", "enum", "set"),
)


def column(position: int, type_text: str) -> Column:
    """A column as a server with utf8mb4 describes it."""
    size = int(type_text[:-1].partition("(")[2]) * 4 if "char" in type_text else None
    return Column(f"c{position}", position, type_text, True, size, labels=("a", "b") if type_text == "enum" else ())


def value(shape: ColumnShape, content: bytes) -> bytes:
    """Some value's bytes, by the lengths that the manual's storage requirements tell."""
    data = shape.metadata
    match shape.type:
        case ColumnType.VARCHAR | ColumnType.STRING:
            size = int.from_bytes(data, "little")
            if shape.type is ColumnType.STRING:
                size = data[1] + (data[0] ^ 0xFE) * 16
            return len(content).to_bytes(1 if size < 256 else 2, "little") + content
        case ColumnType.BLOB | ColumnType.JSON | ColumnType.GEOMETRY:
            return len(content).to_bytes(data[0], "little") + content
        case ColumnType.TIME2 | ColumnType.DATETIME2 | ColumnType.TIMESTAMP2:
            whole = {ColumnType.TIME2: 3, ColumnType.DATETIME2: 5, ColumnType.TIMESTAMP2: 4}[shape.type]
            return bytes(whole + {0: 0, 1: 1, 3: 2, 6: 3}[data[0]])
        case ColumnType.NEWDECIMAL:
            return bytes({20: 4 + 2 + 4, 9: 4}[data[0]])
        case ColumnType.BIT:
            return bytes(-(-(data[0] + 8 * data[1]) // 8))
        case ColumnType.ENUM | ColumnType.SET:
            return bytes(data[0])
        case ColumnType.TINY | ColumnType.YEAR:
            return content[:1].ljust(1, b"x")
    sizes = {ColumnType.SHORT: 2, ColumnType.INT24: 3, ColumnType.DATE: 3, ColumnType.LONG: 4, ColumnType.FLOAT: 4}
    return content.ljust(8)[: sizes.get(shape.type, 8)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[bytes | None]]]:
    """Some columns, and some rows of them in slices."""
    columns = [column(at, one) for at, one in enumerate(draw(st.lists(st.sampled_from(TYPES), min_size=1)), 1)]
    shapes = [shape for one in columns if (shape := expected_shape(one)) is not None]
    values = [st.none() | st.builds(value, st.just(shape), st.binary(max_size=9)) for shape in shapes]
    return columns, draw(st.lists(st.tuples(*values).map(list), max_size=3))


@FUZZ
@given(tables())
def test_slices_joined_are_the_row(case: tuple[list[Column], list[list[bytes | None]]]) -> None:
    """Joined slices are an image that is cut into the same slices, whatever the types and however many rows."""
    columns, rows = case
    cutter = ImageCutter(rows_of(columns), (0,))
    images = b"".join(map(join_slices, rows))
    assert [list(one) for one in cutter.slices(images)] == rows
    assert b"".join(image for _, image in cutter.cut(images)) == images


@pytest.mark.parametrize(
    ("slices", "image"),
    [
        ([b"\x01\0\0\0"], b"\xfe\x01\0\0\0"),
        ([None], b"\xff"),
        ([b"\x01\0\0\0"] * 7 + [None], b"\x80" + b"\x01\0\0\0" * 7),
        ([b"\x01\0\0\0"] * 9, b"\0\xfe" + b"\x01\0\0\0" * 9),
    ],
)
def test_an_image_is_as_a_server_writes_it(slices: Sequence[bytes | None], image: bytes) -> None:
    """NULL is a set bit, and so are the bits behind the last column, as in the binlog of MySQL 9.7."""
    assert join_slices(slices) == image


def test_a_cut_image_is_corrupt() -> None:
    """An image that ends within a row is never a row."""
    cutter = ImageCutter(rows_of([column(1, "bigint")]), (0,))
    with pytest.raises(CorruptEvent, match="is cut"):
        list(cutter.slices(b"\xfe\1\2"))
