"""The conflict machine: its transition table row by row, its evidence rules, and what holds for every sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from vmerge.core import conflict_terms as terms
from vmerge.core.conflict import batch_limit, decide
from vmerge.core.conflict_terms import (
    Applied,
    Ask,
    Await,
    Clear,
    Conflicted,
    Event,
    FailedJump,
    GiveUp,
    Inquiry,
    Isolating,
    Joining,
    Jumping,
    Limits,
    Locked,
    Park,
    Proceed,
    Reason,
    Rejected,
    Siblings,
    State,
    Stuck,
    Unfoldable,
    Unjoined,
    Unreached,
    Waiting,
    Woken,
)
from vmerge.core.duplicates import DuplicatePolicy
from vmerge.core.evidence import Held, Presence
from vmerge.core.verdict import Finding, Permanent, Proof, Transient, Unproven

LIMITS = Limits(
    batch_transactions=16,
    timeout_seconds=10.0,
    calm_transactions=5,
    locks_before_smaller=3,
    jump_after_seconds=1e9,
    ask_after_seconds=1e9,
)
JUMPS = replace(LIMITS, jump_after_seconds=2.0)
ASKS = replace(LIMITS, ask_after_seconds=1.0)
FREE = Siblings(version=7, count=2)
UNFREE = Siblings(version=7, count=2, unfree=("-80",))
ALONE = Siblings(version=0, count=0)
STILL = Siblings(version=7, count=2, is_moving=False)
WAITING = Waiting(since=100.0, attempts=1, siblings=FREE, counted_at=100.0)

HELD = Held(("shop", "customer"), "email", ("email",), ("x",), "id=1", "id=2", Presence.ALIVE, {"A": Presence.ALIVE})
DUPLICATE = Permanent(Proof.DUPLICATE, HELD, "A")
OTHER_DUPLICATE = Permanent(Proof.DUPLICATE, replace(HELD, holder="id=3"), "A")
TRANSIENT = Transient(HELD, ("A",))
FINDINGS: list[Finding] = [DUPLICATE, OTHER_DUPLICATE, TRANSIENT, Transient(None, ()), Unproven("nobody answers")]

small = st.integers(0, 60)
instants = st.floats(0, 1000)
siblings = st.builds(Siblings, small, st.integers(0, 3), st.sampled_from([(), ("B",)]), st.booleans())
failed_jumps = st.none() | st.builds(FailedJump, instants, st.integers(1, 40), small)
suspects = st.sampled_from([None, DUPLICATE, OTHER_DUPLICATE])
inquiries = st.none() | st.builds(Inquiry, instants, st.integers(1, 40), suspects)
waits = st.builds(
    Waiting,
    instants,
    st.integers(1, 9),
    siblings,
    instants,
    instants,
    st.integers(0, 5),
    st.booleans(),
    failed_jumps,
    inquiries,
)
states: st.SearchStrategy[State] = st.one_of(
    st.builds(Clear, st.integers(0, 5)),
    st.builds(Isolating, st.integers(1, 15), small, st.none() | small, st.integers(0, 5)),
    waits,
    st.builds(Jumping, waits, st.integers(1, 64), st.integers(1, 40), st.integers(0, 5)),
    st.builds(Joining, waits, instants, st.integers(0, 5)),
    st.builds(Stuck, st.sampled_from(Reason), suspects),
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Applied, st.integers(1, 16), small),
    st.builds(Conflicted, st.integers(1, 16), siblings, instants, instants),
    st.builds(Locked, st.integers(1, 16), instants, instants),
    st.builds(Rejected, st.integers(1, 16), instants, instants),
    st.builds(Unfoldable, instants, instants),
    st.builds(Unreached, instants, instants),
    st.builds(Unjoined, instants, instants),
    st.builds(terms.Testified, st.sampled_from(FINDINGS), instants, instants, st.sampled_from(DuplicatePolicy)),
    st.just(Woken()),
)
limits = st.builds(
    Limits,
    st.integers(1, 16),
    st.floats(0, 100),
    st.integers(1, 60),
    st.floats(0, 10),
    st.floats(0, 10),
    locks_before_smaller=st.integers(1, 4),
)


def conflicted(count: int = 1, siblings: Siblings = FREE, now: float = 100.0) -> Conflicted:
    """Return a conflict with a pause of half a second."""
    return Conflicted(count, siblings, now, 0.5)


# Whatever comes


@given(states, events, limits)
def test_every_pair_has_an_answer(state: State, event: Event, limits: Limits) -> None:
    """Total and deterministic: a state and a decision for every pair, the same each time, and a limit of at least 1."""
    answer = decide(state, event, limits)
    assert answer == decide(state, event, limits)
    following, decision = answer
    assert isinstance(following, get_args(State))
    is_bounded = not isinstance(following, Jumping)  # a jump is as long as it must be
    assert 1 <= batch_limit(following, limits) <= (max(limits.batch_transactions, 15) if is_bounded else 128)
    assert isinstance(decision, GiveUp) == isinstance(following, Stuck)


@given(st.sampled_from(Reason), events)
def test_stuck_stays_stuck(reason: Reason, event: Event) -> None:
    """Nothing leads out of Stuck, and its reason stays."""
    assert decide(Stuck(reason), event, LIMITS) == (Stuck(reason), GiveUp(reason))


# The transition table


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        (Clear(), Applied(9, 7), Clear()),
        (Clear(locks=2), Applied(9, 7), Clear()),
        (WAITING, Applied(1, 8), Isolating(limit=1, moved_from=8)),
        (Isolating(), Applied(1, 7), Isolating(calm=1)),
        (Isolating(calm=4), Applied(1, 7), Isolating(limit=2, calm=5)),
        (Isolating(moved_from=7), Applied(1, 7), Isolating(calm=1, moved_from=7)),
        (Isolating(moved_from=7), Applied(1, 8), Isolating(limit=2, calm=1, moved_from=7)),
        (Isolating(limit=8, calm=5), Applied(8, 7), Clear()),
        (Isolating(locks=2), Applied(1, 7), Isolating(calm=1)),
    ],
)
def test_a_commit(state: State, event: Applied, expected: State) -> None:
    """After a commit a clear stream stays clear, a blocked one goes on alone, an isolated one grows when it may."""
    assert decide(state, event, LIMITS) == (expected, Proceed())


@pytest.mark.parametrize("state", [Clear(), Isolating(limit=4, calm=9, moved_from=3), Clear(locks=2)])
@pytest.mark.parametrize("event", [conflicted(4), Rejected(4, 100.0, 0.5)])
def test_a_batch_that_fails_is_split(state: State, event: Event) -> None:
    """A batch is replayed one by one at once, whoever its siblings are: nothing is kept back for a wait."""
    assert decide(state, event, LIMITS) == (Isolating(), Proceed())
    assert batch_limit(Isolating(), LIMITS) == 1


@pytest.mark.parametrize("state", [Clear(), Clear(locks=2), Isolating(limit=4, calm=9, moved_from=3)])
def test_a_single_transaction_waits(state: State) -> None:
    """It waits for its pause, or for any commit behind the snapshot of before the attempt."""
    following, decision = decide(state, conflicted(), LIMITS)
    assert following == WAITING
    assert decision == Await(100.5, seen_version=7)


def test_a_wait_goes_on() -> None:
    """A failed retry counts, keeps the wait's beginning, and waits behind the newer snapshot."""
    newer = Siblings(9, 2)
    following, decision = decide(WAITING, conflicted(siblings=newer, now=103.0), LIMITS)
    assert following == Waiting(100.0, 2, newer, counted_seconds=3.0, counted_at=103.0)
    assert decision == Await(103.5, seen_version=9)


