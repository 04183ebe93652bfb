"""Every row that a server has, as the raw bytes that the server itself writes to its binlog.

Knows: that a DELETE writes the whole row, and how to cut one rows event into rows. Never knows: what a value means, so
nothing can be lost by a conversion: not the digits of a FLOAT, the bytes of a text, the types within a JSON document,
an ENUM of index 0 or a zero date. Used by the stories.
"""

from __future__ import annotations

from collections import Counter

from tests.integration.reading import executed, read_behind, run

from vmerge.core.events import Transaction
from vmerge.core.rowimage import ImageCutter
from vmerge.lab.comparison import TABLES_OF_DATABASE
from vmerge.lab.servers import Server

Images = Counter[tuple[str, bytes]]
"""How often each row is there: table and image."""

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
            cutter = ImageCutter(shape.table, ())
            found.update((shape.table.table, image) for _, image in cutter.cut(images))
    return found
