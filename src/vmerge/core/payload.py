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

_END, _SIZE, _COMPRESSION = 0, 1, 2
_ZSTD, _UNCOMPRESSED = 0, 255


def split_events(body: bytes, decompress: Callable[[bytes], Iterable[bytes]]) -> Iterator[bytes]:
    """Yield the events inside a payload event's body, whole and one by one; they have no checksums.

    The uncompressed bytes are never held together: memory stays bounded by the largest event inside.

    Raises:
        CorruptEvent: the payload is cut, or an event inside it is.
        UnsupportedEvent: a compression this version does not know.
    """
    compression, compressed = _read_header(body)
    if compression not in (_ZSTD, _UNCOMPRESSED):
        raise UnsupportedEvent(f"a transaction is compressed with method {compression}, which is not known here")
    pieces = decompress(compressed) if compression == _ZSTD else (compressed,)
    rest = bytearray()
    for piece in pieces:
        rest += piece
        offset = 0
        while len(rest) - offset >= HEADER_LENGTH:
            size = int.from_bytes(rest[offset + 9 : offset + 13], "little")
            if size < HEADER_LENGTH:
                raise CorruptEvent("an event inside a compressed transaction is shorter than its header")
            if len(rest) - offset < size:
                break
            yield bytes(rest[offset : offset + size])
            offset += size
        del rest[:offset]
    if rest:
        raise CorruptEvent("a compressed transaction ends within an event")


def _read_header(body: bytes) -> tuple[int, bytes]:
    """Read the fields in front of the payload: type, length and value of each, closed by a zero."""
    offset = 0
    compression = _ZSTD
    try:
        while True:
            field, offset = read_length(body, offset)
            if field == _END:
                return compression, body[offset:]
            size, offset = read_length(body, offset)
            if field == _COMPRESSION:
                compression, _ = read_length(body, offset)
            offset += size
    except IndexError as error:
        raise CorruptEvent("the header of a compressed transaction is cut") from error
