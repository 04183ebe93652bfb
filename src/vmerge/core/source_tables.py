"""What one dump has said of its tables: which number means which table, and how rows of it begin.

Knows: table maps met so far, the prefixes of rows events, and which tables are carried how. Never knows: transactions.
Used by ``core/binlog.py`` and ``core/usual.py``, which read the same tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from vmerge.core.event_types import ROWS_KINDS
from vmerge.core.events import TableMap
from vmerge.core.projection import Carried
from vmerge.core.rows_shapes import Prefix, ProjectedPrefix, TableEntry
from vmerge.core.table_map import read_table_map

NUMBER_BYTES = 6
"""A table's number, with which table maps and rows events begin."""

NUMBER_AT = 19
KEY_END = 31
"""A rows event's number, flags, and enough behind them to tell the partitions of a table apart."""

_Prefix = TypeVar("_Prefix", Prefix, ProjectedPrefix)

_MANY_TABLE_MAPS = 10_000
"""Kept at most: a source with more tables than it can keep open gives them new numbers all the time."""

_MANY_PREFIXES = 1000
"""Kept at most of one kind: some for each partition; with version 1 a row's first bytes may count as well."""


class SourceTables:
    """The tables of one dump. Owner: the decoder that made it.

    Invariants: the number of ``last_map`` means its entry; whatever prefix is kept belongs to the table that its number
    means now.
    """

    __slots__ = ("_carriage", "_projected", "entries", "last_map", "numbers", "prefixes")

    def __init__(self, carriage: Callable[[TableMap], Carried | None]) -> None:
        self._carriage = carriage
        self.entries: dict[bytes, TableEntry] = {}
        """By a table map's body, and by the same without its number."""
        self.numbers: dict[bytes, TableEntry] = {}
        self.last_map = b""
        """The last table map's body."""
        self.prefixes: dict[int, dict[bytes, Prefix]] = {kind: {} for kind in ROWS_KINDS}
        """By a rows event's type, and its bytes from ``NUMBER_AT`` to ``KEY_END``. Only of tables that are wanted as
        they are: with these the fast lane has no other work."""
        self._projected: dict[int, dict[bytes, ProjectedPrefix]] = {kind: {} for kind in ROWS_KINDS}

    def take_map(self, body: bytes) -> None:
        """Learn what a table map says, given without header and checksum."""
        if body == self.last_map:
            return
        number = body[:NUMBER_BYTES]
        entry = self.entries.get(body) or self._new_entry(body)
        known = self.numbers.get(number)
        if known is not entry:
            self.numbers[number] = entry
            if known is not None:
                self._forget_prefixes()
        self.last_map = body

    def _new_entry(self, body: bytes) -> TableEntry:
        """Make an entry, or find the one for the same table in the same shape under an earlier number."""
        entry = self.entries.get(body[NUMBER_BYTES:])
        if entry is None:
            table = read_table_map(body)
            entry = self.entries[body[NUMBER_BYTES:]] = TableEntry(table, self._carriage(table))
        self.entries[body] = entry
        return entry

    def prefix_of(self, event: bytes) -> Prefix | ProjectedPrefix | None:
        """Return how a rows event begins, up to its row images; None when its rows are not wanted.

        Raises:
            KeyError: no table map has named its table.
            CorruptEvent, UnsupportedEvent: see ``TableEntry.read_prefix``.
        """
        kind, key = event[4], event[NUMBER_AT:KEY_END]
        known = self.prefixes[kind].get(key) or self._projected[kind].get(key)
        if known is not None and event.startswith(known.rest, KEY_END):
            return known
        entry = self.numbers[event[NUMBER_AT : NUMBER_AT + NUMBER_BYTES]]
        if entry.carried is None:
            return None
        prefix = entry.read_prefix(entry.carried, event, KEY_END)
        if isinstance(prefix, ProjectedPrefix):
            _keep(self._projected[kind], key, prefix)
        else:
            _keep(self.prefixes[kind], key, prefix)
        return prefix

    def forget_numbers(self) -> None:
        """Forget which number is which table: numbers begin anew in a file that follows a crash."""
        self.numbers.clear()
        self.last_map = b""
        self._forget_prefixes()

    def forget_if_many(self) -> None:
        """Stay bounded; called between transactions."""
        if len(self.entries) > _MANY_TABLE_MAPS:
            self.forget_numbers()
            self.entries.clear()

    def _forget_prefixes(self) -> None:
        for kind in ROWS_KINDS:
            self.prefixes[kind].clear()
            self._projected[kind].clear()


def _keep(prefixes: dict[bytes, _Prefix], key: bytes, prefix: _Prefix) -> None:
    if len(prefixes) >= _MANY_PREFIXES:
        prefixes.clear()
    prefixes[key] = prefix
