"""Workloads as processes of their own beside a lab's servers.

Knows: how to start ``workload.py`` and ``hot_keys.py`` and read what they did. Never
knows: what they write. Used by the demo and the tests.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence

from vmerge.lab import hot_keys
from vmerge.lab.processes import Program
from vmerge.lab.servers import Lab
from vmerge.lab.shop import ShopShard
from vmerge.lab.shop_shard import Tally
from vmerge.lab.workload import command


class WorkloadProcess(Program):
    """Runs from its creation until the time is over or ``finish`` is called."""

    def __init__(
        self,
        lab: Lab,
        shards: Sequence[ShopShard],
        *,
        seconds: float,
        rate: float = 300.0,
        seed: int = 1,
        moves_again: bool = False,
    ) -> None:
        places = [(str(shard.server.socket_path), shard.database) for shard in shards]
        line = command(places, seconds=seconds, rate=rate, seed=seed)
        super().__init__(lab, f"workload-{seed}", [*line, *(["--moves-again"] if moves_again else [])])

    def finish(self) -> Tally:
        """End it, cleanly and early if need be, and return what it committed.

        Raises:
            ProgramFailed: it failed, and what it was writing is unknown.
        """
        if self.end() != 0:
            raise self.failure()
        return Tally(**json.loads(self.output))


class HotKeysProcess(Program):
    """The hot-key workload, from its creation until the time is over or ``finish`` is called."""

    def __init__(self, lab: Lab, shards: Sequence[ShopShard], *, seconds: float, rate: float, seed: int = 1) -> None:
        places = [(str(shard.server.socket_path), shard.database) for shard in shards]
        line = hot_keys.command(places, seconds=seconds, rate=rate, seed=seed)
        super().__init__(lab, f"hot-keys-{len(shards)}-{seed}", line)

    @property
    def is_paused(self) -> bool:
        """Whether it stands still, and has not been let go on."""
        answers = [line for line in self.output.splitlines() if line in (hot_keys.PAUSED, hot_keys.RESUMED)]
        return answers[-1:] == [hot_keys.PAUSED]

    def pause(self) -> None:
        """Ask it to stand still; it does as soon as ``is_paused``. Not while it is yet to go on."""
        os.kill(self.pid, signal.SIGUSR1)

    def resume(self) -> None:
        """Ask it to go on; it does as soon as it is not ``is_paused``."""
        os.kill(self.pid, signal.SIGUSR2)

    def finish(self) -> Counter[str]:
        """End it, cleanly and early if need be, and return how often it did what.

        Raises:
            ProgramFailed: it failed, and what it was writing is unknown.
        """
        if self.end() != 0:
            raise self.failure()
        return Counter(json.loads(self.output.splitlines()[-1]))
