"""Positions: which of a source's transactions are meant, as one GTID or as a set of GTIDs.

Knows: the texts and the binary encodings in which MySQL writes GTID sets, tags (MySQL 8.3) included, and the
algebra of such sets. Never knows: servers, streams, or which of the four positions (received, applied, head,
stop) a set is. Used by ``core/binlog.py``, by the drivers, by the player and by whatever shows a position.

The MySQL facts here were read in its source (``sql/rpl_gtid_set.cc``; ``libs/mysql/gtid`` of 8.4 and
``libs/mysql/gtids/strconv`` of 9.x; ``libs/mysql/serialization``) and compared with a 9.7.4 server.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

LAST_NUMBER = 2**63 - 2
"""The greatest transaction number; ``GNO_END`` in MySQL, which is 2^63-1, is one past it."""

_SourceTag = tuple[bytes, str]
_Interval = tuple[int, int]  # half-open, as in the binary encoding
_Intervals = tuple[_Interval, ...]  # sorted, disjoint, never touching

_BLANKS = " \t\n\v\f\r"
_UUID = re.compile(
    r"[0-9a-f]{32}|(\{)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?(1)\})",
    re.IGNORECASE | re.ASCII,
)
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}", re.IGNORECASE | re.ASCII)
# No leading zero: 010 is 8 for servers that read numbers with strtoll in base 0 (8.4), and 10 for 9.7.
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
_INTEGER = struct.Struct("<Q")
_INTERVAL = struct.Struct("<QQ")
_UNTAGGED, _TAGGED = 0, 1  # Gtid_format
_start_of, _end_of = itemgetter(0), itemgetter(1)


class Gtid(NamedTuple):
    """The name of one source transaction.

    A NamedTuple, because one is made per source transaction on the hot path: a frozen dataclass takes nearly
    twice as long to make and cannot be unpacked.
    """

    source: bytes
    """The 16 bytes of the uuid of the server that first committed the transaction."""
    tag: str
    """Lower case; empty when the GTID has none."""
    number: int

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{_uuid_text(self.source)}{tag}:{self.number}"

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Read ``uuid:number`` or ``uuid:tag:number``; ValueError names what is wrong with it."""
        parts = [part.strip(_BLANKS) for part in text.split(":")]
        if len(parts) not in (2, 3):
            raise ValueError(f"GTID {text[:80]!r}: expected uuid:number or uuid:tag:number")
        tag = parts[1] if len(parts) == 3 else ""
        if len(parts) == 3 and not _TAG.fullmatch(tag):
            raise ValueError(f"GTID {text[:80]!r}: {tag[:80]!r} is not a tag")
        return cls(_parse_uuid(parts[0]), tag.lower(), _parse_number(parts[-1]))