def test_a_wait_times_out() -> None:
    """Blocked for the whole time-out with free siblings, a stream gives up."""
    assert decide(WAITING, conflicted(now=110.0), LIMITS) == (Stuck(Reason.TIMED_OUT), GiveUp(Reason.TIMED_OUT))


@pytest.mark.parametrize("state", [Clear(), Isolating(), WAITING])
def test_a_single_refusal_is_final(state: State) -> None:
    """What waiting does not change is not waited for."""
    assert decide(state, Rejected(1, 100.0, 0.5), LIMITS) == (Stuck(Reason.REJECTED), GiveUp(Reason.REJECTED))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Clear(), Clear(locks=1)),
        (Clear(locks=2), Isolating(limit=8)),
        (Isolating(limit=8, locks=2), Isolating(limit=4)),
        (Isolating(limit=1, locks=2), Isolating(limit=1)),
        (Waiting(100.0, 1, FREE, locks=9), Waiting(100.0, 1, FREE, locks=10)),
    ],
)
def test_locks(state: State, expected: State) -> None:
    """A lock conflict pauses for its time only; several in a row halve the batch; a blocked stream stays blocked."""
    assert decide(state, Locked(1, 50.0, 0.25), LIMITS) == (expected, Await(50.25, seen_version=None))


@pytest.mark.parametrize("state", [Clear(locks=1), Isolating(limit=2, calm=3), WAITING])
def test_waking_changes_nothing(state: State) -> None:
    """The next attempt tells."""
    assert decide(state, Woken(), LIMITS) == (state, Proceed())


