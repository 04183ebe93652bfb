"""Keys with constant columns: which streams they keep apart.

Knows: the constants of table rules, and when a column may find two of them equal. Never knows: rows. Used by
``core/risk.py`` and ``core/collisions.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmerge.core.filter_collations import SORTS, folded
from vmerge.core.rules import Constant, TableRule
from vmerge.core.schema import Column, TableSchema, UniqueKey
from vmerge.core.table_checks import StreamTables


def meeting_streams(key: UniqueKey, table: TableSchema, streams: Sequence[StreamTables]) -> tuple[tuple[str, ...], ...]:
    """Return the streams whose rows can meet in a key: by the constants that they have in its columns."""
    columns = {column.name.lower(): column for column in table.columns}
    groups: dict[tuple[Constant, ...], list[str]] = {}
    for stream in streams:
        constants = constants_of(key, stream.rules.rule((table.database, table.table)))
        if None in constants.values():  # NULL meets nothing
            continue
        together = tuple(_as_compared(value, columns[name]) for name, value in constants.items())
        groups.setdefault(together, []).append(stream.name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def constants_of(key: UniqueKey, rule: TableRule | None) -> Mapping[str, Constant]:
    """Return the columns of a key that are constants under a rule, in lower case, with their values."""
    if rule is None:
        return {}
    constants = {name.lower(): value for name, value in rule.constants.items()}
    columns = [part.column.lower() for part in key.parts if part.column is not None]
    return {name: constants[name] for name in columns if name in constants}


def _as_compared(value: Constant, column: Column) -> Constant:
    """Return what is equal for constants that a column may find equal."""
    if not isinstance(value, str) or column.family == "enum" or column.charset is None:
        return value
    return value.rstrip(" ") if column.collation_id in SORTS else folded(value.encode("utf-8"))
