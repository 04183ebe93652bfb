"""``vmerge show``: all evidence about a workflow's conflicts, and who waits for whom.

Knows: how testimonies, fences and findings are laid out as data and as text, row values included: this is for the
operator who asks, over a socket that nobody else may open. Never knows: where evidence comes from. Used by the daemon
(data) and the command line (text).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from vmerge.core.appliers import applier_lines, appliers_data
from vmerge.core.blocked import Blocked, Outcome, finding_name, proof_name, tried_facts
from vmerge.core.evidence import Held
from vmerge.core.log_entry import StoredEntry
from vmerge.core.position import GtidSet
from vmerge.core.states import StreamState
from vmerge.core.wait_graph import cycles_of, edges_of
from vmerge.hosting.status import Snapshot, stream_sentence, stream_snapshot
from vmerge.hosting.waits import ends_with, transactions_before_fence, wait_snapshot
from vmerge.player.board import Board, StreamProgress
from vmerge.stopping import Clock


def show_snapshot(workflow: str, board: Board, streams: Sequence[str], clock: Clock) -> Snapshot:
    """Return everything that is known of some streams, and the wait-for graph of the whole workflow."""
    everyone = board.all_progress()
    applied = {progress.name: progress.applied for progress in everyone}
    return {
        "workflow": workflow,
        "streams": [
            {
                **stream_snapshot(progress, applied, clock),
                "appliers": appliers_data(progress.appliers),
                "evidence": _evidence(progress, applied, clock),
            }
            for progress in everyone
            if progress.name in streams
        ],
        "graph": graph_snapshot(everyone),
    }


def lacks_evidence(stream: Snapshot) -> bool:
    """Whether a stream is in error and this process does not know why: an earlier one met it."""
    return stream["state"] == StreamState.ERROR.value and stream["evidence"] is None


def evidence_of_log(stream: Snapshot, entries: Sequence[StoredEntry]) -> Snapshot | None:
    """Return what the log has kept of the conflict that a stream's message is about, if it is about one."""
    surrenders = [outcome.value for outcome in Outcome if outcome.is_surrender]
    for entry in reversed(entries):
        if entry.stream != stream["stream"] or entry.kind not in surrenders or entry.facts is None:
            continue
        if str(entry.facts.get("gtid")) in stream["message"]:
            return {"from": "log", "happened_at": entry.happened_at, "outcome": entry.kind, **entry.facts}
    return None


def graph_snapshot(streams: Sequence[StreamProgress]) -> Snapshot:
    """Return who waits for whom: the streams as nodes, an edge for each that is awaited, and the cycles."""
    waits = {progress.name: progress.blocked for progress in streams if progress.blocked is not None}
    edges = edges_of(waits)
    cycles = cycles_of(edges)
    return {
        "nodes": [
            {"stream": one.name, "state": one.state.value, "is_blocked": one.blocked is not None} for one in streams
        ],
        "edges": [
            {
                "from": edge.waiter,
                "to": edge.awaited,
                "is_in_cycle": any(edge.waiter in cycle and edge.awaited in cycle for cycle in cycles),
                **_edge_facts(edge.waiter, waits[edge.waiter]),
            }
            for edge in edges
        ],
        "cycles": [list(cycle) for cycle in cycles],
    }


def _edge_facts(stream: str, blocked: Blocked) -> Snapshot:
    wait = wait_snapshot(stream, blocked, {}, 0.0)
    return {"key": wait["key"], "holder": wait["held"] and wait["held"]["holder"], "finding": wait["finding"]}


def _evidence(progress: StreamProgress, applied: Mapping[str, GtidSet], clock: Clock) -> Snapshot | None:
    """Return all that is known of the wait under way, or of the one that stopped the stream."""
    if progress.blocked is not None:
        seconds = clock.monotonic() - progress.blocked.since
        return _wait_evidence(progress.name, progress.blocked, applied, seconds, None)
    ended = progress.surrendered
    if ended is None:
        return None
    return _wait_evidence(progress.name, ended.blocked, applied, ended.seconds, ended.outcome)


