"""A source's table as text and back, to know later what it was.

Knows: what of a table says how its rows are to be read. Never knows: where the text is kept. Used by
``mysql/source_memory.py``.
"""

from __future__ import annotations

import json
from typing import Any

from vmerge.core.schema import Column, Generation, GenerationKind, KeyPart, TableSchema, UniqueKey


def table_text(schema: TableSchema) -> str:
    """Return a table's columns and keys as text; equal tables have equal texts."""
    facts = {
        "database": schema.database,
        "table": schema.table,
        "engine": schema.engine,
        "columns": [_column_facts(column) for column in schema.columns],
        "primary_key": None if schema.primary_key is None else _key_facts(schema.primary_key),
        "unique_keys": [_key_facts(key) for key in schema.unique_keys],
    }
    return json.dumps(facts, sort_keys=True)


def read_table(text: str) -> TableSchema:
    """Return the table of a text, without foreign keys and triggers.

    Raises:
        ValueError: the text is not one of these.
    """
    try:
        facts = json.loads(text)
        primary = facts["primary_key"]
        return TableSchema(
            facts["database"],
            facts["table"],
            facts["engine"],
            tuple(_column(column) for column in facts["columns"]),
            None if primary is None else _key(primary),
            tuple(_key(key) for key in facts["unique_keys"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("the description of a table cannot be read") from error


def _column_facts(column: Column) -> dict[str, Any]:
    generated = column.generated
    return {
        "name": column.name,
        "position": column.position,
        "type_text": column.type_text,
        "nullable": column.nullable,
        "octet_length": column.octet_length,
        "charset": column.charset,
        "collation": column.collation,
        "collation_id": column.collation_id,
        "labels": list(column.labels),
        "label_bytes": None if column.label_bytes is None else [label.hex() for label in column.label_bytes],
        "generated": None if generated is None else [generated.kind.value, generated.expression],
        "invisible": column.invisible,
        "srid": column.srid,
        "auto_increment": column.auto_increment,
    }


def _column(facts: dict[str, Any]) -> Column:
    labels, generated = facts["label_bytes"], facts["generated"]
    return Column(
        **{
            **facts,
            "labels": tuple(facts["labels"]),
            "label_bytes": None if labels is None else tuple(map(bytes.fromhex, labels)),
            "generated": None if generated is None else Generation(GenerationKind(generated[0]), generated[1]),
        }
    )


def _key_facts(key: UniqueKey) -> dict[str, Any]:
    return {"name": key.name, "parts": [[part.column, part.expression, part.prefix_length] for part in key.parts]}


def _key(facts: dict[str, Any]) -> UniqueKey:
    return UniqueKey(facts["name"], tuple(KeyPart(*part) for part in facts["parts"]))
