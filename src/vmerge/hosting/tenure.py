"""Whether this process may run a workflow: the workflow's lock on the target, gained, kept and lost.

Knows: what a daemon does that finds the lock with another, and that it loses it. Never knows: SQL, or what a stream is
doing. Used by the supervisor as its gate: one thread keeps the lock, and each stream's thread enters before it works.

Nothing rests on the lock for exactness. It keeps a second daemon from disturbing the first, and tells a standby when to
begin; that no two ever write is the work of the epochs (``mysql/checkpoints.py``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from vmerge.errors import DaemonError, Fenced, PreflightError, TargetError, Verdict
from vmerge.stopping import Clock, StopToken

logger = logging.getLogger(__name__)

SPEAK_SECONDS = 1.0
"""How often a holder speaks; five times in what the server gives it."""

WAIT_SECONDS = 2
"""How long one question for the lock waits for it at the server; who waits there gets it at once."""

OUTLIVED_SECONDS = 6.0
"""A holder that is dead loses the lock within five seconds; whoever has it for longer lives."""

REFUSED_SECONDS = 10.0
"""How often a standby asks a target that refuses it, which time alone does not change."""

YIELD_PACES = 3
"""A target that restarts has forgotten its locks. Whoever had one may speak so often before a standby asks."""

EXAMINED_AGAIN_SECONDS = 300.0
"""How often a standby looks whether it could run the workflow."""


class Approach(Enum):
    """What a daemon does about a workflow that another one runs."""

    REFUSE = "refuse"
    """Leave it alone, and say so."""
    STANDBY = "standby"
    """Wait for the other's end, however long that takes."""
    TAKE_OVER = "take over"
    """Take it, once: the other is fenced."""


class WorkflowLock(Protocol):
    """The lock; see ``mysql/workflow_lock.py``. Every call but the last two raises ``TargetError``."""

    def acquire(self, seconds: int) -> str | None:
        """Wait so long for the lock; return None if it is ours, else who has it."""

    def seize(self) -> None:
        """End the session that has the lock."""

    def keep(self) -> bool:
        """Say something; return whether the lock is still ours."""

    def prepare(self) -> str:
        """Upgrade older control tables; return in words which there are."""

    def interrupt(self) -> None:
        """Break a call that hangs, from another thread."""

    def close(self) -> None:
        """Let go of the lock."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of the lock. Nothing but ``is_ours`` false: it is still being asked for."""

    is_ours: bool = False
    holder: str = ""
    """Who else has it."""
    error: TargetError | None = None
    """Why it cannot be had, or that cannot be told."""
    was_ours: bool = False
    """Whether the other one took it from us."""

    @property
    def is_known(self) -> bool:
        """Whether there is an answer."""
        return self.is_ours or bool(self.holder) or self.error is not None


