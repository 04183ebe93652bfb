"""A workload as a process of its own beside a lab's servers.

Knows: how to start ``workload.py`` and read what it did. Never knows: what it writes. Used by the demo and the tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

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
