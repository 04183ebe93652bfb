"""What evidence proves: the table of the module, row by row."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from vmerge.core import evidence
from vmerge.core.evidence import Held, Presence
from vmerge.core.position import GtidSet
from vmerge.core.verdict import Finding, Permanent, Proof, Standing, Transient, Unproven, judge

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ALIVE, CHANGED, GONE = Presence.ALIVE, Presence.CHANGED, Presence.GONE


def at(last: int) -> GtidSet:
    """Return a position behind so many transactions."""
    return GtidSet.parse(f"{UUID}:1-{last}")


def held(own: Presence, holder: Mapping[str, Presence], *, name: str = "id=2") -> Held:
    """Return evidence about stream B's row 1, kept out by a row of the target."""
    return Held(("shop", "customer"), "email", ("email",), ("x",), "id=1", name, own, holder)


def finding(*rows: Held, applied: int = 9, fence: int | None = 9, heads: tuple[str, ...] = ("A", "B", "C")) -> Finding:
    """Judge evidence about stream B; siblings A and C stand at a position, before or behind their fences."""
    positions = {"A": at(applied), "B": at(1), "C": at(applied)}
    fences = {} if fence is None else dict.fromkeys("ABC", at(fence))
    testimony = evidence.Testimony(rows, dict.fromkeys(heads, at(9)))
    return judge(testimony, Standing("B", positions, fences))


def test_two_rows_alive_are_a_true_duplicate() -> None:
    """Both seen at their sources: permanent, however far the sibling is."""
    both = held(ALIVE, {"A": ALIVE, "B": GONE, "C": GONE})
    for applied, fence in ((9, 9), (1, 9), (1, None)):
        assert finding(both, applied=applied, fence=fence) == Permanent(Proof.DUPLICATE, both, "A")


@pytest.mark.parametrize("own", [GONE, CHANGED])
@pytest.mark.parametrize("holder", [GONE, CHANGED, ALIVE])
def test_our_own_later_transactions_release_it(own: Presence, holder: Presence) -> None:
    """A row of ours that is no longer so at our source: the jump will help."""
    one = held(own, {"A": holder, "B": GONE, "C": GONE})
    assert finding(one) == Transient(one, ("B",))


def test_a_holder_that_changed_is_waited_for() -> None:
    """Its stream brings the change."""
    one = held(ALIVE, {"A": GONE, "B": GONE, "C": CHANGED})
    assert finding(one) == Transient(one, ("C",))


@pytest.mark.parametrize(("applied", "fence"), [(8, 9), (9, None)])
def test_streams_before_their_fences_are_waited_for(applied: int, fence: int | None) -> None:
    """A holder that no source has any more belongs to a stream that has not come so far; without a fence, too."""
    one = held(ALIVE, {"A": GONE, "B": GONE, "C": GONE})
    assert finding(one, applied=applied, fence=fence) == Transient(one, ("A", "C"))


def test_behind_all_fences_a_row_of_nobody_is_foreign() -> None:
    """No source has it and no stream is going to remove it."""
    one = held(ALIVE, {"A": GONE, "B": GONE, "C": GONE})
    assert finding(one) == Permanent(Proof.FOREIGN_ROW, one, None)


def test_behind_all_fences_a_row_of_ours_means_a_stricter_target() -> None:
    """Our source holds both rows side by side."""
    one = held(ALIVE, {"A": GONE, "B": ALIVE, "C": GONE})
    assert finding(one) == Permanent(Proof.STRICTER_TARGET, one, "B")
    changing = held(ALIVE, {"A": GONE, "B": CHANGED, "C": GONE})
    assert finding(changing) == Transient(changing, ("B",))


def test_a_row_with_our_primary_key_is_there_already() -> None:
    """At our own source that key is our own row, which says nothing about where the one on the target came from."""
    one = held(ALIVE, {"A": GONE, "B": ALIVE, "C": GONE}, name="id=1")
    assert finding(one) == Permanent(Proof.ALREADY_THERE, one, None)


def test_a_source_that_is_silent_leaves_it_open() -> None:
    """What a source was not asked about may be there; a true duplicate seen elsewhere is one all the same."""
    gone = held(ALIVE, {"A": GONE, "B": GONE})
    assert isinstance(finding(gone, heads=("A", "B")), Unproven)
    both = held(ALIVE, {"A": ALIVE, "B": GONE})
    assert isinstance(finding(both, heads=("A", "B")), Permanent)


def test_the_gravest_finding_counts() -> None:
    """One row that can never be applied outweighs others that will pass."""
    passing = held(GONE, {"A": ALIVE, "B": GONE, "C": GONE})
    lasting = held(ALIVE, {"A": ALIVE, "B": GONE, "C": GONE})
    assert finding(passing, lasting) == Permanent(Proof.DUPLICATE, lasting, "A")
    assert finding(passing) == Transient(passing, ("B",))


def test_nothing_held_is_no_conflict() -> None:
    """The target would take the rows by now."""
    assert finding() == Transient(None, ())
