"""What a stream does when it comes to a schema change of a table that it carries.

Knows: the ways past a change (an operator's word, ``on_ddl``, the barrier), and the words for those that have none.
Never knows: how a statement is read (``core/plan.py``), SQL, or positions. Used by the player alone, in its thread.

The barrier
-----------
With ``on_ddl: execute`` a stream waits in front of the change, without a target transaction, until every stream that
fills the table has come to the same one (``core/barrier.py``). The one with the smallest name then has it run on the
target, with all their checkpoints behind it; whatever comes of that, all start anew and read their checkpoints and the
schemas. Nothing here is trusted for exactness: what was run is told by the target's own definition of the table and by
a control table (``mysql/schema_changes.py``), and each checkpoint moves only from the position and in the epoch in
which its stream waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from vmerge.core.barrier import Arrival, Crossed, Hindered, Hindrance, Missing, Together, meeting
from vmerge.core.events import SchemaChange
from vmerge.core.position import Gtid, GtidSet
from vmerge.core.rules import TableName
from vmerge.core.schema_policy import Alteration, Exchange, OnDdl, Reading, ShadowStatement
from vmerge.core.target_statement import Refused, TargetStatement
from vmerge.errors import Replanned, SchemaChanged
from vmerge.player.board import Board
from vmerge.player.hindrances import hindrances
from vmerge.player.patience import Parked
from vmerge.player.reporting import Reporter
from vmerge.stopping import Clock

logger = logging.getLogger(__name__)

STATEMENT_CHARACTERS = 200
"""Of a statement in a message."""

LOOK_SECONDS = 1.0
"""How often a stream at the barrier looks around: whether a sibling was stopped is no news on the board."""


class Interpreter(Protocol):
    """Who can tell what a statement is to the stream: its plan."""

    def read(self, change: SchemaChange) -> Reading:
        """Return what a statement that concerns the stream is to it."""

    def translate(self, change: SchemaChange, reading: Reading, collected: Sequence[str]) -> TargetStatement:
        """Return the statement that does the same on the target. Raises ``Refused``.

        ``collected`` has what was done to a tool's shadow table.
        """

    def changed_tables(self, change: SchemaChange) -> frozenset[TableName] | None:
        """Return the target's names of the tables that a statement may change at the source; None for any."""


class Ledger(Protocol):
    """What the target keeps and does about schema changes."""

    def outdate(self, tables: frozenset[TableName] | None, at_microseconds: int) -> None:
        """The stream passes a change of these tables, made at that time: their source is to be asked again."""

    def note(self, gtid: Gtid, reading: ShadowStatement, statement: str) -> None:
        """Keep what was done to a tool's shadow table, as often as it comes."""

    def collected(self, shadow: TableName) -> Sequence[str]:
        """Return what has been done to a shadow table since it was made, in order."""

    def log(self, kind: str, message: str) -> None:
        """Add an entry about the stream to the log table."""

    def carry_out(self, members: Sequence[Arrival]) -> None:
        """Run a change once, and move all members' checkpoints behind it.

        Raises ``JointRefused`` if a member is no longer where it waited: nothing has moved, though the change may have
        been run; the next call finds that. Raises ``SchemaUnclear`` if it cannot be told whether it was run.
        """


@dataclass(frozen=True, slots=True)
class ChangeRules:
    """What the workflow, and an operator, say of schema changes."""

    on_ddl: OnDdl = OnDdl.STOP
    accepted: frozenset[Gtid] = frozenset()
    """Changes that an operator has made on the target."""
    carriers: Callable[[TableName], frozenset[str]] = lambda _: frozenset()
    """Which streams fill a table of the target."""


STOP_AT_CHANGES = ChangeRules()


