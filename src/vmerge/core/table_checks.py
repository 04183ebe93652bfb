"""Whether the tables of the shards and of the target fit together, by their descriptions.

Knows: what a merge of row events needs of tables. Never knows: how the descriptions were read. Used by
``mysql/preflight.py``.

Foreign keys that cascade
-------------------------
Up to MySQL 9.5 InnoDB deletes and changes the children by itself and writes nothing about it to the binlog, so the
target must do the same with the same foreign key. From 9.6 on (unless innodb_native_foreign_keys=ON) the source
writes the children's rows in front of the parent's, and the target's own cascade finds nothing left to do. Either
way a cascade that only the target has would change rows that the source kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from vmerge.core.appliers import ANY_APPLIER, ApplierKind, ApplierPolicy, Choice, NoApplier
from vmerge.core.carriage import TablePlan, choose
from vmerge.core.duplicates import DuplicatePolicy, DuplicateRules
from vmerge.core.findings import Finding, error, warning
from vmerge.core.layout import Unfit
from vmerge.core.online_change import ToolTables
from vmerge.core.rule_checks import check_filter, check_names, under_rule
from vmerge.core.rules import StreamRules, TableName
from vmerge.core.schema import GENERATED_KEY, ForeignKey, TableSchema, key_differences

TRANSACTIONAL_ENGINE = "InnoDB"

_Parts = tuple[tuple[str, ...], TableName, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class StreamTables:
    """One source's side: its tables, as far as the rules name their databases."""

    name: str
    rules: StreamRules
    tables: Mapping[TableName, TableSchema]
    logs_cascades: bool
    """Whether the source writes to its binlog what a foreign key changes."""

    def carried(self) -> Iterator[tuple[TableSchema, TableName]]:
        """Yield each table that the stream carries, with its name on the target."""
        for name, schema in self.tables.items():
            target = self.rules.target_name(*name)
            if target is not None:
                yield schema, target

    def plan(self, source: TableSchema, target_name: TableName, target: TableSchema | None) -> TablePlan:
        """Return the plan of a table that the stream carries."""
        name = source.database, source.table
        return TablePlan(name, target_name, source, target, self.rules.rule(target_name))


def check_pairs(
    stream: StreamTables, targets: Mapping[TableName, TableSchema], policy: ApplierPolicy = ANY_APPLIER
) -> Iterator[Finding]:
    """Yield what would make rows inexact in the tables that both sides have now: asked at each start of a stream.

    Columns are proven, and missing tables told, when rows come.
    """
    tables = {name: schema for name, schema in stream.tables.items() if stream.rules.target_name(*name) in targets}
    for finding in check_tables([replace(stream, tables=tables)], targets, policy, judge_patterns=False):
        if finding.id in _ASKED_AT_EACH_START:
            yield finding


_ASKED_AT_EACH_START = frozenset(
    {"engine", "primary-key", "cascade-on-target", "cascade-not-logged", "triggers", "privilege"}
)


def check_tables(
    streams: Sequence[StreamTables],
    targets: Mapping[TableName, TableSchema],
    policy: ApplierPolicy = ANY_APPLIER,
    *,
    unseen_databases: Set[str] = frozenset(),
    judge_patterns: bool = True,
) -> Iterator[Finding]:
    """Yield what does not fit, over all streams.

    Tables of the target's ``unseen_databases`` are not told as missing. Patterns without a table are told only when
    every shard could be read.
    """
    feeding = Counter(target for stream in streams for _, target in stream.carried())
    kinds: defaultdict[TableName, Set[ApplierKind]] = defaultdict(frozenset)
    if judge_patterns:
        yield from _check_patterns(streams)
        rules = {stream.name: stream.rules for stream in streams}
        yield from check_names(rules, {stream.name: tuple(stream.tables) for stream in streams})
    for stream in streams:
        tools = ToolTables(stream.rules, targets)
        for source, target_name in stream.carried():
            if tools.find(source.database, source.table) is not None:
                continue  # it comes and goes, and no stream carries it
            where = f"stream {stream.name}, {source.name}"
            target = targets.get(target_name)
            choice = choose(stream.plan(source, target_name, target), policy)
            kinds[target_name] |= {choice.kind} if isinstance(choice, Choice) else set()
            yield from _check_table("source", where, source, kinds[target_name])
            if target is None:
                if target_name[0] not in unseen_databases:
                    yield _missing(where, target_name, targets)
                continue
            yield from _check_fit(where, stream, source, target, policy)
            if feeding[target_name] > 1:
                yield from _check_generated_key(where, source)
    for name in feeding:
        if name in targets:
            yield from _check_target(targets[name], kinds[name], policy)


