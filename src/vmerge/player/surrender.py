"""Why a stream gives up a conflict, as the error an operator reads.

Knows: the words for each reason and proof. Never knows: how it was decided. Used by the player.
"""

from __future__ import annotations

from typing import assert_never

from vmerge.core.conflict_terms import GiveUp, Reason, State, Waiting
from vmerge.core.position import Gtid
from vmerge.core.verdict import Permanent, Proof
from vmerge.errors import ConflictProven, ConflictUnresolved, VmergeError


def surrender(
    stream: str,
    gtid: Gtid,
    decision: GiveUp,
    before: State,
    error: VmergeError,
    now: float,
    beyond: VmergeError | None = None,
) -> VmergeError:
    """Return the error that stops a stream; ``error`` is what the last attempt met, ``before`` the state in which.

    ``beyond`` is what kept the stream from reading on, where a transaction further behind may release the key.
    """
    where = f"stream {stream}, transaction {gtid}"
    if decision.reason is Reason.REJECTED:
        return type(error)(f"{where}: {error.message}", hint=error.hint)
    if decision.finding is not None:
        return ConflictProven(f"{where}: {describe(decision.finding, stream)}", hint=_hint(decision.finding, stream))
    seconds = now - before.since if isinstance(before, Waiting) else 0.0
    message = f"{where}: {error.message}; {decision.reason.value} (blocked for {seconds:.1f} s)"
    if beyond is not None:
        return ConflictUnresolved(f"{message}; what follows cannot be read: {beyond.message}", hint=beyond.hint)
    return ConflictUnresolved(message)


def describe(finding: Permanent, stream: str) -> str:
    """Return both rows and the proof in one sentence, without any value but primary keys."""
    held = finding.held
    table = ".".join(held.table)
    key = f"{table}, unique key {held.key} ({', '.join(held.key_columns)})"
    match finding.proof:
        case Proof.DUPLICATE:
            return (
                f"true duplicate in {key}: row {held.own} of stream {stream} and row {held.holder} of stream "
                f"{finding.holder_stream} both stand at their sources with the same value"
            )
        case Proof.STRICTER_TARGET:
            return (
                f"{key}: the target takes rows {held.own} and {held.holder} of stream {stream} for equal, "
                "its source does not"
            )
        case Proof.FOREIGN_ROW:
            return (
                f"{key}: row {held.own} of stream {stream} is kept out by row {held.holder} of the target, "
                "which no source has"
            )
        case Proof.ALREADY_THERE:
            return (
                f"{key}: the target has a row {held.own} already, which no source but that of stream {stream} has: "
                "the stream's position is older than its rows, or somebody wrote the row"
            )
        case _:
            assert_never(finding.proof)


def _hint(finding: Permanent, stream: str) -> str:
    go_on = f"then `vmerge start WORKFLOW {stream}`"
    match finding.proof:
        case Proof.DUPLICATE:
            return f"Change or delete one of the two rows at its source, {go_on}."
        case Proof.STRICTER_TARGET:
            return f"Make the target's key and collation those of the source, or change one of the rows there, {go_on}."
        case Proof.FOREIGN_ROW:
            return f"See who wrote that row to the target; move or delete it there, {go_on}."
        case Proof.ALREADY_THERE:
            return (
                "Compare the row with the source's. If many are there already, the position was lost or set by hand: "
                f"correct it. Else see who wrote this one, and delete it on the target, {go_on}."
            )
        case _:
            assert_never(finding.proof)
