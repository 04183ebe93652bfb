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

_FLAGS = 0
_SQL_MODE = 1
_CHARSET = 4
_TIME_ZONE = 5
_EXPLICIT_DEFAULTS = 16
_UPDATED_DATABASES = 12
_DDL_XID = 17
_STATUS_WIDTHS = {
    0: 4,  # flags
    1: 8,  # sql_mode
    3: 4,  # auto_increment's increment and offset
    _CHARSET: 6,
    7: 2,  # lc_time_names
    8: 2,  # the database's collation
    9: 8,  # tables for update
    10: 4,  # length in the origin's binlog
    13: 3,  # microseconds
    16: 1,  # explicit_defaults_for_timestamp
    _DDL_XID: 8,
    18: 2,  # the default collation for utf8mb4
    19: 1,  # sql_require_primary_key
    20: 1,  # default_table_encryption
    21: 1,  # in statements that change rows (measured with 9.7.4)
}
"""The status variables of fixed size."""
_STATUS_TEXTS = {2: 1, 5: 1, 6: 1, 11: 2}
"""Those that are so many texts, each behind its length in one byte: catalog (old), time zone, catalog, definer."""
_TERMINATED = 2
"""The old catalog has a zero at its end."""
_TOO_MANY_DATABASES = 254

_NO_FOREIGN_KEY_CHECKS = 1 << 26
"""OPTION_NO_FOREIGN_KEY_CHECKS among the flags."""

_THREAD_SPECIFIC_FLAG = 0x04
"""LOG_EVENT_THREAD_SPECIFIC_F, in an event's header."""

_CREATE_WITH_ROWS = re.compile(rb"\s*CREATE\s.*\sSTART\s+TRANSACTION\s*$", re.IGNORECASE | re.DOTALL)

_DROP_IF_EXISTS = re.compile(rb"\s*DROP\s+(TABLES?|DATABASE|SCHEMA)\s+IF\s+EXISTS\s", re.IGNORECASE)

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
    session: tuple[tuple[str, int | str], ...] = ()
    """Session variables that the statement ran under, as far as the event tells, by their names."""
    drops_nothing: bool = False
    """Whether this is a DROP … IF EXISTS that found nothing to drop, as far as engines with transactions go."""

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
    status, is_whole = _read_status(content[start:name_start])
    statement = content[name_end + 1 :]
    charset = status.get(_CHARSET)
    collation_id = None if charset is None else int.from_bytes(charset[:2], "little")
    is_idle = is_whole and _DDL_XID not in status and _may_drop_nothing(event, statement)
    return Query(database, statement, collation_id, _session(status), is_idle)


def _session(status: dict[int, bytes]) -> tuple[tuple[str, int | str], ...]:
    """Return what of the status variables a schema change may depend on."""
    found: list[tuple[str, int | str]] = []
    if _FLAGS in status:
        found.append(("foreign_key_checks", int(not int.from_bytes(status[_FLAGS], "little") & _NO_FOREIGN_KEY_CHECKS)))
    if _SQL_MODE in status:
        found.append(("sql_mode", int.from_bytes(status[_SQL_MODE], "little")))
    if _CHARSET in status:
        found.append(("collation_connection", int.from_bytes(status[_CHARSET][2:4], "little")))
    if _TIME_ZONE in status:
        found.append(("time_zone", status[_TIME_ZONE][1:].decode("utf-8", "backslashreplace")))
    if _EXPLICIT_DEFAULTS in status:
        found.append(("explicit_defaults_for_timestamp", status[_EXPLICIT_DEFAULTS][0]))
    return tuple(found)


def _may_drop_nothing(event: bytes, statement: bytes) -> bool:
    """Whether a statement that InnoDB had no part in is a DROP … IF EXISTS which the server marked as without effect.

    The dictionary's changes are transactions of InnoDB, and the event of each names its number (DDL xid). Without one,
    no table of InnoDB and no database was dropped (measured with 9.7.4). A table of another engine may have been; its
    rows are carried by no stream. Nearly all of those show by the flag, which says that only the session is concerned.
    """
    match = _DROP_IF_EXISTS.match(statement)
    if match is None:
        return False
    flags = int.from_bytes(event[17:19], "little")
    return bool(flags & _THREAD_SPECIFIC_FLAG) or not match[1].upper().startswith(b"TABLE")


def _read_status(status: bytes) -> tuple[dict[int, bytes], bool]:
    """Return the status variables by their codes, up to the first unknown one, and whether there was none."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset < len(status):
        code = status[offset]
        try:
            end = _end_of_variable(status, code, offset + 1)
        except LookupError:
            return found, False
        found[code] = status[offset + 1 : end]
        offset = end
    return found, offset == len(status)


def _end_of_variable(status: bytes, code: int, offset: int) -> int:
    """Return where the value ends that begins at ``offset``; LookupError when that is not known."""
    if code in _STATUS_TEXTS:
        for _ in range(_STATUS_TEXTS[code]):
            offset += 1 + status[offset]
        return offset + (1 if code == _TERMINATED else 0)
    if code != _UPDATED_DATABASES:
        return offset + _STATUS_WIDTHS[code]
    count = status[offset]
    if count == _TOO_MANY_DATABASES:
        return offset + 1
    names = status[offset + 1 :].split(b"\0", count)
    return offset + 1 + sum(len(name) + 1 for name in names[:count])
