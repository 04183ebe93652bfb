"""What a daemon does as Prometheus metrics.

Knows: the metrics' names, and which number of a status each is. Never knows: how a status is made, or who reads.
Used by the control server. ``docs/metrics.md`` tells operators the same.

A scrape reads the same snapshot as ``vmerge status``, so it costs a few locks and touches no server. Numbers begin
anew with the daemon; Prometheus sees that as a reset of its counters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from vmerge.core.barrier import Hindrance
from vmerge.core.states import Phase, StreamState
from vmerge.errors import Verdict, VmergeError
from vmerge.hosting.status import Snapshot

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Of what ``exposition`` returns."""

_LABELS = ("workflow", "stream")

_Sample = tuple[Sequence[str], float]
"""The values of a family's own labels, and the number."""

_Family = type[CounterMetricFamily] | type[GaugeMetricFamily]


@dataclass(frozen=True, slots=True)
class StreamMetric:
    """One metric that each stream has."""

    family: _Family
    name: str
    """Without the ``_total`` that counters get."""
    help: str
    samples: Callable[[Snapshot], Sequence[_Sample]]
    """From a stream's status; nothing when the number is not known."""
    labels: tuple[str, ...] = ()
    """Beside workflow and stream."""

    @property
    def exposed_name(self) -> str:
        """The name that queries use."""
        return f"{self.name}_total" if self.family is CounterMetricFamily else self.name


def _number(key: str) -> Callable[[Snapshot], Sequence[_Sample]]:
    def samples(stream: Snapshot) -> Sequence[_Sample]:
        value = stream[key]
        return () if value is None else (((), float(value)),)

    return samples


def _one_of(values: Sequence[str], key: str) -> Callable[[Snapshot], Sequence[_Sample]]:
    """One sample a value: 1 for the one that holds, so that a query need not know which others there are."""
    return lambda stream: [((value,), float(stream[key] == value)) for value in values]


def _seconds_of(key: str) -> Callable[[Snapshot], Sequence[_Sample]]:
    """The seconds of a wait that is under way now, or 0."""
    return lambda stream: (((), 0.0 if stream[key] is None else float(stream[key]["seconds"])),)


_REMEDIES = ("flushes", "splits", "waits", "jumps", "joints")


def _remedies(stream: Snapshot) -> Sequence[_Sample]:
    return [((remedy,), float(stream["conflicts"][remedy])) for remedy in _REMEDIES]


def _verdicts(stream: Snapshot) -> Sequence[_Sample]:
    return [((proof,), float(count)) for proof, count in stream["conflicts"]["verdicts"].items()]


def _schema_changes(stream: Snapshot) -> Sequence[_Sample]:
    return [((outcome,), float(count)) for outcome, count in stream["schema_changes"].items()]


def _transient_errors(parent: type[VmergeError] = VmergeError) -> list[str]:
    """Return the names of all errors that restart a stream."""
    own = [parent.__name__] if parent.verdict is Verdict.TRANSIENT else []
    return own + [name for child in parent.__subclasses__() for name in _transient_errors(child)]


_CAUSES = tuple(sorted(_transient_errors()))


def _restart_causes(stream: Snapshot) -> Sequence[_Sample]:
    """One sample an error that there can be, so that a query sees the first restart as an increase."""
    return [((cause,), float(stream["restart_causes"].get(cause, 0))) for cause in _CAUSES]


def _waited(stream: Snapshot) -> Sequence[_Sample]:
    return [((reason,), seconds) for reason, seconds in stream["waited_seconds"].items()]


def _source(key: str) -> Callable[[Snapshot], Sequence[_Sample]]:
    return lambda stream: () if stream["source"] is None else (((), float(stream["source"][key])),)


def _hindered(stream: Snapshot) -> Sequence[_Sample]:
    found = [] if stream["barrier"] is None else [one["hindrance"] for one in stream["barrier"]["hindered"]]
    return [((one.value,), float(found.count(one.value))) for one in Hindrance]


def _conflict(key: str) -> Callable[[Snapshot], Sequence[_Sample]]:
    return lambda stream: (((), float(stream["conflicts"][key])),)


