"""What a run does to a stream's rows: as its net effect, or as its first transaction's rows are."""

from __future__ import annotations

import pytest
from tests.unit.core.table_rules import Rules

from vmerge.core.effect import Effect, effect_of
from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap, Transaction
from vmerge.core.position import Gtid
from vmerge.errors import UnsupportedEvent

TABLE = TableMap("d", "t", 0, b"\x03\x03", b"", b"\x00", b"", (), None)
WRITE, UPDATE, DELETE = RowsKind.WRITE, RowsKind.UPDATE, RowsKind.DELETE


def image(key: int, value: int) -> bytes:
    return b"\x00" + key.to_bytes(4, "little") + value.to_bytes(4, "little")


def event(kind: RowsKind, *rows: tuple[int, int]) -> RowsEvent:
    bitmaps = b"\xff\xff" if kind in (UPDATE, RowsKind.PARTIAL_UPDATE) else b"\xff"
    return RowsEvent(RowsShape(TABLE, kind, 0, b"\x02" + bitmaps), b"".join(image(*row) for row in rows))


def transaction(*rows: RowsEvent) -> Transaction:
    return Transaction(Gtid(bytes(16), "", 1), 0, rows, 0)


class Cascading(Rules):
    """Tables whose changes cascade."""

    def key_columns(self, table_map: TableMap) -> tuple[int, ...]:
        raise UnsupportedEvent("cascades")


def images(effect: Effect) -> tuple[list[bytes], list[bytes]]:
    return [row.images for row in effect.deletes], [row.images for row in effect.inserts]


def test_a_run_that_can_be_followed() -> None:
    """The net effect, an update as both halves, one row each, without foreign key checks."""
    run = [
        transaction(event(WRITE, (1, 1), (2, 2))),
        transaction(event(UPDATE, (1, 1), (1, 9), (5, 5), (6, 5))),
        transaction(event(DELETE, (2, 2))),
    ]
    effect = effect_of(run, Rules())
    assert effect.is_net
    assert images(effect) == ([image(5, 5)], [image(1, 9), image(6, 5)])
    assert {row.shape.flags for row in (*effect.deletes, *effect.inserts)} == {NO_FOREIGN_KEY_CHECKS_FLAG}


def test_a_run_of_which_only_the_first_can_be_followed() -> None:
    """The first transaction's net effect stands for a run that goes astray later."""
    run = [transaction(event(WRITE, (1, 1)), event(UPDATE, (1, 1), (1, 2))), transaction(event(WRITE, (1, 3)))]
    effect = effect_of(run, Rules())
    assert effect.is_net
    assert images(effect) == ([], [image(1, 2)])


def test_rows_as_they_are() -> None:
    """Where nothing can be followed, the first transaction's images are taken as deletes and inserts."""
    first = transaction(event(UPDATE, (1, 1), (1, 2), (3, 3), (4, 3)), event(DELETE, (5, 5)), event(WRITE, (6, 6)))
    effect = effect_of([first, transaction(event(WRITE, (7, 7)))], Cascading())
    assert not effect.is_net
    assert images(effect) == ([image(1, 1), image(3, 3), image(5, 5)], [image(1, 2), image(4, 3), image(6, 6)])
    for row in (*effect.deletes, *effect.inserts):
        assert row.shape.columns == b"\x02\xff"
        assert row.shape.kind in (WRITE, DELETE)


def test_images_that_do_not_tell() -> None:
    """Partial images are refused."""
    with pytest.raises(UnsupportedEvent):
        effect_of([transaction(event(RowsKind.PARTIAL_UPDATE, (1, 1), (1, 2)))], Cascading())
