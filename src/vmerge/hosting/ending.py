"""How the threads of streams are ended, in every state and within a bound.

Knows: the order of the steps, and how long each may take. Never knows: why threads are ended, or what is stored then.
Used by the supervisor.

The stop order
--------------
A stop ends within ``stop_timeout_seconds`` in every state. Each step gets a share of that time, and the next follows
only when threads are left:

1. The token is set, which ends every wait at once, and all calls are broken but those of a player to its target:
   connecting, reading states and schemas, examining servers, reading from the source. This is safe anywhere.
2. A target call that still runs is asked to end with KILL QUERY from a side connection; the player rolls back.
3. The target's socket is shut, and that over which a failure's reason is stored: the server rolls back, or COMMIT's
   outcome stays open until the checkpoint is read.
4. What still hangs is named in a ``StopTimeout``; the process may exit, since everything on the target is whole.

Storing the state afterwards has a share of the bound, too, for the target may be what hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from vmerge.core.states import Phase
from vmerge.errors import StopTimeout
from vmerge.hosting.hosted import Hosted, StreamParts
from vmerge.player.board import Board
from vmerge.stopping import Clock

_GRACE_SHARE, _KILL_SHARE, _SHUT_SHARE = 0.4, 0.15, 0.15
STORE_SHARE = 0.3
"""What is left of the bound for whoever stores the state."""


class Ending:
    """Ends threads of one workflow's streams. Any thread may call."""

    def __init__(self, workflow: str, board: Board, clock: Clock, stop_timeout_seconds: float) -> None:
        self._workflow = workflow
        self._board = board
        self._clock = clock
        self._stop_timeout_seconds = stop_timeout_seconds

    def end(self, hosted: Sequence[Hosted]) -> None:
        """Return when all threads have ended. Raises ``StopTimeout``, naming those that have not."""
        doing = {one.name: self._board.progress(one.name).phase.value for one in hosted}
        for one in hosted:
            if one.is_alive:
                self._board.update(one.name, phase=Phase.STOPPING, is_at_head=False)
            one.stop.set()
        for one in hosted:
            if one.is_alive:
                one.assembly.interrupt()
        self._each(hosted, lambda parts: parts.interrupt_source())
        is_ended = self._join(hosted, _GRACE_SHARE)
        if not is_ended:
            self._each_aside(hosted, lambda parts: parts.kill_target_query())
            is_ended = self._join(hosted, _KILL_SHARE)
        if not is_ended:
            for one in hosted:
                one.last_words.interrupt()
            self._each(hosted, lambda parts: parts.interrupt_target())
            is_ended = self._join(hosted, _SHUT_SHARE)
        if not is_ended:
            hanging = ", ".join(f"{one.name} (was {doing[one.name]})" for one in hosted if one.is_alive)
            raise StopTimeout(f"workflow {self._workflow}: did not stop within the bound: {hanging}")
        for one in hosted:
            self._board.update(one.name, phase=Phase.IDLE)

    def _each(self, hosted: Iterable[Hosted], action: Callable[[StreamParts], None]) -> None:
        for one in hosted:
            parts = one.parts
            if parts is not None and one.is_alive:
                action(parts)

    def _each_aside(self, hosted: Iterable[Hosted], action: Callable[[StreamParts], None]) -> None:
        """As ``_each``, side by side and without waiting: a server that hangs takes seconds to refuse."""
        for one in hosted:
            threading.Thread(target=self._each, args=([one], action), name=f"ending:{one.name}", daemon=True).start()

    def _join(self, hosted: Sequence[Hosted], share: float) -> bool:
        """Wait for threads to end; return whether all did."""
        until = self._clock.monotonic() + self._stop_timeout_seconds * share
        for one in hosted:
            if one.thread is not None:
                one.thread.join(max(0.0, until - self._clock.monotonic()))
        return not any(one.is_alive for one in hosted)
