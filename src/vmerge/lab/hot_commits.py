"""How a lane of the hot-key workload commits: one shard's transaction, or those of several shards at one moment.

Knows: connections to the shards, and whether a transaction was committed when its connection was lost. Never knows:
what the statements mean. Used by ``hot_lane.py``. Owner: one thread.

A *work* is what one shard does in one transaction. Works that are committed together all hold their locks until the
last of them has done its part; then they are committed one after the other, or by XA in two phases.

Servers may die, refuse and come back: a work is tried until it is known to be done. Every work also writes its number
into a table that nobody merges, and a read of that row under a lock tells how a lost COMMIT ended. Of works that
belong together, the rest follows as soon as it can once one of them is committed: until then, and for no longer, the
shards together show a duplicate.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

TWO_PHASE_SHARE = 0.25
"""Of what several shards commit together."""
AWAY_SECONDS = 120.0
"""How long a shard may refuse or be away."""

_PAUSE_SECONDS = 0.05
_LOCKED_OUT = frozenset({1205, 1213, 1614})
"""Lock wait, deadlock, and the latter within XA."""
_FOR_NOW = _LOCKED_OUT | {
    *(0, 2002, 2003, 2006, 2013),  # the connection is lost, or there is none
    *(1040, 1053, 1290, 1836, 3169),  # full, shutting down, read-only, killed
    *(1397, 1399, 1400, 1402),  # XA: what was prepared is in another session's hands, or undone
}
_MARKS = """
CREATE DATABASE IF NOT EXISTS {database};
CREATE TABLE IF NOT EXISTS {database}.mark (lane INT NOT NULL PRIMARY KEY, work BIGINT NOT NULL);
INSERT IGNORE INTO {database}.mark VALUES ({lane}, 0);
"""

Statement = tuple[str, tuple[object, ...]]


@dataclass
class Work:
    """One transaction of one shard."""

    shard: int
    statements: list[Statement] = field(default_factory=list)


class Committer:
    """One lane's connections, one a shard. ``done`` counts its transactions."""

    def __init__(
        self,
        lane: int,
        shards: Sequence[tuple[str, str]],
        *,
        first_work: int,
        chance: random.Random,
        done: Counter[str],
    ) -> None:
        """``shards`` are Unix sockets and databases; works are numbered from ``first_work`` on."""
        self._lane = lane
        self._shards = shards
        self._work = first_work
        self._chance = chance
        self._done = done
        self._connections: dict[int, Connection[Cursor]] = {}

    def open(self) -> None:
        """Make the table of marks on every shard."""
        for shard in range(len(self._shards)):
            for statement in _MARKS.format(database=self._marks(shard), lane=self._lane).split(";")[:-1]:
                self.query(shard, (statement, ()))

    def close(self) -> None:
        """Disconnect."""
        for shard in list(self._connections):
            self._disconnect(shard)

    def query(self, shard: int, *statements: Statement) -> list[tuple[Any, ...]]:
        """Run statements on a shard, in a transaction that stays open; return the rows of the last."""
        connection = self._connections.get(shard) or self._connect(shard)
        with connection.cursor() as cursor:
            for text, values in statements:
                cursor.execute(text, values or None)
            return list(cursor.fetchall())

    def commit(self, *works: Work) -> None:
        """Commit works at one moment, trying until they are."""
        self._work += 1
        in_two_phases = len(works) > 1 and self._chance.random() < TWO_PHASE_SHARE
        give_up_at = time.monotonic() + AWAY_SECONDS
        pending: Sequence[Work] = works
        while pending:
            try:
                # Those that are left behind follow alone: what they belong to has happened.
                self._try(pending if len(pending) == len(works) else pending[:1], in_two_phases)
                if len(pending) == len(works):
                    break
                pending = pending[1:]
            except (pymysql.OperationalError, pymysql.InterfaceError) as error:
                self._require_for_now(error, give_up_at)
                pending = self._left_of(works, give_up_at)
        self._done["transactions"] += len(works)
        self._done["in two phases"] += in_two_phases

    def _try(self, works: Sequence[Work], in_two_phases: bool) -> None:
        if not in_two_phases:
            for work in works:
                self.query(work.shard, *work.statements, self._mark(work.shard))
            for work in works:
                self._connections[work.shard].commit()
            return
        for work in works:
            mark = self._mark(work.shard)
            self.query(work.shard, ("COMMIT", ()), self._xa("START"), *work.statements, mark, self._xa("END"))
        for verb in ("PREPARE", "COMMIT"):
            for work in works:
                self.query(work.shard, self._xa(verb))

    def _require_for_now(self, error: pymysql.Error, give_up_at: float) -> None:
        errno = error.args[0] if error.args else 0
        if errno not in _FOR_NOW or time.monotonic() > give_up_at:
            raise error
        self._done["tried again"] += 1
        if errno not in _LOCKED_OUT:
            time.sleep(_PAUSE_SECONDS)

    # Behind a failure

    def _left_of(self, works: Sequence[Work], give_up_at: float) -> list[Work]:
        """Return the works that are not committed, and nothing of them is left open: all, some or none of them."""
        while True:
            for work in works:
                self._disconnect(work.shard)
            try:
                prepared = [work for work in works if self._is_prepared(work.shard)]
                left = [work for work in works if work not in prepared and not self._is_marked(work.shard)]
                # What is prepared is committed if anything is; else all of it is undone.
                has_begun = len(left) + len(prepared) < len(works)
                for work in prepared:
                    self.query(work.shard, self._xa("COMMIT" if has_begun else "ROLLBACK"))
                return left if has_begun else list(works)
            except (pymysql.OperationalError, pymysql.InterfaceError) as error:
                self._require_for_now(error, give_up_at)

    def _is_prepared(self, shard: int) -> bool:
        _, (name,) = self._xa("COMMIT")
        return any(row[3] == name for row in self.query(shard, ("XA RECOVER", ())))

    def _is_marked(self, shard: int) -> bool:
        """Whether a shard has committed this work; a COMMIT that is still under way is waited for."""
        text = f"SELECT work FROM {self._marks(shard)}.mark WHERE lane = %s FOR UPDATE"
        ((work,),) = self.query(shard, (text, (self._lane,)))
        self._connections[shard].rollback()
        return bool(work == self._work)

    # Statements and connections

    def _marks(self, shard: int) -> str:
        return f"{self._shards[shard][1]}_marks"

    def _mark(self, shard: int) -> Statement:
        return f"UPDATE {self._marks(shard)}.mark SET work = %s WHERE lane = %s", (self._work, self._lane)

    def _xa(self, verb: str) -> Statement:
        return f"XA {verb} %s", (f"lane {self._lane}, {self._work}",)

    def _connect(self, shard: int) -> Connection[Cursor]:
        socket_path, database = self._shards[shard]
        connection: Connection[Cursor] = pymysql.connect(
            unix_socket=socket_path,
            user="root",
            database=database,
            charset="utf8mb4",
            read_timeout=120,
            # A deadlock that spans shards is seen by none of them.
            init_command="SET transaction_isolation = 'READ-COMMITTED', innodb_lock_wait_timeout = 1",
        )
        self._connections[shard] = connection
        return connection

    def _disconnect(self, shard: int) -> None:
        connection = self._connections.pop(shard, None)
        if connection is not None:
            with contextlib.suppress(pymysql.Error):
                connection.close()
