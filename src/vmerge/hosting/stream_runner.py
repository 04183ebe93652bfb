"""What a stream's own thread does: players, one after the other, until it is told to stop or fails for good.

Knows: which state a stream is stored in, what ends a player, and what follows. Never knows: when a thread is started or
who ends it. Used by the supervisor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from vmerge.core.seldom import kind_of
from vmerge.core.states import Phase, StreamState
from vmerge.errors import Fenced, Replanned, TargetError, Verdict, VmergeError
from vmerge.hosting.hosted import NOWHERE, TOLD_AGAIN_SECONDS, Gate, Hosted, Restarts, Stored, shown_position
from vmerge.player.board import Board
from vmerge.stopping import Clock
from vmerge.unexpected import name_of

logger = logging.getLogger(__name__)


class StreamRunner:
    """Runs the streams of one workflow, each in the thread that calls ``run``.

    Promise: a stream that fails for good says so on the board, in the log and, where it can be stored, on the target.
    Owner: the supervisor, whose lock guards ``failures``, and what an order and its thread both decide.
    """

    def __init__(
        self,
        workflow: str,
        board: Board,
        gate: Gate,
        lock: threading.Lock,
        *,
        clock: Clock,
        pause: Callable[[int], float],
    ) -> None:
        self._workflow = workflow
        self._board = board
        self._gate = gate
        self._lock = lock
        self._clock = clock
        self._pause = pause
        self.failures: dict[str, VmergeError] = {}
        """Why streams are in error, by their names."""

    def about(self, stream: str) -> dict[str, str]:
        """Return what a log record about a stream carries, in whatever thread it is made."""
        return {"stream": f"{self._workflow}/{stream}"}

    def run(self, hosted: Hosted) -> None:
        """Run players until the stream is told to stop or fails for good."""
        logger.info("starting%s", ", by an operator" if hosted.order.resumes else "", extra=self.about(hosted.name))
        restarts = Restarts()
        while not hosted.stop.is_set():
            failure = self._run_player(hosted, restarts)
            if failure is None or hosted.stop.is_set():
                break
            if failure.verdict is not Verdict.TRANSIENT:
                self.fail(hosted, failure)
                break
            restarts.learn(hosted.parts.player if hosted.parts is not None else None)
            if isinstance(failure, Replanned):
                logger.info("%s; reading the schemas anew", failure.message, extra=self.about(hosted.name))
                continue
            self._back_off(hosted, failure, restarts)
        self._board.update(hosted.name, phase=Phase.IDLE, blocked=None, is_at_head=False)

    def _run_player(self, hosted: Hosted, restarts: Restarts) -> VmergeError | None:
        """Run one player to its end; return what ended it, None if nothing went wrong."""
        try:
            if not self._enter(hosted) or not self._may_run(hosted):
                return None
            parts = hosted.assembly.build(
                hosted.claim_by(hosted.assembly),
                self._board,
                after_conflict=restarts.after_conflict,
                accepted_schema_changes=hosted.order.accepted_schema_changes,
                stops_at=hosted.stops_at or NOWHERE,
            )
            hosted.parts = parts
            # Whoever stops sets the token first and then looks for the parts: one of both sees the other.
            if not hosted.stop.is_set():
                parts.player.run(hosted.stop)
                if parts.player.is_at_stop_position:
                    self._come_to_stop(hosted)
        except VmergeError as error:
            return error
        except Exception as error:
            logger.exception("internal error", extra=self.about(hosted.name))
            return VmergeError(f"internal error: {name_of(error)}")
        return None

    def _enter(self, hosted: Hosted) -> bool:
        """Wait until the workflow is ours; return whether it is."""

        def waits(text: str, is_well: bool) -> None:
            phase = Phase.STANDBY if is_well else Phase.BACKING_OFF
            # Times of an earlier tenure of ours tell nothing any more of how old the target is.
            unknown = {"applied_at": None, "heard_at": None, "moved_at": None}
            self._board.update(hosted.name, phase=phase, message=text, is_at_head=False, **unknown)

        self._gate.enter(hosted.stop, waits)
        if hosted.stop.is_set():
            return False
        self._board.update(hosted.name, phase=Phase.CONNECTING, message="")
        return True

    def _may_run(self, hosted: Hosted) -> bool:
        """Look at the durable state, entering the stream if there is none; an operator's start overrides it."""
        claim, is_first_look = hosted.claim_by(hosted.assembly), hosted.is_entered is None
        stored = hosted.assembly.find(claim)
        hosted.is_entered = stored is not None
        if stored is None:
            try:
                hosted.assembly.enter(claim)
            except TargetError:
                hosted.is_entered = None  # the connection may have broken behind the entry
                raise
            hosted.is_entered = True
        elif self._board.progress(hosted.name).applied_at is None:
            self._board.update(hosted.name, applied_at=stored.applied_at)
        if stored is not None and is_first_look:
            text = shown_position(stored.position)
            logger.info("goes on from its checkpoint, behind %s", text, extra=self.about(hosted.name))
        if stored is not None and stored.state is not StreamState.RUNNING and self._stays(hosted):
            logger.info("stays %s: %s", stored.state.value, stored.message, extra=self.about(hosted.name))
            self._board.update(
                hosted.name,
                state=stored.state,
                message=stored.message,
                applied=stored.position,
                stops_at=stored.stops_at,
            )
            return False
        self._store_order(hosted, stored)
        return True

    def _store_order(self, hosted: Hosted, stored: Stored | None) -> None:
        """Store that the stream runs, and where it shall stop, if that is news; its restarts go by what is stored."""
        known = NOWHERE if stored is None else stored.stops_at
        stops_at = known if hosted.order.stops_at is None else hosted.order.stops_at
        if stops_at != known or (stored is not None and stored.state is not StreamState.RUNNING):
            hosted.assembly.write(hosted.claim_by(hosted.assembly), StreamState.RUNNING, "", stops_at)
        hosted.order = replace(hosted.order, resumes=False, stops_at=None)
        hosted.stops_at = stops_at
        self._board.update(hosted.name, stops_at=stops_at)

    def _come_to_stop(self, hosted: Hosted) -> None:
        """Store that a stream has come to where it was ordered to stop."""
        message = f"stopped as ordered, with all of {hosted.stops_at} applied and nothing behind it"
        hosted.last_words.write(hosted.claim_by(hosted.last_words), StreamState.STOPPED, message, NOWHERE)
        self._board.update(hosted.name, state=StreamState.STOPPED, message=message, stops_at=NOWHERE)
        logger.info("%s", message, extra=self.about(hosted.name))

    def _stays(self, hosted: Hosted) -> bool:
        """Decide that a stream stays as it is stored, unless an operator has wanted it to run by now."""
        with self._lock:
            hosted.stays = not hosted.order.resumes
            return hosted.stays

    def _back_off(self, hosted: Hosted, failure: VmergeError, restarts: Restarts) -> None:
        pause = self._pause(restarts.attempt)
        lines, now = self._board.lines(hosted.name), self._clock.monotonic()
        telling = lines.tell(kind_of(failure.message), now, TOLD_AGAIN_SECONDS)
        if telling is not None:
            logger.warning("%s; trying again%s", failure.message, telling, extra=self.about(hosted.name))
        counters = self._board.progress(hosted.name).counters.with_restart(type(failure).__name__)
        self._board.update(
            hosted.name, phase=Phase.BACKING_OFF, message=failure.message, counters=counters, is_at_head=False
        )
        began_at = self._clock.monotonic()
        hosted.stop.wait(pause)
        paused = counters.restart_seconds + self._clock.monotonic() - began_at
        self._board.update(hosted.name, counters=replace(counters, restart_seconds=paused))

    def fail(self, hosted: Hosted, failure: VmergeError) -> None:
        """Let a stream be in error; its thread calls this, or an order while it has none."""
        if hosted.is_entered and not isinstance(failure, Fenced):
            failure = self._store_failure(hosted, failure)
        message = _text_of(failure)
        logger.error("%s", message, extra=self.about(hosted.name))
        with self._lock:
            self.failures[hosted.name] = failure
        self._board.update(hosted.name, state=StreamState.ERROR, message=message)

    def _store_failure(self, hosted: Hosted, failure: VmergeError) -> VmergeError:
        """Store the error state; return what really ended the stream.

        The row of a stream that was taken over belongs to the daemon that did so. What this one met, such as a dump
        that the source ended for the newer one's, is then but a consequence.
        """
        try:
            hosted.last_words.write(hosted.claim_by(hosted.last_words), StreamState.ERROR, _text_of(failure))
        except Fenced as fenced:
            return fenced
        except Exception as error:  # whatever it is, the board must not go on to say that the stream runs
            told = error.message if isinstance(error, VmergeError) else name_of(error)
            logger.warning("the error state could not be stored: %s", told, extra=self.about(hosted.name))
        return failure


def _text_of(failure: VmergeError) -> str:
    return " — ".join(filter(None, (failure.message, failure.hint)))
