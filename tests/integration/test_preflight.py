"""Preflight on real servers: what fits passes, each misfit is one finding, and nothing is changed by looking."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from vmerge.core.accounts import source_grants, target_grants
from vmerge.core.appliers import ApplierSetting
from vmerge.core.findings import Finding, Findings, Severity
from vmerge.core.grants import TRIGGER, Grant
from vmerge.core.ownership import Claim
from vmerge.core.position import GtidSet
from vmerge.core.rules import Start, StartAt, StreamRules
from vmerge.core.schema_policy import OnDdl
from vmerge.errors import PreflightError
from vmerge.lab.accounts import allow
from vmerge.lab.servers import Server
from vmerge.mysql.checkpoints import ControlTables
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.preflight import StreamFacts, WorkflowFacts, examine, require
from vmerge.mysql.preflight_server import ServerView, check_kind

pytestmark = pytest.mark.server

StartServer = Callable[..., Server]

PASSWORD = "right-password"
CUSTOMER = "CREATE TABLE {db}.customer (id INT PRIMARY KEY, email VARCHAR(100) UNIQUE, size ENUM('s','m'))"
WHAT_MAY_CHANGE = "SELECT @@GLOBAL.gtid_executed", "SHOW DATABASES", "SELECT user, host FROM mysql.user ORDER BY 1, 2"


class Setting:
    """Two shards and a target with one account of least privileges each, and the facts of a workflow over them."""

    def __init__(self, database: str, shard_a: Server, shard_b: Server, target: Server) -> None:
        self.database = database
        self.account = database
        self.shard_a, self.shard_b, self.target = shard_a, shard_b, target
        for server in (shard_a, shard_b, target):
            self.run(server, "CREATE DATABASE {db}")
            self.run(server, CUSTOMER)
            self.make_account(server, self.target_grants() if server is target else source_grants([self.database]))

    def run(self, server: Server, *statements: str) -> None:
        for statement in statements:
            server.query(statement.replace("{db}", self.database))

    def run_everywhere(self, *statements: str) -> None:
        for server in (self.shard_a, self.shard_b, self.target):
            self.run(server, *statements)

    def target_grants(
        self, applier: ApplierSetting = ApplierSetting.AUTO, on_ddl: OnDdl = OnDdl.STOP
    ) -> tuple[Grant, ...]:
        return target_grants([self.database], f"{self.database}_control", applier, on_ddl)

    def make_account(self, server: Server, grants: Iterable[Grant]) -> None:
        self.run(server, f"DROP USER IF EXISTS '{self.account}'@'%'")
        self.run(server, f"CREATE USER '{self.account}'@'%' IDENTIFIED BY '{PASSWORD}'")
        allow(server, self.account, grants)

    def require_each(self, server: Server, grants: Sequence[Grant], facts: WorkflowFacts) -> None:
        """Take each privilege away in turn: one finding names it, and the statement it tells gives it back."""
        self.make_account(server, grants)
        assert self.errors(facts) == []
        for grant, privilege in [(one, privilege) for one in grants for privilege in one.privileges]:
            server.query(f"REVOKE {privilege} ON {grant.place} FROM {self.account}")
            (error,) = examine(facts).errors
            assert error.id == "privilege"
            assert f"lacks {privilege}" in error.text
            assert grant.database is None or f"on `{grant.database}`" in error.text
            with pytest.raises(PreflightError, match=f"lacks {privilege}"):  # so does a start
                require(Findings((error,)))
            server.query(error.hint.partition(";")[0])
        assert self.errors(facts) == []

    def endpoint(self, role: str, server: Server) -> Endpoint:
        return Endpoint(role, server.host, server.port, self.account, PASSWORD)

    def facts(self, *patterns: str, start: Start = StartAt.CURRENT) -> WorkflowFacts:
        rules = StreamRules.build({self.database: self.database}, patterns or ("*.*",))
        streams = tuple(
            StreamFacts(name, self.endpoint(f"stream {name}", server), rules, start)
            for name, server in (("-80", self.shard_a), ("80-", self.shard_b))
        )
        return WorkflowFacts("customers", self.endpoint("target", self.target), f"{self.database}_control", streams)

    def examine(self, facts: WorkflowFacts | None = None) -> Findings:
        """Examine, and see that this changed no server."""
        servers = {id(server): server for server in (self.shard_a, self.shard_b, self.target) if server.is_running}
        before = [server.query(statement) for server in servers.values() for statement in WHAT_MAY_CHANGE]
        findings = examine(facts or self.facts())
        after = [server.query(statement) for server in servers.values() for statement in WHAT_MAY_CHANGE]
        assert after == before
        return findings

    def errors(self, facts: WorkflowFacts | None = None) -> list[Finding]:
        return list(self.examine(facts).errors)

    def error(self, facts: WorkflowFacts | None = None) -> Finding:
        errors = self.errors(facts)
        assert len(errors) == 1, errors
        return errors[0]


MakeSetting = Callable[[str, Server, Server, Server], Setting]


@pytest.fixture
def make_setting(database: str) -> Iterator[MakeSetting]:
    """Makes settings on given servers, with databases and accounts of this test alone."""
    made: list[Setting] = []

    def make(suffix: str, shard_a: Server, shard_b: Server, target: Server) -> Setting:
        made.append(Setting(f"{database}{suffix}", shard_a, shard_b, target))
        return made[-1]

    yield make
    for setting in made:
        for server in (setting.shard_a, setting.shard_b, setting.target):
            if server.is_running:
                server.query(f"DROP USER IF EXISTS '{setting.account}'@'%'")


@pytest.fixture
def setting(make_setting: MakeSetting, shard_a: Server, shard_b: Server, target: Server) -> Setting:
    """A workflow that can run, on the shared servers."""
    return make_setting("", shard_a, shard_b, target)


@contextmanager
def answering(greeting: bytes) -> Iterator[int]:
    """A server that says one thing and hangs up; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=answer)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


