"""How the process that runs streams collects garbage.

Knows: Python's collector. Never knows: streams. Used by the command line when it starts a process that runs streams.

Why not as it comes
-------------------
A stream makes four or five objects for each transaction and lets go of them a moment later, all without cycles: they
are freed by count. But with Python's defaults every 700 of them make the collector look at the youngest objects, and
now and then at all there are, imported modules included: it took 6 to 7 % of the daemon's CPU (perf, on the benchmark's
load), and found nothing. So what was imported is put aside, and the collector runs when there are more new objects
than all streams hold in ordinary work. It still runs: what a traceback or a library ties into a cycle stays bounded by
that number. See docs/adr/0020.
"""

from __future__ import annotations

import gc

NEW_OBJECTS = 50_000
"""A chunk of a source's binlog is some 3,000 objects, and a stream holds one or two: enough for ten streams."""


def spare_collector() -> None:
    """Call once, when everything is imported and no stream runs yet."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