def _wait_evidence(
    stream: str, blocked: Blocked, applied: Mapping[str, GtidSet], seconds: float, outcome: Outcome | None
) -> Snapshot:
    held = () if blocked.testimony is None else blocked.testimony.held
    return {
        "from": "memory",
        "outcome": None if outcome is None else outcome.value,
        "gtid": blocked.gtid,
        "key": blocked.key,
        "seconds": round(seconds, 3),
        "attempts": blocked.attempts,
        "remedy": blocked.remedy.value,
        "tried": tried_facts(blocked.tried),
        "finding": finding_name(blocked.finding),
        "proof": proof_name(blocked.finding),
        "rows": [_row(one) for one in held],
        "fences": [
            {
                "stream": other,
                "fence": str(fence),
                "applied": str(applied.get(other, "")),
                "transactions_before_fence": transactions_before_fence(blocked, other, applied),
            }
            for other, fence in blocked.fences.items()
        ],
        "awaited": list(blocked.awaited),
        "ends_with": ends_with(stream, blocked),
    }


def _row(held: Held) -> Snapshot:
    return {
        "table": ".".join(held.table),
        "key": held.key,
        "columns": list(held.key_columns),
        "values": list(held.key_values),
        "row": held.own,
        "row_at_its_source": held.own_presence.value,
        "holder": held.holder,
        "holder_at_sources": {stream: presence.value for stream, presence in held.holder_presences.items()},
    }


# Text


def event_line(event: Snapshot) -> str:
    """Put one event of the feed into a line, with the local time."""
    at = datetime.fromtimestamp(event["at"]).strftime("%H:%M:%S.%f")[:-3]
    return f"{at}  {event['workflow']}/{event['stream']}  {event['kind']}: {' '.join(event['message'].split())}"


def show_text(snapshot: Snapshot) -> str:
    """Lay a workflow out for a terminal."""
    lines = [f"workflow {snapshot['workflow']}"]
    for stream in snapshot["streams"]:
        lines += ["", f"stream {stream['stream']}: {stream_sentence(stream)}", *_fields(_stream_fields(stream))]
    return "\n".join([*lines, "", *graph_lines(snapshot["graph"])])


_Fields = Iterator[tuple[str, str]]


def _fields(pairs: _Fields) -> Iterator[str]:
    return (f"  {name:<13}{value}" for name, value in pairs)


def _stream_fields(stream: Snapshot) -> _Fields:
    lag, conflicts = stream["lag_seconds"], stream["conflicts"]
    yield "state", f"{stream['state']}, {stream['phase']}"
    yield "applied", stream["applied"] or "nothing"
    yield "lag", "–" if lag is None else f"{lag:.1f} s"
    yield "carried", f"{stream['transactions']:,} transactions in {stream['batches']:,} batches"
    yield (
        "conflicts",
        ", ".join(f"{count:,} {name}" for name, count in conflicts.items() if isinstance(count, int))
        + f"; blocked for {stream['blocked_seconds_total']:.1f} s",
    )
    verdicts = {name: count for name, count in conflicts["verdicts"].items() if count}
    yield "verdicts", ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in verdicts.items()) or "none"
    yield from applier_lines(stream["appliers"])
    if stream["evidence"] is not None:
        yield from _evidence_fields(stream["evidence"])
    elif lacks_evidence(stream):
        yield "evidence", stream.get("evidence_missing") or "the log has no conflict for this error"


