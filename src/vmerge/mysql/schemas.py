"""Tables of a server to ``core.schema``.

Knows: MySQL's information_schema. Never knows: which differences matter, or whether the server is a source or the
target. Used by preflight and at each start of a stream.

A handful of statements for any number of tables. An account sees the tables on which it has some privilege; triggers
only with the TRIGGER privilege.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pymysql.connections import Connection
from pymysql.err import MySQLError

from vmerge.core.rules import TableName
from vmerge.core.schema import (
    Column,
    ForeignKey,
    Generation,
    GenerationKind,
    KeyPart,
    TableSchema,
    UniqueKey,
    normal_charset,
    normal_type,
    read_labels,
)
from vmerge.mysql import sql

_BYTES_COLLATION_ID = 63
_BYTE_TYPES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "enum", "set"})
"""Types whose columns are of bytes when no character set is told."""

_LABELS_A_STATEMENT = 200
_PRIMARY = "PRIMARY"

_Row = tuple[Any, ...]


def read_schemas(connection: Connection[Any], databases: Collection[str]) -> dict[TableName, TableSchema]:
    """Return every base table of these databases that the account sees. A database that is missing has none.

    Raises what PyMySQL raises: the caller knows whose server it is.
    """
    if not databases:
        return {}
    show_generated_keys(connection)
    reader = _Reader(connection, tuple(databases))
    tables = reader.rows(sql.READ_TABLES)
    columns = reader.columns()
    keys = reader.unique_keys()
    foreign_keys = reader.foreign_keys()
    triggers = {(database, table) for database, table in reader.rows(sql.READ_TRIGGERS)}
    return {
        (database, table): TableSchema(
            database=database,
            table=table,
            engine=engine or "none",
            columns=tuple(columns[database, table]),
            primary_key=next((key for key in keys[database, table] if key.name == _PRIMARY), None),
            unique_keys=tuple(key for key in keys[database, table] if key.name != _PRIMARY),
            foreign_keys=tuple(foreign_keys[database, table]),
            has_triggers=(database, table) in triggers,
        )
        for database, table, engine in tables
        if database in databases
    }


def show_generated_keys(connection: Connection[Any]) -> None:
    """Let this session see the primary keys that a server made by itself, whatever the server's default is.

    Definitions that are compared must be read by sessions that agree in this.
    """
    with connection.cursor() as cursor, contextlib.suppress(MySQLError):  # before 8.0.30 there is no such variable
        cursor.execute(sql.SHOW_GENERATED_KEYS)


def read_logs_cascades(connection: Connection[Any]) -> bool:
    """Whether a server writes to its binlog what a foreign key changes; before 9.6 none does."""
    with connection.cursor() as cursor:
        cursor.execute(sql.READ_VARIABLES, (("innodb_native_foreign_keys",),))
        return [value for _, value in cursor.fetchall()] == ["OFF"]


class _Reader:
    """Reads and groups the rows of one call."""

    def __init__(self, connection: Connection[Any], databases: tuple[str, ...]) -> None:
        self._connection = connection
        self._databases = databases

    def rows(self, statement: str) -> list[_Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, (self._databases,))
            return list(cursor.fetchall())

    def columns(self) -> Mapping[TableName, list[Column]]:
        rows = self.rows(sql.READ_COLUMNS)
        label_bytes = _LabelBytes(self._connection, rows)
        with self._connection.cursor() as cursor:
            cursor.execute(sql.READ_COLLATIONS)
            collation_ids = dict(cursor.fetchall())
        grouped: defaultdict[TableName, list[Column]] = defaultdict(list)
        for row in rows:
            grouped[row[0], row[1]].append(_column(row[2:], collation_ids, label_bytes))
        return grouped

    def unique_keys(self) -> Mapping[TableName, list[UniqueKey]]:
        parts: defaultdict[tuple[str, str, str], list[KeyPart]] = defaultdict(list)
        for database, table, name, column, expression, prefix in self.rows(sql.READ_UNIQUE_KEYS):
            parts[database, table, name].append(KeyPart(column, expression, prefix))
        grouped: defaultdict[TableName, list[UniqueKey]] = defaultdict(list)
        for (database, table, name), key_parts in parts.items():
            grouped[database, table].append(UniqueKey(name, tuple(key_parts)))
        return grouped

    def foreign_keys(self) -> Mapping[TableName, list[ForeignKey]]:
        rules = {tuple(row[:3]): row[3:] for row in self.rows(sql.READ_FOREIGN_KEY_RULES)}
        columns: defaultdict[tuple[str, str, str], list[_Row]] = defaultdict(list)
        for row in self.rows(sql.READ_FOREIGN_KEYS):
            columns[row[0], row[1], row[2]].append(row[3:])
        grouped: defaultdict[TableName, list[ForeignKey]] = defaultdict(list)
        for (database, table, name), rows in columns.items():
            on_delete, on_update = rules.get((database, table, name), ("NO ACTION", "NO ACTION"))
            key = ForeignKey(
                name=name,
                columns=tuple(row[0] for row in rows),
                parent=(rows[0][1], rows[0][2]),
                parent_columns=tuple(row[3] for row in rows),
                on_delete=on_delete,
                on_update=on_update,
            )
            grouped[database, table].append(key)
        return grouped


def _column(row: _Row, collation_ids: Mapping[str, int], label_bytes: _LabelBytes) -> Column:
    name, position, column_type, nullable, octet_length, charset, collation, extra, expression, srid = row
    column_type = _text(column_type)
    family = column_type.partition("(")[0].lower()
    collation_id = collation_ids.get(collation)
    if collation is None and family in _BYTE_TYPES:
        collation_id = _BYTES_COLLATION_ID
    labels = read_labels(column_type)
    return Column(
        name=name,
        position=int(position),
        type_text=normal_type(column_type),
        nullable=nullable == "YES",
        octet_length=None if octet_length is None else int(octet_length),
        charset=normal_charset(charset),
        collation=normal_charset(collation),
        collation_id=collation_id,
        labels=labels,
        label_bytes=label_bytes.of(charset, labels),
        generated=_generation(extra, _text(expression)),
        invisible="INVISIBLE" in extra.split(),
        srid=srid,
        auto_increment="auto_increment" in extra.split(),
    )


def _generation(extra: str, expression: str) -> Generation | None:
    for kind in GenerationKind:
        if f"{kind.value.upper()} GENERATED" in extra:
            return Generation(kind, expression)
    return None


def _text(value: Any) -> str:
    """Return a long text of the schema views, which some versions send as bytes."""
    return value.decode("utf-8") if isinstance(value, bytes) else (value or "")


class _LabelBytes:
    """The labels of ENUM and SET columns in their own character sets. UTF-8 we encode; of the rest the server knows."""

    def __init__(self, connection: Connection[Any], rows: Iterable[_Row]) -> None:
        wanted = {(row[7], label) for row in rows for label in read_labels(_text(row[4])) if not _is_utf8(row[7])}
        pairs = sorted((charset, label) for charset, label in wanted if charset is not None)
        self._known: dict[tuple[str, str], bytes] = {}
        for start in range(0, len(pairs), _LABELS_A_STATEMENT):
            some = pairs[start : start + _LABELS_A_STATEMENT]
            with connection.cursor() as cursor:
                cursor.execute(sql.encode_labels([charset for charset, _ in some]), [label for _, label in some])
                self._known.update(zip(some, cursor.fetchone(), strict=True))

    def of(self, charset: str | None, labels: tuple[str, ...]) -> tuple[bytes, ...] | None:
        """Return them encoded; None for labels of bytes that the schema views cannot show."""
        if charset is None:
            return tuple(label.encode() for label in labels) if all(map(str.isascii, labels)) else None
        if _is_utf8(charset):
            return tuple(label.encode("utf-8") for label in labels)
        return tuple(self._known[charset, label] for label in labels)


def _is_utf8(charset: str | None) -> bool:
    return charset in ("utf8mb4", "utf8mb3", "utf8")
