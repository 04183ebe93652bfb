"""Tables as servers describe them, and how two of them differ.

Knows: columns, keys, foreign keys, and which differences of columns would change a value on its way. Never knows:
how a description was read, or the binlog. ``mysql/schemas.py`` makes these; used by ``core/proof.py``,
``core/plan.py`` and ``mysql/preflight.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from vmerge.core.rules import TableName

GENERATED_KEY = "my_row_id"
"""The name of the invisible primary key that a server makes by itself."""

# Display widths and ZEROFILL say how a number is printed, not what it can be.
_DISPLAY = re.compile(r"^((?:tiny|small|medium|big)?int|year)\(\d+\)| zerofill$")
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "0": "\0"}
_SYNONYMS = {"geometrycollection": "geomcollection"}  # 5.7 and 8.0 print it differently


class GenerationKind(Enum):
    """Whether a generated column is computed when read, or kept."""

    VIRTUAL = "virtual"
    STORED = "stored"


@dataclass(frozen=True, slots=True)
class Generation:
    """How a generated column comes to its value."""

    kind: GenerationKind
    expression: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column. ``type_text`` is normal: no display width, no ZEROFILL, and ENUM and SET without their labels."""

    name: str
    position: int
    """From 1."""
    type_text: str
    """For example ``varchar(20)``, ``int unsigned``, ``enum``."""
    nullable: bool
    octet_length: int | None = None
    """The greatest length in bytes, for text and byte columns."""
    charset: str | None = None
    collation: str | None = None
    collation_id: int | None = None
    """MySQL's number of the collation; 63 for byte columns, None for the others."""
    labels: tuple[str, ...] = ()
    label_bytes: tuple[bytes, ...] | None = None
    """The labels in the column's own charset; None when that is not known."""
    generated: Generation | None = None
    invisible: bool = False
    srid: int | None = None
    """The spatial reference system that a spatial column is bound to."""
    auto_increment: bool = False

    @property
    def family(self) -> str:
        """The type's first word, for example ``varchar``."""
        return re.split(r"[ (]", self.type_text, maxsplit=1)[0]

    @property
    def is_unsigned(self) -> bool:
        """Whether the column is a number without sign."""
        return self.type_text.endswith(" unsigned") or self.family == "year"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One part of a key: a column, perhaps only its first characters, or an expression."""

    column: str | None
    expression: str | None = None
    prefix_length: int | None = None

    def __str__(self) -> str:
        if self.column is None:
            # The schema views escape quotes and backslashes of an expression once too often.
            return "(" + re.sub(r"\\(.)", r"\1", self.expression or "", flags=re.DOTALL) + ")"
        return self.column if self.prefix_length is None else f"{self.column}({self.prefix_length})"


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The primary key or another unique key."""

    name: str
    parts: tuple[KeyPart, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key of a table, with its rules as MySQL prints them (``CASCADE``, ``NO ACTION`` …)."""

    name: str
    columns: tuple[str, ...]
    parent: TableName
    parent_columns: tuple[str, ...]
    on_delete: str
    on_update: str

    @property
    def cascades(self) -> bool:
        """Whether a change of the parent changes rows of this table."""
        return bool({self.on_delete, self.on_update} - {"NO ACTION", "RESTRICT"})


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One base table."""

    database: str
    table: str
    engine: str
    columns: tuple[Column, ...]
    primary_key: UniqueKey | None = None
    unique_keys: tuple[UniqueKey, ...] = ()
    """Without the primary key."""
    foreign_keys: tuple[ForeignKey, ...] = ()
    has_triggers: bool = False
    """As far as the account may see triggers."""

    @property
    def name(self) -> str:
        """``database.table``, as messages print it."""
        return f"{self.database}.{self.table}"

    @property
    def primary_key_positions(self) -> tuple[int, ...]:
        """Where, from 0, the columns of the primary key stand; none without one."""
        if self.primary_key is None:
            return ()
        names = {part.column for part in self.primary_key.parts}
        return tuple(position for position, column in enumerate(self.columns) if column.name in names)


def normal_type(column_type: str) -> str:
    """Return a type as servers print it, without what does not matter to values and without labels."""
    head = column_type.partition("(")[0].lower()
    if head in ("enum", "set"):
        return head
    return _SYNONYMS.get(head, _DISPLAY.sub(r"\1", column_type.lower()))


def normal_charset(name: str | None) -> str | None:
    """Return the name of a character set or collation as versions from 8.0.30 on print it."""
    if name == "utf8" or (name is not None and name.startswith("utf8_")):
        return "utf8mb3" + name[4:]
    return name


def read_labels(column_type: str) -> tuple[str, ...]:
    """Return the labels of a type such as ``enum('a','b')``; nothing for other types."""
    if column_type.partition("(")[0].lower() not in ("enum", "set"):
        return ()
    return tuple(_ESCAPE.sub(_unescape, text) for text in _LABEL.findall(column_type))


def _unescape(match: re.Match[str]) -> str:
    character = match[1]
    return "'" if character is None else _ESCAPED.get(character, character)


def differences(source: TableSchema, target: TableSchema) -> tuple[str, ...]:
    """Say how the target's columns differ from the source's: a sentence each, nothing when they are equal.

    Rows are applied by position, so name and order are part of it. A target's column may be nullable where the
    source's is not; the reverse would turn NULL into a default.
    """
    found = tuple(name_differences(source, target))
    if found:
        return found
    pairs = zip(source.columns, target.columns, strict=True)
    return tuple(text for ours, theirs in pairs for text in column_differences(ours, theirs))


def name_differences(source: TableSchema, target: TableSchema) -> Iterator[str]:
    """Yield how names and order of two tables' columns differ."""
    theirs = {column.name.lower() for column in target.columns}
    ours = {column.name.lower() for column in source.columns}
    missing = [column.name for column in source.columns if column.name.lower() not in theirs]
    extra = [column.name for column in target.columns if column.name.lower() not in ours]
    if missing:
        yield f"the target lacks {_columns(missing)}"
    if extra:
        yield f"only the target has {_columns(extra)}"
    if missing or extra:
        return
    for column, other in zip(source.columns, target.columns, strict=True):
        if column.name.lower() != other.name.lower():
            yield f"column {column.position} is `{column.name}` at the source and `{other.name}` on the target"


def _columns(names: list[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(f"`{name}`" for name in names)


def column_differences(source: Column, target: Column) -> Iterator[str]:
    """Yield how two columns of one name differ in what gives a value its meaning."""
    sides = (
        ("type", source.type_text, target.type_text),
        ("character set", source.charset, target.charset),
        ("collation", source.collation, target.collation),
        ("spatial reference system", source.srid, target.srid),
        ("generation", _describe(source.generated), _describe(target.generated)),
        ("visibility", _visibility(source), _visibility(target)),
    )
    for what, ours, theirs in sides:
        if ours != theirs:
            yield f"column `{source.name}`: {what} {ours or 'none'} at the source, {theirs or 'none'} on the target"
    if source.labels != target.labels:
        yield f"column `{source.name}`: {label_difference(source.labels, target.labels)}"
    if source.nullable and not target.nullable:
        yield f"column `{source.name}`: may be NULL at the source, NOT NULL on the target"


def label_difference(source: tuple[str, ...], target: tuple[str, ...]) -> str:
    """Say where two lists of labels that are not equal part."""
    for number, (ours, theirs) in enumerate(zip(source, target, strict=False), 1):
        if ours != theirs:
            return f"label {number} is {ours!r} at the source, {theirs!r} on the target"
    return f"{len(source)} labels at the source, {len(target)} on the target"


def _describe(generated: Generation | None) -> str | None:
    return None if generated is None else f"{generated.kind.value} as {generated.expression}"


def _visibility(column: Column) -> str:
    return "invisible" if column.invisible else "visible"


def key_differences(source: TableSchema, target: TableSchema) -> tuple[str, ...]:
    """Say which unique keys, the primary key among them, are on one side only. Names of keys do not matter."""
    ours, theirs = _keys(source), _keys(target)
    return (
        *(f"unique key {ours[parts]} is missing on the target" for parts in ours if parts not in theirs),
        *(f"unique key {theirs[parts]} is on the target only" for parts in theirs if parts not in ours),
    )


def _keys(schema: TableSchema) -> dict[tuple[KeyPart, ...], UniqueKey]:
    keys = (schema.primary_key, *schema.unique_keys)
    return {key.parts: key for key in keys if key is not None}
