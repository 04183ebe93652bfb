"""Every row that a server has, as the raw bytes that the server itself writes to its binlog.

Knows: that a DELETE writes the whole row, and how to cut one rows event into rows. Never knows: what a value means, so
nothing can be lost by a conversion: not the digits of a FLOAT, the bytes of a text, an ENUM of index 0 or a zero date.
Used by the stories.

Of a JSON document the values with their types count, and not the gaps that changes of its parts leave between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.integration.reading import executed, read_behind, run

from vmerge.core.column_types import ColumnType, column_shapes, length_bytes
from vmerge.core.events import TableMap, Transaction
from vmerge.core.json_document import CONTAINERS, OBJECTS, SIZES, JsonType, JsonWalk, Node
from vmerge.core.rowimage import ImageCutter
from vmerge.lab.comparison import TABLES_OF_DATABASE
from vmerge.lab.servers import Server

Images = Counter[tuple[Any, ...]]
"""How often each row is there: table and columns."""

_SESSION = "SET SESSION foreign_key_checks = 0, binlog_row_image = FULL, transaction_isolation = 'READ-COMMITTED'"


def take_rows(server: Server, database: str) -> Images:
    """Delete every row of a database, and return them."""
    start = executed(server)
    tables = [name.replace("`", "``") for (name,) in server.query(TABLES_OF_DATABASE, database)]
    run(server, _SESSION, "BEGIN", *(f"DELETE FROM `{name}`" for name in tables), "COMMIT", database=database)
    found: Images = Counter()
    if executed(server) == start:
        return found
    for item in read_behind(server, start, database):
        assert isinstance(item, Transaction)
        for shape, images in item.rows:
            found.update(_rows(shape.table, images))
    return found


def _rows(table: TableMap, images: bytes) -> Iterator[tuple[Any, ...]]:
    shapes = column_shapes(table.types, table.metadata)
    assert shapes is not None
    widths = {at: length_bytes(shape) for at, shape in enumerate(shapes) if shape.type is ColumnType.JSON}
    for slices in ImageCutter(table, ()).slices(images):
        row: list[Any] = list(slices)
        for at, width in widths.items():
            if row[at] is not None:
                walk = JsonWalk(memoryview(row[at])[width:])
                row[at] = _document(walk, walk.root())
        yield table.table, *row


def _document(walk: JsonWalk, node: Node) -> tuple[Any, ...]:
    """Return a value with its type; a container that was too large once may still be stored as such."""
    if node.type in CONTAINERS:
        parts = tuple((key, _document(walk, child)) for key, child in walk.children(node))
        return node.type in OBJECTS, parts
    if node.type is JsonType.OPAQUE:
        kind, content = walk.opaque(node)
        return kind, bytes(content)
    content = walk.fixed(node) if node.type in SIZES else walk.string(node)
    return node.type, bytes(content)