@dataclass(frozen=True, slots=True, repr=False)
class GtidSet:
    """An immutable set of GTIDs; two are equal exactly if their canonical texts are.

    Made by ``parse``, ``decode``, ``advanced`` and the set operations; ``GtidSet()`` is the empty set.
    Invariant: every pair (source, tag) in the mapping has at least one interval; its intervals are sorted,
    disjoint, not touching, and within 1 .. ``LAST_NUMBER``. The mapping is never changed after construction.
    """

    _intervals: Mapping[_SourceTag, _Intervals] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Read a GTID set in any form MySQL prints, and nearly all that it accepts.

        Accepted as in MySQL 9.7: blanks and newlines between tokens, upper case, uuids in braces or without
        dashes, repeated uuids, pieces between commas that are empty or a uuid without numbers, unsorted,
        touching and overlapping intervals. A tag holds for what follows it up to the next tag or comma.

        Raises ValueError, naming the bad piece; also for ``5-3``, which MySQL silently reads as nothing, and
        for leading zeros, which its versions read differently: nobody means these, and a position that lacks
        transactions without a word would apply them twice.
        """
        collected: defaultdict[_SourceTag, list[_Interval]] = defaultdict(list)
        for piece in text.split(","):
            if piece.strip(_BLANKS):
                _parse_piece(piece, collected)
        return _normalized(collected)

    @classmethod
    def decode(cls, encoded: bytes) -> GtidSet:
        """Read the body of a Previous_gtids event (without its checksum), either format.

        Raises ValueError for whatever MySQL calls a malformed encoding, trailing bytes included.
        """
        _require(encoded, 0, 8)
        (header,) = _INTEGER.unpack_from(encoded)
        tagged, pair_count = header >> 56 == _TAGGED, header & (2**56 - 1)
        if header >> 56 not in (_UNTAGGED, _TAGGED) or (tagged and header & 0xFF != _TAGGED):
            raise ValueError(f"encoded GTID set: unknown format {header >> 56} in header {header:#x}")
        if tagged:
            pair_count >>= 8
        collected: defaultdict[_SourceTag, list[_Interval]] = defaultdict(list)
        offset = 8
        for _ in range(pair_count):
            source_tag, offset = _decode_source_tag(encoded, offset, tagged=tagged)
            intervals, offset = _decode_intervals(encoded, offset)
            collected[source_tag].extend(intervals)
        if offset != len(encoded):
            raise ValueError(f"encoded GTID set: {len(encoded) - offset} bytes after its end")
        return _normalized(collected)

    def encode(self) -> bytes:
        """Return the bytes that COM_BINLOG_DUMP_GTID wants, equal to ``Gtid_set::encode``.

        Integers are little-endian, 8 bytes. The header counts pairs (source, tag); in the tagged format it is
        1, six bytes of count, 1. A pair is its uuid, in the tagged format its tag, the number of intervals,
        and per interval the first number and the one after the last. Servers before 8.3 know only the other
        format, so without a tag we write that one. (A server that has seen a tag since its start writes sets
        without tags in the tagged format too, and reads both.)
        """
        tagged = any(tag for _, tag in self._intervals)
        count = len(self._intervals)
        chunks = [_INTEGER.pack(_TAGGED << 56 | count << 8 | _TAGGED if tagged else count)]
        for (source, tag), intervals in sorted(self._intervals.items()):
            chunks.append(source)
            if tagged:
                # A variable-length unsigned integer below 128 is one byte: its value shifted left by one.
                chunks.append(bytes((len(tag) << 1,)) + tag.encode("ascii"))
            chunks.append(_INTEGER.pack(len(intervals)))
            chunks.extend(_INTERVAL.pack(start, end) for start, end in intervals)
        return b"".join(chunks)

    def __str__(self) -> str:
        """Return MySQL's canonical text, on one line: with only a comma between uuids."""
        texts: list[str] = []
        previous_source = None
        for (source, tag), intervals in sorted(self._intervals.items()):
            if source != previous_source:
                texts.append(("," if texts else "") + _uuid_text(source))
                previous_source = source
            if tag:
                texts.append(f":{tag}")
            texts.extend(f":{a}" if b == a + 1 else f":{a}-{b - 1}" for a, b in intervals)
        return "".join(texts)

    def __repr__(self) -> str:
        return f"GtidSet.parse({str(self)!r})"

    def __hash__(self) -> int:
        return hash(frozenset(self._intervals.items()))

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def is_empty(self) -> bool:
        """Tell whether the set holds no GTID."""
        return not self._intervals

    @property
    def sources(self) -> frozenset[bytes]:
        """The uuids, 16 bytes each, that the set has transactions of."""
        return frozenset(source for source, _ in self._intervals)

    def count(self) -> int:
        """Return how many GTIDs the set holds."""
        return sum(end - start for intervals in self._intervals.values() for start, end in intervals)

    def contains(self, gtid: Gtid) -> bool:
        """Tell whether one GTID is in the set."""
        intervals = self._intervals.get((gtid.source, gtid.tag), ())
        return _covers(intervals, (gtid.number, gtid.number + 1))

    def includes(self, other: GtidSet) -> bool:
        """Tell whether every GTID of the other set is in this one."""
        return all(
            _covers(self._intervals.get(source_tag, ()), interval)
            for source_tag, intervals in other._intervals.items()
            for interval in intervals
        )

    def union(self, other: GtidSet) -> GtidSet:
        """Return the GTIDs that are in either set."""
        left, right = self._intervals, other._intervals
        return _normalized({key: left.get(key, ()) + right.get(key, ()) for key in left.keys() | right.keys()})

    def subtract(self, other: GtidSet) -> GtidSet:
        """Return the GTIDs of this set that are not in the other."""
        left, right = self._intervals, other._intervals
        return _normalized({key: _difference(left[key], right.get(key, ())) for key in left})

    def intersection(self, other: GtidSet) -> GtidSet:
        """Return the GTIDs that are in both sets."""
        return self.subtract(self.subtract(other))

    def advanced(self, gtids: Sequence[Gtid]) -> GtidSet:
        """Return the set with these GTIDs added; quick when they count up without gaps.

        Raises ValueError if one of them is in the set already or twice in the sequence (the source sent a
        transaction twice), or if its number is out of range.
        """
        # Hot path: one pass per batch that makes no object per GTID while the numbers count up.
        runs: defaultdict[_SourceTag, list[_Interval]] = defaultdict(list)
        source, tag, start, end = b"", "", 0, 0
        for gtid_source, gtid_tag, number in gtids:
            if number == end and gtid_source == source and gtid_tag == tag:
                end += 1
                continue
            if start != end:
                runs[source, tag].append((start, end))
            source, tag, start, end = gtid_source, gtid_tag, number, number + 1
        if start != end:
            runs[source, tag].append((start, end))
        advanced = dict(self._intervals)
        for source_tag, added in runs.items():
            advanced[source_tag] = _extended(source_tag, advanced.get(source_tag, ()), added)
        return GtidSet(advanced)


def _normalized(collected: Mapping[_SourceTag, Iterable[_Interval]]) -> GtidSet:
    """Make a set from intervals in any order, which may touch or overlap."""
    merged = {source_tag: _merged(sorted(intervals)) for source_tag, intervals in collected.items()}
    return GtidSet({source_tag: intervals for source_tag, intervals in merged.items() if intervals})