def check_quarantine(
    duplicates: DuplicateRules, names: Iterable[TableName], targets: Mapping[TableName, TableSchema]
) -> Iterator[Finding]:
    """Yield, as one finding, the tables whose rows are to be set aside and cannot be."""
    keys = [(name, key) for name, schema in targets.items() for key in schema.foreign_keys]
    related = {name for name, _ in keys} | {key.parent for _, key in keys}
    unfit = []
    for name in sorted(set(names) & targets.keys()):
        if duplicates.policy(name) is not DuplicatePolicy.QUARANTINE:
            continue
        if targets[name].primary_key is None:
            unfit.append(f"{'.'.join(name)} (no primary key)")
        elif name in related:
            unfit.append(f"{'.'.join(name)} (foreign keys)")
    if unfit:
        yield error(
            "quarantine",
            "target",
            f"duplicates cannot go to quarantine in {', '.join(unfit)}: a row could not be followed, or children of a "
            "row that is kept off could not be applied",
            "Give these tables the policy `stop` under `true_duplicates.tables`.",
        )


def check_duplicate_patterns(duplicates: DuplicateRules, names: Collection[TableName]) -> Iterator[Finding]:
    """Find patterns of policies that no carried table matches: another policy than was meant counts then."""
    for pattern, policy in duplicates.tables:
        if not any(pattern.matches(name) for name in names):
            yield warning(
                "duplicates-without-table",
                "workflow",
                f"the pattern `{pattern.text}` under `true_duplicates.tables` matches no table of any stream, so its "
                f"policy `{policy.value}` is nowhere followed",
                "Correct it if it should. Patterns are in the target's names.",
            )


def _check_patterns(streams: Sequence[StreamTables]) -> Iterator[Finding]:
    """Find patterns that no table of any shard matches: most likely misspelt."""
    carried = {target for stream in streams for _, target in stream.carried()}
    for pattern in streams[0].rules.patterns if streams else ():
        if not any(pattern.matches(name) for name in carried):
            yield error(
                "pattern-without-table",
                "workflow",
                f"the pattern `{pattern.text}` matches no table of any stream",
                "Correct it, or create the tables first. Patterns are in the target's names.",
            )


def _check_table(side: str, where: str, schema: TableSchema, kinds: Set[ApplierKind]) -> Iterator[Finding]:
    if schema.engine != TRANSACTIONAL_ENGINE:
        yield error(
            "engine",
            where,
            f"the {side}'s table {schema.name} has the engine {schema.engine}; only InnoDB's transactions are whole",
            f"ALTER TABLE {schema.name} ENGINE=InnoDB",
        )
    if schema.primary_key is None and kinds == {ApplierKind.STATEMENTS}:
        yield warning(
            "primary-key",
            where,
            f"the {side}'s table {schema.name} has no primary key: each update and delete reads the whole table, and a "
            "conflict in it can only be waited for",
            "Add a primary key on the shards and on the target.",
        )
    elif schema.primary_key is None:
        yield error(
            "primary-key",
            where,
            f"the {side}'s table {schema.name} has no primary key: a row to update or delete would be searched for "
            "in the whole table, could be another shard's equal row, and could not be followed through a conflict",
            "Add a primary key on the shards and on the target.",
        )


def _missing(where: str, name: TableName, targets: Mapping[TableName, TableSchema]) -> Finding:
    hint = "Create it on the target with the source's definition (SHOW CREATE TABLE)."
    alike = [schema.name for other, schema in targets.items() if other != name and _folded(other) == _folded(name)]
    if alike:
        hint = f"The target has {alike[0]}: names must agree in upper and lower case (see lower_case_table_names)."
    return error("table-missing", where, f"the target has no table {'.'.join(name)}", hint)


def _folded(name: TableName) -> TableName:
    return name[0].lower(), name[1].lower()


