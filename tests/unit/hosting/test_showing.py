"""``vmerge show``: evidence as data and text, and the wait-for graph."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.unit.hosting.test_status import FixedClock
from tests.unit.hosting.test_waits import HELD, TRANSIENT, UUID

from vmerge.core.blocked import Blocked, Ended, Outcome
from vmerge.core.log_entry import StoredEntry
from vmerge.core.position import GtidSet
from vmerge.core.states import Phase, StreamState
from vmerge.core.verdict import Permanent, Proof, Transient
from vmerge.hosting.showing import LogTail, evidence_of_log, lacks_evidence, log_text, show_snapshot, show_text
from vmerge.hosting.status import Snapshot
from vmerge.player.board import Board


def board_of(**waits: Blocked | None) -> Board:
    """Return a board on which these streams run, with their waits."""
    board = Board(waits)
    for name, blocked in waits.items():
        phase = Phase.STREAMING if blocked is None else Phase.WAITING
        board.update(name, state=StreamState.RUNNING, phase=phase, blocked=blocked)
    return board


def shown(board: Board, *streams: str) -> Snapshot:
    """Return what is shown of some streams, or all, as it comes out of the control socket."""
    names = streams or tuple(progress.name for progress in board.all_progress())
    snapshot: Snapshot = json.loads(json.dumps(show_snapshot("w", board, names, FixedClock())))
    return snapshot


def waiting_for(*streams: str) -> Blocked:
    """Return a wait that these streams end."""
    return replace(TRANSIENT, finding=Transient(HELD, streams))


def test_evidence_has_values_and_fences() -> None:
    """What is shown of a wait has the values of the key, both rows' presences, and how far each stream's fence is."""
    board = board_of(**{"-80": None, "80-": TRANSIENT})
    board.update("-80", applied=GtidSet.parse(f"{UUID}:1-88"))
    (stream,) = shown(board, "80-")["streams"]
    evidence = stream["evidence"]
    assert evidence["rows"][0]["values"] == ["secret@example.org"]
    assert evidence["rows"][0]["holder_at_sources"] == {"-80": "changed", "80-": "gone"}
    assert evidence["fences"][0]["transactions_before_fence"] == 412
    text = show_text(shown(board))
    assert "customer id=5, alive at its source; key email (email) = (secret@example.org)" in text
    assert "id=17 on the target; changed at -80, gone at 80-" in text
    assert f"-80: 412 transactions before it: {UUID}:1-500" in text
    assert "ends with    transactions of -80" in text


def test_the_graph_marks_cycles() -> None:
    """Streams that wait for each other are marked, in the data and in the text; others are not."""
    board = board_of(a=waiting_for("b"), b=waiting_for("a"), c=waiting_for("c"), d=Blocked(0.0, 1, "u:1", "", ()))
    graph = shown(board, "a")["graph"]
    assert {node["stream"]: node["is_blocked"] for node in graph["nodes"]} == dict.fromkeys("abcd", True)
    assert [(edge["from"], edge["to"], edge["is_in_cycle"]) for edge in graph["edges"]] == [
        ("a", "b", True),
        ("b", "a", True),
        ("c", "c", False),
        ("d", None, False),
    ]
    assert graph["cycles"] == [["a", "b"]]
    assert show_text(shown(board)).splitlines()[-6:] == [
        "Who waits for whom:",
        "  a → b   customer.email held by id=17   (cycle)",
        "  b → a   customer.email held by id=17   (cycle)",
        "  c → itself   customer.email held by id=17",
        "  d → ?   a key",
        "In a cycle: a, b",
    ]


def test_a_verdict_is_shown_until_the_stream_starts_again() -> None:
    """The evidence that stopped a stream stays; what is not known to this process comes from the log, if it fits."""
    board = board_of(a=None, b=None)
    finding = Permanent(Proof.DUPLICATE, HELD, "b")
    ended = Ended(replace(TRANSIENT, finding=finding), Outcome.PROVEN, 3.2)
    board.update("a", state=StreamState.ERROR, message="transaction u:1: a true duplicate", surrendered=ended)
    (stream,) = shown(board, "a")["streams"]
    assert (stream["evidence"]["outcome"], stream["evidence"]["seconds"]) == ("verdict", 3.2)
    assert "a repair: one of the two rows" in show_text(shown(board))

    board.update("a", surrendered=None)
    (stream,) = shown(board, "a")["streams"]
    assert lacks_evidence(stream)
    entry = StoredEntry(7, "a", "2025-01-31 12:00:00.000000", "verdict", ended.sentence(), ended.facts())
    assert evidence_of_log({**stream, "message": "transaction u:2: something else"}, [entry]) is None
    stream["evidence"] = evidence_of_log(stream, [entry])
    text = show_text({**shown(board), "streams": [stream]})
    assert "shop.customer id=5, key email" in text and "id=17 of b" in text
    assert "the log table, 2025-01-31 12:00:00.000000 UTC" in text
    assert "secret" not in text


def test_nobody_waits() -> None:
    """A workflow without conflicts says so, and a log without entries, too."""
    assert show_text(shown(board_of(a=None))).endswith("Nobody waits.")
    assert log_text([]) == "The log has no entry."


def test_a_followed_log_tells_each_entry_once() -> None:
    """Of a log that is read again and again each entry is told once, also one that appears behind a greater number."""
    tail = LogTail()
    readings = [[3, 4], [3, 4, 6], [4, 5, 6], [2, 5, 6, 7]]
    told = [[entry["id"] for entry in tail.news([{"id": id} for id in reading])] for reading in readings]
    assert told == [[3, 4], [6], [5], [7]]


def test_a_log_that_is_empty_at_first_is_followed() -> None:
    """Where nothing was there at first, everything that comes is told."""
    tail = LogTail()
    assert tail.news([]) == []
    assert tail.news([{"id": 1}]) == [{"id": 1}]