def _merged(ordered: Iterable[_Interval]) -> _Intervals:
    """Join sorted intervals that touch or overlap."""
    result: list[_Interval] = []
    for start, end in ordered:
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return tuple(result)


def _covers(intervals: _Intervals, wanted: _Interval) -> bool:
    """Tell whether one of the intervals holds all of the wanted one; touching intervals do not occur."""
    index = bisect_right(intervals, wanted[0], key=_start_of) - 1
    return index >= 0 and wanted[1] <= intervals[index][1]


def _difference(intervals: _Intervals, removed: _Intervals) -> _Intervals:
    result: list[_Interval] = []
    index = 0
    for start, end in intervals:
        rest = start
        while index < len(removed) and removed[index][0] < end:
            removed_start, removed_end = removed[index]
            if removed_start > rest:
                result.append((rest, removed_start))
            rest = max(rest, removed_end)
            if removed_end > end:
                break  # it may cut the next interval as well
            index += 1
        if rest < end:
            result.append((rest, end))
    return tuple(result)


def _extended(source_tag: _SourceTag, intervals: _Intervals, added: list[_Interval]) -> _Intervals:
    """Add intervals that must be new; ValueError if not.

    What ends before the first added interval is kept as it is, so a long history of gaps costs little.
    """
    kept = bisect_left(intervals, min(added)[0], key=_end_of)
    ordered = sorted((*intervals[kept:], *added))
    for number in (ordered[0][0], ordered[-1][1] - 1):
        if not 1 <= number <= LAST_NUMBER:
            raise ValueError(f"GTID {Gtid(*source_tag, number)}: number out of range 1 .. {LAST_NUMBER}")
    for (_, end), (start, _) in pairwise(ordered):
        if start < end:
            raise ValueError(f"GTID {Gtid(*source_tag, start)} is in the set already: it was sent twice")
    return intervals[:kept] + _merged(ordered)


def _uuid_text(source: bytes) -> str:
    digits = source.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _parse_uuid(text: str) -> bytes:
    if not _UUID.fullmatch(text):
        raise ValueError(f"GTID set: {text[:80]!r} is not a uuid like 3e11fa47-71ca-11e1-9e33-c80aa9429562")
    return bytes.fromhex(text.strip("{}").replace("-", ""))


def _parse_number(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > LAST_NUMBER:
        raise ValueError(
            f"GTID set: {text[:80]!r} is neither a tag nor a decimal number from 1 to {LAST_NUMBER} "
            "without leading zeros"
        )
    return int(text)


def _parse_piece(piece: str, collected: defaultdict[_SourceTag, list[_Interval]]) -> None:
    """Add what stands between two commas: a uuid, then tags and intervals."""
    uuid, *parts = (part.strip(_BLANKS) for part in piece.split(":"))
    source, tag = _parse_uuid(uuid), ""
    for part in parts:
        if _TAG.fullmatch(part):
            tag = part.lower()
            continue
        first_text, dash, last_text = part.partition("-")
        first = _parse_number(first_text.rstrip(_BLANKS))
        last = _parse_number(last_text.lstrip(_BLANKS)) if dash else first
        if last < first:
            raise ValueError(f"GTID set: interval {part!r} ends before it starts")
        collected[source, tag].append((first, last + 1))


def _require(encoded: bytes, offset: int, length: int) -> None:
    if len(encoded) - offset < length:
        raise ValueError(f"encoded GTID set: {length} bytes expected at {offset}, {len(encoded) - offset} there")


def _decode_source_tag(encoded: bytes, offset: int, *, tagged: bool) -> tuple[_SourceTag, int]:
    _require(encoded, offset, 16)
    source, offset = encoded[offset : offset + 16], offset + 16
    if not tagged:
        return (source, ""), offset
    _require(encoded, offset, 1)
    if encoded[offset] & 1 or encoded[offset] > 32 << 1:  # an odd first byte begins a longer integer
        raise ValueError(f"encoded GTID set: tag longer than 32 characters at {offset}")
    length, offset = encoded[offset] >> 1, offset + 1
    _require(encoded, offset, length)
    tag = encoded[offset : offset + length].decode("latin-1")
    if tag and not _TAG.fullmatch(tag):
        raise ValueError(f"encoded GTID set: {tag!r} at {offset} is not a tag")
    return (source, tag.lower()), offset + length


def _decode_intervals(encoded: bytes, offset: int) -> tuple[list[_Interval], int]:
    _require(encoded, offset, 8)
    (count,), offset = _INTEGER.unpack_from(encoded, offset), offset + 8
    _require(encoded, offset, count * _INTERVAL.size)
    stop = offset + count * _INTERVAL.size
    intervals = [(start, end) for start, end in _INTERVAL.iter_unpack(encoded[offset:stop])]
    previous_end = 0
    for start, end in intervals:
        if start <= previous_end or end <= start or end - 1 > LAST_NUMBER:
            raise ValueError(f"encoded GTID set: interval {start}-{end - 1} is empty, out of order or range")
        previous_end = end
    return intervals, stop