def with_stream(facts: WorkflowFacts, **changes: Any) -> WorkflowFacts:
    """Change the first stream."""
    return replace(facts, streams=(replace(facts.streams[0], **changes), *facts.streams[1:]))


def test_least_privileges_and_equal_tables_can_run(setting: Setting) -> None:
    """The documented privileges are enough, and a workflow that fits has no errors."""
    findings = setting.examine()
    assert findings.errors == ()
    assert {finding.id for finding in findings.warnings} <= {"row-metadata"}
    require(findings)
    assert findings.as_data()["can_run"] is True


def test_a_schema_without_warnings_has_none_but_the_metadata(setting: Setting) -> None:
    """The default binlog_row_metadata is told with what it costs, once a source."""
    warnings = setting.examine().warnings
    assert [(finding.id, finding.where) for finding in warnings] == [
        ("row-metadata", "stream -80"),
        ("row-metadata", "stream 80-"),
    ]
    assert "FULL" in warnings[0].hint


def test_each_privilege_on_a_source_is_needed_and_named(setting: Setting) -> None:
    """Without any one of the documented privileges there is one finding that names it."""
    setting.require_each(setting.shard_a, source_grants([setting.database]), setting.facts())


@pytest.mark.parametrize(
    ("applier", "on_ddl"),
    [
        (ApplierSetting.EVENTS, OnDdl.STOP),
        (ApplierSetting.STATEMENTS, OnDdl.STOP),
        (ApplierSetting.EVENTS, OnDdl.EXECUTE),
    ],
)
def test_each_privilege_on_the_target_is_needed_and_named(
    setting: Setting, applier: ApplierSetting, on_ddl: OnDdl
) -> None:
    """In every mode the documented privileges are enough, and without any one of them a finding names it."""
    facts = replace(setting.facts(), applier=applier, on_ddl=on_ddl)
    setting.require_each(setting.target, setting.target_grants(applier, on_ddl), facts)


