"""A hot-key workload: a few unique values and rows that several shards hand to each other all the time.

Knows: its tables and what it wrote itself. Never knows: the target or vmerge. Used by the tests, as a process of its
own (``python -m vmerge.lab.hot_keys``), so that it takes no time from the daemon's interpreter.

What kind of histories
----------------------
Every state that all shards have at one instant is legal: nothing exists twice. Most of the time so is every single
transaction: what one takes, an earlier one has released. But some business transactions span shards. Each shard gives
up a value and takes the other's, and all commit at one moment; of these no order of single transactions is legal, and
only a joint commit brings them to a target. In between, for less than a millisecond, the shards themselves show a
duplicate.

Values move again and again, so a stream that is ahead may have final rows in the way of one that lags: waiting alone
does not merge this workload (``workload.py`` tells of one where it does).

Pauses
------
On SIGUSR1 the process ends the business that each lane is in, prints ``paused`` on a line of its own and writes no more
until SIGUSR2, which it answers with ``resumed``: what a target is compared with must stand still.

Lanes
-----
Each lane has values and rows of its own, a thread, and a connection to every shard. So within a lane the real order is
known and legal, and lanes commit side by side, as an application's sessions do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import queue
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass

from vmerge.lab.hot_lane import Lane

LANES = 4
JOIN_SECONDS = 130.0
COLD_IDS_OF_A_LANE = 10_000_000
PAUSED, RESUMED = "paused", "resumed"
"""What is printed once everything stands still, and once it goes on: of two signals that wait, none is the earlier."""


@dataclass(frozen=True)
class Options:
    """What a workload does."""

    shards: tuple[tuple[str, str], ...]
    """Unix socket and database of each shard."""
    seconds: float
    rate: float
    """Pieces of business a second, of all lanes together; each has one to four transactions."""
    seed: int
    lanes: int


class _Barrier:
    """Where lanes stand still between two pieces of business. Any thread may call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_closed = False
        self._standing = 0

    def pass_by(self) -> None:
        """Stand still while it is closed."""
        with self._changed:
            self._standing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._is_closed)
            self._standing -= 1

    def close(self, count: int) -> None:
        """Return when so many stand still."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: self._standing >= count or not self._is_closed)

    def open(self) -> None:
        """Let everybody go on."""
        with self._changed:
            self._is_closed = False
            self._changed.notify_all()


class HotKeys:
    """One thread a lane."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = threading.Event()
        self._barrier = _Barrier()
        self._failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        # Cold ids grow with the clock: a second workload on the same shards never meets the ids of the first.
        first_cold_id = int(time.time()) * COLD_IDS_OF_A_LANE
        self._lanes = [
            Lane(
                number,
                options.shards,
                first_cold_id=first_cold_id + number * COLD_IDS_OF_A_LANE // options.lanes,
                chance=random.Random(options.seed * 1000 + number),
            )
            for number in range(options.lanes)
        ]

    def stop(self) -> None:
        """End after the business that each lane is in."""
        self._stop.set()
        self._barrier.open()

    def pause(self) -> None:
        """Return when no lane is in any business; ``resume`` lets them go on."""
        self._barrier.close(len(self._lanes))

    def resume(self) -> None:
        """Go on."""
        self._barrier.open()

    def run(self) -> Counter[str]:
        """Write until the time is over or ``stop``; return what was done.

        Raises:
            Exception: the first one of any lane; the others have ended by then.
        """
        threads = [threading.Thread(target=self._write, args=(lane,), daemon=True) for lane in self._lanes]
        for thread in threads:
            thread.start()
        self._stop.wait(self._options.seconds)
        self.stop()
        for thread in threads:
            thread.join(JOIN_SECONDS)
        if not self._failures.empty():
            raise self._failures.get()
        return sum((lane.done for lane in self._lanes), Counter())

    def _write(self, lane: Lane) -> None:
        interval = self._options.lanes / self._options.rate
        due = time.monotonic()
        try:
            lane.open()
            while not self._stop.is_set():
                self._barrier.pass_by()
                lane.step()
                # A lane that was slow for a moment catches up, but not for a whole outage.
                due = max(due + interval, time.monotonic() - 0.5)
                self._stop.wait(max(0.0, due - time.monotonic()))
        except Exception as error:
            self._failures.put(error)
            self.stop()
        finally:
            lane.close()


def command(
    shards: Sequence[tuple[str, str]], *, seconds: float, rate: float, seed: int = 1, lanes: int = LANES
) -> list[str]:
    """Return the command line that runs a workload as a process of its own."""
    places = [word for socket_path, database in shards for word in ("--shard", socket_path, database)]
    return [
        *(sys.executable, "-m", "vmerge.lab.hot_keys", *places),
        *("--seconds", str(seconds), "--rate", str(rate), "--seed", str(seed), "--lanes", str(lanes)),
    ]


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m vmerge.lab.hot_keys", description=__doc__.splitlines()[0])
    parser.add_argument("--shard", nargs=2, action="append", required=True, metavar=("SOCKET", "DATABASE"))
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=200.0, help="pieces of business a second, in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=LANES)
    chosen = parser.parse_args(arguments)
    shards = tuple((socket_path, database) for socket_path, database in chosen.shard)
    return Options(shards, chosen.seconds, chosen.rate, chosen.seed, chosen.lanes)


def _obey(workload: HotKeys, signals: Set[signal.Signals]) -> None:
    while True:
        match signal.sigwait(signals):
            case signal.SIGUSR1:
                workload.pause()
                print(PAUSED, flush=True)
            case signal.SIGUSR2:
                workload.resume()
                print(RESUMED, flush=True)
            case _:
                workload.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a workload; its last line is what it did, as JSON. SIGTERM and SIGINT end it early and cleanly."""
    logging.basicConfig(format="hot keys: %(message)s", stream=sys.stderr)
    workload = HotKeys(_parse(arguments))
    signals = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # of all threads: one of its own takes them
    threading.Thread(target=_obey, args=(workload, signals), daemon=True).start()
    done = workload.run()
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(done), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
