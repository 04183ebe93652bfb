"""Workflow files: what a good one gives, and the one message that each bad one gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.certificates import Authority

from vmerge.config import Workflow, load_folder, load_workflow
from vmerge.core.position import GtidSet
from vmerge.core.rules import StartAt, TableRule
from vmerge.errors import ConfigError
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.tls import Tls, TlsMode

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ENVIRONMENT = {"TARGET_SECRET": "hidden-t", "SOURCE_SECRET": "hidden-s"}
EXAMPLE = Path(__file__).parents[2] / "config" / "workflow.example.yaml"

GOOD = """\
workflow: customers
target:
  host: 10.0.0.5
  user: vmerge
  password_env: TARGET_SECRET
streams:
  "-80":
    host: 10.0.0.1
    user: reader
    password_env: SOURCE_SECRET
    databases: {shop_0: shop}
  "80-":
    host: 10.0.0.2
    user: reader
    password_env: SOURCE_SECRET
    databases: {shop_1: shop}
tables: ["shop.customer", "shop.order_*"]
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a workflow file."""

    def write(text: str | bytes, name: str = "customers.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def load(path: Path) -> Workflow:
    return load_workflow(path, ENVIRONMENT)


def refusal(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        load(path)
    error = raised.value
    assert error.message.startswith(str(path))
    assert "\n" not in error.message
    assert error.hint
    assert "hidden" not in error.message + error.hint
    return error


def test_a_good_file_gives_endpoints_and_rules(write: Write) -> None:
    """Everything a run needs comes out of a file, defaults included."""
    workflow = load(write(GOOD))
    assert workflow.workflow == "customers"
    assert workflow.target_endpoint == Endpoint("target", "10.0.0.5", 3306, "vmerge", "hidden-t")
    assert workflow.source_endpoint("80-") == Endpoint("stream 80-", "10.0.0.2", 3306, "reader", "hidden-s")
    assert workflow.target_databases == ("shop",)
    assert workflow.target.control_database == "_vmerge"
    assert workflow.streams["-80"].start is StartAt.CURRENT
    assert workflow.rules_of("-80").target_name("shop_0", "order_line") == ("shop", "order_line")
    assert workflow.rules_of("-80").target_name("shop_0", "orders") is None
    assert workflow.rules_of("-80").target_name("shop_1", "customer") is None


def test_secrets_are_never_shown(write: Write) -> None:
    """Neither a workflow, its data nor an endpoint shows a password."""
    workflow = load(write(GOOD))
    shown = f"{workflow!r} {workflow.model_dump()} {workflow.target_endpoint!r} {workflow.target_endpoint}"
    assert "hidden" not in shown


def test_the_commented_example_loads() -> None:
    """The example that users start from is a good file."""
    secrets = {"VMERGE_TARGET_PASSWORD": "a", "VMERGE_SOURCE_PASSWORD": "b"}
    assert list(load_workflow(EXAMPLE, secrets).streams) == ["-80", "80-"]


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", StartAt.EARLIEST),
        ("current", StartAt.CURRENT),
        (f'{{gtid: "{UUID}:1-5"}}', GtidSet.parse(f"{UUID}:1-5")),
    ],
)
def test_starts(write: Write, text: str, start: object) -> None:
    """A stream starts at a keyword or behind a GTID set."""
    path = write(GOOD.replace("databases: {shop_0: shop}", f"databases: {{shop_0: shop}}\n    start: {text}"))
    assert load(path).streams["-80"].start == start


def test_anchors_share_keys(write: Write) -> None:
    """What streams have in common may be written once, and lines of messages still point to the right place."""
    shared = GOOD.replace('"-80":', '"-80": &shard').replace(
        "    host: 10.0.0.2\n    user: reader\n    password_env: SOURCE_SECRET\n",
        "    <<: *shard\n    host: 10.0.0.2\n",
    )
    workflow = load(write(shared))
    assert workflow.streams["80-"].user == "reader"
    assert workflow.streams["80-"].databases == {"shop_1": "shop"}
    assert "line 14" in refusal(write(shared.replace("10.0.0.2", "a b"))).message


def test_password_file_is_one_line_beside_the_workflow(write: Write) -> None:
    """A relative secret file starts at the workflow file; its line end is not part of the password."""
    secret = write("pass word\r\n", "secret")
    secret.chmod(0o600)
    path = write(GOOD.replace("password_env: TARGET_SECRET", "password_file: secret"))
    assert load(path).target_endpoint.password == "pass word"


def with_tls(settings: str) -> str:
    return GOOD.replace("  user: vmerge", f"  user: vmerge\n  tls: {{{settings}}}", 1)


def test_tls_files_are_resolved(write: Write, tmp_path: Path) -> None:
    """TLS settings reach the endpoint with absolute paths."""
    ca = Authority(tmp_path, "ca")
    client = ca.issue("client")
    path = write(with_tls("mode: verify_identity, ca: ca.pem, certificate: client.pem, key: client.key"))
    tls = Tls(TlsMode.VERIFY_IDENTITY, str(ca.certificate), str(client.certificate), str(client.key))
    assert load(path).target_endpoint.tls == tls


@pytest.mark.parametrize(
    ("settings", "what", "hint"),
    [
        ("mode: verify_ca, ca: customers.yaml", "customers.yaml of `ca` cannot be used", "PEM"),
        ("mode: required, certificate: client.pem", "client.pem is open to every user", "chmod 600"),
        ("mode: required, certificate: client.pem, key: open.key", "open.key is open to a group", "chmod 600"),
        ("mode: required, certificate: client.pem, key: locked.key", "locked.key is encrypted", "openssl pkey"),
        ("mode: required, certificate: client.pem, key: other.key", "key values mismatch", "PEM"),
        ("mode: required, certificate: client.pem, key: word", "it is not in PEM form", "PEM"),
    ],
)
def test_tls_files_that_no_connection_could_use(
    write: Write, tmp_path: Path, settings: str, what: str, hint: str
) -> None:
    """A wrong file is told before anything connects, and nobody is asked for a key's password."""
    ca = Authority(tmp_path, "ca")
    ca.issue("client").certificate.chmod(0o644)
    ca.issue("other")
    ca.issue("open").key.chmod(0o640)
    ca.issue("locked", password=b"hidden")
    write("hidden", "word").chmod(0o600)
    error = refusal(write(with_tls(settings)))
    assert "line 5:" in error.message
    assert what in error.message
    assert hint in error.hint