# Jumps

AGAIN = replace(WAITING, attempts=2, siblings=STILL)


def test_a_jump_comes_when_no_sibling_moves() -> None:
    """The second failure in a row is answered with a jump when every sibling is at its head or waits itself."""
    following, decision = decide(WAITING, conflicted(siblings=STILL), JUMPS)
    assert (following, decision) == (Jumping(AGAIN, count=1, began_at=100.0), Proceed())
    assert batch_limit(following, JUMPS) == 1


@pytest.mark.parametrize(("now", "jumps"), [(101.9, False), (102.0, True)])
def test_siblings_that_move_are_waited_for_first(now: float, jumps: bool) -> None:
    """While siblings move, a jump comes only after its time."""
    following, _ = decide(WAITING, conflicted(now=now), JUMPS)
    assert isinstance(following, Jumping) is jumps


def test_the_first_failure_never_jumps() -> None:
    """Waiting comes first: a jump hides the states in between."""
    following, decision = decide(Clear(), conflicted(siblings=STILL), JUMPS)
    assert isinstance(following, Waiting)
    assert isinstance(decision, Await)


def test_a_jump_grows_until_all_that_arrived_was_tried() -> None:
    """One more each time, later an eighth more; with fewer than asked for, it was all, and the stream waits again."""
    jumping = Jumping(AGAIN, count=1, began_at=103.0)
    lengths = []
    while jumping.count < 100:
        lengths.append(jumping.count)
        longer, decision = decide(jumping, conflicted(jumping.count, STILL), JUMPS)
        assert isinstance(longer, Jumping)
        assert decision == Proceed()
        jumping = longer
    assert lengths == [*range(1, 65), 72, 81, 91]
    state, decision = decide(jumping, conflicted(5, replace(STILL, version=9), now=104.0), JUMPS)
    assert state == Joining(replace(AGAIN, last_jump=FailedJump(104.0, 5, 9, 1.0)), until=104.5)
    assert decision == Park(104.5)


@pytest.mark.parametrize(
    ("version", "now", "expected"),
    [
        (9, 105.0, None),
        (9, 106.0, (6, 6)),
        (10, 105.0, None),
        (10, 106.0, (1, 1)),
    ],
)
def test_the_next_jump(version: int, now: float, expected: tuple[int, int] | None) -> None:
    """It comes its time later; longer than the last one unless a sibling has moved, when any length may fit."""
    state = replace(AGAIN, last_jump=FailedJump(104.0, 5, 9))
    following, _ = decide(state, conflicted(siblings=replace(STILL, version=version), now=now), JUMPS)
    if expected is None:
        assert not isinstance(following, Jumping)
    else:
        assert isinstance(following, Jumping)
        assert (following.count, following.least) == expected


