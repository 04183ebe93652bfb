"""What the status page shows, in one answer: the status, what each stream does in words, who waits for whom, and how
far each was behind in the last hour.

Knows: what belongs into that answer, and how lags are kept. Never knows: servers, or how it is drawn. User: the daemon.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from vmerge.hosting.behind import purge_words, shown_lag
from vmerge.hosting.showing import graph_snapshot
from vmerge.hosting.status import Snapshot, stream_sentence
from vmerge.player.board import Board

SAMPLE_SECONDS = 5.0
KEPT_SAMPLES = 720
"""An hour."""


class LagHistory:
    """The lag of every stream over the last hour. Promise: 8 bytes for each sample of each stream that is hosted now.

    Owner: the daemon. One thread records, any thread reads.
    """

    def __init__(self, kept: int = KEPT_SAMPLES) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._times = array("d")
        self._lags: dict[tuple[str, str], array[float]] = {}
        """By workflow and stream, one for each time; NaN where it is not known."""

    def record(self, at: float, workflows: Sequence[Snapshot]) -> None:
        """Keep the lags of a daemon's status; ``at`` is monotonic. A stream that is not in it any more is forgotten."""
        lags = {
            (workflow["workflow"], stream["stream"]): shown_lag(stream)
            for workflow in workflows
            for stream in workflow["streams"]
        }
        with self._lock:
            before = array("d", [math.nan]) * len(self._times)
            self._lags = {name: self._lags.get(name) or before[:] for name in lags}
            self._times.append(round(at, 3))
            for name, lag in lags.items():
                self._lags[name].append(math.nan if lag is None else lag)
            for values in (self._times, *self._lags.values()):
                del values[: -self._kept]

    def since(self, at: float | None) -> Snapshot:
        """Return the samples after a time, or all: ``times``, and for each stream as many ``lags``, None if unknown."""
        with self._lock:
            first = 0 if at is None else bisect_right(self._times, at)
            times = list(self._times[first:])
            lags = {name: values[first:] for name, values in self._lags.items()}
        return {
            "times": times,
            "streams": [
                {
                    "workflow": workflow,
                    "stream": stream,
                    "lags": [None if math.isnan(lag) else lag for lag in values],
                }
                for (workflow, stream), values in lags.items()
            ],
        }


def overview_snapshot(
    workflows: Sequence[Snapshot], boards: Mapping[str, Board], history: LagHistory, after: float | None, at: float
) -> Snapshot:
    """Return what the page shows of the workflows of a status, and the lags after a time; both times are monotonic."""
    return {
        "at": round(at, 3),
        "workflows": [_workflow(one, boards[one["workflow"]]) for one in workflows if one["workflow"] in boards],
        "history": {"kept_seconds": SAMPLE_SECONDS * KEPT_SAMPLES, **history.since(after)},
    }


def _workflow(workflow: Snapshot, board: Board) -> Snapshot:
    streams = [{**stream, **_shown(stream)} for stream in workflow["streams"]]
    return {**workflow, "streams": streams, "graph": graph_snapshot(board.all_progress())}


def _shown(stream: Snapshot) -> Snapshot:
    """Return what the command line, too, makes of a stream's status."""
    return {"doing": stream_sentence(stream), "lag": shown_lag(stream), "is_purged_soon": bool(purge_words(stream))}
