"""Row images as SQL: exact literals, and conditions that find exactly one row's values.

Knows: what SQL gives a column the very bytes of an image, and what SQL tells whether a column has them. Never knows:
statements, rules or servers. Used by ``mysql/statement_applier.py``. Compiled once for each table map.

What the target's session needs
-------------------------------
- ``sql_mode`` = ``SQL_MODE``: a value that does not fit is an error; dates with zeros, or with days that their month
  does not have, are none; 0 in an AUTO_INCREMENT column is 0.
- ``time_zone='+00:00'``: TIMESTAMP is written in UTC.
- A current database, whichever: documents with bytes or DECIMAL of some kinds need JSON_TABLE, which asks for one.
- Rows with the ENUM error value (index 0) are refused by every strict mode. ``is_lenient`` tells them: they go alone,
  in a statement with ``LENIENT_HINT`` behind its verb.
- All generated columns left out, and all others named in INSERT and in SET: ``ON UPDATE CURRENT_TIMESTAMP`` columns
  change by themselves otherwise.
- ``max_allowed_packet``: text, bytes and documents are written in hexadecimal, so a row of n bytes takes up to
  2 n bytes and 100 for each column; an update with guards has before- and after-image in one statement.

Text goes to a column of its own character set as bytes, to another behind the name of its own, and so it does in
``match``. There a server may warn: of a character set that it deprecates (1287), and of a code that the character set
leaves open (1300), which it stores and compares all the same.

Two kinds of conditions
-----------------------
``match`` compares as the column's own indexes do, and uses them: a collation may take other bytes for equal, and 0.0
equals -0.0. ``same`` tells exactly these bytes from all others, and uses an index only where both are one, which is
every type but text, JSON, spatial types and VECTOR. A row is found by ``match`` on its key and guarded by ``same``.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from vmerge.core.column_types import ColumnShape, ColumnType, column_shapes, fixed_length, length_bytes
from vmerge.core.events import TableMap
from vmerge.core.json_literals import json_literal
from vmerge.core.rowimage import ImageCutter, Slices
from vmerge.core.schema import Column
from vmerge.core.value_literals import TEXT_TYPES, Literal, text_literal, value_literal
from vmerge.errors import SourceError, UnsupportedEvent

SQL_MODE = "STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
"""For the target's session."""
LENIENT_HINT = b"/*+ SET_VAR(sql_mode='ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO') */"
"""Behind INSERT, UPDATE or DELETE, for rows that ``is_lenient`` names only."""

_BYTES = "binary"
_LONG_SET = b"\x08"
"""The metadata, its bytes, of a SET with more than 32 members."""


class RowLiterals:
    """The rows of one table map as SQL for one target table. Immutable.

    ``columns`` are the target's, in the order of the table map; ``charsets`` is the target's mapping of collation id to
    the name of a character set. Constructor and methods raise ``UnsupportedEvent``, with table, column and reason, for
    what cannot be written exactly, and ``CorruptEvent`` for what is cut or contradicts itself.
    """

    def __init__(self, table: TableMap, columns: Sequence[Column], charsets: Mapping[int, str]) -> None:
        self._cutter = ImageCutter(table, ())
        self._table = table.name
        self._names = tuple(column.name for column in columns)
        shapes = column_shapes(table.types, table.metadata) or ()
        forms = []
        for index, (shape, column) in enumerate(zip(shapes, columns, strict=True)):
            try:
                forms.append(_forms(shape, _unsigned(table, index), _charset(table, index, charsets), column))
            except SourceError as error:
                raise self._named(error, index) from error
        self._literals = tuple(form.literal for form in forms)
        self.charsets = tuple(form.charset for form in forms)
        """Of each column: the character set in which its text is written, ``binary`` for bytes; None for others."""
        self._matches = tuple(form.match for form in forms)
        self._sames = tuple(form.same for form in forms)
        self._nulls = tuple(_quoted(column.name) + b" IS NULL" for column in columns)
        self._enums = tuple(index for index, shape in enumerate(shapes) if shape.type is ColumnType.ENUM)

    def cut(self, images: bytes) -> Iterator[Slices]:
        """Yield the columns of each row."""
        return self._cutter.slices(images)

    def assign(self, slices: Slices) -> tuple[bytes, ...]:
        """Return a literal for each column."""
        try:
            pairs = zip(self._literals, slices, strict=True)
            return tuple([b"NULL" if value is None else write(value) for write, value in pairs])
        except SourceError:
            self._blame(self._literals, slices)

    def reassign(self, literals: Sequence[bytes], before: Slices, after: Slices) -> tuple[bytes, ...]:
        """Return a literal for each column of a changed row; ``literals`` are those of the row before."""
        try:
            return tuple(
                [
                    known if old == new else b"NULL" if new is None else write(new)
                    for known, old, new, write in zip(literals, before, after, self._literals, strict=True)
                ]
            )
        except SourceError:
            self._blame(self._literals, after)

    def match(self, slices: Slices, columns: Sequence[int]) -> bytes:
        """Return a condition, without parentheses, that these columns have equal values; it uses indexes."""
        return self._condition(self._matches, slices, columns)

    def same(self, slices: Slices, columns: Sequence[int]) -> bytes:
        """Return a condition, without parentheses, that these columns have these very bytes."""
        return self._condition(self._sames, slices, columns)

    def is_lenient(self, slices: Slices) -> bool:
        """Whether the row has an ENUM's error value, which only ``LENIENT_HINT`` lets in."""
        return any(value is not None and not any(value) for value in map(slices.__getitem__, self._enums))

    def _condition(self, writers: Sequence[Literal], slices: Slices, columns: Sequence[int]) -> bytes:
        try:
            return b" AND ".join(
                [self._nulls[index] if (value := slices[index]) is None else writers[index](value) for index in columns]
            )
        except SourceError:
            self._blame(writers, slices)

    def _blame(self, writers: Sequence[Literal], slices: Slices) -> NoReturn:
        """Raise the error of the first value that has one, with the column's name."""
        for index, (write, value) in enumerate(zip(writers, slices, strict=True)):
            try:
                if value is not None:
                    write(value)
            except SourceError as error:
                raise self._named(error, index) from error
        raise AssertionError("a value that could not be written can be now")

    def _named(self, error: SourceError, index: int) -> SourceError:
        text = f"column `{self._names[index]}` of {self._table} cannot be written as SQL: {error.message}"
        return type(error)(
            text, hint="Only the events applier carries it." if type(error) is UnsupportedEvent else None
        )