def test_a_jump_without_more_transactions_is_offered() -> None:
    """With fewer transactions than the least, nothing new is known of a jump; siblings may know more."""
    waiting = replace(AGAIN, last_jump=FailedJump(90.0, 5, 7))
    following, decision = decide(Jumping(waiting, 10, least=6), Unreached(100.0, 0.5), JUMPS)
    later = replace(AGAIN, last_jump=FailedJump(100.0, 5, 7))
    assert (following, decision) == (Joining(later, until=100.5), Park(100.5))


def test_what_cannot_be_folded_is_never_tried_again() -> None:
    """The images ahead do not change, so this wait jumps no more."""
    following, decision = decide(Jumping(AGAIN, 2), Unfoldable(100.0, 0.5), JUMPS)
    assert following == replace(AGAIN, may_jump=False)
    assert decision == Await(100.5, seen_version=7)
    again, _ = decide(following, conflicted(siblings=STILL, now=200.0), replace(JUMPS, timeout_seconds=1e9))
    assert isinstance(again, Waiting)


def test_a_jump_that_succeeds_ends_the_wait() -> None:
    """After it the stream goes on alone, as after any wait."""
    assert decide(Jumping(AGAIN, 4), Applied(4, 8), JUMPS) == (Isolating(moved_from=8), Proceed())


def test_a_jump_that_is_refused_is_not_tried_again() -> None:
    """The wait goes on where it was, time-out and all: what is refused stands behind what is blocked."""
    following, decision = decide(Jumping(AGAIN, 4), Rejected(4, 100.0, 0.5), JUMPS)
    assert following == replace(AGAIN, may_jump=False)
    assert decision == Await(100.5, seen_version=7)


# Joint commits

FAILED = replace(AGAIN, last_jump=FailedJump(104.0, 5, 7))
JOINING = Joining(FAILED, until=105.0)


@pytest.mark.parametrize(
    ("version", "now", "joins"),
    [(7, 101.0, True), (9, 101.0, True), (9, 102.0, False)],
)
def test_a_stream_joins_after_a_jump_that_failed(version: int, now: float, joins: bool) -> None:
    """From then on it is on offer whenever it waits, until the next jump is due."""
    state = replace(AGAIN, last_jump=FailedJump(100.0, 5, 7))
    following, decision = decide(state, conflicted(siblings=Siblings(version, 2), now=now), JUMPS)
    assert isinstance(following, Joining) is joins
    assert isinstance(decision, Park) is joins


@pytest.mark.parametrize(("now", "jumps"), [(110.9, False), (111.0, True)])
def test_the_rest_after_a_long_jump_is_longer(now: float, jumps: bool) -> None:
    """Three times as long as the jump itself took, so that a blocked stream leaves the machine to others."""
    state = replace(AGAIN, last_jump=FailedJump(105.0, 5, 7, seconds=2.0))
    following, _ = decide(state, conflicted(siblings=Siblings(9, 2), now=now), replace(JUMPS, timeout_seconds=1e9))
    assert isinstance(following, Jumping) is jumps


def test_a_stream_that_may_soon_jump_looks_often() -> None:
    """Siblings that moved a moment ago may all be blocked by now, and nobody tells."""
    assert decide(WAITING, Conflicted(1, FREE, 100.5, 5.0), JUMPS)[1] == Await(100.7, seen_version=7)


@pytest.mark.parametrize("finding", FINDINGS[2:])
def test_a_stream_that_joined_is_on_offer_again_after_a_testimony(finding: Finding) -> None:
    """Evidence takes a moment, not a turn."""
    waiting = replace(FAILED, inquiry=Inquiry(104.5, 1))
    following, decision = decide(waiting, terms.Testified(finding, 104.5, 0.25), JUMPS)
    assert isinstance(following, Joining)
    assert decision == Park(104.75)