def test_a_socket_has_no_name_to_verify(write: Write, tmp_path: Path) -> None:
    """A mode that could verify nothing is refused, with the one that can."""
    Authority(tmp_path, "ca")
    text = with_tls("mode: verify_identity, ca: ca.pem").replace("host: 10.0.0.5", "unix_socket: /s")
    error = refusal(write(text))
    assert "`target.tls.mode`: the mode verify_identity has no host to verify" in error.message
    assert "verify_ca" in error.hint


def test_a_unix_socket_replaces_host_and_port(write: Write) -> None:
    """A server on this machine may be named by its socket."""
    path = write(GOOD.replace("host: 10.0.0.5", "unix_socket: /run/mysqld.sock"))
    assert str(load(path).target_endpoint) == "target (vmerge@/run/mysqld.sock)"


RULED = """tables: ["shop.*"]
exclude: ["shop.*_tmp"]
rules:
  shop.customer:
    source_table: customers
    rename_columns: {email: mail, Size: dimension}
    drop_columns: [note]
    constant_columns: {origin: {"-80": 1, "80-": true}, kind: x, nothing: null}
    where: id % 2 = 0
  shop.invoice: {}
"""


def test_rules_are_each_streams_own(write: Write) -> None:
    """A constant may be one for all streams or each stream's own; everything else is the same for all."""
    workflow = load(write(GOOD.replace('tables: ["shop.customer", "shop.order_*"]\n', RULED)))
    for stream, database, origin in (("-80", "shop_0", 1), ("80-", "shop_1", 1)):
        rules = workflow.rules_of(stream)
        assert rules.target_name(database, "customers") == ("shop", "customer")
        assert rules.target_name(database, "x_tmp") is None
        rule = rules.rule(("shop", "customer"))
        assert rule is not None
        assert rule.where is not None
        assert (rule.renamed, rule.dropped) == ({"email": "mail", "Size": "dimension"}, ("note",))
        assert rule.constants == {"origin": origin, "kind": "x", "nothing": None}
        assert rule.where.columns == ("id",)
        assert rules.rule(("shop", "invoice")) == TableRule()


