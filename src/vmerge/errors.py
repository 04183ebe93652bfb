"""Every error vmerge raises on purpose, as one tree.

Knows: how far an error reaches (its scope), what the daemon does about it (its verdict), the process's exit
code and what the operator should do (its hint). Never knows: drivers, error numbers of MySQL (those are
classed once, in ``mysql/faults.py``) or message texts. Used by every zone.

    VmergeError
    ├── ConfigError              2  a workflow file or option is wrong; nothing was contacted
    │   └── FilterRefused           a row filter that cannot be read, or not decided exactly as MySQL would
    ├── PreflightError           3  servers, accounts or schemas do not fit; nothing was changed
    │   └── ServersUnreachable      transient: servers do not answer; the stream is entered once they do
    ├── ConflictUnresolved       4  a key stayed held by another stream longer than allowed
    │   └── ConflictProven          a conflict that no transaction of any stream will end
    ├── StopTimeout              5  a stop did not end within its bound
    ├── DaemonError              6  the daemon is running, not running, or does not know that workflow
    │   └── OrderRefused            an order that does not fit where the stream stands; nothing was changed
    ├── SourceError              7
    │   ├── SourceLost              transient: connection gone; the stream reopens from its checkpoint
    │   ├── PositionPurged          the source no longer has what the stream needs
    │   ├── UnsupportedEvent        an event that cannot be carried exactly
    │   ├── SchemaChanged           a schema change of a merged table; an operator says how to go on
    │   ├── Replanned               transient: a schema change was passed; the stream reads the schemas anew
    │   ├── CorruptEvent            an event whose checksum or shape is wrong
    │   └── SourceRejected          the source refused, for a reason that waiting does not change
    ├── TargetError              8
    │   ├── TargetLost              transient: connection gone, outside of COMMIT
    │   ├── CommitUnknown           transient: COMMIT failed; only the checkpoint knows the outcome
    │   ├── JointRefused            transient: a member of a joint commit has moved or stopped; all roll back
    │   ├── QuarantineSettled       transient: an operator settled a row in quarantine; all rolls back
    │   ├── LockConflict            transient: lock wait or deadlock; replay the same transactions
    │   ├── KeyConflict             conflict: a duplicate key that a sibling may release
    │   │   └── ForeignKeyConflict  conflict: a parent that a sibling may bring, or children it may delete
    │   ├── RowMissing              a row to update or delete is not there
    │   ├── Fenced                  another daemon took this stream over
    │   ├── SchemaUnclear           a schema change may have been run or not, which cannot be told
    │   ├── TargetAltered           transient: a table was altered under way; the stream proves it anew
    │   ├── SchemaMismatch          a table of the target cannot carry the source's rows exactly
    │   └── TargetRejected          the target refused, for a reason that waiting does not change
    ├── VerificationFailed       9  target and union of the shards differ
    └── SpoolFailed             10  the temporary file of a large transaction cannot be written or read
"""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What the shell does about an error."""

    TRANSIENT = "transient"
    """Roll back and replay, or reopen from the checkpoint, after a jittered pause."""
    CONFLICT = "conflict"
    """Ask the conflict machine."""
    FATAL = "fatal"
    """Stop the stream, keep the reason, wait for an operator."""


class Scope(Enum):
    """Whose side an error is on."""

    SOURCE = "source"
    TARGET = "target"
    INTERNAL = "internal"


class VmergeError(Exception):
    """An error with a text for the operator: what and where in the message, what to do in ``hint``."""

    exit_code = 1
    verdict = Verdict.FATAL
    scope = Scope.INTERNAL
    default_hint = "Report this with the log around it."

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint


class ConfigError(VmergeError):
    """A workflow file, secret or command line that cannot be used. Nothing was contacted."""

    exit_code = 2
    default_hint = "Correct the file and run `vmerge check FILE` again."


class FilterRefused(ConfigError):
    """A row filter that cannot be read, or whose outcome is not sure to be MySQL's. The hint says what to write."""


class PreflightError(VmergeError):
    """Servers, accounts or schemas do not fit the workflow. Nothing was changed."""

    exit_code = 3
    default_hint = "Settle each finding and run `vmerge check FILE` again."


class ServersUnreachable(PreflightError):
    """Nothing is known to be wrong but that servers cannot be reached, for now."""

    verdict = Verdict.TRANSIENT
    default_hint = "Start the servers, or correct their addresses and ports."


class ConflictUnresolved(VmergeError):
    """A stream needed a key that another stream kept for longer than the workflow allows."""

    exit_code = 4
    scope = Scope.TARGET
    default_hint = "Find who holds the key on the target, settle it at the sources, then start the stream again."


class ConflictProven(ConflictUnresolved):
    """Two rows that cannot stand side by side on the target, with the proof that they will not part by themselves."""


class StopTimeout(VmergeError):
    """A stop did not end within ``stop_timeout_seconds``; the message names what hung."""

    exit_code = 5
    default_hint = "Nothing is lost: every transaction on the target is whole. Look at what hung before starting again."


class DaemonError(VmergeError):
    """The daemon is running already, is not running, or does not know the workflow or stream."""

    exit_code = 6
    default_hint = "`vmerge daemon status` tells which daemon runs and what it hosts."


