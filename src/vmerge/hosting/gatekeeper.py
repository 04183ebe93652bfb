"""The thread that keeps a workflow's gate, for one supervisor.

Knows: when it begins and ends. Never knows: what the gate stands for (``tenure.py``). Used by the supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from vmerge.hosting.hosted import Gate
from vmerge.stopping import StopToken


class GateKeeper:
    """Keeps a gate from the first start of a stream to the supervisor's end. Any thread may call."""

    def __init__(self, workflow: str, gate: Gate) -> None:
        self._name = f"lock:{workflow}"
        self._gate = gate
        self._lock = threading.Lock()
        self._stop = StopToken()
        self._thread: threading.Thread | None = None

    def begin(self, on_lost: Callable[[], None]) -> None:
        """Begin, once."""
        with self._lock:
            if self._thread is not None or self._stop.is_set():
                return
            # A daemon thread: a target that hangs keeps no process from its end.
            self._thread = threading.Thread(
                target=self._gate.keep, args=(self._stop, on_lost), name=self._name, daemon=True
            )
            self._thread.start()

    def hand_over(self, seconds: float) -> None:
        """End, and leave the gate as it is to a successor."""
        with self._lock:
            self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def let_go(self, seconds: float) -> None:
        """End, and let others in."""
        with self._lock:
            self._stop.set()
        self._gate.interrupt()
        self.hand_over(seconds)
        self._gate.close()