BAD_RULES = {
    "no dot": ("shop.*_tmp", "tmp", 18, "not of the form database.table", "database.*"),
    "excludes nothing": ("shop.*_tmp", "shop_0.*_tmp", 18, "no target database", "target's names"),
    "unknown table": (
        "  shop.customer:",
        "  shop_0.customer:",
        20,
        "no table of a target database (shop)",
        "one table",
    ),
    "no table": ("  shop.customer:", "  shop:", 20, "no table of a target database", "database.table"),
    "pattern": ("  shop.customer:", "  shop.cust*:", 20, "is a pattern", "for one table"),
    "outside": ('["shop.*"]', '["shop.i*"]', 20, "takes `shop.customer` in", "Add it to `tables`"),
    "excluded": ("shop.*_tmp", "shop.c*", 20, "is excluded", "Remove the rule"),
    "one source": ("  shop.invoice: {}", "  shop.customers: {}", 26, "the same source table `customers`", "one table"),
    "misspelt": ("    drop_columns", "    drop_colums", 23, "not a known key", "Did you mean `drop_columns`?"),
    "renamed twice": ("Size: dimension", "Size: MAIL", 22, "source's column `MAIL` twice", "Case does not count"),
    "one target twice": ("Size: dimension", "EMAIL: x", 22, "target's column `EMAIL` twice", "remove one"),
    "dropped and renamed": ("[note]", "[note, Mail]", 23, "`Mail` is both renamed and dropped", "one way"),
    "constant and renamed": ("kind: x", "SIZE: x", 24, "`SIZE` is both a constant and renamed", "one way"),
    "unknown stream": ('"80-": true', '"80-": true, c: 2', 24, "names no stream of this workflow: c", "-80, 80-"),
    "missing stream": (', "80-": true', "", 24, "`origin` lacks 80-", "each stream"),
    "constant date": ("kind: x", "kind: 2020-01-01", 24, "as date", "quotes"),
    "constant float": ("kind: x", "kind: 1.5", 24, "as float", "quotes"),
    "constant list": ("kind: x", "kind: [1]", 24, "as list", "quotes"),
    "no filter": ("id % 2 = 0", "id %", 25, "`rules.shop.customer.where`", ""),
    "refused filter": ("id % 2 = 0", "LENGTH(a) > 1", 25, "functions are not evaluated", "Compare"),
    "filter no text": ("id % 2 = 0", "5", 25, "5 is no condition", "in quotes"),
    "empty rule": ("  shop.invoice: {}", "  shop.invoice:", 26, "must be a mapping", ""),
}


@pytest.mark.parametrize("case", BAD_RULES)
def test_a_bad_rule_gives_one_clear_message(write: Write, case: str) -> None:
    """Each mistake in a rule is answered with its line, what is wrong and what to do."""
    old, new, line, what, hint = BAD_RULES[case]
    assert RULED.count(old) == 1
    text = GOOD.replace('tables: ["shop.customer", "shop.order_*"]\n', RULED.replace(old, new))
    error = refusal(write(text))
    assert f"line {line}:" in error.message
    assert what in error.message
    assert hint in (error.hint or "")


