"""Every small history: all that two shards can legally do with a few transactions over two keys.

Knows: how to list them, each once up to the names of keys and shards. Never knows: players. Used by the exhaustive
tests. The table is ``u(id primary key, uid unique null)``; a universe says which ids and uids there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

from tests.sim.history import History, Work
from tests.sim.rows import Change, Row, Table, Value, delete, insert, update

U = Table("u", unique=((1,),))

Universe = tuple[tuple[int, ...], tuple[str, ...], bool]
"""Ids, uids, and whether a uid may be NULL."""
HOT_ROWS: Universe = ((1, 2), (), True)
"""Two rows that are inserted, deleted and move between shards."""
HOT_VALUES: Universe = ((1, 2), ("a", "b"), True)
"""The same with a nullable unique value in each."""
HOT_VALUE: Universe = ((1, 2, 3, 4), ("a",), False)
"""One unique value that goes from row to row."""

_Holders = tuple[tuple[int, Row], ...]
"""Stream and row, sorted by the row's key."""
_Lists = tuple[tuple[Change, ...], ...]


def histories(universe: Universe, lengths: tuple[int, int], *, with_initial_rows: bool) -> Iterator[History]:
    """Yield every legal history of two streams of these lengths, once up to renaming."""
    seen: set[object] = set()
    for start in _starts(universe) if with_initial_rows else [()]:
        for lists in sorted(_continuations(universe, start, lengths), key=repr):
            canonical = _canonical(universe, start, lists)
            if canonical not in seen:
                seen.add(canonical)
                yield _history(start, lists)


def _history(start: _Holders, lists: _Lists) -> History:
    initial: list[Work] = [tuple(insert("u", *row) for owner, row in start if owner == stream) for stream in (0, 1)]
    return History((U,), tuple(tuple((change,) for change in changes) for changes in lists), tuple(initial))


def _starts(universe: Universe) -> Iterator[_Holders]:
    ids, uids, nullable = universe
    values: list[Value] = [*uids, *([None] if nullable else [])]
    choices = [None, *product((0, 1), values)]
    for assignment in product(choices, repeat=len(ids)):
        rows = [(chosen[0], (id_, chosen[1])) for id_, chosen in zip(ids, assignment, strict=True) if chosen]
        used = [row[1] for _, row in rows if row[1] is not None]
        if len(used) == len(set(used)):
            yield tuple(rows)


def _continuations(universe: Universe, holders: _Holders, lengths: tuple[int, int]) -> set[_Lists]:
    """Return the lists of changes that some legal real order brings about."""
    found: set[_Lists] = set()
    stack: list[tuple[_Holders, _Lists]] = [(holders, ((), ()))]
    seen = set(stack)
    while stack:
        state, lists = stack.pop()
        if (len(lists[0]), len(lists[1])) == lengths:
            found.add(lists)
            continue
        for stream, change, following in _legal_changes(universe, state):
            if len(lists[stream]) == lengths[stream]:
                continue
            longer = (*lists[stream], change)
            node = (following, (longer, lists[1]) if stream == 0 else (lists[0], longer))
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return found


def _legal_changes(universe: Universe, state: _Holders) -> Iterator[tuple[int, Change, _Holders]]:
    ids, uids, nullable = universe
    rows = {row[0]: (stream, row) for stream, row in state}
    used = {row[1] for _, row in state}
    free: list[Value] = [uid for uid in uids if uid not in used] + ([None] if nullable else [])
    for id_ in ids:
        if id_ not in rows:
            for stream, uid in product((0, 1), free):
                yield stream, insert("u", id_, uid), _with(state, stream, (id_, uid))
            continue
        stream, row = rows[id_]
        rest = tuple(holder for holder in state if holder[1][0] != id_)
        yield stream, delete("u", *row), rest
        for uid in free:
            if uid != row[1]:
                yield stream, update("u", row, (id_, uid)), _with(rest, stream, (id_, uid))


def _with(state: _Holders, stream: int, row: Row) -> _Holders:
    return tuple(sorted((*state, (stream, row)), key=lambda holder: str(holder[1][0])))


def _canonical(universe: Universe, start: _Holders, lists: _Lists) -> object:
    """Return one name for all histories that differ in the names of ids, uids and streams only."""
    ids, uids, _ = universe
    names: list[str] = []
    for new_ids, new_uids, streams in product(permutations(ids), permutations(uids), ((0, 1), (1, 0))):
        id_names = dict(zip(ids, new_ids, strict=True))
        uid_names: dict[Value, Value] = {**dict(zip(uids, new_uids, strict=True)), None: None}

        def renamed(
            row: Row | None, id_names: dict[int, int] = id_names, uid_names: dict[Value, Value] = uid_names
        ) -> Row | None:
            return None if row is None else (id_names[row[0]], uid_names[row[1]])  # type: ignore[index]

        rows = sorted(repr((streams[stream], renamed(row))) for stream, row in start)
        changes = [[(renamed(c.before), renamed(c.after)) for c in lists[streams[stream]]] for stream in (0, 1)]
        names.append(repr((rows, changes)))
    return min(names)
