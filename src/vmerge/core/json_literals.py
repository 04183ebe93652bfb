"""JSON columns: a document of a row image → a SQL expression that gives the very same document.

Knows: which values the text of JSON carries exactly, and what makes the server give the others. Never knows: columns
or rows. Used by ``core/literals.py``.

Most documents go as text. It carries strings, literals, doubles (a server reads their shortest digits back to the same
bits) and those whole numbers that the server's reader gives the same type: signed below 2^32, unsigned from there on.
What holds anything else is built by JSON_OBJECT and JSON_ARRAY around it: numbers of the other sign, DECIMAL with its
stored precision, dates and times, and bytes with the type of the column they came from.

One thing is not kept: the room that updates in place leave within a stored document. Its values, their types and their
order are.

Source: what each form gives was found by comparing row images on MySQL 9.7.4: see tests/values. Rules of DECIMAL:
bin2decimal in mysql-server's strings/decimal.cc.
"""

from __future__ import annotations

import re
from binascii import hexlify
from struct import unpack

from vmerge.core.column_types import ColumnType, decimal_bytes
from vmerge.core.json_document import CONTAINERS, OBJECTS, SIGNED, UNSIGNED, JsonType, JsonWalk, Node
from vmerge.core.value_literals import (
    MOST_DECIMAL_DIGITS,
    Literal,
    approximate,
    datetime_text,
    decimal_digits,
    finite,
    time_text,
)
from vmerge.errors import CorruptEvent, UnsupportedEvent

_ESCAPED = re.compile(rb'["\\\x00-\x1f]')
_LITERALS = (b"null", b"true", b"false")
_FIRST_UNSIGNED = 1 << 32
"""From here on the server's reader takes whole numbers for unsigned."""
_MOST_SCALE = 30
_GROUP_DIGITS = 9
_TIME_BITS = 17
"""Of a packed date with a time of day."""
_MICROSECOND_BITS = 24
_PACKED_BYTES = 8
_BLOBS = {249: b"TINYBLOB", 250: b"MEDIUMBLOB", 251: b"LONGBLOB", 252: b"BLOB"}
"""Column types that table maps do not have."""


class _NotText(Exception):
    """The document holds what the text of JSON cannot carry."""


def json_literal(width: int) -> Literal:
    """Return how documents behind a length of ``width`` bytes become expressions of type JSON."""

    def literal(value: bytes) -> bytes:
        document = memoryview(value)[width:]
        if not document:
            raise UnsupportedEvent("a document without any byte")
        walk = JsonWalk(document)
        try:
            return _from_text(walk, walk.root())
        except _NotText:
            builder = _Builder(document)
            return builder.expression()

    return literal


# Text


def _from_text(walk: JsonWalk, node: Node) -> bytes:
    parts: list[bytes] = []
    _write(walk, node, parts)
    return b"CAST(_utf8mb4 X'" + hexlify(b"".join(parts)) + b"' AS JSON)"


def _write(walk: JsonWalk, node: Node, parts: list[bytes]) -> None:
    """Append a value's text. Raises ``_NotText``."""
    if node.type not in CONTAINERS:
        parts.append(_scalar_text(walk, node))
        return
    is_object = node.type in OBJECTS
    parts.append(b"{" if is_object else b"[")
    separator = b""
    for key, child in walk.children(node):
        parts.append(separator)
        if key is not None:
            parts.append(_string_text(key) + b":")
        _write(walk, child, parts)
        separator = b","
    parts.append(b"}" if is_object else b"]")


def _scalar_text(walk: JsonWalk, node: Node) -> bytes:
    if node.type is JsonType.STRING:
        return _string_text(bytes(walk.string(node)))
    if not _is_text(walk, node):
        raise _NotText
    return _number_text(walk, node)


def _is_text(walk: JsonWalk, node: Node) -> bool:
    """Whether the text of a scalar is read back as a value of the same type."""
    if node.type in SIGNED:
        return int.from_bytes(walk.fixed(node), "little", signed=True) < _FIRST_UNSIGNED
    if node.type in UNSIGNED:
        return int.from_bytes(walk.fixed(node), "little") >= _FIRST_UNSIGNED
    return node.type is not JsonType.OPAQUE


def _number_text(walk: JsonWalk, node: Node) -> bytes:
    value = walk.fixed(node)
    if node.type is JsonType.DOUBLE:
        return b"%a" % finite(unpack("<d", value)[0])
    if node.type is not JsonType.LITERAL:
        return b"%d" % int.from_bytes(value, "little", signed=node.type in SIGNED)
    if value[0] >= len(_LITERALS):
        raise CorruptEvent(f"a document with the unknown literal {value[0]}")
    return _LITERALS[value[0]]


def _string_text(content: bytes) -> bytes:
    return b'"' + _ESCAPED.sub(lambda match: b"\\u%04x" % match[0][0], content) + b'"'


# Expressions