def _check_fit(
    where: str, stream: StreamTables, source: TableSchema, target: TableSchema, policy: ApplierPolicy
) -> Iterator[Finding]:
    rule = stream.rules.rule((target.database, target.table))
    if rule is not None:
        yield from check_filter(where, source, rule)
    sides = under_rule(source, target, rule)
    if isinstance(sides, Unfit):
        yield error(
            "columns-differ",
            where,
            f"the columns do not fit {target.name} on the target under its rule: {'; '.join(sides.problems)}",
            "Correct the rule, or the tables. Every column has one way: carried, renamed, dropped or constant.",
        )
        return
    choice = policy.choose(sides.source, sides.target)
    if isinstance(choice, NoApplier):
        yield _without_applier(where, target, choice)
    yield from _check_keys(where, sides.source, sides.target)
    yield from _check_cascades(where, stream, sides.source, target)


def _without_applier(where: str, target: TableSchema, found: NoApplier) -> Finding:
    text = "; ".join(found.reasons)
    if found.id == "columns-differ":
        text = f"the columns are not those of {target.name} on the target: {text}"
        return error(found.id, where, text, found.hint)
    return error(found.id, "target", text, found.hint)


def _check_keys(where: str, source: TableSchema, target: TableSchema) -> Iterator[Finding]:
    for text in key_differences(source, target):
        yield warning(
            "keys-differ",
            where,
            text,
            "A key on the target only may refuse rows that the shards accept; a missing one lets duplicates in.",
        )


def _check_target(target: TableSchema, kinds: Set[ApplierKind], policy: ApplierPolicy) -> Iterator[Finding]:
    yield from _check_table("target", "target", target, kinds)
    if target.has_triggers and ApplierKind.EVENTS in policy.kinds:
        yield warning(
            "triggers",
            "target",
            f"table {target.name} has triggers; they do not fire for rows that a merge applies",
            "What they do must be done at the shards, or they can go.",
        )


def _check_generated_key(where: str, source: TableSchema) -> Iterator[Finding]:
    key = source.primary_key
    if key is not None and [part.column for part in key.parts] == [GENERATED_KEY]:
        yield warning(
            "generated-primary-key",
            where,
            f"the primary key is the generated column {GENERATED_KEY}, which every shard counts from 1",
            "Give the table a primary key that is unique over all shards.",
        )


def _check_cascades(where: str, stream: StreamTables, source: TableSchema, target: TableSchema) -> Iterator[Finding]:
    """Compare the foreign keys that change rows of this table, in the target's names."""
    ours = _cascades(_of_target(key, stream.rules) for key in source.foreign_keys)
    theirs = _cascades(target.foreign_keys)
    for parts, rules in theirs.items():
        if ours.get(parts) != rules:
            yield error(
                "cascade-on-target",
                where,
                f"a foreign key of {target.name} to {'.'.join(parts[1])} cascades ({_show(rules)}) on the target only",
                "Give both sides the same foreign key, or let the target's not cascade.",
            )
    if stream.logs_cascades:
        return
    for parts, rules in ours.items():
        if theirs.get(parts) != rules:
            yield error(
                "cascade-not-logged",
                where,
                f"a foreign key cascades ({_show(rules)}), which this source does not write to its binlog, "
                "and the target does not do the same",
                "Carry the parent table too, and give the target's table the same foreign key.",
            )


def _of_target(key: ForeignKey, rules: StreamRules) -> ForeignKey:
    """Put the target's names of the parent and its columns into a foreign key of a source."""
    parent = rules.target_name(*key.parent)
    rule = None if parent is None else rules.rule(parent)
    names = {} if rule is None else {theirs.lower(): ours for ours, theirs in rule.renamed.items()}
    columns = tuple(names.get(column.lower(), column) for column in key.parent_columns)
    return replace(key, parent=parent or ("", ""), parent_columns=columns)


def _cascades(keys: Iterable[ForeignKey]) -> dict[_Parts, tuple[str, str]]:
    return {
        (key.columns, key.parent, key.parent_columns): (_rule(key.on_delete), _rule(key.on_update))
        for key in keys
        if key.cascades
    }


def _rule(rule: str) -> str:
    """NO ACTION is RESTRICT in InnoDB."""
    return "RESTRICT" if rule == "NO ACTION" else rule


def _show(rules: tuple[str, str]) -> str:
    return f"ON DELETE {rules[0]}, ON UPDATE {rules[1]}"
