"""Sites over the tables of the hot-key workload. Used by the tests whose conflicts never end."""

from __future__ import annotations

from collections import Counter

import yaml
from tests.operating import Site

from vmerge.core.grants import TRIGGER, Grant
from vmerge.lab.accounts import allow
from vmerge.lab.hot_keys import LANES
from vmerge.lab.hot_tables import create_hot_tables, seed_hot_rows
from vmerge.lab.shop import ShopShard

BULK_TABLE = "CREATE TABLE {database}.bulk (id BIGINT NOT NULL PRIMARY KEY, content LONGTEXT)"


class HotSite(Site):
    """A site with the tables of the hot-key workload instead of the shop's."""

    def _create_tables(self, customers: int) -> None:
        merged = ShopShard(self.target, self.database)
        for place in (*self.shards.values(), merged):
            create_hot_tables(place.server, place.database)
        seed_hot_rows(tuple(self.shards.values()), merged, LANES)


class MixedHotSite(HotSite):
    """Shard b's columns are narrower than the target's: its rows go as statements, those of its siblings as events."""

    def _create_tables(self, customers: int) -> None:
        super()._create_tables(customers)
        shard = self.shards["b"]
        shard.server.execute_script(
            f"ALTER TABLE {shard.database}.seat MODIFY code VARCHAR(39) NULL; "
            f"ALTER TABLE {shard.database}.badge MODIFY label VARCHAR(39) NULL"
        )

    def _create_accounts(self) -> None:
        super()._create_accounts()
        allow(self.target, self.user, [Grant((TRIGGER,), self.database)])


class CampaignSite(HotSite):
    """A hot site that runs schema changes, has a table for large rows, and can be filled anew."""

    def _create_tables(self, customers: int) -> None:
        super()._create_tables(customers)
        for place in (*self.shards.values(), ShopShard(self.target, self.database)):
            place.server.query(BULK_TABLE.format(database=place.database))

    def _create_accounts(self) -> None:
        super()._create_accounts()
        self.allow_schema_changes()

    def execute_schema_changes(self) -> None:
        """Let the workflow run schema changes by itself."""
        self.file.write_text(yaml.safe_dump({**yaml.safe_load(self.file.read_text()), "on_ddl": "execute"}))

    def copy_anew(self) -> None:
        """Fill the target from the shards as they are, and let all streams begin there: nobody may write meanwhile.

        No daemon runs, and none of the streams has a checkpoint any more. This is what an operator does whose
        position is gone.
        """
        columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
        with self.target.connect(self.database) as connection, connection.cursor() as cursor:
            for table in ("seat", "badge", "bulk"):
                cursor.execute(f"DELETE FROM {table}")
                for shard in self.shards.values():
                    names = ", ".join(f"`{name}`" for (name,) in shard.server.query(columns, shard.database, table))
                    rows = shard.server.query(f"SELECT {names} FROM {shard.database}.{table}")
                    places = ", ".join(["%s"] * (names.count(",") + 1))
                    cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({places})", rows)
            cursor.execute(f"DELETE FROM {self.control}.stream")
        document = yaml.safe_load(self.file.read_text())
        for name, shard in self.shards.items():
            ((executed,),) = shard.server.query("SELECT @@GLOBAL.gtid_executed")
            document["streams"][name]["start"] = {"gtid": executed}
        self.file.write_text(yaml.safe_dump(document))


def count_remedies(site: Site) -> Counter[str]:
    """Return how often each remedy helped since the daemon started, over all streams."""
    counts: Counter[str] = Counter()
    for stream in site.streams().values():
        conflicts = {**stream["conflicts"], "verdicts": sum(stream["conflicts"]["verdicts"].values())}
        counts.update({f"conflicts: {remedy}": number for remedy, number in conflicts.items()})
        counts["restarts"] += stream["restarts"]
        counts["lock conflicts"] += stream["lock_conflicts"]
    return counts
