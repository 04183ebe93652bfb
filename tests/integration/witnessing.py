"""Two shards, a target and the witness of the first shard's stream, for the tests of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.integration.applying import transactions
from tests.integration.reading import endpoint, executed, read_behind, run

from vmerge.core.events import Transaction
from vmerge.core.evidence import Held, Testimony
from vmerge.core.plan import Plan
from vmerge.core.position import GtidSet
from vmerge.core.rules import StreamRules
from vmerge.lab.accounts import create_source_account, create_target_account
from vmerge.lab.servers import Server
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.definitions import read_definitions
from vmerge.mysql.lookup import SourcePlace, Witness
from vmerge.mysql.schemas import read_schemas, show_generated_keys

PASSWORD = "testimony"
OWN = "a"
"""The stream that is blocked."""
SERVER_ID = 77


class Stage:
    """A database of one name on two shards, which goes into a database of another name on the target.

    The accounts have the least privileges that vmerge asks for. Close it after use.
    """

    def __init__(self, shard_a: Server, shard_b: Server, target: Server, database: str) -> None:
        self.shards = {OWN: shard_a, "b": shard_b}
        self.target = target
        self.database = database
        self.merged = f"{database}_merged"
        self.control = f"{database}_control"
        self.user = f"w{database}"
        for shard in self.shards.values():
            shard.execute_script(f"CREATE DATABASE {database}")
            create_source_account(shard, self.user, PASSWORD, [database])
        target.execute_script(f"CREATE DATABASE {self.merged}; CREATE DATABASE {self.control}")
        create_target_account(target, self.user, PASSWORD, [self.merged], self.control)

    def close(self) -> None:
        for shard in self.shards.values():
            shard.execute_script(f"SET sql_log_bin = 0; DROP USER {self.user}")
        self.target.execute_script(f"DROP USER {self.user}")

    def create(self, *statements: str) -> None:
        """Run statements on every server."""
        for shard in self.shards.values():
            run(shard, *statements, database=self.database)
        run(self.target, *statements, database=self.merged)

    def merge(self, stream: str, *statements: str) -> None:
        """Run statements at a shard, and on the target, as if they had been merged."""
        run(self.shards[stream], *statements, database=self.database)
        run(self.target, *statements, database=self.merged)

    def ahead(self, stream: str, *statements: str) -> list[Transaction]:
        """Run statements at a shard that its stream has not merged; return what they did."""
        start = executed(self.shards[stream])
        run(self.shards[stream], *statements, database=self.database)
        return transactions(read_behind(self.shards[stream], start, self.database))

    def only_merged(self, *statements: str) -> None:
        """Run statements on the target."""
        run(self.target, *statements, database=self.merged)

    def places(self, **others: Endpoint) -> dict[str, SourcePlace]:
        """Where the streams' sources are, unless told otherwise."""
        found = {name: self._endpoint(shard) for name, shard in self.shards.items()}
        return {name: SourcePlace(at, self.rules(name)) for name, at in {**found, **others}.items()}

    def rules(self, stream: str) -> StreamRules:
        """What a stream carries."""
        return StreamRules.build({self.database: self.merged})

    def _endpoint(self, server: Server) -> Endpoint:
        return endpoint(server, user=self.user, password=PASSWORD)

    def witness(self, stream: str = OWN, *, places: dict[str, SourcePlace] | None = None) -> Witness:
        """The witness of a stream, with the tables as they are now."""
        places = places or self.places()
        plan = self.plan(stream)
        with self.target.connect() as connection:
            targets = read_schemas(connection, [self.merged])
            show_generated_keys(connection)
            definitions = read_definitions(connection, targets)
        server_id = SERVER_ID + sorted(places).index(stream)
        at = self._endpoint(self.target)
        return Witness(stream, at, self.control, plan, places, server_id, definitions=definitions)

    def plan(self, stream: str) -> Plan:
        """A stream's plan, with the tables as they are now."""
        with self.shards[stream].connect() as source, self.target.connect() as target:
            sources, targets = read_schemas(source, [self.database]), read_schemas(target, [self.merged])
        return Plan(self.rules(stream), sources.values(), targets.values())

    def testify(self, transactions: Sequence[Transaction], witness: Witness | None = None) -> Testimony:
        """Let the witness tell; no server keeps a trace of it."""
        witness = witness or self.witness()
        before = self.rows()
        testimony = witness.testify(transactions)
        assert self.rows() == before
        assert not any(rows for (schema, _), rows in before.items() if schema == self.control)
        assert self.open_transactions() == []
        for name, head in testimony.heads.items():
            assert executed(self.shards[name]).includes(head)
        return testimony

    def held(self, *statements: str) -> list[Held]:
        """What keeps out statements of the first shard that its stream has not merged."""
        testimony = self.testify(self.ahead(OWN, *statements))
        assert testimony.heads == self.heads()
        return list(testimony.held)

    def heads(self) -> dict[str, GtidSet]:
        return {name: executed(shard) for name, shard in self.shards.items()}

    def rows(self) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
        """All rows of the target: merged tables and probe tables."""
        names = self.target.query(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN (%s, %s)",
            self.merged,
            self.control,
        )
        quoted = {name: ".".join("`" + part.replace("`", "``") + "`" for part in name) for name in names}
        found = {name: self.target.query(f"SELECT * FROM {table}") for name, table in quoted.items()}
        return {name: rows for name, rows in found.items() if rows or name[0] == self.merged}

    def open_transactions(self) -> list[int]:
        """Sessions of the witness's account on the target that have a transaction open."""
        return self.target.open_transactions(self.user)

    def waits_at(self, server: Server) -> bool:
        """Whether the witness waits for a lock of a whole table."""
        return bool(server.sessions(self.user, state="Waiting%"))

    def probe_tables(self) -> list[str]:
        """The names of the probe tables."""
        return [name for (name,) in self.target.query(f"SHOW TABLES FROM {self.control} LIKE 'probe%'")]