def _evidence_fields(evidence: Snapshot) -> _Fields:
    tried = evidence["tried"]
    yield "transaction", f"{evidence['gtid']}, blocked for {evidence['seconds']:.1f} s"
    yield (
        "tried",
        f"{evidence['attempts']} attempts, {tried['jumps']} jumps (longest {tried['longest_jump']}), "
        f"{tried['offers']} offers for a joint commit, {tried['testimonies']} testimonies",
    )
    yield ("outcome", str(evidence["outcome"])) if evidence["outcome"] else ("now", evidence["remedy"])
    if evidence["finding"] is not None:
        yield "finding", evidence["finding"] + (f": {evidence['proof'].replace('_', ' ')}" if evidence["proof"] else "")
    if evidence["from"] == "log":
        yield from _logged_fields(evidence)
        return
    for row in evidence["rows"]:
        yield from _row_fields(row)
    for fence in evidence["fences"]:
        yield "fence", f"{fence['stream']}: {_count_words(fence['transactions_before_fence'])}: {fence['fence']}"
    if evidence["ends_with"] is not None:
        yield "ends with", evidence["ends_with"]


def _logged_fields(evidence: Snapshot) -> _Fields:
    """Lay out what the log has: no row values but primary keys."""
    held = evidence["held"]
    if held is not None:
        yield "row", f"{held['table']} {held['row']}, key {held['key']}"
        yield "held by", f"{held['holder']} of {', '.join(held['holder_streams']) or 'no source'}"
    for stream, fence in evidence["fences"].items():
        yield "fence", f"{stream}: {fence}"
    yield "source", f"the log table, {evidence['happened_at']} UTC; it keeps no row values"


def _row_fields(row: Snapshot) -> _Fields:
    key = f"{row['key']} ({', '.join(row['columns'])}) = ({', '.join(row['values'])})"
    yield "row", f"{row['table']} {row['row']}, {row['row_at_its_source']} at its source; key {key}"
    sources = ", ".join(f"{presence} at {stream}" for stream, presence in row["holder_at_sources"].items())
    yield "held by", f"{row['holder']} on the target; {sources or 'no source could be asked'}"


def _count_words(count: int | None) -> str:
    if count is None:
        return "its distance is not known"
    return f"{count:,} transactions before it" if count else "reached"


def graph_lines(graph: Mapping[str, Any]) -> list[str]:
    """Draw who waits for whom."""
    if not graph["edges"]:
        return ["Nobody waits."]
    lines = ["Who waits for whom:"]
    for edge in graph["edges"]:
        awaited = "itself" if edge["to"] == edge["from"] else edge["to"] or "?"
        held = f"{edge['key'] or 'a key'}" + (f" held by {edge['holder']}" if edge["holder"] else "")
        lines.append(f"  {edge['from']} → {awaited}   {held}" + ("   (cycle)" if edge["is_in_cycle"] else ""))
    return lines + [f"In a cycle: {', '.join(cycle)}" for cycle in graph["cycles"]]


def changes_text(changes: Snapshot) -> str:
    """Lay out what a reload of a folder has changed, or would."""
    lines = []
    for name, differences in changes["changed"].items():
        lines += [f"Workflow {name}: changed.", *(f"  {line}" for line in differences)]
    lines += [f"Workflow {name}: added." for name in changes["added"]]
    lines += [f"Workflow {name}: removed." for name in changes["removed"]]
    return "\n".join(lines) or "Nothing has changed."


class LogTail:
    """Finds what is new in a log that is read again and again, its last entries each time. Owner: one thread.

    Streams write side by side, so an entry may appear behind one with a greater number. What was there in the first
    reading is told, and what is older than that never is.
    """

    def __init__(self) -> None:
        self._seen: frozenset[int] | None = None
        self._first = 0

    def news(self, entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the entries that no earlier reading had, in their order."""
        seen = self._seen or frozenset()
        if self._seen is None:
            self._first = min((entry["id"] for entry in entries), default=0)
        self._seen = frozenset(entry["id"] for entry in entries)
        return [entry for entry in entries if entry["id"] not in seen and entry["id"] >= self._first]


def log_text(entries: Sequence[Mapping[str, Any]]) -> str:
    """Lay entries of the log out for a terminal, the oldest first."""
    lines = [
        "  ".join((entry["happened_at"][:23], entry["stream"], entry["kind"], " ".join(entry["message"].split())))
        for entry in entries
    ]
    return "\n".join(lines) or "The log has no entry."