class _Builder:
    """A document with values that only expressions give."""

    def __init__(self, document: memoryview) -> None:
        self._walk = JsonWalk(document)
        self._special: set[int] = set()
        """Where the containers are in which such values lie, at any depth."""
        search = JsonWalk(document)
        self._mark(search, search.root())

    def _mark(self, walk: JsonWalk, node: Node) -> bool:
        if node.type not in CONTAINERS:
            return node.type is not JsonType.STRING and not _is_text(walk, node)
        found = [self._mark(walk, child) for _, child in walk.children(node)]
        if any(found):
            self._special.add(node.at)
        return any(found)

    def expression(self) -> bytes:
        root = self._walk.root()
        if root.type in CONTAINERS:
            return self._value(root)
        return b"CAST(" + self._value(root) + b" AS JSON)"

    def _value(self, node: Node) -> bytes:
        if node.type in CONTAINERS:
            return self._container(node) if node.at in self._special else _from_text(self._walk, node)
        match node.type:
            case JsonType.STRING:
                return _text(bytes(self._walk.string(node)))
            case JsonType.OPAQUE:
                return _opaque(*self._walk.opaque(node))
            case JsonType.DOUBLE:
                return approximate(unpack("<d", self._walk.fixed(node))[0])
            case kind if kind in UNSIGNED:
                return b"CAST(" + _number_text(self._walk, node) + b" AS UNSIGNED)"
        return _number_text(self._walk, node)

    def _container(self, node: Node) -> bytes:
        parts: list[bytes] = []
        for key, child in self._walk.children(node):
            if key is not None:
                parts.append(_text(key))
            parts.append(self._value(child))
        return (b"JSON_OBJECT(" if node.type in OBJECTS else b"JSON_ARRAY(") + b", ".join(parts) + b")"


def _text(content: bytes) -> bytes:
    return b"_utf8mb4 X'" + hexlify(content) + b"'"


def _opaque(kind: int, value: memoryview) -> bytes:
    """Return the expression of a value that JSON itself does not have, by the type of the column it came from."""
    blob = _BLOBS.get(kind)
    if blob is not None:
        return _of_type(_bytes(value), blob)
    match kind:
        case ColumnType.VARCHAR:
            return _bytes(value)
        case ColumnType.STRING if 0 < len(value) < 256:
            return _of_type(_bytes(value), b"BINARY(%d)" % len(value))
        case ColumnType.BIT if 0 < len(value) <= 8:
            return _of_type(b"%d" % int.from_bytes(value, "big"), b"BIT(%d)" % (8 * len(value)))
        case ColumnType.NEWDECIMAL:
            return _decimal(bytes(value))
        case ColumnType.DATE | ColumnType.DATETIME | ColumnType.TIMESTAMP | ColumnType.TIME:
            return _temporal(ColumnType(kind), value)
    raise UnsupportedEvent(f"a document with a value of column type {kind} and {len(value)} bytes")


def _of_type(value: bytes, column: bytes) -> bytes:
    """Return a value as if a column of that type had it: nothing but a column gives a document some of the types."""
    table = b"JSON_TABLE(JSON_ARRAY(" + value + b"), '$[0]' COLUMNS (v " + column + b" PATH '$' ERROR ON ERROR)) t"
    return b"(SELECT CAST(v AS JSON) FROM " + table + b")"


def _bytes(value: memoryview) -> bytes:
    return b"X'" + hexlify(value) + b"'"


def _temporal(kind: ColumnType, value: memoryview) -> bytes:
    if len(value) != _PACKED_BYTES:
        raise CorruptEvent("a document with a time of another length than times have")
    number = int.from_bytes(value, "little", signed=True)
    whole, microseconds = divmod(abs(number), 1 << _MICROSECOND_BITS)
    if kind is ColumnType.TIME:
        return b"CAST('%s' AS TIME(6))" % time_text(number < 0, whole, microseconds, 6)
    if number < 0:
        raise UnsupportedEvent("a document with a negative date")
    text = datetime_text(whole, microseconds, 6)
    if kind is ColumnType.TIMESTAMP:
        return _of_type(b"'" + text + b"'", b"TIMESTAMP(6)")
    if kind is ColumnType.DATETIME:
        return b"CAST('%s' AS DATETIME(6))" % text
    if microseconds or whole & (1 << _TIME_BITS) - 1:
        raise UnsupportedEvent("a document with a DATE that has a time of day")
    return b"CAST('%s' AS DATE)" % text.partition(b" ")[0]


def _decimal(value: bytes) -> bytes:
    """Return a DECIMAL that is stored with the same count of digits, which is not that of its value.

    A literal has as many digits in front of the point as are written; a cast rounds them up to groups of nine; a column
    has as many as it was declared with, unless the first of its groups is zero.
    """
    precision, scale = value[:2] if len(value) > 2 else (0, 0)
    if scale > precision or not precision or len(value) != 2 + decimal_bytes(precision - scale) + decimal_bytes(scale):
        raise CorruptEvent("a document with a DECIMAL of another length than its digits need")
    text = decimal_digits(value[2:], precision, scale) + (b"" if scale else b".")
    declared = precision - scale
    written = len(text.lstrip(b"-").partition(b".")[0].lstrip(b"0"))
    if scale > _MOST_SCALE or max(written, 1) + scale > MOST_DECIMAL_DIGITS:
        raise UnsupportedEvent(f"a document with a DECIMAL of {precision} digits")
    if declared == max(written, 1):
        return text
    if declared == max(1, -(-written // _GROUP_DIGITS)) * _GROUP_DIGITS:
        return b"CAST(%s AS DECIMAL(%d,%d))" % (text, max(written, 1) + scale, scale)
    first_group = declared % _GROUP_DIGITS or _GROUP_DIGITS
    if precision <= MOST_DECIMAL_DIGITS and written > declared - first_group:
        return _of_type(text, b"DECIMAL(%d,%d)" % (precision, scale))
    raise UnsupportedEvent(f"a document with a DECIMAL of {written} digits stored as {declared}")
