"""The thirty named conflict sequences, those that end in the union: what two shards really did, met in every order.

Each test searches every interleaving, with batches of one to three and one crash or lost connection anywhere; ``u(id
primary key, uid unique null)`` unless said. Sequences that no transaction of any stream can end are in
``test_permanent_sequences.py``, more about parents and children in ``test_foreign_keys.py``. Stories are folders of
``tests/scenarios``: the same on real servers.

    no.  what happened at the sources                       simulator   story
    ---  -------------------------------------------------  ----------  ------------------------------------------------
     1   a value is released on A, then taken on B          here        take_before_release
     2   the same, A's release is still in an open batch    here        release_in_open_batch
     3   two rows swap values through NULL                  here        swap_through_null, swap_met_from_the_other_side
     4   the same, both halves sent in one packet           as 3        as 3: each BINLOG is a statement of its own
     5   B took for good what A only had for a while        here        sibling_overtook
     6   a hot value goes to and fro                        here        hot_key
     7   the same, blocked in turn                          here        blocked_in_turn
     8   two rows swap values in one moment                 here        swap_in_one_moment
     9   for a moment both shards have the value            here        brief_duplicate
    10   both shards have the value for good                permanent   true_duplicate_is_proven
    11   both shards have the same primary key for good     permanent   same_number_on_two_shards
    12   a row moves to another shard                       here        row_moves
    13   the same, the first shard lags behind all of it    here        moved_row_overtook
    14   the target takes for equal what the source keeps   permanent   collation_differs, target_key_is_stricter
         apart
    15   somebody wrote a row to the target                 permanent   foreign_row_is_proven
    16   a position older than the rows                     permanent   position_older_than_the_rows
    17   a reference table that is on every shard           permanent   reference_table_on_every_shard
    18   a cascade that the target does not do              -           cascade_the_target_does_not_have
    19   a trigger on the target                            -           trigger_on_the_target
    20   a row that is in two snapshots of the copy         -           waits for the copy phase
    21   unique keys that are made after the copy           -           waits for the copy phase
    22   a child whose parent is on another shard           here        child_before_its_parent
    23   a parent whose child was deleted on another shard  here        parent_deleted_first
    24   keys that only the server can compute: prefixes,   -           key_on_a_prefix, key_on_a_stored_column,
         generated columns, expressions, collations                     key_on_a_virtual_column, key_on_an_expression,
                                                                        key_without_case, key_with_padding
    25   NULLs in a unique key                              here        nulls_are_no_conflict
    26   values that move up by one inside a statement      here        values_shifted_in_one_statement
    27   XA transactions that are prepared early            -           xa_prepared_early
    28   a source that has two equal rows                   permanent   equal_rows_at_one_source,
                                                                        unchecked_uniques_at_the_source
    29   two tenants with one address                       permanent   two_tenants_one_address
    30   values that a conversion would make equal          -           collation_differs, time_zones_keep_values_apart

More stories: ``family_*`` for foreign keys; ``two_keys_*`` for several keys at once; ``key_*_is_proven``.

What has no test in the simulator: 18, as a history of the simulator says all that its shards did (from MySQL 9.6 on a
binlog does, too; a merge from an older source is refused, see ``cascade-not-logged`` in the tests of preflight); 19, as
it has no triggers; 24 and 30, as its values are equal or not; 27, as it delivers transactions, and which event is one
is known to the decoder of the binlog.
"""

from __future__ import annotations

import pytest
from tests.sim.ends import Fault
from tests.sim.history import History, Work, from_real_order
from tests.sim.rows import Change, Table, Value, delete, insert, update
from tests.sim.search import Search, Tally, finish
from tests.sim.world import Settings, World

from vmerge.core.conflict_terms import Await

A, B, C = 0, 1, 2
U = Table("u", unique=((1,),))
FAMILY = (Table("parent"), Table("child", parents=((1, "parent"),)))


def add(id_: int, uid: Value) -> Change:
    """Insert into u."""
    return insert("u", id_, uid)


def drop(id_: int, uid: Value) -> Change:
    """Delete from u."""
    return delete("u", id_, uid)


def change(id_: int, before: Value, after: Value) -> Change:
    """Update u."""
    return update("u", (id_, before), (id_, after))


TEAMS: tuple[Work, ...] = ((add(1, "a"),), (add(2, "b"),))
TAKE_AFTER_RELEASE = from_real_order((U,), [(A, (add(1, 25),)), (A, (drop(1, 25),)), (B, (add(2, 25),))])
SWAP_THROUGH_NULL = from_real_order(
    (U,), [(B, (change(2, "b", None),)), (A, (change(1, "a", "b"),)), (B, (change(2, None, "a"),))], initial=TEAMS
)
SWAP_AT_ONCE = History((U,), (((change(1, "a", "b"),),), ((change(2, "b", "a"),),)), TEAMS)
ROW_MOVES_EARLY = from_real_order((U,), [(A, (add(7, "x"),)), (A, (drop(7, "x"),)), (B, (add(7, "x"),))])
HOT_KEY = from_real_order(
    (U,),
    [
        (A, (add(1, 25),)),
        (A, (drop(1, 25),)),
        (B, (add(2, 25),)),
        (B, (drop(2, 25),)),
        (A, (add(3, 25),)),
        (A, (drop(3, 25),)),
        (B, (add(4, 25),)),
    ],
)


