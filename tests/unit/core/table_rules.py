"""What tests say of the tables whose rows they follow."""

from __future__ import annotations

from vmerge.core.events import TableMap


class Rules:
    """All tables alike: their primary key, whether they have foreign keys, and parents by the tables' names."""

    def __init__(self, key: tuple[int, ...] = (0,), *, has_foreign_keys: bool = False, **depths: int) -> None:
        self._key = key
        self._has_foreign_keys = has_foreign_keys
        self._depths = depths

    def key_columns(self, table_map: TableMap) -> tuple[int, ...]:
        return self._key

    def in_full(self, table_map: TableMap) -> TableMap:
        return table_map

    def has_foreign_keys(self, table_map: TableMap) -> bool:
        return self._has_foreign_keys

    def depth(self, table_map: TableMap) -> int:
        return self._depths.get(table_map.table, 0)