BAD = {
    "misspelt key": ("    host: 10.0.0.1", "    hots: 10.0.0.1", 8, "`streams.-80.hots`", "Did you mean `host`?"),
    "misspelt top key": ("tables:", "tabels:", 17, "`tabels` is not", "Did you mean `tables`?"),
    "key at the wrong level": ("tables:", "stop_timeout_seconds: 3\ntables:", 17, "not a known key", "`limits`"),
    "unknown key": (
        "tables:",
        "colour: red\ntables:",
        17,
        "`colour` is not a known key",
        "here: applier, exclude",
    ),
    "literal password": ("password_env: TARGET_SECRET", "password: hidden", 5, "not a known key", "`password_env`"),
    "both secrets": (
        "password_env: TARGET_SECRET",
        "password_env: TARGET_SECRET\n  password_file: x",
        2,
        "both `password_env` and `password_file`",
        "exactly one",
    ),
    "no secret": (
        "  password_env: TARGET_SECRET\n",
        "",
        2,
        "neither `password_env` nor `password_file`",
        "exactly one",
    ),
    "password as a variable": ("TARGET_SECRET", "hidden!", 5, "not allowed", "password_file"),
    "missing variable": ("TARGET_SECRET", "ABSENT", 5, "variable ABSENT is not set", "Export ABSENT"),
    "missing secret file": (
        "password_env: TARGET_SECRET",
        "password_file: absent",
        5,
        "cannot be read: No such",
        "one line",
    ),
    "secret file in a shell's words": (
        "password_env: TARGET_SECRET",
        "password_file: ~/secret",
        5,
        "begins with ~",
        "whole path",
    ),
    "variable with a dollar": ("TARGET_SECRET", "$TARGET_SECRET", 5, "not allowed", "without a $"),
    "wrong type": (
        "host: 10.0.0.5",
        "host: 10.0.0.5\n  port: many",
        4,
        "`target.port` must be a whole number",
        "TCP port",
    ),
    "text as number": ("host: 10.0.0.5", 'host: h\n  port: "3306"', 4, "must be a whole number", "TCP port"),
    "port out of range": ("host: 10.0.0.5", "host: h\n  port: 65536", 4, "65535", "TCP port"),
    "number as host": ("host: 10.0.0.5", "host: 10", 3, "must be text", "Host name"),
    "host with port": ("host: 10.0.0.5", "host: h:3306", 3, "no host name", "`port` is its own key"),
    "no address": ("  host: 10.0.0.5\n", "", 2, "neither `host` nor `unix_socket`", "exactly one"),
    "two addresses": (
        "host: 10.0.0.5",
        "host: h\n  unix_socket: /s",
        2,
        "both `host` and `unix_socket`",
        "exactly one",
    ),
    "port of a socket": (
        "host: 10.0.0.5",
        "unix_socket: /s\n  port: 1",
        4,
        "`port` beside `unix_socket`",
        "remove one",
    ),
    "missing key": ("  user: vmerge\n", "", 2, "`target.user` is missing", "Account on the server"),
    "missing section": (GOOD[20 : GOOD.index("streams:")], "", 1, "`target` is missing", "merged into"),
    "null section": ("tables:", "limits:\ntables:", 17, "`limits`", "Bounds"),
    "no streams": (GOOD[GOOD.index('  "-80"') : GOOD.index("tables:")], "  {}\n", 6, "`streams`", "shards by name"),
    "bad workflow name": ("customers", "cus/tomers", 1, "not allowed", "letters, digits"),
    "bad stream name": ('"-80"', '"-80 "', 7, "not allowed", "shards by name"),
    "bad indentation": ("  host: 10.0.0.5\n  user", "  host: 10.0.0.5\n   user", 4, "not valid YAML", "indentation"),
    "tab": ("  host: 10.0.0.5", "\thost: 10.0.0.5", 3, "not valid YAML", "indentation"),
    "unquoted star": ('["shop.customer", "shop.order_*"]', "[*.*]", 17, "not valid YAML", '"*.*"'),
    "duplicate key": ("  user: vmerge\n", "  user: a\n  user: b\n", 5, "`user` twice", "remove or rename"),
    "duplicate stream": ('"80-":', '"-80":', 12, "`-80` twice", "remove or rename"),
    "number as stream name": ('"80-":', "80:", 12, "reads as int, not as text: 80", 'quotes: "80"'),
    "negative number as stream name": ('"-80":', "-80:", 7, "reads as int", 'quotes: "-80"'),
    "boolean as stream name": ('"80-":', "no:", 12, "reads as bool, not as text: no", 'quotes: "no"'),
    "template as key": ('"80-":', "{{ shard }}:", 12, "key that is not text", "quotes"),
    "python object": ("customers", "!!python/name:os.system x", 1, "not valid YAML", "Check"),
    "object tag on a mapping": ("target:", "target: !!set", 2, "tag that is not allowed", "Correct the file"),
    "bad date": ("customers", "2026-99-99", 1, "cannot read", "Correct the file"),
    "two documents": ("tables:", "---\ntables:", 17, "not valid YAML", "Check"),
    "same shard twice": ("10.0.0.2", "10.0.0.1", 12, "same address as stream `-80`", "server of its own"),
    "target is a source": ("10.0.0.2", "10.0.0.5", 12, "same address as the target", "server of its own"),
    "bad GTID text": (
        "databases: {shop_0: shop}",
        "databases: {shop_0: shop}\n    start: {gtid: abc}",
        12,
        "uuid",
        "gtid_executed",
    ),
    "empty GTID set": (
        "databases: {shop_0: shop}",
        'databases: {a: b}\n    start: {gtid: ""}',
        12,
        "empty GTID",
        "earliest",
    ),
    "GTID as number": (
        "databases: {shop_0: shop}",
        "databases: {a: b}\n    start: {gtid: 1}",
        12,
        "not text",
        "quotes",
    ),
    "unknown start": (
        "databases: {shop_0: shop}",
        "databases: {a: b}\n    start: now",
        12,
        "none of the known",
        "current",
    ),
    "two databases into one": ("{shop_0: shop}", "{shop_0: shop, x: shop}", 11, "both become `shop`", "its own target"),
    "no databases": ("{shop_0: shop}", "{}", 11, "databases`", "Source database"),
    "system database": ("{shop_0: shop}", "{mysql: shop}", 11, "MySQL's own", "of yours"),
    "empty database name": ("{shop_0: shop}", '{shop_0: ""}', 11, "no name of a database", "1 to 64"),
    "control database merged into": (
        "  user: vmerge",
        "  control_database: shop\n  user: vmerge",
        4,
        "control database `shop` is also merged into",
        "database of their own",
    ),
    "pattern without a dot": ('"shop.customer"', '"customer"', 17, "not of the form", "database.*"),
    "pattern of another database": (
        '"shop.customer"',
        '"shop_0.customer"',
        17,
        "matches no target database (shop)",
        "target's",
    ),
    "no patterns": ('["shop.customer", "shop.order_*"]', "[]", 17, "`tables`", "patterns"),
    "policy of no table": (
        "tables:",
        'true_duplicates: {tables: {"shop.x": quarantine, customer: stop}}\ntables:',
        17,
        "not of the form",
        "database.*",
    ),
    "unknown policy": (
        "tables:",
        "true_duplicates: {default: skip}\ntables:",
        17,
        "true_duplicates.default",
        "stop or",
    ),
    "policy for nothing": (
        "tables:",
        'true_duplicates: {tables: {"shoq.x": quarantine}}\ntables:',
        17,
        "matches no target database",
        "target's names",
    ),
    "zero limit": ("tables:", "limits: {conflict_timeout_seconds: 0}\ntables:", 17, "greater than 0", "Default 300"),
    "endless limit": ("tables:", "limits: {conflict_timeout_seconds: .inf}\ntables:", 17, "finite", "Default 300"),
    "unknown TLS mode": ("  user: vmerge", "  tls: {mode: on}\n  user: vmerge", 4, "`target.tls.mode`", "verify_ca"),
    "ca without verification": (
        "  user: vmerge",
        "  tls: {ca: customers.yaml}\n  user: vmerge",
        4,
        "no effect",
        "verify_ca",
    ),
    "verification without ca": ("  user: vmerge", "  tls: {mode: verify_ca}\n  user: vmerge", 4, "needs `ca`", "PEM"),
    "missing ca": (
        "  user: vmerge",
        "  tls: {mode: verify_ca, ca: no.pem}\n  user: vmerge",
        4,
        "there is no file",
        "path",
    ),
    "ignored certificate": (
        "  user: vmerge",
        "  tls: {certificate: customers.yaml}\n  user: vmerge",
        4,
        "may send no",
        "required",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_gives_one_clear_message(write: Write, case: str) -> None:
    """Each mistake is answered with its line, what is wrong and what to do."""
    old, new, line, what, hint = BAD[case]
    assert GOOD.count(old) >= 1
    error = refusal(write(GOOD.replace(old, new, 1)))
    assert f"line {line}:" in error.message
    assert what in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"- a\n- b\n", "not a mapping"),
        (b"just text\n", "not a mapping"),
        (b"workflow: caf\xe9\n", "not UTF-8"),
        (b"\xff\xfew\x00", "not UTF-8"),
        (b"workflow: a\x00b\n", "not valid YAML"),
        (b"[" * 5000, "nested too deeply"),
        (b"x: " + b"1" * 300_000, "larger than 256 KiB"),
        (b"a: &a [*a]\n", "contains itself"),
        (b"a: &a {<<: *a}\n", "contains itself"),
        (b"a: {<<: 3}\n", "<<"),
    ],
)
def test_a_file_that_is_no_workflow_is_refused(write: Write, content: bytes, what: str) -> None:
    """Whatever bytes a file holds, the answer is one message."""
    assert what in refusal(write(content)).message