def assert_always_ends_in_the_union(history: History, tally: Tally) -> None:
    """Search a history under all settings; in the last one evidence is asked for at every failure."""
    tally.histories += 1
    for batch in (1, 2, 3):
        ends = Search(history, Settings(batch=batch, calm=2, jump_after_seconds=0.0), 1, tally).run()
        assert ends == {history.end}
    asking = Settings(batch=2, calm=2, jump_after_seconds=0.0, ask_after_seconds=0.0)
    assert Search(history, asking, 0, tally).run() == {history.end}


# A value that moves


def test_sequence_1_a_value_is_taken_after_its_release(tally: Tally) -> None:
    """1: A takes and releases a value, then B takes it; B meets A's row first, and waits for it."""
    world = World(TAKE_AFTER_RELEASE, Settings(batch=1))
    while world.vector != (1, 0):
        world.step("A")
    for name in "BB":
        world.step(name)
    blocked = world.board.progress("B").blocked
    assert blocked is not None
    assert blocked.key == "unique_0"
    finish(world)
    assert world.vector == TAKE_AFTER_RELEASE.end
    assert world.board.progress("B").counters.waits == 1
    assert world.board.progress("B").blocked is None
    assert_always_ends_in_the_union(TAKE_AFTER_RELEASE, tally)


def test_sequence_2_a_release_in_an_open_transaction_is_waited_for_without_locks() -> None:
    """2: as 1, with A's release applied but not committed: B rolls back, waits for its timer, and goes on after it."""
    world = World(TAKE_AFTER_RELEASE, Settings(batch=2))
    while "A" not in world.database.open:
        world.step("A")
    while world.streams["B"].sleep is None:
        world.step("B")
    sleep = world.streams["B"].sleep
    assert isinstance(sleep, Await)
    assert sleep.seen_version is None
    assert list(world.database.open) == ["A"]
    finish(world)
    assert world.vector == TAKE_AFTER_RELEASE.end
    assert world.board.progress("B").counters.lock_conflicts > 0


def test_sequence_3_and_4_a_swap_through_null(tally: Tally) -> None:
    """3, 4: two rows swap values through NULL, and B combined both its halves: it splits, flushes the first, waits."""
    world = World(SWAP_THROUGH_NULL, Settings(batch=2))
    while world.board.progress("B").blocked is None:
        world.step("B")
    assert world.vector == (0, 1)
    counters = world.board.progress("B").counters
    assert (counters.splits, counters.flushes, counters.waits) == (1, 1, 1)
    finish(world)
    assert world.vector == SWAP_THROUGH_NULL.end
    assert_always_ends_in_the_union(SWAP_THROUGH_NULL, tally)


@pytest.mark.parametrize("history", [TAKE_AFTER_RELEASE, ROW_MOVES_EARLY], ids=["5", "13"])
def test_sequences_5_and_13_a_jump_leaves_the_siblings_row(history: History) -> None:
    """5, 13: B took for good what A had only for a while, and is done before A begins: A's part folds to nothing."""
    world = World(history)
    while world.vector != (0, 1):
        world.step("B")
    rows = dict(world.database.rows)
    finish(world)
    assert world.vector == history.end
    assert world.database.rows == rows
    assert world.board.progress("A").counters.jumps == 1
    assert world.board.progress("A").blocked is None


def test_sequence_5_a_source_lost_while_its_stream_is_blocked_is_opened_again() -> None:
    """5: the release that a jump needs comes over a new connection, and the wait counts on from its beginning."""
    world = World(TAKE_AFTER_RELEASE, Settings(chunk=1))
    while world.vector != (0, 1):
        world.step("B")
    while world.board.progress("A").blocked is None:
        world.step("A")
    blocked = world.board.progress("A").blocked
    assert blocked is not None
    world.streams["A"].source.fault = Fault.SOURCE
    for _ in range(100):
        if world.streams["A"].source.fault is None:
            break
        world.clock.advance(0.1)
        world.step("A")
    assert world.streams["A"].source.fault is None
    still = world.board.progress("A").blocked
    assert still is not None
    assert still.since == blocked.since
    finish(world)
    assert world.vector == TAKE_AFTER_RELEASE.end


def test_sequence_6_a_hot_value_goes_to_and_fro(tally: Tally) -> None:
    """6: four rows of two shards take a value in turns; whoever is met too late jumps, and nobody is left behind."""
    assert_always_ends_in_the_union(HOT_KEY, tally)


