"""Binary JSON: the documents of row images, walked without copying them.

Knows: the layout that MySQL stores documents in. Never knows: SQL, or what a document is for. Used by
``core/json_literals.py``.

A walk is linear: nothing in a document that a server wrote is referred to twice, so a walk that reads more than
the document is long is of a damaged one.

Source: the comment at the head of mysql-server's sql-common/json_binary.h.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from vmerge.errors import CorruptEvent

DEPTH_LIMIT = 100
"""MySQL's own for documents."""


class JsonType(IntEnum):
    """The types of values in a document."""

    SMALL_OBJECT = 0
    LARGE_OBJECT = 1
    SMALL_ARRAY = 2
    LARGE_ARRAY = 3
    LITERAL = 4
    INT16 = 5
    UINT16 = 6
    INT32 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    DOUBLE = 11
    STRING = 12
    OPAQUE = 15


OBJECTS = frozenset({JsonType.SMALL_OBJECT, JsonType.LARGE_OBJECT})
CONTAINERS = OBJECTS | {JsonType.SMALL_ARRAY, JsonType.LARGE_ARRAY}
_LARGE = frozenset({JsonType.LARGE_OBJECT, JsonType.LARGE_ARRAY})
SIGNED = frozenset({JsonType.INT16, JsonType.INT32, JsonType.INT64})
UNSIGNED = frozenset({JsonType.UINT16, JsonType.UINT32, JsonType.UINT64})
SIZES = {
    JsonType.LITERAL: 1,
    JsonType.INT16: 2,
    JsonType.UINT16: 2,
    JsonType.INT32: 4,
    JsonType.UINT32: 4,
    JsonType.INT64: 8,
    JsonType.UINT64: 8,
    JsonType.DOUBLE: 8,
}
"""The bytes of the values of fixed length."""
_INLINED = frozenset({JsonType.LITERAL, JsonType.INT16, JsonType.UINT16})
_INLINED_IN_LARGE = _INLINED | {JsonType.INT32, JsonType.UINT32}
_TYPES = {int(kind): kind for kind in JsonType}


class Node(NamedTuple):
    """A value in a document."""

    type: JsonType
    at: int
    """Where its bytes begin, behind its type."""
    depth: int
    """How many containers it lies in."""


class JsonWalk:
    """One walk through a document; every value may be visited once.

    Methods raise ``CorruptEvent`` when the document contradicts itself.
    """

    def __init__(self, document: memoryview) -> None:
        self._document = document
        self._left = len(document)

    def root(self) -> Node:
        """Return the document's outermost value."""
        return Node(self._type(0), 1, 0)

    def children(self, node: Node) -> Iterator[tuple[bytes | None, Node]]:
        """Yield the values in a container, in their order, each with its key if it has one."""
        if node.depth >= DEPTH_LIMIT:
            raise CorruptEvent(f"a document with more than {DEPTH_LIMIT} levels")
        width, inlined = (4, _INLINED_IN_LARGE) if node.type in _LARGE else (2, _INLINED)
        start = node.at
        count = self._number(start, width)
        self._spend(count)
        keys_at = start + 2 * width
        has_keys = node.type in OBJECTS
        values_at = keys_at + (count * (width + 2) if has_keys else 0)
        for index in range(count):
            key = None
            if has_keys:
                entry = keys_at + index * (width + 2)
                key = bytes(self._content(start + self._number(entry, width), self._number(entry + width, 2)))
            entry = values_at + index * (width + 1)
            kind = self._type(entry)
            at = entry + 1 if kind in inlined else start + self._number(entry + 1, width)
            yield key, Node(kind, at, node.depth + 1)

    def fixed(self, node: Node) -> memoryview:
        """Return the bytes of a value of fixed length."""
        return self._part(node.at, SIZES[node.type])

    def string(self, node: Node) -> memoryview:
        """Return the bytes of a string, in utf8mb4."""
        return self._prefixed(node.at)

    def opaque(self, node: Node) -> tuple[int, memoryview]:
        """Return the column type of a value that JSON itself does not have, and its bytes."""
        return self._number(node.at, 1), self._prefixed(node.at + 1)

    def _prefixed(self, at: int) -> memoryview:
        """Read what stands behind a length of seven bits a byte, the last without the eighth."""
        length = 0
        for index in range(5):
            byte = self._number(at + index, 1)
            length |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return self._content(at + index + 1, length)
        raise CorruptEvent("a length in a document is not readable")

    def _content(self, at: int, length: int) -> memoryview:
        part = self._part(at, length)
        self._spend(length)
        return part

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise CorruptEvent("a document with parts that lie in each other")

    def _type(self, at: int) -> JsonType:
        code = self._number(at, 1)
        kind = _TYPES.get(code)
        if kind is None:
            raise CorruptEvent(f"a document with a value of the unknown type {code}")
        return kind

    def _number(self, at: int, width: int) -> int:
        return int.from_bytes(self._part(at, width), "little")

    def _part(self, at: int, length: int) -> memoryview:
        part = self._document[at : at + length]
        if len(part) != length:
            raise CorruptEvent("a document that is cut")
        return part