def test_a_joint_commit_ends_the_wait() -> None:
    """After it the stream goes on alone, as after any wait."""
    assert decide(JOINING, Applied(4, 8), JUMPS) == (Isolating(moved_from=8), Proceed())


def test_a_joint_commit_that_does_not_fit_pauses() -> None:
    """The wait goes on as it was before the offer."""
    assert decide(JOINING, Unjoined(105.0, 0.5), JUMPS) == (FAILED, Await(105.5, seen_version=7))


def test_an_offer_that_nobody_took_is_followed_by_an_attempt_alone() -> None:
    """When its time is over, or a sibling moved, the stream tries alone again."""
    assert decide(JOINING, Woken(), JUMPS) == (FAILED, Proceed())


# Evidence


@pytest.mark.parametrize("state", [Clear(), Isolating(), WAITING])
def test_rule_7_without_siblings_there_is_no_wait(state: State) -> None:
    """Nobody could release the key: it is asked at once why, and whatever the answer is, the stream gives up."""
    asking, decision = decide(state, conflicted(siblings=ALONE), LIMITS)
    assert decision == Ask()
    proven = (Stuck(Reason.PROVEN, DUPLICATE), GiveUp(Reason.PROVEN, DUPLICATE))
    assert decide(asking, terms.Testified(DUPLICATE, 100.0, 0.5), LIMITS) == proven
    vain = (Stuck(Reason.NO_SIBLING), GiveUp(Reason.NO_SIBLING))
    for finding in FINDINGS[2:]:
        assert decide(asking, terms.Testified(finding, 100.0, 0.5), LIMITS) == vain


def test_evidence_is_gathered_when_a_wait_lasts() -> None:
    """After the first second, and before any longer wait than that."""
    _, decision = decide(WAITING, Conflicted(1, FREE, 100.9, 5.0), ASKS)
    assert decision == Await(101.0, seen_version=7)
    following, decision = decide(WAITING, conflicted(now=101.0), ASKS)
    assert isinstance(following, Waiting)
    assert (following.inquiry, decision) == (Inquiry(101.0, 1), Ask())


def test_asking_comes_before_the_second_jump_and_after_the_first() -> None:
    """A jump may make evidence needless, but jumps that lead nowhere never keep evidence away."""
    limits = replace(JUMPS, ask_after_seconds=1.0)
    assert isinstance(decide(AGAIN, conflicted(siblings=STILL, now=105.0), limits)[0], Jumping)
    jumped = replace(AGAIN, last_jump=FailedJump(101.0, 5, 7))
    assert decide(jumped, conflicted(siblings=STILL, now=105.0), limits)[1] == Ask()


def test_a_proof_counts_when_it_is_given_twice() -> None:
    """A brief duplicate at the sources has time to pass; a second later the same proof ends the stream."""
    asking = replace(AGAIN, inquiry=Inquiry(101.0, 1))
    suspicious, decision = decide(asking, terms.Testified(DUPLICATE, 101.1, 5.0), ASKS)
    assert suspicious == replace(AGAIN, inquiry=Inquiry(101.0, 1, DUPLICATE))
    assert decision == Await(102.0, seen_version=7)
    again, decision = decide(suspicious, conflicted(now=102.0), ASKS)
    assert decision == Ask()
    confirmed = (Stuck(Reason.PROVEN, DUPLICATE), GiveUp(Reason.PROVEN, DUPLICATE))
    assert decide(again, terms.Testified(DUPLICATE, 102.1, 5.0), ASKS) == confirmed


def test_a_duplicate_of_a_quarantined_table_is_set_aside() -> None:
    """The second proof ends no stream there: the wait goes on as new, and every remedy may be tried again."""
    again = replace(AGAIN, inquiry=Inquiry(102.0, 2, DUPLICATE), last_jump=FailedJump(101.0, 5, 7), counted_seconds=2.0)
    testified = terms.Testified(DUPLICATE, 102.1, 5.0, DuplicatePolicy.QUARANTINE)
    following, decision = decide(again, testified, ASKS)
    assert decision == terms.SetAside(DUPLICATE)
    assert following == replace(AGAIN, inquiry=None, last_jump=None, counted_seconds=0.0)