class SchemaChanges:
    """One stream's way past schema changes. Owner: the player."""

    def __init__(
        self,
        name: str,
        rules: ChangeRules,
        interpreter: Interpreter,
        ledger: Ledger,
        membership: Callable[[], object],
        board: Board,
        clock: Clock,
        reporter: Reporter,
    ) -> None:
        self._name = name
        self._rules = rules
        self._interpreter = interpreter
        self._ledger = ledger
        self._membership = membership
        self._board = board
        self._clock = clock
        self._reporter = reporter
        self._has_given_up = False
        """Whether the stream stops because its siblings wait at other changes."""
        self._told: frozenset[tuple[str, Hindrance]] = frozenset()
        """What the log knows of streams that do not come to the change."""

    def begin(self) -> None:
        """The stream starts: where it waited before is of the past."""
        self._board.depart(self._name)

    def meet(self, change: SchemaChange, position: GtidSet) -> Parked | None:
        """Come to a change, with everything before it stored; return None if the stream may pass it.

        Raises:
            SchemaChanged: it may not.
            Replanned: the change has been run, and the stream's checkpoint tells whether it is behind it.
        """
        if change.gtid in self._rules.accepted:
            self._outdate(change)
            return None
        reading = self._interpreter.read(change)
        if isinstance(reading, ShadowStatement):
            self._ledger.note(change.gtid, reading, change.statement)
            return None
        if self._rules.on_ddl is OnDdl.EXECUTE:
            return self._wait(change, reading, position)
        if self._rules.on_ddl is OnDdl.IGNORE and not _takes_rows(reading):
            self._outdate(change)
            return None
        raise self._refusal(change, reading)

    def passed(self, change: SchemaChange) -> None:
        """The position behind a change is stored. Raises ``Replanned`` if schemas are to be read anew."""
        if change.gtid in self._rules.accepted:
            raise Replanned(f"stream {self._name} passed a schema change, transaction {change.gtid}")
        if self._rules.on_ddl is not OnDdl.IGNORE or isinstance(self._interpreter.read(change), ShadowStatement):
            return
        text = f"transaction {change.gtid}: {shown(change.statement)}"
        logger.info("ignored a schema change, %s", text, extra={"stream": self._name})
        self._reporter.ignored_change()
        self._ledger.log("schema change ignored", text)
        raise Replanned(f"stream {self._name} ignored a schema change, {text}")

    def _outdate(self, change: SchemaChange) -> None:
        """Before the position moves behind the change: what is read anew too early is still right, too late is not."""
        self._ledger.outdate(self._interpreter.changed_tables(change), change.committed_at_microseconds)

    def leave(self) -> None:
        """Wait at no barrier any more."""
        if self._has_given_up:
            self._board.give_up(self._name)
        else:
            self._board.depart(self._name)

    # The barrier

    def _wait(self, change: SchemaChange, reading: Reading, position: GtidSet) -> Parked:
        seen_news = self._board.news
        own = self._board.arrival(self._name)
        if own is None:
            own = self._arrive(change, reading, position)
        elif self._board.has_crossed(self._name):
            raise Replanned(f"stream {self._name} has met its siblings at a schema change")
        match meeting(own, self._board.arrivals()):
            case Together(members) if members[0].stream == self._name:
                self._carry_out(members)
            case Together():
                self._reporter.at_barrier(own, ())
            case Missing(streams):
                hindered = hindrances(self._name, streams, {one.name: one for one in self._board.all_progress()})
                self._reporter.at_barrier(own, streams, hindered)
                self._tell_hindered(change, hindered)
            case Crossed(others):
                self._has_given_up = True
                raise self._crossing(change, others)
        return Parked(self._clock.monotonic() + LOOK_SECONDS, seen_news)

    def _arrive(self, change: SchemaChange, reading: Reading, position: GtidSet) -> Arrival:
        collected = self._ledger.collected(reading.shadow) if isinstance(reading, Exchange) else ()
        try:
            statement = self._interpreter.translate(change, reading, collected)
        except Refused as error:
            raise self._refusal(change, reading, f"it is not run on the target: {error}") from error
        carriers = self._rules.carriers(statement.table) | {self._name}
        arrival = Arrival(
            self._name,
            change.gtid,
            change.committed_at_microseconds,
            statement,
            change.session,
            carriers,
            position,
            self._membership(),
        )
        self._board.arrive(arrival)
        return arrival

    def _carry_out(self, members: Sequence[Arrival]) -> None:
        """Run the change. Whatever comes of it, all members read their checkpoints."""
        own = members[0]
        self._reporter.at_barrier(own, ())
        try:
            self._ledger.carry_out(members)
        finally:
            self._board.cross([member.stream for member in members])
        names = ", ".join(member.stream for member in members)
        logger.info("ran a schema change for %s: %s", names, shown(own.statement.text), extra={"stream": self._name})
        self._reporter.executed_change()
        raise Replanned(f"stream {self._name} ran a schema change for {names}")

    def _tell_hindered(self, change: SchemaChange, hindered: Sequence[Hindered]) -> None:
        """Put into the log which streams do not come, each once as long as its reason stays."""
        news = [one for one in hindered if one.hindrance.lasts and (one.stream, one.hindrance) not in self._told]
        self._told = frozenset((one.stream, one.hindrance) for one in hindered)
        for one in news:
            text = f"waits at schema change {change.gtid} for what does not come: {one.sentence()}"
            logger.error("%s", text, extra={"stream": self._name})
            if one.hindrance is Hindrance.HELD_UP:
                self._ledger.log("schema change held up", text)

    # Words

    def _refusal(self, change: SchemaChange, reading: Reading, reason: str = "") -> SchemaChanged:
        """Return the error that stops the stream before a change."""
        what = f"stream {self._name} reached a schema change of a merged table, transaction {change.gtid}"
        text = f"{what}: {shown(change.statement)}"
        wanted = "Change the target's table likewise"
        if isinstance(reading, Exchange):
            made = "; ".join(map(shown, self._ledger.collected(reading.shadow))) or "not seen: see the tool's own log"
            text += f" (the end of an online schema change of {'.'.join(reading.real)} by {reading.tool.tool.value}"
            text += f"; what it did to {'.'.join(reading.shadow)}: {made})"
            wanted = "Do to the target's table what the tool did"
        return SchemaChanged(
            f"{text}; {reason}" if reason else text,
            hint=f"{wanted} (after TRUNCATE or DROP delete this shard's rows only: the siblings' are there, too), then "
            f"go on with `vmerge start --past-schema-change {change.gtid} -- WORKFLOW {self._name}`.",
        )

    def _crossing(self, change: SchemaChange, others: Sequence[Arrival]) -> SchemaChanged:
        theirs = "; ".join(
            f"stream {other.stream} stands at transaction {other.gtid}: {shown(other.statement.text)}"
            for other in others
        )
        return SchemaChanged(
            f"stream {self._name} reached a schema change of a merged table, transaction {change.gtid}: "
            f"{shown(change.statement)}; its siblings came to other ones, so that they never meet: {theirs}",
            hint="Make the changes on the target by hand, in an order that suits the rows behind them, then go on with "
            f"`vmerge start --past-schema-change {change.gtid} -- WORKFLOW {self._name}`, and likewise for the others.",
        )


def _takes_rows(reading: Reading) -> bool:
    return isinstance(reading, Alteration) and reading.takes_rows


def shown(statement: str) -> str:
    """Return a statement on one line, and not too long."""
    return " ".join(statement.split())[:STATEMENT_CHARACTERS]
