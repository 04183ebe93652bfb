"""Compressed transactions (TRANSACTION_PAYLOAD, type 40): one event to the events inside it.

Knows: the payload's header and how the events inside are framed. Never knows: how to decompress (that is given to
it) or what the events mean. Used by ``core/binlog.py``. Source: mysql::binlog::event,
Transaction_payload_event and its codecs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from vmerge.core.event_types import HEADER_LENGTH
from vmerge.core.table_map import read_length
from vmerge.errors import CorruptEvent, UnsupportedEvent

Decompress = Callable[[bytes | memoryview], Iterable[bytes]]

_END, _SIZE, _COMPRESSION, _UNCOMPRESSED_SIZE = 0, 1, 2, 3
_ZSTD, _UNCOMPRESSED = 0, 255

LARGEST_EVENT_BYTES = 1 << 30
"""No source sends more: the greatest ``max_allowed_packet`` there is."""

_HEADER_BYTES = 100
"""More than the fields in front of a payload take."""


def split_events(body: bytes | memoryview, decompress: Decompress) -> Iterator[bytes]:
    """Yield the events inside a payload event's body, whole and one by one; they have no checksums.

    The uncompressed bytes are never held together: memory stays bounded by the largest event inside. What has not come
    yet is not believed: an event may not claim more than is left of what the payload claims, which may not hold more.

    Raises:
        CorruptEvent: the payload is cut, or an event inside it is.
        UnsupportedEvent: a compression this version does not know.
    """
    fields = _read_header(bytes(body[:_HEADER_BYTES]))
    payload = body[fields[_END] :]
    compression = fields.get(_COMPRESSION, _ZSTD)
    if compression not in (_ZSTD, _UNCOMPRESSED):
        raise UnsupportedEvent(f"a transaction is compressed with method {compression}, which is not known here")
    if len(payload) != fields.get(_SIZE, len(payload)):
        raise CorruptEvent("a compressed transaction has another size than it says")
    if compression == _UNCOMPRESSED:
        yield from _frame((payload,), fields.get(_UNCOMPRESSED_SIZE, len(payload)))
    elif _UNCOMPRESSED_SIZE in fields:
        yield from _frame(decompress(payload), fields[_UNCOMPRESSED_SIZE])
    else:
        raise CorruptEvent("a compressed transaction does not say how much it holds")


def _frame(pieces: Iterable[bytes | memoryview], left: int) -> Iterator[bytes]:
    """Yield the events that the pieces hold; ``left`` is how many bytes of events there are to be."""
    rest = bytearray()
    for piece in pieces:
        rest += piece
        if len(rest) > left:
            raise CorruptEvent("a compressed transaction holds more than it says")
        offset = 0
        while len(rest) - offset >= HEADER_LENGTH:
            size = int.from_bytes(rest[offset + 9 : offset + 13], "little")
            if size < HEADER_LENGTH:
                raise CorruptEvent("an event inside a compressed transaction is shorter than its header")
            if size > min(left, LARGEST_EVENT_BYTES):
                raise CorruptEvent(f"an event inside a compressed transaction claims {size} bytes")
            if len(rest) - offset < size:
                break
            yield bytes(rest[offset : offset + size])
            offset += size
            left -= size
        del rest[:offset]
    if rest or left:
        raise CorruptEvent("a compressed transaction holds less than it says, or ends within an event")


def _read_header(start: bytes) -> dict[int, int]:
    """Read the fields in front of the payload: type, length and value of each, closed by a zero.

    Return their values; that of the closing one is where the payload begins.
    """
    offset = 0
    fields: dict[int, int] = {}
    try:
        while True:
            field, offset = read_length(start, offset)
            if field == _END:
                return {**fields, _END: offset}
            size, offset = read_length(start, offset)
            fields[field], _ = read_length(start, offset)
            offset += size
    except IndexError as error:
        raise CorruptEvent("the header of a compressed transaction is cut") from error
