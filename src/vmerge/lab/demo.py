"""The demo: two live shards become one table set, in front of a person's eyes, in half a minute.

Knows: the order of the show and how it is told. Never knows: how anything in it is done. Used by ``scripts/demo``.

Nothing is left behind: servers, daemon and workload end with this process, also after Ctrl-C, an error or a kill.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vmerge.core.position import GtidSet
from vmerge.errors import VerificationFailed, VmergeError
from vmerge.lab.arguments import above_zero
from vmerge.lab.comparison import Comparison, Shard, compare
from vmerge.lab.merge import Merge, Stream
from vmerge.lab.servers import Lab, Server
from vmerge.lab.shop import ShopShard, create_shop, seed_shop
from vmerge.lab.shop_shard import Tally
from vmerge.lab.workload_process import WorkloadProcess

WORKFLOW = "shop"
NAMES = ("-80", "80-")
RATE = 200.0
CUSTOMERS = 1500
"""On each shard: about what the workload moves in a minute."""
CATCH_UP_SECONDS = 300.0
"""Seconds on a machine of its own; this many on one that is busy."""
EXIT_INTERRUPTED = 130


@dataclass
class Show:
    """Everything that plays, and what was seen of it."""

    lab: Lab
    shards: Sequence[Server]
    target: Server
    streams: tuple[Stream, ...]
    merge: Merge
    seconds: float
    largest_lag: float = 0.0
    transactions: int = 0
    catch_up_seconds: float = 0.0
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)

    def written(self, stream: Stream) -> GtidSet:
        """What the shard has committed since the show began."""
        return executed(stream.server).subtract(stream.start or GtidSet())

    def applied_count(self, stream: Stream) -> int:
        """How many of these are on the target."""
        applied = GtidSet.parse(self.progress[stream.name]["applied"])
        return applied.subtract(stream.start or GtidSet()).count()

    def look(self) -> None:
        """Ask the daemon, and remember the largest lag."""
        self.progress = self.merge.progress()
        self.largest_lag = max(self.largest_lag, *map(self.lag, self.streams))

    def lag(self, stream: Stream) -> float:
        """By how much the target is behind: the age of the last applied transaction, unless it is the last one."""
        if self.applied_count(stream) >= self.written(stream).count():
            return 0.0
        return self.progress[stream.name]["lag_seconds"] or 0.0


def executed(server: Server) -> GtidSet:
    """Return everything that a server has."""
    return GtidSet.parse(server.query("SELECT @@GLOBAL.gtid_executed")[0][0])


def play(seconds: float, *, keeps: bool) -> int:
    """Play the whole show and return the exit code."""
    say("vmerge demo: two live MySQL shards become one")
    with Lab() as lab:
        servers, streams = _prepare(lab)
        with Merge(lab, WORKFLOW, streams, servers[-1]) as merge:
            merge.wait_until_streaming()
            say(f"  vmerge daemon (pid {merge.pid}): workflow `{WORKFLOW}`, one stream a shard, behind the copy")
            show = Show(lab, servers[:-1], servers[-1], streams, merge, seconds)
            tally = _run_workload(show)
            comparison = _compare(show)
            _tell_result(show, tally, comparison)
            if keeps:
                _keep(show)
    return 0 if comparison.is_equal else VerificationFailed.exit_code


def _prepare(lab: Lab) -> tuple[list[Server], tuple[Stream, ...]]:
    """Start the servers; give the shards their customers and the target a copy of them."""
    servers = lab.start_many([*NAMES, "target"])
    *shards, target = servers
    say(f"  MySQL {lab.distribution.version}: shards {' and '.join(NAMES)}, and an empty target")
    places = [ShopShard(server, f"shop_{index}") for index, server in enumerate(shards)]
    merged = ShopShard(target, "shop")
    for place in (*places, merged):
        create_shop(place.server, place.database)
    seed_shop(places, merged, CUSTOMERS)
    say(f"  {CUSTOMERS:,} customers on each shard, and a copy of them on the target")
    streams = tuple(
        Stream(place.server.name, place.server, {place.database: merged.database}, executed(place.server))
        for place in places
    )
    return servers, streams


# The workload


def _run_workload(show: Show) -> Tally:
    say(f"  workload: {RATE:.0f} transactions/s on each shard for {show.seconds:g} s: inserts, updates, deletes, and")
    say("            unique e-mail addresses and whole customers that move from shard to shard")
    say()
    _tell_head(show)
    places = [ShopShard(stream.server, next(iter(stream.databases))) for stream in show.streams]
    pause = _planned_pause(show)
    with WorkloadProcess(show.lab, places, seconds=show.seconds, rate=RATE) as workload:
        began_at = time.monotonic()
        for second in itertools.count(1):
            pause.act(second)
            if workload.ends_within(began_at + second - time.monotonic()):
                break
            show.look()
            _tell_progress(show, f"{second:3} s")
        tally = workload.finish()
    ended_at = time.monotonic()
    ends = {stream.name: executed(stream.server) for stream in show.streams}
    show.merge.wait_until_applied(ends, CATCH_UP_SECONDS)
    show.catch_up_seconds = time.monotonic() - ended_at
    show.look()
    show.transactions = sum(show.applied_count(stream) for stream in show.streams)
    _tell_progress(show, "  end")
    say()
    return tally


@dataclass
class _Pause:
    """Stops one stream for a while, so that its sibling runs into what it has not released yet."""

    merge: Merge
    stream: str
    begin: int
    end: int

    def act(self, second: int) -> None:
        """Do what is due in this second."""
        if second == self.begin:
            self.merge.stop_stream(self.stream)
            say(f"         `vmerge stop {WORKFLOW} {self.stream}`: its sibling must wait for what moved away from it")
        if second == self.end:
            self.merge.start_stream(self.stream)
            say(f"         `vmerge start {WORKFLOW} {self.stream}`")


def _planned_pause(show: Show) -> _Pause:
    begin = max(2, int(show.seconds * 0.4))
    return _Pause(show.merge, show.streams[0].name, begin, begin + max(1, min(3, int(show.seconds / 5))))


def _compare(show: Show) -> Comparison:
    return compare([Shard(stream.server, stream.databases) for stream in show.streams], show.target)


# What is told


def say(text: str = "") -> None:
    """Print a line at once, also into a pipe."""
    print(text, flush=True)


def _tell_head(show: Show) -> None:
    names = "".join(f"   {f'shard {stream.name}':>9} {'on target':>9} {'lag':>7}" for stream in show.streams)
    say(f"  time {names}   doing")


def _tell_progress(show: Show, label: str) -> None:
    cells, doing = "", []
    for stream in show.streams:
        seen = show.progress[stream.name]
        lag = f"{show.lag(stream):.1f} s"
        cells += f"   {show.written(stream).count():>9,} {show.applied_count(stream):>9,} {lag:>7}"
        if seen["state"] != "running":
            doing.append(f"{stream.name} {seen['state']}")
        elif seen["blocked"]:
            doing.append(f"{stream.name} waits for {seen['blocked']['key'] or 'a key'}")
    say(f"  {label}{cells}   {'; '.join(doing)}".rstrip())


def _tell_result(show: Show, tally: Tally, comparison: Comparison) -> None:
    def total(name: str) -> int:
        return sum(int(stream["conflicts"][name]) for stream in show.progress.values())

    proofs = (stream["conflicts"]["verdicts"].values() for stream in show.progress.values())
    verdicts = sum(int(count) for counts in proofs for count in counts)
    blocked = sum(float(stream["blocked_seconds_total"]) for stream in show.progress.values())
    locks = sum(int(stream["lock_conflicts"]) for stream in show.progress.values())
    rate = show.transactions / show.seconds
    say(f"  transactions   {show.transactions:,}, {rate:,.0f} a second (the workload's pace)")
    say(f"  moved          {tally.moved_emails:,} e-mail addresses, {tally.moved_customers:,} customers with purchases")
    say(
        f"  conflicts      {total('waits'):,} waits ({blocked:.1f} s), {total('splits'):,} splits, "
        f"{total('flushes'):,} flushes, {total('jumps'):,} jumps,"
    )
    say(
        f"                 {total('joints'):,} joint commits, {verdicts:,} verdicts, "
        f"{total('testimonies'):,} looked into, {locks:,} lock conflicts"
    )
    say(
        f"  lag            {show.largest_lag:.1f} s at most; at the end the target was level after "
        f"{show.catch_up_seconds:.2f} s"
    )
    verdict = "EQUAL" if comparison.is_equal else "DIFFERENT"
    say(f"  comparison     {verdict}: target and union of the shards, byte for byte")
    for line in str(comparison).splitlines():
        say(f"                 {line}")


def _keep(show: Show) -> None:
    merge = show.merge
    say()
    say("  Everything keeps running. Look around:")
    say(f"    vmerge status --watch --state-dir {merge.state_folder}")
    for server in (*show.shards, show.target):
        say(f"    mysql --user=root --socket={server.socket_path}   # {server.name}")
    say(f"    cat {merge.file}")
    say("  Write some more:")
    places = [(str(stream.server.socket_path), next(iter(stream.databases))) for stream in show.streams]
    shown = " ".join(f"--shard {path} {database}" for path, database in places)
    say(f"    {sys.executable} -m vmerge.lab.workload {shown} --seconds 20")
    say("  End and remove it all: Ctrl-C here, or `kill` this process.")
    signal.pause()


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Exit codes: 0 equal, 9 different, 130 interrupted, others as vmerge's own."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=above_zero, default=20.0, help="how long the workload writes (default 20)")
    parser.add_argument("--keep", action="store_true", help="leave it running afterwards, until Ctrl-C")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="  %(message)s")  # a first run fetches MySQL, and says so
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return play(chosen.seconds, keeps=chosen.keep)
    except KeyboardInterrupt:
        say("\n  Interrupted; servers, daemon and workload are gone.")
        return EXIT_INTERRUPTED
    except VmergeError as error:
        say(f"\nError: {error.message}")
        say(f"Hint: {error.hint}")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