@pytest.mark.parametrize("proof", [Proof.FOREIGN_ROW, Proof.STRICTER_TARGET])
def test_only_duplicates_are_set_aside(proof: Proof) -> None:
    """What nobody has at a source, or what the target alone refuses, stops the stream under every policy."""
    finding = replace(DUPLICATE, proof=proof)
    again = replace(AGAIN, inquiry=Inquiry(102.0, 2, finding))
    testified = terms.Testified(finding, 102.1, 5.0, DuplicatePolicy.QUARANTINE)
    assert decide(again, testified, ASKS)[1] == GiveUp(Reason.PROVEN, finding)


@pytest.mark.parametrize("finding", FINDINGS[1:])
def test_another_finding_ends_a_suspicion(finding: Finding) -> None:
    """Only the same proof about the same rows confirms a proof."""
    suspicious = replace(AGAIN, inquiry=Inquiry(101.0, 2, DUPLICATE))
    following, decision = decide(suspicious, terms.Testified(finding, 101.1, 0.1), ASKS)
    assert isinstance(following, Waiting)
    assert isinstance(decision, Await)


@pytest.mark.parametrize(("count", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (5, 16.0), (6, 30.0), (40, 30.0)])
def test_evidence_that_proves_nothing_is_gathered_ever_more_rarely(count: int, seconds: float) -> None:
    """Twice the time after each testimony, half a minute at most."""
    waiting = replace(WAITING, inquiry=Inquiry(101.0, count))
    limits = replace(ASKS, timeout_seconds=1e9)
    assert decide(waiting, conflicted(now=100.99 + seconds), limits)[1] != Ask()
    assert decide(waiting, conflicted(now=101.0 + seconds), limits)[1] == Ask()


def test_a_wait_whose_end_is_known_does_not_time_out() -> None:
    """A testimony that says which stream will release the key starts the blocked time anew."""
    asking = replace(WAITING, counted_seconds=9.0, inquiry=Inquiry(109.0, 3))
    following, _ = decide(asking, terms.Testified(TRANSIENT, 109.1, 0.5), LIMITS)
    assert isinstance(following, Waiting)
    assert following.counted_seconds == 0.0


@pytest.mark.parametrize(
    ("own", "holder", "may_jump", "sees_on", "counted"),
    [
        (Presence.GONE, Presence.ALIVE, False, True, 9.0),
        (Presence.GONE, Presence.ALIVE, True, False, 9.0),
        (Presence.GONE, Presence.ALIVE, True, True, 0.0),
        (Presence.GONE, Presence.GONE, False, False, 0.0),
        (Presence.ALIVE, Presence.CHANGED, False, False, 0.0),
    ],
)
def test_a_wait_that_only_an_impossible_jump_would_end_times_out(
    own: Presence, holder: Presence, may_jump: bool, sees_on: bool, counted: float
) -> None:
    """The sibling's row stays, ours goes later, and what is between cannot be followed or read: nothing ends this."""
    held = replace(HELD, own_presence=own, holder_presences={"A": holder})
    asking = replace(WAITING, counted_seconds=9.0, may_jump=may_jump, inquiry=Inquiry(109.0, 3))
    testified = terms.Testified(Transient(held, ("B",)), 109.1, 0.5, sees_on=sees_on)
    following, _ = decide(asking, testified, LIMITS)
    assert isinstance(following, Waiting)
    assert following.counted_seconds == counted


def test_rule_1_a_sibling_that_moved_during_the_attempt_wakes_at_once() -> None:
    """The awaited version is that of before the attempt, not the one at the time of the failure."""
    before = Siblings(version=7, count=1)
    _, decision = decide(Clear(), Conflicted(1, before, now=100.0, pause_seconds=2.0), LIMITS)
    assert isinstance(decision, Await)
    assert decision.seen_version == before.version


