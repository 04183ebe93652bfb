"""Damage to bytes and to events, by chance but repeatable: everything comes from one seeded source of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from zlib import crc32

import zstandard
from tests.unit.core.binlog_bytes import integer
from tests.unit.core.recordings import HISTORIES, History, cut

HEADER, CHECKSUM = 19, 4
PAYLOAD = 40

EXTREMES = (0, 1, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF, 0x7FFF, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1)

TYPES = (*range(43), 99, 160, 255)
"""Those there are, one behind them, a MariaDB's, and the last there can be."""

Damage = Callable[[Random, bytes], bytes]


def set_byte(chance: Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes((chance.randrange(256),)) + data[at + 1 :]


def flip_bit(chance: Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << chance.randrange(8),)) + data[at + 1 :]


def set_number(chance: Random, data: bytes) -> bytes:
    """Write a number at the edge of something, as lengths and counts are numbers."""
    width = chance.choice((1, 2, 3, 4, 6, 8))
    at = chance.randrange(len(data))
    return data[:at] + integer(chance.choice(EXTREMES) & (1 << 8 * width) - 1, width) + data[at + width :]


def cut_end(chance: Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data))]


def leave_out(chance: Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.randint(1, 16) :]


def double(chance: Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at : at + chance.randint(1, 40)] * chance.choice((2, 2, 2, 50)) + data[at:]


def insert_noise(chance: Random, data: bytes) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + chance.randbytes(chance.randint(1, 12)) + data[at:]


DAMAGES: Sequence[Damage] = (set_byte, flip_bit, set_number, set_number, cut_end, leave_out, double, insert_noise)


def damaged(chance: Random, data: bytes) -> bytes:
    """Damage bytes in one to three places."""
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if data:
            data = chance.choice(DAMAGES)(chance, data)
    return data


def damaged_event(chance: Random, event: bytes, *, checksums: bool) -> bytes:
    """Damage an event; mostly its body, with length and checksum made right again, so that it gets far."""
    end = len(event) - CHECKSUM if checksums else len(event)
    head, body = event[:HEADER], event[HEADER:end]
    what = chance.randrange(20)
    if what == 0:
        return damaged(chance, event)
    if what == 1:
        head = head[:4] + bytes((chance.choice(TYPES),)) + head[5:]
    elif what == 2:
        head = damaged(chance, head).ljust(HEADER, b"\0")[:HEADER]
    elif event[4] == PAYLOAD and chance.randrange(4):
        body = damaged_payload(chance, body)
    else:
        body = damaged(chance, body)
    return sealed(head, body, checksums=checksums)


def sealed(head: bytes, body: bytes, *, checksums: bool) -> bytes:
    """Put an event together with the length and the checksum that it should have."""
    size = len(head) + len(body) + (CHECKSUM if checksums else 0)
    content = head[:9] + integer(size, 4) + head[13:] + body
    return content + integer(crc32(content), CHECKSUM) if checksums else content


def damaged_payload(chance: Random, body: bytes) -> bytes:
    """Damage events inside a compressed transaction, and pack them again with right sizes."""
    start = body.index(zstandard.FRAME_HEADER) if zstandard.FRAME_HEADER in body else 0
    if not start:
        return damaged(chance, body)
    inner = list(cut(zstandard.ZstdDecompressor().decompressobj().decompress(body[start:])))
    at = chance.randrange(len(inner))
    inner[at] = damaged_event(chance, inner[at], checksums=False)
    content = b"".join(rearranged(chance, inner))
    return packed(zstandard.ZstdCompressor().compress(content), len(content))


def packed(compressed: bytes, claimed: int) -> bytes:
    """The body of an event that holds this, and claims so many bytes of events in it."""
    sizes = b"\3\x09\xfe" + integer(claimed, 8) + b"\1\x09\xfe" + integer(len(compressed), 8)
    return b"\2\1\0" + sizes + b"\0" + compressed


def rearranged(chance: Random, events: Sequence[bytes]) -> list[bytes]:
    """Lose, repeat or move an event now and then."""
    result = list(events)
    if chance.randrange(6) or not result:
        return result
    at, other = chance.randrange(len(result)), chance.randrange(len(result))
    match chance.randrange(4):
        case 0:
            del result[at]
        case 1:
            result.insert(other, result[at])
        case 2:
            result[at], result[other] = result[other], result[at]
        case 3:
            result[other:other] = result[at : at + 3]
    return result


def damaged_dump(chance: Random, histories: Sequence[History] = HISTORIES) -> list[bytes]:
    """A few transactions of one history, some of their events damaged."""
    history = chance.choice(histories)
    first = chance.randrange(len(history.stretches))
    events = [event for stretch in history.stretches[first : first + chance.randint(1, 2)] for event in stretch]
    if not chance.randrange(10):
        events = [*history.head[2:], *events]
    count = min(len(events), chance.choice((1, 1, 2, 3)))
    for at in chance.sample(range(len(events)), count):
        events[at] = damaged_event(chance, events[at], checksums=history.checksums)
    if not chance.randrange(20):
        stranger = chance.choice(chance.choice(chance.choice(histories).stretches))
        events.insert(chance.randrange(len(events) + 1), stranger)
    return [*history.head[:2], *rearranged(chance, events)]
