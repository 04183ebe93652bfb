"""The named conflict sequences that nothing can end: every order of steps leads to the right verdict, or to the union.

From every interleaving, with batches of one to three and a crash anywhere: streams that could go on are at their ends,
the others have given up with the proof that fits, and the target has a prefix of every shard. The numbers are those of
the index in ``test_sequences.py``.
"""

from __future__ import annotations

from tests.sim.history import History, Work
from tests.sim.rows import Change, Table, insert
from tests.sim.search import Search, Tally
from tests.sim.test_sequences import U, add, drop
from tests.sim.world import Settings, World

from vmerge.core.conflict_terms import Stuck
from vmerge.core.verdict import Permanent, Proof
from vmerge.errors import ConflictProven

OTHERS = (add(90, None),)
"""What has nothing to do with the conflict."""


def asking(batch: int) -> Settings:
    """Return settings under which evidence is asked for at every failure, and whoever is parked goes on alone."""
    return Settings(batch, calm=2, jump_after_seconds=0.0, ask_after_seconds=0.0, pause=lambda attempt: 0.0)


def findings(world: World) -> dict[str, Permanent]:
    """Return what each stream that gave up has proven."""
    found = {}
    for name, stream in world.streams.items():
        if stream.failure is not None:
            assert isinstance(stream.failure, ConflictProven)
            state = stream.player._contention.state
            assert isinstance(state, Stuck)
            assert state.finding is not None
            found[name] = state.finding
    return found


def assert_always_proven(history: History, proof: Proof, key: str, tally: Tally, *, foreign: Work = ()) -> None:
    """Search a history under all settings: one stream gives up with this proof, all others reach their ends."""

    def judge(world: World) -> None:
        ((name, finding),) = findings(world).items()
        assert (finding.proof, finding.held.key) == (proof, key), f"{name}: {finding}"
        assert not world.unfinished()
        others = [at for at, one in enumerate(world.streams) if one != name]
        assert all(world.vector[at] == history.end[at] for at in others), f"a sibling stopped, too: {world.vector}"

    tally.histories += 1
    for batch in (1, 2, 3):
        assert Search(history, asking(batch), 1, tally, foreign, judge).run()


def test_sequence_10_both_shards_have_the_value_for_good(tally: Tally) -> None:
    """10: two rows of two shards have one value for good: whoever comes later gives up and names both."""
    history = History((U,), (((add(1, 25),),), ((add(2, 25),),)))
    assert_always_proven(history, Proof.DUPLICATE, "unique_0", tally)


def test_sequence_11_both_shards_count_from_the_same_number(tally: Tally) -> None:
    """11: two shards gave one automatic number to different rows: a duplicate primary key."""
    history = History((U,), (((add(7, "x"),),), ((add(7, "y"),),)))
    assert_always_proven(history, Proof.DUPLICATE, "PRIMARY", tally)


def test_sequence_14_the_target_takes_for_equal_what_the_source_keeps_apart(tally: Tally) -> None:
    """14: A has two rows that are equal for the target's key alone: no sibling can help, and A gives up."""
    history = History((U,), (((add(1, "bob"),), (add(2, "bob"),)), (OTHERS,)))
    assert_always_proven(history, Proof.STRICTER_TARGET, "unique_0", tally)


def test_sequence_15_somebody_wrote_a_row_to_the_target(tally: Tally) -> None:
    """15: a row that no shard has is in A's way: A gives up, and the row stays."""
    history = History((U,), (((add(1, 25),),), (OTHERS,)))
    assert_always_proven(history, Proof.FOREIGN_ROW, "unique_0", tally, foreign=(add(9, 25),))


def test_sequence_16_a_position_older_than_the_rows(tally: Tally) -> None:
    """16: the row that A brings is on the target already, as after a restored position: A gives up and says so."""
    history = History((U,), (((add(1, 25),),), (OTHERS,)))
    assert_always_proven(history, Proof.ALREADY_THERE, "PRIMARY", tally, foreign=(add(1, 25),))


def test_sequence_17_a_reference_table_that_is_on_every_shard(tally: Tally) -> None:
    """17: both shards have the same rows of a reference table, which one of them should bring: a duplicate."""
    history = History((Table("reference"),), (((insert("reference", 1, "x"),),), ((insert("reference", 1, "x"),),)))
    assert_always_proven(history, Proof.DUPLICATE, "PRIMARY", tally)


def test_sequence_28_a_source_that_has_two_equal_rows(tally: Tally) -> None:
    """28: A has two equal rows from a session without unique checks, written in one transaction: A gives up."""
    history = History((U,), (((add(1, 25), add(2, 25)),), (OTHERS,)))
    assert_always_proven(history, Proof.STRICTER_TARGET, "unique_0", tally)


def test_sequence_29_two_tenants_with_one_address(tally: Tally) -> None:
    """29: the key leaves out the tenant, and two tenants on two shards have the same address: a duplicate."""

    def person(id_: int, tenant: str) -> Change:
        return insert("person", id_, tenant, "ann@example.org")

    table = Table("person", unique=((2,),))
    history = History((table,), (((person(1, "north"),),), ((person(2, "south"),),)))
    assert_always_proven(history, Proof.DUPLICATE, "unique_0", tally)


def test_a_value_that_was_released_is_no_proof(tally: Tally) -> None:
    """The same as 10, with A's row gone again: from every order the union, though evidence is asked for at once."""
    history = History((U,), (((add(1, 25),), (drop(1, 25),)), ((add(2, 25),),)))
    assert Search(history, asking(batch=2), 1, tally, (), lambda world: None).run() == {history.end}
