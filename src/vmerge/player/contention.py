"""What one stream does about a failed attempt: tells the conflict machine, gathers evidence, sets rows aside.

Knows: the machine's state, and what it must be told with each event. Never knows: how transactions are applied, or how
the machine decides (``core/conflict.py``). Used by the player alone, in its thread, which obeys the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vmerge.core import conflict_terms as terms
from vmerge.core.conflict import REST_SHARE, batch_limit, decide
from vmerge.core.conflict_terms import Ask, GiveUp, Proceed, SetAside, Waiting
from vmerge.core.events import Transaction
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.stretch import Stretch
from vmerge.core.verdict import Permanent
from vmerge.errors import KeyConflict, QuarantineSettled, Verdict, VmergeError
from vmerge.player.board import Board, Offered
from vmerge.player.inquiry import Inquiry
from vmerge.player.mishaps import Attempt, event_of, pause_before_next
from vmerge.player.quarantining import Quarantining
from vmerge.player.reporting import Reporter
from vmerge.player.runs import Runs
from vmerge.player.surrender import surrender
from vmerge.stopping import Clock

UNJOINED_ATTEMPT = 3
"""The pause after a joint commit that did not fit is that of a third attempt: soon, and others may be there by then."""

LONGEST_REST_SECONDS = 15.0
"""After a joint commit that did not fit, whatever it has cost: a target ends sessions that say nothing for longer."""


class Contention:
    """One stream's place in the conflict machine. Owner: the player."""

    def __init__(
        self,
        name: str,
        board: Board,
        runs: Runs,
        inquiry: Inquiry,
        quarantining: Quarantining,
        reporter: Reporter,
        *,
        limits: terms.Limits,
        clock: Clock,
        pause: Callable[[int], float],
        state: terms.State,
    ) -> None:
        self._name = name
        self._board = board
        self._runs = runs
        self._inquiry = inquiry
        self._quarantining = quarantining
        self._reporter = reporter
        self._limits = limits
        self._clock = clock
        self._pause = pause
        self.state = state
        self._snapshot = terms.Siblings(0, 0)

    @property
    def batch_limit(self) -> int:
        """How many transactions the next attempt may hold."""
        return batch_limit(self.state, self._limits)

    def begin_attempt(self) -> None:
        """Look at the siblings before an attempt: one that moves during it may release what the attempt misses."""
        self._snapshot = self._board.siblings_of(self._name)

    def committed(self, stretch: Stretch, position: GtidSet) -> None:
        """Say that these transactions are on the target with their position."""
        before = self.state
        # Before siblings hear of it: what they commit in answer shall count as a move of theirs.
        version = self._board.siblings_of(self._name).version
        self.decide(terms.Applied(stretch.count, version))
        self._reporter.committed(before, stretch, position, self.batch_limit)

    def decide(self, event: terms.Event) -> terms.Decision:
        """Tell the machine what has happened; the caller obeys."""
        before = self.state
        self.state, decision = decide(before, event, self._limits)
        self._reporter.decided(before, event, decision)
        return decision

    def unreached(self) -> terms.Decision:
        """Say that not enough has arrived for a jump."""
        return self.decide(terms.Unreached(*self._now_and_pause()))

    def unjoined(self, offered: Offered) -> terms.Decision:
        """Say that a joint commit with the stream's offer did not fit."""
        now = self._clock.monotonic()
        rest = min((now - offered.led_at) * REST_SHARE, LONGEST_REST_SECONDS)
        return self.decide(terms.Unjoined(now, self._pause(UNJOINED_ATTEMPT) + rest))

    def event_of(self, error: VmergeError, count: int) -> terms.Event | None:
        """Return what an attempt of so many transactions has met; None when it ends the player."""
        if isinstance(error, QuarantineSettled):
            self._quarantining.reread_later()
            self._runs.end_long()
        attempt = Attempt(self.state, count, self._snapshot, self._clock.monotonic())
        return event_of(error, attempt, self._pause)

    def failed(self, event: terms.Event, error: VmergeError, gtid: Gtid, position: GtidSet) -> terms.Decision:
        """Decide about an attempt that was rolled back, of transactions from ``gtid`` on.

        Raises:
            ConflictUnresolved, TargetError: the stream gives up.
        """
        before = self.state
        decision = self.decide(event)
        if isinstance(self.state, Waiting):
            key = error.key if isinstance(error, KeyConflict) else None
            self._reporter.waiting(self.state, str(gtid), key)
        if isinstance(decision, Ask):
            decision = self._ask(position)
        if isinstance(decision, GiveUp):
            now, beyond = self._clock.monotonic(), self._runs.failure
            raise surrender(self._name, gtid, decision, before, error, now, beyond) from error
        return decision

    def _ask(self, position: GtidSet) -> terms.Decision:
        """Gather evidence and tell the machine what it proves."""
        answer = self._inquiry.ask(self._runs.kept(position), self._runs.effect)
        self._reporter.found(answer.finding, answer.testimony)
        policy = self._quarantining.policy(answer.finding)
        sees_on = self._runs.failure is None
        decision = self.decide(terms.Testified(answer.finding, *self._now_and_pause(), policy, sees_on))
        return self._set_aside(answer.run, decision.finding) if isinstance(decision, SetAside) else decision

    def _set_aside(self, run: Sequence[Transaction], finding: Permanent) -> terms.Decision:
        """Mark the stream's own row of a duplicate, and try again; a row that cannot be found stops the stream."""
        try:
            self._quarantining.mark(run, self._runs.effect, finding, self._runs.last_of(run))
        except VmergeError as error:
            if error.verdict is not Verdict.TRANSIENT:
                give_up = GiveUp(terms.Reason.PROVEN, finding)
                self._reporter.decided(self.state, terms.Testified(finding, *self._now_and_pause()), give_up)
                return give_up
        self._runs.end_long()  # its transactions have passed without the mark
        return Proceed()

    def _now_and_pause(self) -> tuple[float, float]:
        """Return the instant and the pause before the attempt that comes next."""
        return self._clock.monotonic(), pause_before_next(self.state, self._pause)
