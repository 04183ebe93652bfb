"""A live application on several shards: it inserts, updates and deletes, and moves unique values between shards.

Knows: the shop's tables and what it wrote itself. Never knows: the target or vmerge. Used by the demo and the tests,
as a process of its own (``python -m vmerge.lab.workload``), so that it takes no time from the daemon's interpreter.

Histories are legal: a value or a row is released by one shard, in a committed transaction, before another shard
takes it. Nothing ever exists twice.

Why waiting always suffices
---------------------------
A stream that waits for a key is stuck for ever if its sibling *keeps* the key: shard A inserts k and later releases
it, shard B then takes k for good, and B's stream is ahead, so that A's insert meets B's final row. The release that
would help is A's own and stands behind the insert. (The jump resolves it; ``--moves-again`` makes such histories.)

So what moves here is *on the target before any stream starts* (the seeded rows, ``shop.py``), moves once, and is
never taken again by another shard; everything else stays on the shard where it was born. Then a stream can only be
blocked by a holder that its sibling released earlier in real time than our transaction was committed. If A is blocked
at its transaction a by a release r of B, then r was before a, and B's stream is blocked (if it is) at b, not after r:
b ≤ r < a. Along a chain of waits the instants fall, so no chain closes to a ring: some stream can always move,
whatever the lag. The same holds for keys taken and released in one transaction, for whole rows and for any number
of shards.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from vmerge.lab.shop_shard import Offer, ShardWriter, Tally

logger = logging.getLogger(__name__)

MILLISECONDS_TO_IDS = 1000
JOIN_SECONDS = 130.0
"""Longer than a writer tries to reach its shard again."""


@dataclass(frozen=True)
class Options:
    """What a workload does."""

    shards: tuple[tuple[str, str], ...]
    """Unix socket and database of each shard."""
    seconds: float
    rate: float
    """Transactions a second on each shard."""
    seed: int
    moves_again: bool


class Workload:
    """One thread a shard. Values travel through queues: an offer is queued after its release was committed."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stop = threading.Event()
        self._failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
        inboxes: list[queue.SimpleQueue[Offer]] = [queue.SimpleQueue() for _ in options.shards]
        # Ids grow with the clock: a second workload on the same shards never meets the ids of the first.
        first_id = int(time.time() * 1000) * MILLISECONDS_TO_IDS
        self._writers = [
            ShardWriter(
                socket_path,
                database,
                first_id=first_id + index,
                id_step=len(options.shards),
                inbox=inboxes[index],
                outboxes=[inbox for other, inbox in enumerate(inboxes) if other != index],
                chance=random.Random(options.seed * 1000 + index),
                moves_again=options.moves_again,
            )
            for index, (socket_path, database) in enumerate(options.shards)
        ]

    def stop(self) -> None:
        """End after the transaction that each shard is in."""
        self._stop.set()

    def run(self) -> Tally:
        """Write until the time is over or ``stop``.

        Raises:
            Exception: the first one of any writer; the others have ended by then.
        """
        threads = [threading.Thread(target=self._write, args=(writer,), daemon=True) for writer in self._writers]
        for thread in threads:
            thread.start()
        self._stop.wait(self._options.seconds)
        self._stop.set()
        for thread in threads:
            thread.join(JOIN_SECONDS)
        if not self._failures.empty():
            raise self._failures.get()
        return sum((writer.tally for writer in self._writers), Tally())

    def _write(self, writer: ShardWriter) -> None:
        interval = 1.0 / self._options.rate
        due = time.monotonic()
        try:
            writer.open(self._stop)
            while not self._stop.is_set():
                writer.step(self._stop)
                # A shard that was slow for a moment catches up, but not for a whole outage.
                due = max(due + interval, time.monotonic() - 0.5)
                self._stop.wait(max(0.0, due - time.monotonic()))
        except Exception as error:
            self._failures.put(error)
            self._stop.set()
        finally:
            writer.close()


def command(shards: Sequence[tuple[str, str]], *, seconds: float, rate: float, seed: int = 1) -> list[str]:
    """Return the command line that runs a workload as a process of its own."""
    places = [word for socket_path, database in shards for word in ("--shard", socket_path, database)]
    return [
        *(sys.executable, "-m", "vmerge.lab.workload", *places),
        *("--seconds", str(seconds), "--rate", str(rate), "--seed", str(seed)),
    ]


def _parse(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m vmerge.lab.workload", description=__doc__.splitlines()[0])
    parser.add_argument("--shard", nargs=2, action="append", required=True, metavar=("SOCKET", "DATABASE"))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=300.0, help="transactions a second on each shard")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--moves-again", action="store_true", help="let what was moved move again: needs more than waiting to merge"
    )
    chosen = parser.parse_args(arguments)
    shards = tuple((socket_path, database) for socket_path, database in chosen.shard)
    return Options(shards, chosen.seconds, chosen.rate, chosen.seed, chosen.moves_again)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a workload; print what it did as one line of JSON. SIGTERM and SIGINT end it early and cleanly."""
    logging.basicConfig(format="workload: %(message)s", stream=sys.stderr)
    workload = Workload(_parse(arguments))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: workload.stop())
    tally = workload.run()
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(asdict(tally)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
