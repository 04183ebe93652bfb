"""What a run of transactions does to a stream's rows, as rows to take away and rows to bring.

Knows: the net effect of a run, and what to do when rows cannot be followed. Never knows: servers. Used by
``mysql/probe.py`` to find out what would keep the run out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vmerge.core.event_types import NO_FOREIGN_KEY_CHECKS_FLAG
from vmerge.core.events import RowsEvent, RowsKind, RowsShape, TableMap, Transaction
from vmerge.core.fold import Fold, TableRules, fold
from vmerge.core.rowimage import ImageCutter
from vmerge.errors import UnsupportedEvent


@dataclass(frozen=True, slots=True)
class Effect:
    """Rows to delete, then rows to insert, without foreign key checks: children do not matter to a unique key."""

    deletes: tuple[RowsEvent, ...]
    inserts: tuple[RowsEvent, ...]
    """One row each."""
    is_net: bool
    """False for the rows of one transaction as they are: not all of its deletes need exist before it."""


class _Unrelated:
    """The rules of the tables as if none had foreign keys, so that no update is kept as one."""

    def __init__(self, rules: TableRules) -> None:
        self.key_columns = rules.key_columns
        self.depth = rules.depth

    def has_foreign_keys(self, table_map: TableMap) -> bool:
        """None has."""
        return False


def effect_of(run: Sequence[Transaction], rules: TableRules) -> Effect:
    """Return the net effect of a run; where it cannot be followed, what its first transaction does.

    Raises:
        UnsupportedEvent: even that cannot be told from the images.
        CorruptEvent: an image is cut.
    """
    for length in dict.fromkeys((len(run), 1)):
        try:
            effect = fold((row for one in run[:length] for row in one.rows), _Unrelated(rules))
        except UnsupportedEvent:
            continue
        return _effect(effect.rows(), is_net=True)
    return _effect(_halves(run[0].rows), is_net=False)


def effect_of_fold(run: Fold) -> Effect:
    """Return the net effect of a run that was followed already. Raises as ``effect_of`` does."""
    return _effect(_halves(run.rows()), is_net=True)


def _halves(rows: Iterable[RowsEvent]) -> Iterator[RowsEvent]:
    """Yield the before-images of rows as deletes and the after-images as inserts, one row each."""
    for shape, images in rows:
        if shape.kind is RowsKind.PARTIAL_UPDATE:
            raise UnsupportedEvent(f"rows of {shape.table.name} cannot be told apart: their images are partial")
        cut = [image for _, image in ImageCutter(shape.table, ()).cut(images)]
        if shape.kind is not RowsKind.UPDATE:
            yield from (RowsEvent(shape, image) for image in cut)
            continue
        bitmap_bytes = (shape.table.column_count + 7) // 8
        columns = shape.columns[:-bitmap_bytes]
        halves = [RowsShape(shape.table, kind, shape.flags, columns) for kind in (RowsKind.DELETE, RowsKind.WRITE)]
        yield from (RowsEvent(halves[number % 2], image) for number, image in enumerate(cut))


def _effect(rows: Iterator[RowsEvent], *, is_net: bool) -> Effect:
    shapes: dict[RowsShape, RowsShape] = {}
    deletes: list[RowsEvent] = []
    inserts: list[RowsEvent] = []
    for shape, image in rows:
        unchecked = shapes.get(shape)
        if unchecked is None:
            flags = shape.flags | NO_FOREIGN_KEY_CHECKS_FLAG
            unchecked = shapes[shape] = RowsShape(shape.table, shape.kind, flags, shape.columns)
        (deletes if shape.kind is RowsKind.DELETE else inserts).append(RowsEvent(unchecked, image))
    return Effect(tuple(deletes), tuple(inserts), is_net)