def test_all_that_lacks_on_a_database_is_one_finding(setting: Setting) -> None:
    """An account without any privilege gets one statement for each database."""
    events, merged, control = setting.target_grants()
    setting.make_account(setting.target, [events])
    found = setting.errors()
    assert [error.text.partition(" lacks ")[2] for error in found] == [
        f"SELECT, INSERT, UPDATE, DELETE on `{setting.database}`",
        f"CREATE, SELECT, INSERT, UPDATE, DELETE on `{setting.database}_control`",
    ]
    account = f"`{setting.account}`@`%`"
    assert [error.hint for error in found] == [merged.statement(account), control.statement(account)]


def test_without_binlog_rows_go_as_statements(setting: Setting) -> None:
    """An account that may not use BINLOG can run with its documented privileges; the finding says what follows."""
    setting.make_account(setting.target, setting.target_grants(ApplierSetting.STATEMENTS))
    findings = setting.examine()
    assert findings.errors == ()
    (told,) = [finding for finding in findings.warnings if finding.id == "statements-only"]
    assert "lacks REPLICATION_APPLIER" in told.text
    asked = replace(setting.facts(), applier=ApplierSetting.STATEMENTS)
    assert {finding.id for finding in setting.examine(asked).warnings} == {"row-metadata"}


def test_statements_need_to_see_triggers(setting: Setting) -> None:
    """Without TRIGGER nobody could tell whether a trigger would fire; a role that has it counts."""
    setting.make_account(setting.target, setting.target_grants()[1:])
    error = setting.error()
    assert (error.id, error.where) == ("privilege", "target")
    assert f"lacks TRIGGER on `{setting.database}`" in error.text
    role = f"{setting.account}_role"
    setting.run(setting.target, f"CREATE ROLE '{role}'")
    try:
        allow(setting.target, f"'{role}'", [Grant((TRIGGER,), setting.database)])
        setting.run(setting.target, f"GRANT '{role}' TO '{setting.account}'@'%'")
        setting.run(setting.target, f"SET DEFAULT ROLE ALL TO '{setting.account}'@'%'")
        assert setting.examine().errors == ()
    finally:
        setting.run(setting.target, f"DROP ROLE '{role}'")


def test_events_need_binlog_where_they_are_asked_for(setting: Setting) -> None:
    """With `applier: events` an account without the privilege cannot run, and the finding names it."""
    setting.make_account(setting.target, setting.target_grants(ApplierSetting.STATEMENTS))
    found = setting.examine(replace(setting.facts(), applier=ApplierSetting.EVENTS)).errors
    assert found[0].id == "privilege"
    assert "lacks REPLICATION_APPLIER" in found[0].text


def test_triggers_keep_statements_away(setting: Setting) -> None:
    """A trigger of the target, which statements would fire, is an error for them and a warning for events."""
    allow(setting.target, setting.account, [Grant((TRIGGER,), setting.database)])
    setting.run(
        setting.target, "CREATE TRIGGER {db}.tr BEFORE INSERT ON {db}.customer FOR EACH ROW SET NEW.email = 'x'"
    )
    assert "triggers" in {finding.id for finding in setting.examine().warnings}
    found = setting.examine(replace(setting.facts(), applier=ApplierSetting.STATEMENTS)).errors
    assert [(error.id, error.where) for error in found] == [("triggers", "target")]


def test_privileges_through_a_role_count(setting: Setting) -> None:
    """What an account may is what the server says, not what SHOW GRANTS lists."""
    role = f"{setting.account}_role"
    setting.run(setting.shard_a, f"CREATE ROLE '{role}'")
    try:
        allow(setting.shard_a, f"'{role}'", source_grants([setting.database]))
        setting.make_account(setting.shard_a, ())
        setting.run(setting.shard_a, f"GRANT '{role}' TO '{setting.account}'@'%'")
        setting.run(setting.shard_a, f"SET DEFAULT ROLE '{role}' TO '{setting.account}'@'%'")
        assert setting.errors() == []
    finally:
        setting.run(setting.shard_a, f"DROP ROLE '{role}'")


