"""Query events: bytes to a statement and its database.

Knows: the event's layout, and the character sets in which clients send statements. Never knows: what a statement does
beyond its first words. Used by ``core/binlog.py``. Source: mysql::binlog::event::Query_event.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from vmerge.core.event_types import HEADER_LENGTH
from vmerge.errors import CorruptEvent

FIXED_PART = Struct("<8xBxxH")
"""Thread and seconds (skipped), length of the database's name, error (skipped), length of the status variables."""

FIXED_BYTES = 13

_CHARSET = 4
_STATUS_WIDTHS = {0: 4, 1: 8, 3: 4}
"""The status variables of fixed size that may stand in front of the character set: flags, sql_mode, auto_increment."""
_STATUS_TEXTS = frozenset({2, 6})
"""Those that are a text behind its length in one byte: the catalog, old (with a zero at its end) and new."""

_CREATE_WITH_ROWS = re.compile(rb"\s*CREATE\s.*\sSTART\s+TRANSACTION\s*$", re.IGNORECASE | re.DOTALL)

_FIRST_WORD = re.compile(rb"\s*([A-Za-z]{1,20})")

# Numbers of collations by character set, in Python's name. In these sets ASCII text is itself.
_CODECS = {
    number: codec
    for codec, numbers in {
        "utf-8": (33, 45, 46, 76, 83, *range(192, 248), 255, *range(256, 324)),
        "cp1252": (5, 8, 15, 31, 47, 48, 49, 94),
        "ascii": (11, 63, 65),
        "iso8859-2": (2, 9, 21, 27, 77),
        "iso8859-9": (30, 78),
        "iso8859-13": (20, 41, 42, 79),
        "iso8859-7": (25, 70),
        "iso8859-8": (16, 71),
        "tis-620": (18, 89),
        "koi8-r": (7, 74),
        "koi8-u": (22, 75),
        "cp850": (4, 80),
        "cp852": (40, 81),
        "cp866": (36, 68),
        "cp1250": (26, 34, 44, 66, 99),
        "cp1251": (14, 23, 50, 51, 52),
        "cp1256": (57, 67),
        "cp1257": (29, 58, 59),
        "big5": (1, 84),
        "gb2312": (24, 86),
        "gbk": (28, 87),
        "gb18030": (248, 249, 250),
        "euc-jp": (12, 91, 97, 98),
        "euc-kr": (19, 85),
        "shift-jis": (13, 88),
        "cp932": (95, 96),
    }.items()
    for number in numbers
}


class Query(NamedTuple):
    """One statement as its session sent it."""

    database: str
    statement: bytes
    collation_id: int | None
    """Of the client's character set; None when the event does not say."""

    @property
    def creates_with_rows(self) -> bool:
        """Whether this is CREATE TABLE … SELECT: the rows follow in the same transaction."""
        return _CREATE_WITH_ROWS.match(self.statement) is not None

    @property
    def text(self) -> str:
        """The statement as text. One that cannot be read begins with a question mark, which no statement does."""
        if self.statement.isascii():
            return self.statement.decode("ascii")
        try:
            return self.statement.decode(_CODECS.get(self.collation_id or 0, "ascii"))
        except UnicodeDecodeError:
            return "? " + self.statement.decode("ascii", "backslashreplace")

    @property
    def first_word(self) -> str:
        """The letters in front, in upper case; what follows may hold row values. A question mark if there are none."""
        match = _FIRST_WORD.match(self.statement)
        return match[1].decode("ascii").upper() if match is not None else "?"


def read_query(event: bytes, end: int | None) -> Query:
    """Read a query event whose content ends at ``end``.

    Raises:
        CorruptEvent: its parts are longer than it is.
    """
    name_length, status_length = FIXED_PART.unpack_from(event, HEADER_LENGTH)
    start = HEADER_LENGTH + FIXED_BYTES
    name_start = start + status_length
    name_end = name_start + name_length
    content = event[:end]
    if name_end >= len(content) or content[name_end] != 0:
        raise CorruptEvent("the parts of a statement's event contradict each other")
    database = content[name_start:name_end].decode("utf-8", "backslashreplace")
    return Query(database, content[name_end + 1 :], _client_collation(content[start:name_start]))


def _client_collation(status: bytes) -> int | None:
    """Find the client's character set among the status variables; those behind it may be unknown ones."""
    offset = 0
    while offset < len(status):
        code = status[offset]
        if code == _CHARSET:
            return int.from_bytes(status[offset + 1 : offset + 3], "little")
        if code in _STATUS_TEXTS:
            offset += 2 + status[offset + 1] + (1 if code == 2 else 0)
        elif code in _STATUS_WIDTHS:
            offset += 1 + _STATUS_WIDTHS[code]
        else:
            return None
    return None