class OrderRefused(DaemonError):
    """An order that does not fit what the stream does or where it stands. Nothing was changed."""

    default_hint = "`vmerge status` tells what the stream does, and where it stands."


class SourceError(VmergeError):
    """Something a source did or said."""

    exit_code = 7
    scope = Scope.SOURCE
    default_hint = "Look at the source's error log, then start the stream again."


class SourceLost(SourceError):
    """The connection to the source is gone. The stream reopens from its checkpoint."""

    verdict = Verdict.TRANSIENT
    default_hint = "The stream reconnects by itself; see that the source is up and reachable."


class PositionPurged(SourceError):
    """The source has purged binlogs that the stream still needs."""

    default_hint = "The shard's rows must be copied anew; keep binlogs longer (binlog_expire_logs_seconds)."


class UnsupportedEvent(SourceError):
    """The source wrote an event that vmerge cannot carry exactly."""


class SchemaChanged(SourceError):
    """The stream reached a schema change of a merged table. Everything before it is on the target."""


class Replanned(SourceError):
    """A schema change was passed. The stream starts anew at once, as planned, and reads checkpoint and schemas."""

    verdict = Verdict.TRANSIENT
    default_hint = "Nothing: the stream starts anew by itself."


class CorruptEvent(SourceError):
    """An event's checksum, length or content is wrong; nothing of its transaction was applied."""

    default_hint = "Check the source's disk and network; starting the stream again reads the event anew."


class SourceRejected(SourceError):
    """The source refused a command for a reason that waiting does not change."""


class TargetError(VmergeError):
    """Something the target did or said."""

    exit_code = 8
    scope = Scope.TARGET
    default_hint = "Look at the target's error log, then start the stream again."


class TargetLost(TargetError):
    """The connection to the target is gone, and not in COMMIT: nothing of the batch is on the target."""

    verdict = Verdict.TRANSIENT
    default_hint = "The stream reconnects by itself; see that the target is up and reachable."


class CommitUnknown(TargetError):
    """COMMIT failed: the batch is on the target whole or not at all; the checkpoint tells."""

    verdict = Verdict.TRANSIENT
    default_hint = "The stream reads its checkpoint back and goes on by itself."


class JointRefused(TargetError):
    """A member of a joint commit is not where its offer said: nothing of the joint commit is on the target."""

    verdict = Verdict.TRANSIENT


class QuarantineSettled(TargetError):
    """A row in quarantine is no longer as the stream knew it: nothing of the batch is on the target."""

    verdict = Verdict.TRANSIENT
    default_hint = "The stream reads its quarantine anew and goes on by itself."


class LockConflict(TargetError):
    """A lock wait timed out or InnoDB chose this transaction as deadlock victim. The same work is replayed."""

    verdict = Verdict.TRANSIENT
    default_hint = "The stream replays by itself; if it lasts, see who holds locks (sys.innodb_lock_waits)."


class KeyConflict(TargetError):
    """A key is, for now, held against this transaction; as itself, a unique key (1062, 1586).

    ``key`` is the key's or constraint's name as far as the server told it; for display only.
    """

    verdict = Verdict.CONFLICT
    default_hint = "A sibling stream may release the key; if it lasts, compare the rows at the sources."

    def __init__(self, message: str, *, key: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.key = key


class ForeignKeyConflict(KeyConflict):
    """A foreign key is, for now, against this transaction (1216, 1217, 1451, 1452)."""

    default_hint = "A sibling stream may bring the parent or delete the children; if it lasts, compare the sources."


class RowMissing(TargetError):
    """A row that an UPDATE or DELETE names is not on the target; in exact replay that is never transient."""

    default_hint = (
        "Somebody else changed the target, or the start position does not fit the target's rows: "
        "compare the row at the source and on the target."
    )


class Fenced(TargetError):
    """Another daemon took this stream over; this one wrote nothing since."""

    default_hint = "Run each workflow in one daemon only: to have it here, stop it there, then start it here."


class SchemaUnclear(TargetError):
    """A schema change was begun by an earlier run, and the table is neither as before it nor as it is after it."""


class TargetAltered(TargetError):
    """A table of the target was altered while the stream ran; the batch that met it was rolled back."""

    verdict = Verdict.TRANSIENT
    default_hint = "The stream starts anew by itself and compares the tables again."


class SchemaMismatch(TargetError):
    """A table of the target is missing, or not proven to have the columns of the source's; no row was applied."""

    default_hint = "Give both sides the same table (compare SHOW CREATE TABLE), then start the stream again."


class TargetRejected(TargetError):
    """The target refused the transaction for a reason that waiting does not change."""


class VerificationFailed(VmergeError):
    """The target's rows are not the union of the shards' rows."""

    exit_code = 9
    scope = Scope.TARGET
    default_hint = "The comparison names the tables and the first differing rows."


class SpoolFailed(VmergeError):
    """The temporary file that holds a large transaction cannot be written or read; nothing of it was applied."""

    exit_code = 10
    default_hint = "Make room in the folder that the message names, then start the stream again."