@pytest.mark.parametrize(
    ("earlier", "later", "counted"),
    [(FREE, FREE, 5.0), (UNFREE, FREE, 0.0), (FREE, UNFREE, 0.0), (UNFREE, UNFREE, 0.0)],
)
def test_rule_5_time_counts_only_while_every_sibling_is_free(
    earlier: Siblings, later: Siblings, counted: float
) -> None:
    """The time between two attempts counts when every sibling was free before both."""
    waiting = Waiting(100.0, 1, earlier, counted_at=100.0)
    following, _ = decide(waiting, conflicted(siblings=later, now=105.0), LIMITS)
    assert isinstance(following, Waiting)
    assert following.counted_seconds == counted
    assert following.counted_at == 105.0


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=20))
def test_rule_5_a_stopped_sibling_is_waited_for_without_end(pauses: list[float]) -> None:
    """However long it lasts, there is no time-out while a sibling is not free."""
    state: State = Clear()
    now = 0.0
    for pause in pauses:
        now += pause
        state, decision = decide(state, conflicted(siblings=UNFREE, now=now), LIMITS)
        assert isinstance(decision, Await)


# Batching comes back


class Batching(RuleBasedStateMachine):
    """A stream's life, with a model that knows only the words of the docstring."""

    @initialize(full=st.integers(1, 32), calm=st.integers(1, 12))
    def begin(self, full: int, calm: int) -> None:
        self.limits = Limits(full, timeout_seconds=1e9, calm_transactions=calm)
        self.state: State = Clear()
        self.version = 0
        self.own = 0
        """Own transactions since the last conflict."""
        self.moved_from: int | None = None
        self.has_met_conflict = False

    def limit(self) -> int:
        """Return how many transactions the next attempt may hold."""
        return batch_limit(self.state, self.limits)

    @rule(count=st.integers(1, 3))
    def siblings_commit(self, count: int) -> None:
        self.version += count

    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, self.limit()))
        before, was_waiting = self.limit(), isinstance(self.state, Waiting)
        self.state, decision = decide(self.state, Applied(count, self.version), self.limits)
        assert decision == Proceed()
        if was_waiting:
            self.own, self.moved_from = 0, self.version
        else:
            self.own += count
        if self.limit() > before:
            sibling_moved = self.moved_from is not None and self.version > self.moved_from
            assert not was_waiting
            assert sibling_moved or self.own >= self.limits.calm_transactions, "batching came back too early"
            assert self.limit() <= 2 * before or self.limit() == self.limits.batch_transactions <= 2 * before
        elif not was_waiting and self.own >= self.limits.calm_transactions:
            assert self.limit() == self.limits.batch_transactions, "batching did not come back"

    @rule(data=st.data())
    def conflict(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, self.limit()))
        event = Conflicted(count, Siblings(self.version, 1), 0.0, 0.1)
        self.state, _ = decide(self.state, event, self.limits)
        self.own, self.moved_from, self.has_met_conflict = 0, None, True
        assert self.limit() == 1

    @rule()
    def lock(self) -> None:
        before, was_waiting = self.limit(), isinstance(self.state, Waiting)
        locks = self.state.locks if not isinstance(self.state, Stuck) else 0
        self.state, _ = decide(self.state, Locked(1, 0.0, 0.1), self.limits)
        if locks + 1 >= self.limits.locks_before_smaller and not was_waiting:
            self.own, self.moved_from = 0, None
            assert self.limit() == max(1, before // 2)
        else:
            assert self.limit() == before

    @invariant()
    def limit_is_within_bounds(self) -> None:
        if hasattr(self, "limits"):
            assert 1 <= self.limit() <= self.limits.batch_transactions
            assert not isinstance(self.state, Stuck)


def test_batching_comes_back_when_it_may() -> None:
    """The limit grows only after the blocked transaction and a sibling's commit, or after calm; and then it does."""
    run_state_machine_as_test(Batching, settings=settings(max_examples=150, derandomize=True, deadline=None))