def test_a_wrong_password_is_one_finding(setting: Setting) -> None:
    """A refused account says so once; what cannot be asked is not guessed."""
    facts = setting.facts()
    error = setting.error(replace(facts, target=replace(facts.target, password="wrong")))
    assert (error.id, error.where) == ("access-refused", "target")
    assert "wrong" not in error.text


def test_unreachable_servers_are_one_finding_each(setting: Setting) -> None:
    """A server that does not answer gives one finding, not one for everything that depends on it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    facts = with_stream(setting.facts(), source=replace(setting.endpoint("stream -80", setting.shard_a), port=port))
    facts = replace(facts, target=replace(facts.target, port=port))
    errors = setting.errors(facts)
    assert [(error.id, error.where) for error in errors] == [("unreachable", "target"), ("unreachable", "stream -80")]


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x05\0\0\0\x0a9.9\0", b"\xff" * 40, b""])
def test_something_that_is_no_mysql_is_unreachable(setting: Setting, greeting: bytes) -> None:
    """Whatever answers at the address, the examination ends with a finding."""
    facts = setting.facts()
    with answering(greeting) as port:
        error = setting.error(replace(facts, target=replace(facts.target, port=port)))
    assert (error.id, error.where) == ("unreachable", "target")


def test_mariadb_is_refused_by_its_name(setting: Setting) -> None:
    """A server that calls itself MariaDB is told apart; nothing else is asked of it."""
    for version in ("10.11.19-MariaDB-log", "5.5.5-10.4.1-MARIADB"):
        server = ServerView("stream -80", None, {"version": version})  # type: ignore[arg-type]  # it asks nothing
        assert [finding.id for finding in check_kind(server, (8, 0, 0))] == ["mariadb"]
    old = ServerView("stream -80", None, {"version": "5.7.44-log"})  # type: ignore[arg-type]  # it asks nothing
    assert [finding.id for finding in check_kind(old, (8, 0, 0))] == ["version"]
    new = ServerView("stream -80", None, {"version": "10.0.1"})  # type: ignore[arg-type]  # it asks nothing
    assert list(check_kind(new, (8, 0, 0))) == []


def test_tables_that_differ_are_found(setting: Setting) -> None:
    """Columns, keys and triggers are compared table by table, with both sides in the text."""
    setting.run(
        setting.target,
        "ALTER TABLE {db}.customer MODIFY email VARCHAR(50), DROP KEY email, MODIFY size ENUM('m','s')",
        "CREATE TRIGGER {db}.t BEFORE INSERT ON {db}.customer FOR EACH ROW SET NEW.email = 'x'",
    )
    allow(setting.target, setting.account, [Grant((TRIGGER,), setting.database)])
    findings = setting.examine()
    assert [error.id for error in findings.errors] == ["columns-differ", "columns-differ"]
    error = findings.errors[0]
    assert error.where == f"stream -80, {setting.database}.customer"
    assert "column `email`: type varchar(100) at the source, varchar(50) on the target" in error.text
    assert "column `size`: label 1 is 's' at the source, 'm' on the target" in error.text
    assert {"keys-differ", "triggers"} <= {warning.id for warning in findings.warnings}


def test_missing_tables_are_found(setting: Setting) -> None:
    """A table that a shard has and the target lacks is one error; another shard without it is none."""
    setting.run(setting.shard_b, "CREATE TABLE {db}.invoice (id INT PRIMARY KEY)")
    error = setting.error()
    assert error.id == "table-missing"
    assert error.text == f"the target has no table {setting.database}.invoice"
    setting.run(setting.target, "CREATE TABLE {db}.Invoice (id INT PRIMARY KEY)")
    assert "upper and lower case" in setting.error().hint


def test_a_pattern_must_match(setting: Setting) -> None:
    """A pattern that matches no table of any shard is most likely misspelt."""
    error = setting.error(setting.facts("*.customer", f"{setting.database}.order_*"))
    assert error.id == "pattern-without-table"
    assert f"`{setting.database}.order_*`" in error.text


def test_tables_outside_of_the_patterns_are_not_looked_at(setting: Setting) -> None:
    """What no pattern names may be as it likes."""
    setting.run(setting.shard_a, "CREATE TABLE {db}.junk (a INT) ENGINE=MyISAM")
    assert setting.errors(setting.facts("*.customer")) == []


def test_engines_and_primary_keys(setting: Setting) -> None:
    """Tables without transactions or without a primary key are refused on either side."""
    setting.run_everywhere("CREATE TABLE {db}.keyless (a INT)", "CREATE TABLE {db}.isam (id INT PRIMARY KEY)")
    setting.run(setting.shard_a, "ALTER TABLE {db}.isam ENGINE=MyISAM")
    found = [(error.id, error.where) for error in setting.errors()]
    database = setting.database
    assert sorted(found) == sorted(
        [
            ("engine", f"stream -80, {database}.isam"),
            ("primary-key", f"stream -80, {database}.keyless"),
            ("primary-key", f"stream 80-, {database}.keyless"),
            ("primary-key", "target"),
        ]
    )


def test_keys_that_every_shard_counts_are_warned_of(setting: Setting) -> None:
    """A primary key that the server made by itself collides over shards."""
    for server in (setting.shard_a, setting.shard_b, setting.target):
        with server.connect(setting.database) as connection, connection.cursor() as cursor:
            cursor.execute("SET @@SESSION.sql_generate_invisible_primary_key = ON")
            cursor.execute("CREATE TABLE counted (a INT)")
    findings = setting.examine()
    assert findings.errors == ()
    assert [warning.id for warning in findings.warnings].count("generated-primary-key") == 2


CHILD = "CREATE TABLE {db}.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {db}.customer (id){rule})"


def test_cascades_on_the_target_only_are_refused(setting: Setting) -> None:
    """A target that deletes rows which the source keeps would diverge."""
    for server in (setting.shard_a, setting.shard_b):
        setting.run(server, CHILD.replace("{rule}", ""))
    setting.run(setting.target, CHILD.replace("{rule}", " ON DELETE CASCADE"))
    errors = setting.errors()
    assert [error.id for error in errors] == ["cascade-on-target", "cascade-on-target"]
    assert "ON DELETE CASCADE" in errors[0].text


def test_equal_cascades_are_fine(setting: Setting) -> None:
    """The same foreign key on both sides, with the same rule, is no finding."""
    setting.run_everywhere(CHILD.replace("{rule}", " ON DELETE CASCADE"))
    assert setting.errors() == []


def test_cascades_that_the_source_does_not_log_are_refused(
    make_setting: MakeSetting, start_server: StartServer, shard_b: Server, target: Server
) -> None:
    """A source whose InnoDB cascades by itself needs a target that does the same."""
    native = start_server(options={"innodb-native-foreign-keys": "ON"})
    setting = make_setting("", native, shard_b, target)
    setting.run_everywhere(CHILD.replace("{rule}", " ON DELETE CASCADE"))
    assert setting.errors() == []
    setting.run(target, "DROP TABLE {db}.child", CHILD.replace("{rule}", ""))
    error = setting.error()
    assert (error.id, error.where) == ("cascade-not-logged", f"stream -80, {setting.database}.child")


def test_missing_databases_are_one_finding_each(setting: Setting) -> None:
    """A database that is not there is told once, not table by table."""
    facts = setting.facts()
    rules = StreamRules.build({setting.database: f"{setting.database}_2", f"{setting.database}_1": "x"}, ("*.*",))
    for server in (setting.shard_a, setting.target):
        setting.run(server, f"GRANT ALL ON *.* TO '{setting.account}'@'%'")
    facts = with_stream(facts, rules=rules)
    found = [(error.id, error.where) for error in setting.errors(facts)]
    assert found == [("database-missing", "target")] * 2 + [("database-missing", "stream -80")]


def test_one_server_under_two_addresses(setting: Setting) -> None:
    """A shard that is named twice, or is the target, is known by its uuid."""
    facts = setting.facts()
    again = replace(facts.streams[1].source, host="localhost", port=setting.shard_a.port)
    error = setting.error(replace(facts, streams=(facts.streams[0], replace(facts.streams[1], source=again))))
    assert (error.id, error.where) == ("same-server", "stream 80-")
    assert "same server as stream -80" in error.text


def test_positions_that_the_source_cannot_serve(setting: Setting) -> None:
    """A start that is purged, or that the source never reached, is refused with the missing set."""
    executed = GtidSet.parse(setting.shard_a.query("SELECT @@GLOBAL.gtid_executed")[0][0])
    assert setting.errors(with_stream(setting.facts(), start=executed)) == []
    stranger = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
    error = setting.error(with_stream(setting.facts(), start=executed.union(stranger)))
    assert (error.id, error.where) == ("position-ahead", "stream -80")
    assert str(stranger) in error.text


def test_a_source_as_it_must_not_be(
    make_setting: MakeSetting, start_server: StartServer, shard_a: Server, shard_b: Server, target: Server
) -> None:
    """Every variable that matters is checked, and purged binlogs are noticed for stored positions too."""
    options = {
        "gtid-mode": "OFF",
        "enforce-gtid-consistency": "OFF",
        "binlog-format": "MIXED",
        "binlog-row-image": "MINIMAL",
        "binlog-row-value-options": "PARTIAL_JSON",
        "binlog-row-metadata": "FULL",
        "log-replica-updates": "OFF",
        "max-allowed-packet": "256M",
    }
    bad = start_server(options=options)
    setting = make_setting("", bad, shard_b, target)
    findings = setting.examine()
    assert {(error.id, error.where) for error in findings.errors} == {
        (id, "stream -80") for id in ("gtid-mode", "gtid-consistency", "binlog-format", "row-image")
    }
    assert {(warning.id, warning.where) for warning in findings.warnings} == {
        ("partial-json", "stream -80"),
        ("replica-updates", "stream -80"),
        ("row-metadata", "stream 80-"),
        ("max-allowed-packet", "target"),
    }


def test_long_positions(make_setting: MakeSetting, start_server: StartServer, shard_b: Server, target: Server) -> None:
    """GTID sets of any length are read whole: SHOW VARIABLES would cut them at 1,024 characters."""
    source = start_server()
    long = ",".join(f"00000000-0000-0000-0000-{number:012}:1-{number}" for number in range(1, 60))
    source.query("RESET BINARY LOGS AND GTIDS")
    source.query("SET GLOBAL gtid_purged = %s", long)
    setting = make_setting("", source, shard_b, target)
    position = GtidSet.parse(source.query("SELECT @@GLOBAL.gtid_executed")[0][0])
    assert setting.errors(with_stream(setting.facts(), start=position)) == []
    shorter = position.subtract(GtidSet.parse("00000000-0000-0000-0000-000000000059:7"))
    assert setting.error(with_stream(setting.facts(), start=shorter)).id == "position-purged"


def test_purged_binlogs_are_noticed(
    make_setting: MakeSetting, start_server: StartServer, shard_a: Server, shard_b: Server, target: Server
) -> None:
    """A stream that is behind what its source still has cannot go on, whether by its start or by its checkpoint."""
    source = start_server()
    setting = make_setting("", source, shard_b, target)
    position = GtidSet.parse(source.query("SELECT @@GLOBAL.gtid_executed")[0][0])
    setting.run(source, "INSERT INTO {db}.customer VALUES (1, 'a', 's')", "FLUSH BINARY LOGS")
    file = source.query("SHOW BINARY LOG STATUS")[0][0]
    source.query(f"PURGE BINARY LOGS TO '{file}'")
    assert setting.error(with_stream(setting.facts(), start=position)).id == "position-purged"
    assert setting.errors(setting.facts(start=StartAt.EARLIEST)) == []
    with setting.target.connect() as connection:
        tables = ControlTables(f"{setting.database}_control", "customers")
        tables.create(connection)
        tables.register(connection, Claim("-80", "", ""), position)
    error = setting.error()
    assert (error.id, error.where) == ("position-purged", "stream -80")
    assert "the stream's position" in error.text


def test_a_target_as_it_must_not_be(
    make_setting: MakeSetting, start_server: StartServer, shard_a: Server, shard_b: Server, target: Server
) -> None:
    """Every variable of the target that could stop or silently bend a merge is checked."""
    bad = start_server(options={"replica-type-conversions": "ALL_LOSSY"})
    setting = make_setting("", shard_a, shard_b, bad)
    bad.query("SET GLOBAL init_connect = 'SET SESSION rbr_exec_mode = IDEMPOTENT'")
    bad.query("SET GLOBAL super_read_only = ON")
    errors = setting.errors()
    assert [error.id for error in errors] == ["read-only", "read-only", "exec-mode", "type-conversions"]


def test_a_source_without_binlog(
    make_setting: MakeSetting, start_server: StartServer, shard_a: Server, shard_b: Server, target: Server
) -> None:
    """A server that writes no binlog cannot be a source; as a target it is fine."""
    silent = start_server(options={"skip-log-bin": "", "gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"})
    as_source = make_setting("_x", silent, shard_b, target)
    assert "log-bin" in [error.id for error in as_source.errors()]
    silent.query(f"DROP DATABASE {as_source.database}")
    as_target = make_setting("_y", shard_a, shard_b, silent)
    assert as_target.errors() == []


def test_require_lists_errors_one_a_line() -> None:
    """One error is the message itself with its hint; several are listed; warnings stop nothing."""
    one = Finding("a", Severity.ERROR, "target", "is bad", "Mend it.")
    two = Finding("b", Severity.ERROR, "stream -80", "is worse", "Mend that.")
    note = Finding("c", Severity.WARNING, "target", "is slow", "Wait.")
    require(Findings((note,)))
    with pytest.raises(PreflightError) as raised:
        require(Findings((note, one)))
    assert (raised.value.message, raised.value.hint) == ("target: is bad", "Mend it.")
    with pytest.raises(PreflightError) as raised:
        require(Findings((one, note, two)))
    assert raised.value.message.splitlines() == [
        "2 things do not fit:",
        "  target: is bad",
        "  stream -80: is worse",
    ]


def test_a_renamed_stream_is_refused(setting: Setting) -> None:
    """A stream under a new name has no checkpoint: it would start anew and leave out what came in between."""
    facts = setting.facts()
    tables = ControlTables(facts.control_database, facts.workflow)
    with setting.target.connect() as connection:
        tables.create(connection)
        for name in ("-80", "80-"):
            tables.register(connection, Claim(name, "", ""), GtidSet())
    assert setting.errors(facts) == []
    renamed = replace(facts, streams=(facts.streams[0], replace(facts.streams[1], name="eighty")))
    error = setting.error(renamed)
    assert error.id == "checkpoint-without-stream"
    assert "`80-`" in error.text


def test_a_control_database_may_have_any_name(setting: Setting) -> None:
    """A percent sign, as any other character, is part of the name and of nothing else."""
    facts = replace(setting.facts(), control_database=f"{setting.database}_100%_s")
    tables = ControlTables(facts.control_database, facts.workflow)
    with setting.target.connect() as connection:
        tables.create(connection)
        tables.register(connection, Claim("-80", "", ""), GtidSet())
        assert tables.read_streams(connection).keys() == {"-80"}