_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily

STREAM_METRICS = (
    StreamMetric(
        _GAUGE,
        "vmerge_stream_state",
        "1 for the durable state that the stream is in.",
        _one_of([state.value for state in StreamState], "state"),
        ("state",),
    ),
    StreamMetric(
        _GAUGE,
        "vmerge_stream_phase",
        "1 for what the stream is doing.",
        _one_of([phase.value for phase in Phase], "phase"),
        ("phase",),
    ),
    StreamMetric(_GAUGE, "vmerge_stream_at_head", "1 when all that the source has is applied.", _number("is_at_head")),
    StreamMetric(
        _GAUGE,
        "vmerge_lag_seconds",
        "Age of the last applied transaction by its commit time at the source; 0 at the head.",
        _number("lag_seconds"),
    ),
    StreamMetric(
        _GAUGE,
        "vmerge_heartbeat_lag_seconds",
        "Age of the newest sign of the source, heartbeat or transaction, that is fully applied.",
        _number("heartbeat_lag_seconds"),
    ),
    StreamMetric(
        _GAUGE, "vmerge_transactions_behind", "Transactions between applied and head.", _number("transactions_behind")
    ),
    StreamMetric(_GAUGE, "vmerge_applied_position", "GTIDs in the applied position.", _number("applied_count")),
    StreamMetric(
        _GAUGE, "vmerge_head_position", "GTIDs that the source has executed, as far as is known.", _number("head_count")
    ),
    StreamMetric(
        _GAUGE,
        "vmerge_purge_in_seconds",
        "Time until the source purges, at the earliest, what is still needed.",
        _number("purge_in_seconds"),
    ),
    StreamMetric(
        _GAUGE,
        "vmerge_source_clock_ahead_seconds",
        "By how much the source's clock is ahead of the daemon's.",
        _source("clock_ahead_seconds"),
    ),
    StreamMetric(
        _GAUGE,
        "vmerge_last_applied_timestamp_seconds",
        "Commit time at the source of the last applied transaction, since 1970.",
        _number("applied_at"),
    ),
    StreamMetric(
        _COUNTER, "vmerge_transactions", "Source transactions committed on the target.", _number("transactions")
    ),
    StreamMetric(_COUNTER, "vmerge_batches", "Target transactions they were committed in.", _number("batches")),
    StreamMetric(_COUNTER, "vmerge_row_events", "Row events applied; each has one row or more.", _number("row_events")),
    StreamMetric(_COUNTER, "vmerge_row_bytes", "Bytes of row images applied.", _number("row_bytes")),
    StreamMetric(
        _GAUGE,
        "vmerge_batch_limit",
        "Source transactions that may share a target transaction now; small after a conflict.",
        _number("batch_limit"),
    ),
    StreamMetric(
        _GAUGE, "vmerge_blocked_now_seconds", "For how long a key has kept the stream out now.", _seconds_of("blocked")
    ),
    StreamMetric(
        _COUNTER,
        "vmerge_blocked_seconds",
        "For how long keys have kept the stream out in all.",
        _number("blocked_seconds_total"),
    ),
    StreamMetric(
        _COUNTER, "vmerge_waited_seconds", "For how long the stream was kept from applying.", _waited, ("reason",)
    ),
    StreamMetric(_COUNTER, "vmerge_conflict_remedies", "What was done about held keys.", _remedies, ("remedy",)),
    StreamMetric(_COUNTER, "vmerge_testimonies", "Looks at target and sources for evidence.", _conflict("testimonies")),
    StreamMetric(_COUNTER, "vmerge_verdicts", "Conflicts proven permanent.", _verdicts, ("proof",)),
    StreamMetric(_GAUGE, "vmerge_quarantine_rows", "Rows that are kept off the target.", _number("in_quarantine")),
    StreamMetric(_COUNTER, "vmerge_quarantined_rows", "Rows that went to quarantine.", _conflict("quarantined")),
    StreamMetric(_COUNTER, "vmerge_returned_rows", "Rows that came back from quarantine.", _conflict("returned")),
    StreamMetric(
        _COUNTER, "vmerge_lock_conflicts", "Lock waits and deadlocks on the target.", _number("lock_conflicts")
    ),
    StreamMetric(
        _GAUGE,
        "vmerge_barrier_now_seconds",
        "For how long the stream has waited at a schema change now.",
        _seconds_of("barrier"),
    ),
    StreamMetric(
        _GAUGE,
        "vmerge_barrier_hindered_streams",
        "Streams that are waited for at a schema change and do not come.",
        _hindered,
        ("hindrance",),
    ),
    StreamMetric(_COUNTER, "vmerge_schema_changes", "Schema changes passed.", _schema_changes, ("outcome",)),
    StreamMetric(
        _GAUGE,
        "vmerge_locked_now_seconds",
        "For how long locks on the target have kept the stream out now.",
        _seconds_of("locked"),
    ),
    StreamMetric(_COUNTER, "vmerge_restarts", "Restarts after transient errors.", _number("restarts")),
    StreamMetric(_COUNTER, "vmerge_restart_causes", "The same restarts by their errors.", _restart_causes, ("cause",)),
    StreamMetric(_GAUGE, "vmerge_spool_bytes", "Bytes in temporary files now.", _number("spool_bytes")),
)
"""Every metric of a stream that is one number, in the order in which they are told."""