def test_aliases_cannot_fill_the_memory(write: Write) -> None:
    """A small file whose aliases stand for billions of values is refused quickly."""
    lines = ['a0: &a0 ["x", "x", "x", "x", "x", "x", "x", "x", "x", "x"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "more than 20000 values" in refusal(write("\n".join(lines))).message


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    """A missing file and a folder are each named as what they are."""
    assert "No such file" in refusal(tmp_path / "absent.yaml").message
    folder = refusal(tmp_path)
    assert "is a folder" in folder.message
    assert "vmerge daemon start" in folder.hint
    assert "not a regular file" in refusal(Path("/dev/null")).message


def test_the_misspelt_key_is_told_before_the_key_it_should_be(write: Write) -> None:
    """With several mistakes the message is about the cause, and counts the others."""
    error = refusal(write(GOOD.replace("  user: vmerge", "  usr: vmerge")))
    assert "`target.usr` is not a known key (and 1 more)" in error.message
    assert error.hint == "Did you mean `user`?"


@pytest.mark.parametrize(
    ("content", "mode", "what"),
    [
        (b"secret", 0o604, "open to every user"),
        (b"secret", 0o640, "open to a group"),
        (b"secret", 0o620, "open to a group"),
        (b"", 0o600, "is empty"),
        (b"\n", 0o600, "is empty"),
        (b"one\ntwo\n", 0o600, "more than one line"),
        (b"\xff", 0o600, "not UTF-8"),
        (b"x" * 5000, 0o600, "larger than"),
    ],
)
def test_bad_secret_files(write: Write, content: bytes, mode: int, what: str) -> None:
    """A secret file must be closed to others and hold one line of text."""
    secret = write(content, "secret")
    secret.chmod(mode)
    error = refusal(write(GOOD.replace("password_env: TARGET_SECRET", "password_file: secret")))
    assert what in error.message
    assert "line 5:" in error.message
    assert error.hint == f"chmod 600 {secret}" or mode == 0o600


def test_empty_variables_are_no_secrets(write: Write) -> None:
    """A variable that a deployment left empty is refused here, not by the server as a wrong password."""
    with pytest.raises(ConfigError, match="SOURCE_SECRET is empty"):
        load_workflow(write(GOOD), {**ENVIRONMENT, "SOURCE_SECRET": ""})


def test_local_spellings_are_one_address(write: Write) -> None:
    """This machine under two names is still the same shard twice."""
    text = GOOD.replace("10.0.0.1", "localhost").replace("10.0.0.2", "127.0.0.1")
    assert "same address as stream `-80` (localhost:3306)" in refusal(write(text)).message


def test_a_folder_gives_its_workflows_in_order(write: Write, tmp_path: Path) -> None:
    """Hidden files and other kinds of files are not workflows."""
    write(GOOD.replace("customers", "second").replace("10.0.0.", "10.0.1."), "b.yml")
    write(GOOD.replace("customers", "first"), "a.yaml")
    write("no: [", ".hidden.yaml")
    write("no: [", "notes.txt")
    assert [workflow.workflow for workflow in load_folder(tmp_path, ENVIRONMENT)] == ["first", "second"]


def test_two_files_with_one_workflow_are_refused(write: Write, tmp_path: Path) -> None:
    """A workflow's name is unique in a folder."""
    first = write(GOOD, "a.yaml")
    write(GOOD, "b.yaml")
    with pytest.raises(ConfigError, match=f"names its workflow `customers`, as {first} does"):
        load_folder(tmp_path, ENVIRONMENT)


def test_one_shard_in_two_workflows_is_refused(write: Write, tmp_path: Path) -> None:
    """Two workflows that merge one database of a server to the same place would bring each row twice."""
    first = write(GOOD, "a.yaml")
    write(GOOD.replace("customers", "again"), "b.yaml")
    with pytest.raises(ConfigError, match=f"as {first} does from the same server"):
        load_folder(tmp_path, ENVIRONMENT)


def test_a_file_is_no_folder(write: Write) -> None:
    """A workflow file in the place of its folder is answered with the command that takes a file."""
    with pytest.raises(ConfigError, match="is no folder") as caught:
        load_folder(write(GOOD), ENVIRONMENT)
    assert "vmerge run FILE" in caught.value.hint


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    """A folder that cannot be read is not an empty folder."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load_folder(tmp_path / "absent", ENVIRONMENT)
