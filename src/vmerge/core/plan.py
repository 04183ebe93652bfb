"""What one stream does with the tables of its source: which it carries, and where to.

Knows: the workflow's rules and the schemas of source and target as read at start. Never knows: servers or rows; how
rows get into their table is known to ``core/carriage.py``. Used by the player, through the binlog decoder
(``carriage``) and the appliers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vmerge.core.appliers import ANY_APPLIER, ApplierKind, ApplierPolicy, Choice
from vmerge.core.carriage import TablePlan, carry, choose, in_full, require_kept
from vmerge.core.events import SchemaChange, TableMap
from vmerge.core.online_change import Role, ToolTable, ToolTables
from vmerge.core.projection import Carried
from vmerge.core.rules import StreamRules, TableName, TablePattern, TableRule
from vmerge.core.schema import TableSchema
from vmerge.core.schema_change import Change, first_word, made_table, read_change
from vmerge.core.schema_policy import Alteration, Exchange, Note, Reading, ShadowStatement
from vmerge.core.target_statement import Refused, TargetStatement, altered_instead, target_statement
from vmerge.errors import SchemaMismatch, UnsupportedEvent


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
        earlier: Mapping[TableName, TableSchema | None] | None = None,
    ) -> None:
        """``earlier``: by target table, what a source's table that has changed was for the rows that come next."""
        self._earlier = earlier or {}
        self._rules = rules
        self._policy = policy
        self._appliers: dict[TableMap, ApplierKind] = {}
        self._targets: Mapping[TableName, TableSchema] = {(schema.database, schema.table): schema for schema in targets}
        self._tools = ToolTables(rules, self._targets)
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
            if target_name is not None and self.tool_table(*name) is None:
                tables[name] = self._table_plan(name, target_name, schema)
        return tables

    def _table_plan(self, name: TableName, target_name: TableName, source: TableSchema | None) -> TablePlan:
        return TablePlan(
            name,
            target_name,
            source,
            self._targets.get(target_name),
            self._rules.rule(target_name),
            target_name in self._earlier,
            self._earlier.get(target_name),
        )

    def table(self, database: str, table: str) -> TablePlan | None:
        """Return the plan of one source table; None when the stream does not carry it."""
        name = (database, table)
        planned = self.tables.get(name)
        if planned is not None:
            return planned
        target_name = self._rules.target_name(database, table)
        if target_name is None or self.tool_table(database, table) is not None:
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
        if not table_map.names:
            raise SchemaMismatch(
                f"a row of {table_map.name} was kept without the names of its columns, and may be of an older table",
                hint="Change it at its source: its next version comes with names.",
            )
        self._appliers[table_map] = require_kept(table_map, table, self._policy)
        return True

    def in_full(self, table_map: TableMap) -> TableMap:
        """Return the table map of rows that are carried now, such that ``still_carries`` can tell them later."""
        return in_full(table_map, self._carried(table_map))

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

        So may one about an online schema change tool's shadow table, in the end. Names are compared without regard to
        case, as some servers do.
        """
        read = read_change(change.statement, change.database)
        if read is None:
            return self._may_mention(change)
        if self._shadow_of(change, read) is not None:
            return True
        if read.is_drop and not self._may_have_any(read):
            return False
        return any(self._may_carry(*name) for name in read.tables) or any(
            self._targets_of(database) for database in read.databases
        )

    def read(self, change: SchemaChange) -> Reading:
        """Return what a statement that concerns the stream is to it."""
        read = read_change(change.statement, change.database)
        if read is None:
            return Alteration(takes_rows=True)
        shadow = self._shadow_of(change, read)
        if shadow is not None:
            is_alter = first_word(change.statement) == "ALTER"
            return ShadowStatement(shadow, Note.ADDS if is_alter else Note.BEGINS)
        return self._exchange(read) or Alteration(read.takes_rows)

    def changed_tables(self, change: SchemaChange) -> frozenset[TableName] | None:
        """Return the target's names of the tables that a statement may change at the source; None for any."""
        read = read_change(change.statement, change.database)
        if read is None or read.databases or not all(_is_plain(part) for name in read.tables for part in name):
            return None
        folded = {_folded(name) for name in read.tables}
        return frozenset(
            target
            for target in self._targets
            if any(_folded(name) in folded for name in self._rules.source_names(target))
        )

    def creates(self, change: SchemaChange) -> bool:
        """Whether a statement makes a table that the stream carries and the target lacks."""
        made = made_table(change.statement, change.database)
        target = None if made is None else self._rules.target_name(*made)
        return made is not None and target is not None and target not in self._targets and not self.tool_table(*made)

    def translate(self, change: SchemaChange, reading: Reading, collected: Sequence[str]) -> TargetStatement:
        """Return the statement that does on the target what a change did at the source.

        ``collected`` has what was done to a tool's shadow table, if the change is its exchange. Raises ``Refused``.
        """
        zone = dict(change.session).get("time_zone")
        if zone is not None and not _is_offset(str(zone)):
            raise Refused(f"it depends on the time zone {zone} of the source's session")
        if dict(change.session).get("explicit_defaults_for_timestamp") == 0:
            raise Refused("a TIMESTAMP column may take the time of execution (explicit_defaults_for_timestamp is OFF)")
        if isinstance(reading, Alteration) and reading.takes_rows:
            raise Refused("rows go away with it, or it cannot be read")
        if isinstance(reading, Exchange):
            statement = altered_instead(collected, reading.shadow, reading.real, self._rename)
        else:
            statement = target_statement(change.statement, change.database, self._rename)
        rule = self._rules.rule(statement.table)
        if rule is not None and rule != TableRule(source_table=rule.source_table):
            raise Refused(f"the workflow has rules for rows of {'.'.join(statement.table)}, which it does not fit")
        return statement

    def _rename(self, name: TableName) -> TableName | None:
        return self._rules.target_name(*name)

    def _shadow_of(self, change: SchemaChange, read: Change) -> TableName | None:
        """Return the shadow table that a statement makes, alters or drops, and nothing else."""
        made = made_table(change.statement, change.database)
        tables = read.tables if made is None else (made,)
        if len(tables) != 1:
            return None
        tool = self.tool_table(*tables[0])
        return tables[0] if tool is not None and tool.role is Role.SHADOW else None

    def _exchange(self, read: Change) -> Exchange | None:
        """Read ``RENAME TABLE real TO old, shadow TO real``."""
        if not read.takes_rows or len(read.tables) != 4:
            return None
        real, old, shadow, place = read.tables
        tool, old_tool = self.tool_table(*shadow), self.tool_table(*old)
        if tool is None or tool.role is not Role.SHADOW or old_tool is None or old_tool.role is not Role.OLD:
            return None
        if _folded(place) != _folded(real) or tool.real != real[1].lower() or old_tool.real != tool.real:
            return None
        return Exchange(tool, shadow, real)

    def tool_table(self, database: str, table: str) -> ToolTable | None:
        """Return what a source's table is to an online schema change tool; None when it is an ordinary one."""
        return self._tools.find(database, table)

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
        if self.tool_table(database, table) is not None or self._rules.excludes(database, table):
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


def _is_offset(zone: str) -> bool:
    return zone[:1] in ("+", "-")


def _is_plain(name: str) -> bool:
    """Whether a name reads the same in every client character set; the text of a statement may be in any."""
    return name.isascii() and "\\" not in name