class Tenure:
    """One workflow's lock, as one process has it or not.

    Owner: the thread in ``keep``. Any thread may call the other methods. Its lock may outlive it: a workflow that is
    read anew keeps it.
    """

    def __init__(
        self,
        workflow: str,
        lock: WorkflowLock,
        approach: Approach,
        clock: Clock,
        examine: Callable[[], None],
        standing: Standing | None = None,
        speak_seconds: float = SPEAK_SECONDS,
    ) -> None:
        """``examine`` raises ``PreflightError`` when the workflow could not run from here.

        ``standing`` is that of the tenure whose lock this one goes on with.
        """
        self._workflow = workflow
        self.lock = lock
        self._approach = approach
        self._clock = clock
        self._speak_seconds = speak_seconds
        self._examine = examine
        self._changed = threading.Condition()
        self._standing = standing or Standing()
        self._is_asked = True
        """Whether the lock is to be asked for: an answer that is final ends that, and an order begins it anew."""
        self._has_failed = False
        self._was_held = self._standing.is_ours
        """Whether streams may run by a lock that we had."""
        self._examining = threading.Lock()
        self._examined_at: float | None = None
        self._unfit = ""

    @property
    def standing(self) -> Standing:
        """What is known of the lock now."""
        return self._standing

    # For operators

    @property
    def standby_for(self) -> str | None:
        """Whom a standby waits for; None when it does not wait."""
        standing = self._standing
        return standing.holder if self._approach is Approach.STANDBY and standing.holder else None

    @property
    def refusal(self) -> Fenced | None:
        """Why the workflow is not run here, if another daemon runs it and is not waited for."""
        standing = self._standing
        if not standing.holder or self._approach is Approach.STANDBY:
            return None
        verb = "was taken over by" if standing.was_ours else "is run by"
        return Fenced(f"workflow {self._workflow} {verb} another daemon ({standing.holder})")

    def require_orders(self) -> None:
        """Pass when orders about the workflow belong here. Raises ``DaemonError`` in a standby."""
        if self.standby_for is not None:
            raise DaemonError(
                f"workflow `{self._workflow}` is only in standby here: {self.standby_for} runs it",
                hint="Give the order there.",
            )

    def ask(self) -> None:
        """Ask for the lock once more, as an operator wants the workflow here: it may be lost without our knowing."""
        with self._changed:
            if self._standing.is_ours or not self._is_asked:
                self._standing, self._is_asked = Standing(), True
                self._changed.notify_all()

    def first_look(self, stop: StopToken, seconds: float) -> None:
        """Wait so long until it is known whose the lock is, or that this cannot be known."""
        stop.wait_for(self._changed, lambda: self._standing.is_known, seconds)

    # In the streams' threads

    def enter(self, stop: StopToken, waits: Callable[[str, bool], None]) -> None:
        """Return once the workflow is ours, or when told to stop.

        ``waits`` is told what is waited for, and whether this is as it shall be: whether a standby could take over.

        Raises:
            TargetError: the lock cannot be asked for, and waiting does not change that.
            Fenced: another daemon runs the workflow, and is not waited for.
        """
        shown = ""
        while not stop.is_set() and not self._standing.is_ours:
            standing = self._standing
            refusal = self.refusal
            if refusal is not None:
                raise refusal
            text, is_well = self._words(standing)
            if text and text != shown:
                waits(text, is_well)
                shown = text
            stop.wait_for(self._changed, lambda: self._standing is not standing, EXAMINED_AGAIN_SECONDS)  # noqa: B023  # at once

    def _words(self, standing: Standing) -> tuple[str, bool]:
        error = standing.error
        if error is not None and not (self._is_asked and error.verdict is Verdict.TRANSIENT):
            raise type(error)(error.message, hint=error.hint)
        if error is not None:
            return error.message, False
        if not standing.holder:
            return "", True
        self._examine_if_due()
        if self._unfit:
            return f"waits for {standing.holder}; could not take over: {self._unfit}", False
        return f"waits for {standing.holder}", True

    def _examine_if_due(self) -> None:
        if not self._examining.acquire(blocking=False):
            return
        try:
            now = self._clock.monotonic()
            if self._examined_at is not None and now - self._examined_at < EXAMINED_AGAIN_SECONDS:
                return
            self._examined_at, self._unfit = now, ""
            try:
                self._examine()
            except PreflightError as error:
                self._unfit = " ".join(error.message.split())
                logger.warning("workflow %s: the standby could not take over: %s", self._workflow, self._unfit)
        finally:
            self._examining.release()

    # In the lock's thread

    def keep(self, stop: StopToken, on_lost: Callable[[], None]) -> None:
        """Ask for the lock and keep it until told to stop; ``on_lost`` is called when another daemon has taken it."""
        while not stop.is_set():
            if self._standing.is_ours:
                is_doubted = stop.wait_for(self._changed, lambda: not self._standing.is_ours, self._speak_seconds)
                if not stop.is_set() and not is_doubted:
                    self._speak(on_lost)
            elif self._is_asked:
                self._ask_once(stop, on_lost)
            else:
                stop.wait_for(self._changed, lambda: self._is_asked, 3600.0)

    def interrupt(self) -> None:
        """End what ``keep`` waits for at the target, from another thread."""
        self.lock.interrupt()

    def close(self) -> None:
        """Let go of the lock, when ``keep`` has ended."""
        self.lock.close()
        self._change(Standing())

    def _speak(self, on_lost: Callable[[], None]) -> None:
        """See that the lock is still ours; get it again if only its session is lost."""
        try:
            if self.lock.keep():
                self._has_failed = False
                return
            holder = self.lock.acquire(0)
        except TargetError as error:
            if not self._has_failed:
                logger.warning("workflow %s: its lock may be lost: %s", self._workflow, error.message)
            self._has_failed = True
            return
        if holder is None:
            logger.info("workflow %s: its lock is held again", self._workflow)
            self._has_failed = False
            return
        logger.warning("workflow %s was taken over by another daemon (%s)", self._workflow, holder)
        self._is_asked = self._approach is Approach.STANDBY
        self._was_held = False
        self._change(Standing(holder=holder, was_ours=True))
        on_lost()

    def _ask_once(self, stop: StopToken, on_lost: Callable[[], None]) -> None:
        try:
            holder = self._find_holder(stop)
            if stop.is_set():
                return
            if holder is None:
                self._gained()
                return
        except TargetError as error:
            self._failed(error, stop)
            return
        self._is_asked = self._approach is Approach.STANDBY
        if holder != self._standing.holder:
            words = "stands by for" if self._is_asked else "is run by"
            logger.info("workflow %s %s another daemon (%s)", self._workflow, words, holder)
            self._change(replace(self._standing, holder=holder, error=None))
        if self._was_held:
            self._was_held = False
            on_lost()

    def _find_holder(self, stop: StopToken) -> str | None:
        """Ask for the lock as long as the approach says; return None if it is ours."""
        if self._has_failed and self._approach is Approach.STANDBY:
            stop.wait(YIELD_PACES * self._speak_seconds)
        holder = self.lock.acquire(WAIT_SECONDS if self._approach is Approach.STANDBY else 0)
        self._has_failed = False
        if self._approach is Approach.TAKE_OVER and holder is not None:
            logger.warning("workflow %s is taken from another daemon (%s)", self._workflow, holder)
            self.lock.seize()
        until = self._clock.monotonic() + OUTLIVED_SECONDS
        while (
            holder is not None
            and self._approach is not Approach.STANDBY
            and self._clock.monotonic() < until
            and not stop.is_set()
        ):
            holder = self.lock.acquire(WAIT_SECONDS)
        return holder

    def _gained(self) -> None:
        logger.info("workflow %s: its lock is held; %s", self._workflow, self.lock.prepare())
        self._is_asked = False
        if self._approach is Approach.TAKE_OVER:
            self._approach = Approach.REFUSE  # once: whoever takes it back is not fought
        self._was_held = True
        self._change(Standing(is_ours=True))

    def _failed(self, error: TargetError, stop: StopToken) -> None:
        self.lock.close()
        self._has_failed = True
        is_passing = error.verdict is Verdict.TRANSIENT
        self._is_asked = is_passing or self._approach is Approach.STANDBY
        before = self._standing.error
        if before is None or before.message != error.message:
            logger.warning("workflow %s: %s", self._workflow, error.message)
            self._change(Standing(error=error))
        if self._is_asked:
            stop.wait(self._speak_seconds if is_passing else REFUSED_SECONDS)

    def _change(self, standing: Standing) -> None:
        with self._changed:
            self._standing = standing
            self._changed.notify_all()