class _Forms(NamedTuple):
    """What one column's values become."""

    literal: Literal
    match: Literal
    same: Literal
    charset: str | None = None


def _forms(shape: ColumnShape, unsigned: bool | None, charset: str | None, column: Column) -> _Forms:
    name = _quoted(column.name)
    if shape.type is ColumnType.JSON:
        literal = json_literal(length_bytes(shape))
        return _Forms(literal, _equal(name, literal), _same_document(name, literal))
    literal = value_literal(shape, unsigned, charset)
    equal = _equal(name, literal)
    match shape.type:
        case ColumnType.FLOAT | ColumnType.DOUBLE:
            return _Forms(literal, equal, _same_number(name, literal))
        case ColumnType.SET if shape.metadata == _LONG_SET:
            equal = _equal(name, _as_signed)
        case ColumnType.GEOMETRY | ColumnType.VECTOR:
            equal = _equal(_bytes_of(name), literal)
        case kind if kind in TEXT_TYPES:
            return _text_forms(name, shape, charset, column)
    return _Forms(literal, equal, equal)


def _text_forms(name: bytes, shape: ColumnShape, charset: str | None, column: Column) -> _Forms:
    width = length_bytes(shape)
    plain, named = text_literal(width, _BYTES), text_literal(width, charset)
    if charset == _BYTES:
        equal = _equal(name, _padded(shape) if shape.type is ColumnType.STRING else plain)
        return _Forms(plain, equal, equal, charset)
    equal = _equal(name, named)
    if charset != column.charset:
        return _Forms(named, equal, _same_converted(name, named, column.charset), charset)
    return _Forms(plain, equal, _equal(_bytes_of(name), plain), _BYTES)


def _equal(left: bytes, literal: Literal) -> Literal:
    head = left + b" = "
    return lambda value: head + literal(value)


def _same_number(name: bytes, literal: Literal) -> Literal:
    """Zero has a sign, which only its text tells; a server that knows the column to be 0 would look at the 0's text."""
    head = name + b" = "
    zero = b"ABS(" + name + b") = 0 AND CAST(" + name + b" AS CHAR) "
    signs = (zero + b"NOT LIKE '-%'", zero + b"LIKE '-%'")

    def same(value: bytes) -> bytes:
        is_zero = not any(value[:-1]) and not value[-1] & 0x7F
        return signs[value[-1] >> 7] if is_zero else head + literal(value)

    return same


def _same_converted(name: bytes, literal: Literal, charset: str | None) -> Literal:
    """Compare the bytes that the text has in the column's own character set."""
    head = _bytes_of(name) + b" = CAST(CONVERT("
    tail = b" USING " + (charset or _BYTES).encode("ascii") + b") AS BINARY)"
    return lambda value: head + literal(value) + tail


def _same_document(name: bytes, literal: Literal) -> Literal:
    """Documents are equal also when 1 stands for 1.0, which their texts tell apart."""
    heads = name + b" = ", b" AND CAST(" + name + b" AS CHAR) COLLATE utf8mb4_bin = CAST("

    def same(value: bytes) -> bytes:
        document = literal(value)
        return heads[0] + document + heads[1] + document + b" AS CHAR)"

    return same


def _padded(shape: ColumnShape) -> Literal:
    """BINARY is stored with the zeros at its end, and sent without."""
    length = fixed_length(shape.metadata)
    width = length_bytes(shape)
    return lambda value: b"_binary X'" + hexlify(value[width:].ljust(length, b"\0")) + b"'"


def _as_signed(value: bytes) -> bytes:
    """In comparisons a SET of 64 members is a signed number (found on 9.7.4)."""
    return b"%d" % int.from_bytes(value, "little", signed=True)


def _bytes_of(name: bytes) -> bytes:
    return b"CAST(" + name + b" AS BINARY)"


def _quoted(name: str) -> bytes:
    return b"`" + name.replace("`", "``").encode("utf-8") + b"`"


def _unsigned(table: TableMap, index: int) -> bool | None:
    return None if table.unsigned is None else table.unsigned[index]


def _charset(table: TableMap, index: int, charsets: Mapping[int, str]) -> str | None:
    number = None if table.collation_ids is None else table.collation_ids[index]
    if number is None:
        return None
    charset = charsets.get(number)
    if charset is None:
        raise UnsupportedEvent(f"the target does not know the collation with number {number}")
    return charset
