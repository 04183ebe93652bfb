"""Which columns of a target keep every value of a source's column, though they differ.

Knows: what each type can hold. Never knows: table maps, or how rows are sent. Used by ``core/appliers.py``: such tables
are served by the statements applier, which writes values; the events applier needs columns that are equal.

Names and order must agree. A column may be a number with more room, a longer text or byte string, a DECIMAL with more
digits on both sides, a time with more fractional digits, an ENUM or SET with labels appended, a text in a character set
that has all of the source's characters, and nullable. Everything else is told, as it may change or refuse a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmerge.core.schema import Column, TableSchema, column_differences, name_differences

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_TEXT_BYTES = {
    "tinytext": 0xFF,
    "text": 0xFFFF,
    "mediumtext": 0xFFFFFF,
    "longtext": 0xFFFFFFFF,
}
_BLOB_BYTES = {
    "tinyblob": 0xFF,
    "blob": 0xFFFF,
    "mediumblob": 0xFFFFFF,
    "longblob": 0xFFFFFFFF,
}
_CHARACTERS = frozenset({"char", "varchar"})
_TIMES = frozenset({"time", "datetime", "timestamp"})
_LABELLED = frozenset({"enum", "set"})

_GROWTH = {("ascii", "latin1"): 1, ("ascii", "utf8mb4"): 1, ("utf8mb3", "utf8mb4"): 1, ("latin1", "utf8mb4"): 3}
"""Character sets and those that have all their characters → how many bytes one of theirs may become at most.

Nothing widens to utf8mb3: it is deprecated, and the server warns at every conversion to it."""

_CHARACTER_BYTES = {"ascii": 1, "latin1": 1, "utf8mb3": 3, "utf8mb4": 4}
_ARGUMENTS = re.compile(r"\((\d+)(?:,(\d+))?\)")


def losses(source: TableSchema, target: TableSchema) -> tuple[str, ...]:
    """Say how the target's columns may change the source's values: a sentence each, nothing when they keep all."""
    found = tuple(name_differences(source, target))
    if found:
        return found
    pairs = zip(source.columns, target.columns, strict=True)
    return tuple(text for ours, theirs in pairs for text in _column_losses(ours, theirs))


def _column_losses(source: Column, target: Column) -> Iterator[str]:
    different = tuple(column_differences(source, target))
    if not different:
        return
    if source.generated is not None or target.generated is not None:
        if source.generated != target.generated:
            yield from different
        return
    if source.nullable and not target.nullable:
        yield f"column `{source.name}`: may be NULL at the source, NOT NULL on the target"
    if not _keeps(source, target):
        yield from (text for text in different if "NULL at the source" not in text)


def _keeps(source: Column, target: Column) -> bool:
    """Whether the target's column takes every value of the source's, but for NULL."""
    if source.srid != target.srid:
        return False
    ours, theirs = source.family, target.family
    if ours in _INTEGER_BITS and theirs in _INTEGER_BITS:
        return _holds_integers(source, target)
    if _is_text(source) and _is_text(target):
        return _holds_texts(source, target)
    if _is_bytes(source) and _is_bytes(target):
        return (target.octet_length or 0) >= (source.octet_length or 0)
    if (ours, theirs) == ("float", "double"):
        return source.is_unsigned >= target.is_unsigned and not _ARGUMENTS.search(source.type_text + target.type_text)
    if ours != theirs:
        return False
    if ours in _LABELLED:
        return target.labels[: len(source.labels)] == source.labels and _has_characters(source, target)
    if ours == "decimal":
        return _holds_decimals(source, target)
    if ours in _TIMES or ours == "bit":
        return _arguments(target)[0] >= _arguments(source)[0]
    return source.type_text == target.type_text and source.collation == target.collation


def _holds_integers(source: Column, target: Column) -> bool:
    (least, greatest), (floor, ceiling) = _range(source), _range(target)
    return floor <= least and greatest <= ceiling


def _range(column: Column) -> tuple[int, int]:
    bits = _INTEGER_BITS[column.family]
    return (0, (1 << bits) - 1) if column.is_unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _holds_decimals(source: Column, target: Column) -> bool:
    (digits, scale), (target_digits, target_scale) = _arguments(source), _arguments(target)
    has_sign = source.is_unsigned >= target.is_unsigned
    return has_sign and target_scale >= scale and target_digits - target_scale >= digits - scale


def _is_text(column: Column) -> bool:
    return column.family in _CHARACTERS or column.family in _TEXT_BYTES


def _is_bytes(column: Column) -> bool:
    """BINARY is none of these: what is shorter than the column is another value in a longer one."""
    return column.family == "varbinary" or column.family in _BLOB_BYTES


def _has_characters(source: Column, target: Column) -> bool:
    if source.charset == target.charset:
        return source.collation == target.collation
    return (source.charset, target.charset) in _GROWTH


def _holds_texts(source: Column, target: Column) -> bool:
    """CHAR loses blanks at the end, so only a CHAR fits one."""
    if not _has_characters(source, target) or (target.family == "char" and source.family != "char"):
        return False
    if source.family in _CHARACTERS and target.family in _CHARACTERS:
        return _arguments(target)[0] >= _arguments(source)[0]
    if target.family in _CHARACTERS:
        return False
    if source.family in _CHARACTERS and target.charset in _CHARACTER_BYTES:
        return _TEXT_BYTES[target.family] >= _arguments(source)[0] * _CHARACTER_BYTES[target.charset]
    growth = _GROWTH.get((source.charset or "", target.charset or ""), 1)
    return _TEXT_BYTES[target.family] >= (source.octet_length or 0) * growth


def _arguments(column: Column) -> tuple[int, int]:
    match = _ARGUMENTS.search(column.type_text)
    return (int(match[1]), int(match[2] or 0)) if match is not None else (0, 0)