def test_sequence_7_blocked_in_turn() -> None:
    """7: as 6; first A waits for B's release, then B overtakes for good, and A jumps over each of its turns."""
    world = World(HOT_KEY, Settings(batch=1))
    while world.vector != (0, 1):
        world.step("B")
    while not world.is_asleep("A"):
        world.step("A")
    while world.vector != (0, 3):
        world.step("B")
    finish(world)
    assert world.vector == HOT_KEY.end
    assert world.board.progress("A").counters.jumps == 2
    assert world.database.rows == {("u", 4): (4, 25)}


def test_sequence_8_a_swap_in_one_moment_is_a_joint_commit(tally: Tally) -> None:
    """8: two rows of two shards swap values in one moment: no stream can go alone, so both go together."""
    assert_always_ends_in_the_union(SWAP_AT_ONCE, tally)
    world = World(SWAP_AT_ONCE)
    finish(world)
    assert [world.board.progress(name).counters.joints for name in "AB"] == [1, 1]


def test_sequence_9_for_a_moment_both_shards_have_the_value(tally: Tally) -> None:
    """9: A takes a value a moment before B releases it, as nobody guards it: A waits, and no duplicate is claimed."""
    history = History((U,), (((change(1, None, "b"),),), ((change(2, "b", None),),)), ((add(1, None),), (add(2, "b"),)))
    assert_always_ends_in_the_union(history, tally)


# A row that moves


def test_sequence_12_a_row_moves_to_another_shard(tally: Tally) -> None:
    """12: A deletes a row, B inserts it with the same primary key: B waits for A's delete."""
    history = from_real_order((U,), [(A, (drop(7, None),)), (B, (add(7, None),))], initial=((add(7, None),), ()))
    assert_always_ends_in_the_union(history, tally)


def test_sequence_13_a_row_moved_before_its_first_shard_was_heard_of(tally: Tally) -> None:
    """13: A inserts and deletes a row that lives on B since: A's delete never takes B's row."""
    assert_always_ends_in_the_union(ROW_MOVES_EARLY, tally)


# Parents and children


def test_sequence_22_the_parent_is_on_another_shard(tally: Tally) -> None:
    """22: B inserts a parent, A its child: the child waits for the parent."""
    history = from_real_order(FAMILY, [(B, (insert("parent", 1),)), (A, (insert("child", 1, 1),))])
    assert_always_ends_in_the_union(history, tally)


def test_sequence_23_the_child_is_deleted_on_another_shard(tally: Tally) -> None:
    """23: A deletes a child, B its parent: the parent's delete waits for the child's."""
    history = from_real_order(
        FAMILY,
        [(A, (delete("child", 1, 1),)), (B, (delete("parent", 1),))],
        initial=((insert("child", 1, 1),), (insert("parent", 1),)),
    )
    assert_always_ends_in_the_union(history, tally)


# What looks like a conflict and is none


def test_sequence_25_nulls_are_no_conflict(tally: Tally) -> None:
    """25: rows without a value in their unique column never meet."""
    history = from_real_order((U,), [(A, (add(1, None),)), (B, (add(2, None),)), (A, (add(3, None),))])
    assert_always_ends_in_the_union(history, tally)
    world = World(history)
    finish(world)
    assert [world.board.progress(name).counters.waits for name in "AB"] == [0, 0]


def test_sequence_26_values_shifted_in_one_statement(tally: Tally) -> None:
    """26: one statement of A moves all its values up, from the top down, and B takes the one that is free; row by row
    that works in this order only, and in a jump over it in any."""
    history = from_real_order(
        (U,),
        [
            (A, (add(9, "hot"),)),
            (A, (change(2, 2, 3), change(1, 1, 2))),
            (A, (drop(9, "hot"),)),
            (B, (add(8, "hot"), add(7, 1))),
        ],
        initial=((add(1, 1), add(2, 2)), ()),
    )
    assert_always_ends_in_the_union(history, tally)


# Several keys at once


def test_two_keys_held_by_two_siblings(tally: Tally) -> None:
    """A's row meets B's by one key, which B releases, and C's by another, which only A itself releases later."""
    table = Table("u", unique=((1,), (2,)))
    history = from_real_order(
        (table,),
        [
            (B, (insert("u", 2, "x", None),)),
            (B, (delete("u", 2, "x", None),)),
            (A, (insert("u", 1, "x", 7),)),
            (A, (update("u", (1, "x", 7), (1, "x", None)),)),
            (C, (insert("u", 3, None, 7),)),
        ],
        streams=3,
    )
    tally.histories += 1
    assert Search(history, Settings(batch=2, calm=2, jump_after_seconds=0.0), 0, tally).run() == {history.end}
    world = World(history, Settings(batch=1))
    for name, vector in (("B", (0, 1, 0)), ("C", (0, 1, 1))):
        while world.vector != vector:
            world.step(name)
    while not world.is_asleep("A"):
        world.step("A")
    finish(world)
    assert world.vector == history.end
    counters = world.board.progress("A").counters
    assert (counters.waits, counters.jumps) == (1, 1)
