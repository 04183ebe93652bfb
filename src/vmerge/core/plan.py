"""What one stream does with the tables of its source: which it carries, and where to.

Knows: the workflow's rules and the schemas of source and target as read at start. Never knows: servers or rows; how
rows get into their table is known to ``core/carriage.py``. Used by the player, through the binlog decoder
(``carriage``) and the appliers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmerge.core.appliers import ANY_APPLIER, ApplierKind, ApplierPolicy, Choice
from vmerge.core.carriage import TablePlan, carry, choose, require_kept
from vmerge.core.events import SchemaChange, TableMap
from vmerge.core.projection import Carried
from vmerge.core.rules import StreamRules, TableName, TablePattern
from vmerge.core.schema import TableSchema
from vmerge.core.schema_change import Change, read_change
from vmerge.errors import UnsupportedEvent


class Plan:
    """One stream's tables. Promise: what ``carriage`` lets through, the target's table takes without a change.

    Made anew at each start of a stream, as schemas change. Owner: the stream's thread; it never changes.
    """

    def __init__(
        self,
        rules: StreamRules,
        sources: Iterable[TableSchema],
        targets: Iterable[TableSchema],
        policy: ApplierPolicy = ANY_APPLIER,
    ) -> None:
        self._rules = rules
        self._policy = policy
        self._appliers: dict[TableMap, ApplierKind] = {}
        self._targets: Mapping[TableName, TableSchema] = {(schema.database, schema.table): schema for schema in targets}
        self.tables: Mapping[TableName, TablePlan] = self._make_tables(sources)
        self._patterns = tuple(TablePattern(pattern.text.lower()) for pattern in rules.patterns)
        keys = [(name, key) for name, schema in self._targets.items() for key in schema.foreign_keys]
        self._related = {name for name, _ in keys} | {key.parent for _, key in keys}
        self._cascading_parents = {key.parent for _, key in keys if key.cascades}
        relations = [(name, key.parent) for name, key in keys]
        self._depths = _depths(relations)
        self._circles = _circles(relations)
        self._referenced: dict[TableName, set[str]] = {}
        for _, key in keys:
            self._referenced.setdefault(key.parent, set()).update(key.parent_columns)

    def _make_tables(self, sources: Iterable[TableSchema]) -> dict[TableName, TablePlan]:
        """Plan the tables that the source has; one that is made later gets its plan from its name."""
        tables = {}
        for schema in sources:
            name = (schema.database, schema.table)
            target_name = self._rules.target_name(*name)
            if target_name is not None:
                tables[name] = self._table_plan(name, target_name, schema)
        return tables

    def _table_plan(self, name: TableName, target_name: TableName, source: TableSchema | None) -> TablePlan:
        return TablePlan(name, target_name, source, self._targets.get(target_name), self._rules.rule(target_name))

    def table(self, database: str, table: str) -> TablePlan | None:
        """Return the plan of one source table; None when the stream does not carry it."""
        name = (database, table)
        planned = self.tables.get(name)
        if planned is not None:
            return planned
        target_name = self._rules.target_name(database, table)
        if target_name is None:
            return None
        return self._table_plan(name, target_name, None)

    def carriage(self, table_map: TableMap) -> Carried | None:
        """Return how the stream carries rows of this shape; None when it does not.

        Raises:
            SchemaMismatch: it should, but the target's table is missing or not proven equal.
        """
        table = self.table(table_map.database, table_map.table)
        if table is None:
            return None
        carried, self._appliers[carried.table] = carry(table_map, table, self._policy)
        return carried

    def still_carries(self, table_map: TableMap) -> bool:
        """Whether the stream carries rows that it kept from earlier: the table map is the one that they were kept with.

        Raises:
            SchemaMismatch: it does, but they do not fit the target's table any more.
        """
        table = self.table(table_map.database, table_map.table)
        if table is None:
            return False
        self._appliers[table_map] = require_kept(table_map, table, self._policy)
        return True

    def target_name(self, table_map: TableMap) -> TableName:
        """Return the target's table for rows that are wanted."""
        return self._carried(table_map).target_name

    def target_schema(self, table_map: TableMap) -> TableSchema:
        """Return the target's table for rows that are wanted."""
        target = self._carried(table_map).target
        if target is None:
            raise LookupError(f"{table_map.name} is not carried")
        return target

    @property
    def appliers(self) -> frozenset[ApplierKind]:
        """Those that rows of any stream of the workflow may need."""
        return self._policy.kinds

    def applier(self, table_map: TableMap) -> ApplierKind:
        """Return which applier brings rows of this shape, as they are carried, to the target."""
        if len(self.appliers) == 1:
            return next(iter(self.appliers))
        kind = self._appliers.get(table_map)
        return kind if kind is not None else require_kept(table_map, self._carried(table_map), self._policy)

    def choices(self) -> Mapping[TableName, Choice]:
        """Return the applier of each table that both sides have, by its name on the target, as far as is known now."""
        found = {}
        for table in self.tables.values():
            choice = choose(table, self._policy)
            if isinstance(choice, Choice):
                found[table.target_name] = choice
        return found

    def _carried(self, table_map: TableMap) -> TablePlan:
        table = self.table(table_map.database, table_map.table)
        if table is None:
            raise LookupError(f"{table_map.name} is not carried")
        return table

    def key_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """Return where, from 0, the columns of the primary key stand in rows that are wanted; none without one.

        Raises:
            UnsupportedEvent: rows of this table are not all there is to a change of it, as it cascades to others, and
                not every source writes those rows.
        """
        target = self.target_schema(table_map)
        if (target.database, target.table) in self._cascading_parents:
            raise UnsupportedEvent(f"rows of {table_map.name} cannot be followed: their changes cascade")
        return target.primary_key_positions

    def has_foreign_keys(self, table_map: TableMap) -> bool:
        """Whether the target's table is child or parent of any foreign key."""
        return self.target_name(table_map) in self._related

    def depth(self, table_map: TableMap) -> int:
        """Return how many parents stand above the target's table; see ``core/fold.py``."""
        return self._depths.get(self.target_name(table_map), 0)

    def referenced_columns(self, table_map: TableMap) -> tuple[int, ...]:
        """Return where, from 0, the columns stand that children of the target's table refer to."""
        name = self.target_name(table_map)
        names, target = self._referenced.get(name), self._targets.get(name)
        if names is None or target is None:
            return ()
        folded = {column.lower() for column in names}
        return tuple(at for at, column in enumerate(target.columns) if column.name.lower() in folded)

    def is_in_circle(self, table_map: TableMap) -> bool:
        """Whether the target's table is a parent of itself, directly or over others."""
        return self.target_name(table_map) in self._circles

    def concerns(self, change: SchemaChange) -> bool:
        """Whether a statement may change a table that the stream carries: in doubt yes.

        Names are compared without regard to case, as some servers do.
        """
        read = read_change(change.statement, change.database)
        if read is None:
            return self._may_mention(change)
        if read.is_drop and not self._may_have_any(read):
            return False
        return any(self._may_carry(*name) for name in read.tables) or any(
            self._targets_of(database) for database in read.databases
        )

    def _may_have_any(self, drop: Change) -> bool:
        """Whether the target may have rows of what is dropped: none went into a table that it lacked at the start."""
        if not all(map(_is_plain, [*drop.databases, *(part for name in drop.tables for part in name)])):
            return True
        names = {_folded(name) for target in self._targets for name in self._rules.source_names(target)}
        databases = {database for database, _ in names}
        return any(_folded(name) in names for name in drop.tables) or any(
            database.lower() in databases for database in drop.databases
        )

    def _may_mention(self, change: SchemaChange) -> bool:
        """A statement that cannot be read can only touch a database that it runs in or names."""
        text = f"{change.database} {change.statement}".lower()
        return not text.isascii() or any(database.lower() in text for database in self._rules.databases)

    def _may_carry(self, database: str, table: str) -> bool:
        targets = self._targets_of(database)
        if not _is_plain(table):
            return bool(targets)
        if self._rules.excludes(database, table):
            return False
        names = [(target, name) for target in targets for name in self._rules.names_on_target(target, table)]
        return any(pattern.matches(name) for name in names for pattern in self._patterns)

    def _targets_of(self, database: str) -> list[str]:
        """Return, in lower case, where the tables of a source database may go."""
        if not _is_plain(database):
            return [target.lower() for source, target in self._rules.databases.items() if not source.isascii()]
        folded = database.lower()
        return [target.lower() for source, target in self._rules.databases.items() if source.lower() == folded]


def _depths(relations: list[tuple[TableName, TableName]]) -> dict[TableName, int]:
    """Return the depth of each child below its furthest ancestor; tables in a circle get some depth."""
    depths: dict[TableName, int] = {}
    for _ in relations:  # a chain is no longer than there are relations
        for child, parent in relations:
            if child != parent:
                depths[child] = max(depths.get(child, 1), min(depths.get(parent, 0) + 1, len(relations)))
    return depths


def _circles(relations: list[tuple[TableName, TableName]]) -> set[TableName]:
    """Return the tables that are among their own ancestors."""
    ancestors: dict[TableName, set[TableName]] = {child: set() for child, _ in relations}
    for _ in relations:  # a chain is no longer than there are relations
        for child, parent in relations:
            ancestors[child] |= {parent} | ancestors.get(parent, set())
    return {name for name, above in ancestors.items() if name in above}


def _folded(name: TableName) -> TableName:
    return name[0].lower(), name[1].lower()


def _is_plain(name: str) -> bool:
    """Whether a name reads the same in every client character set; the text of a statement may be in any."""
    return name.isascii() and "\\" not in name