BATCHES_NAME = "vmerge_batch_transactions"
BATCHES_HELP = "Source transactions in a target transaction."

INFO_NAME = "vmerge_build_info"

FOLLOWERS_NAME, FOLLOWERS_HELP = "vmerge_event_followers", "Who follows the event feed now."
DROPPED_NAME, DROPPED_HELP = "vmerge_event_followers_dropped", "Followers that were dropped, as they did not read."
STANDBY_NAME = "vmerge_standby"
STANDBY_HELP = "1 while the daemon waits for the end of another one that runs the workflow."


class _Status(Collector):
    """One status as a collector. Immutable."""

    def __init__(self, status: Snapshot) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield every family with its samples."""
        info = GaugeMetricFamily(INFO_NAME, "The daemon's version.", labels=["version"])
        info.add_metric([self._status["version"]], 1.0)
        yield info
        events = self._status["events"]
        yield GaugeMetricFamily(FOLLOWERS_NAME, FOLLOWERS_HELP, value=events["followers"])
        yield CounterMetricFamily(DROPPED_NAME, DROPPED_HELP, value=events["dropped"])
        yield self._standby()
        for metric in STREAM_METRICS:
            yield self._family(metric)
        yield self._batches()

    def _standby(self) -> Metric:
        family = GaugeMetricFamily(STANDBY_NAME, STANDBY_HELP, labels=["workflow"])
        for workflow in self._status["workflows"]:
            family.add_metric([workflow["workflow"]], float(workflow["standby_for"] is not None))
        return family

    def _streams(self) -> Iterator[tuple[list[str], Snapshot]]:
        for workflow in self._status["workflows"]:
            if workflow["standby_for"] is not None:
                continue  # all figures are the other daemon's; none of ours shall raise an alarm
            for stream in workflow["streams"]:
                yield [workflow["workflow"], stream["stream"]], stream

    def _family(self, metric: StreamMetric) -> Metric:
        family = metric.family(metric.name, metric.help, labels=[*_LABELS, *metric.labels])
        for labels, stream in self._streams():
            for own, value in metric.samples(stream):
                family.add_metric([*labels, *own], value)
        return family

    def _batches(self) -> Metric:
        family = HistogramMetricFamily(BATCHES_NAME, BATCHES_HELP, labels=_LABELS)
        for labels, stream in self._streams():
            sizes = stream["batch_sizes"]
            bounds = ["+Inf" if one["up_to"] is None else str(one["up_to"]) for one in sizes]
            counts = itertools.accumulate(float(one["batches"]) for one in sizes)
            family.add_metric(labels, list(zip(bounds, counts, strict=True)), stream["transactions"])
        return family


def exposition(status: Snapshot) -> bytes:
    """Return a daemon's status in Prometheus' text format."""
    return generate_latest(_Status(status))
