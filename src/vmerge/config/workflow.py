"""The models of a workflow file; their field descriptions are its reference.

Knows: every key, its default and the reason for it, and what values make no sense alone or together. Never knows:
YAML, lines or connections. Used by ``loading.py``, which makes them, and by whoever runs a workflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vmerge.config.problem import problem
from vmerge.config.rules import Rule, TrueDuplicates, require_database, require_rules_fit, ruled_table, table_pattern
from vmerge.config.secrets import require_private, secret_from_environment, secret_from_file
from vmerge.config.section import Section
from vmerge.core.appliers import ApplierSetting
from vmerge.core.position import GtidSet
from vmerge.core.rules import Start, StartAt, StreamRules
from vmerge.core.schema_policy import OnDdl
from vmerge.mysql.connect import Endpoint
from vmerge.mysql.tls import Tls, TlsFailure, TlsMode

SYSTEM_DATABASES = frozenset({"mysql", "information_schema", "performance_schema", "sys"})

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Place:
    """What a file's texts refer to: the folder that relative paths start from, and the environment."""

    folder: Path
    environment: Mapping[str, str]


def _place(info: ValidationInfo) -> Place:
    assert isinstance(info.context, Place)
    return info.context


def _database_name(value: str) -> str:
    if not 1 <= len(value) <= 64 or value != value.strip() or not value.isprintable():
        raise problem(f"{value!r} is no name of a database", hint="Names have 1 to 64 characters, no blanks around.")
    if value.lower() in SYSTEM_DATABASES:
        raise problem(f"`{value}` is one of MySQL's own databases", hint="Name a database of yours.")
    return value


def _start(value: object) -> Start:
    """Read ``current``, ``earliest`` or ``{gtid: text}``."""
    hint = 'Write `current`, `earliest` or {gtid: "uuid:1-5"}.'
    if isinstance(value, str) and value in (StartAt.CURRENT.value, StartAt.EARLIEST.value):
        return StartAt(value)
    if not (isinstance(value, dict) and value.keys() == {"gtid"}):
        raise problem("is none of the known starts", hint=hint)
    text = value["gtid"]
    if not isinstance(text, str):
        raise problem("has a GTID set that is not text", hint="Put the GTID set in quotes.", key="gtid")
    try:
        position = GtidSet.parse(text)
    except ValueError as error:
        raise problem(str(error), hint="Copy the set from the source's @@GLOBAL.gtid_executed.", key="gtid") from error
    if position.is_empty():
        raise problem("has an empty GTID set", hint="Write `earliest` to begin with the oldest binlog.", key="gtid")
    return position


def _file_path(value: str) -> str:
    if value.startswith("~"):
        hint = "Write the whole path, or one that starts at the workflow file's folder."
        raise problem(f"'{value}' begins with ~, which shells alone replace", hint=hint)
    return value


FilePath = Annotated[str, Field(min_length=1), AfterValidator(_file_path)]
Name = Annotated[str, Field(pattern=r"\A[A-Za-z0-9_.-]{1,64}\z")]
DatabaseName = Annotated[str, BeforeValidator(lambda value: _database_name(value) if isinstance(value, str) else value)]


class TlsSettings(Section):
    """TLS to one server."""

    mode: Annotated[TlsMode, Field(strict=False)] = Field(
        default=TlsMode.PREFERRED,
        description="disabled, preferred, required, verify_ca or verify_identity, as MySQL's own clients mean them. "
        "Default preferred: it encrypts wherever the server can, and works with every server.",
    )
    ca: FilePath | None = Field(default=None, description="PEM file of the authority to verify the server with.")
    certificate: FilePath | None = Field(
        default=None, description="PEM file of the client's certificate, for accounts with REQUIRE X509."
    )
    key: FilePath | None = Field(
        default=None,
        description="PEM file of the client's key, not encrypted; closed to others, as `password_file` is. Default: it "
        "stands in `certificate`.",
    )

    @field_validator("ca", "certificate", "key")
    @classmethod
    def _resolve(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        path = _place(info).folder / value
        if not path.is_file():
            raise problem(f"there is no file {path}", hint="Correct the path; a relative one starts at this file.")
        return str(path)

    @model_validator(mode="after")
    def _fits_the_mode(self) -> Self:
        mode = self.mode
        if mode.verifies and self.ca is None:
            raise problem(f"the mode {mode.value} needs `ca`", hint="Name the authority's PEM file.", key="mode")
        if not mode.verifies and self.ca is not None:
            raise problem(
                f"the mode {mode.value} does not verify the server, so `ca` would have no effect",
                hint="Use `mode: verify_ca` or `mode: verify_identity`, or remove `ca`.",
                key="ca",
            )
        if mode in (TlsMode.DISABLED, TlsMode.PREFERRED) and (self.certificate or self.key):
            raise problem(
                f"the mode {mode.value} may send no certificate",
                hint="Use `mode: required` or a verifying mode with `certificate` and `key`.",
                key="certificate" if self.certificate else "key",
            )
        if self.key and not self.certificate:
            raise problem("`key` stands without `certificate`", hint="Give both.", key="key")
        self._try_files()
        return self

    def _try_files(self) -> None:
        """Refuse files that no connection could be made with, and a key that others may read."""
        if self.certificate is not None:
            require_private(Path(self.key or self.certificate), "key" if self.key else "certificate")
        try:
            self.settings().context()
        except TlsFailure as failure:
            raise problem(failure.text, hint=failure.hint) from failure

    def settings(self) -> Tls:
        """Return what the drivers take."""
        return Tls(self.mode, self.ca, self.certificate, self.key)


class Server(Section):
    """How to reach one MySQL server, and as whom."""

    host: str | None = Field(default=None, description="Host name or address; this or `unix_socket`.")
    port: Annotated[int, Field(ge=1, le=65535)] = Field(default=3306, description="TCP port. Default 3306, MySQL's.")
    unix_socket: FilePath | None = Field(default=None, description="Path of the server's socket; this or `host`.")
    user: Annotated[str, Field(min_length=1, max_length=32)] = Field(description="Account on the server.")
    password_env: Annotated[str, Field(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\z")] | None = Field(
        default=None,
        description="Name, without a $, of the environment variable that holds the password; this or `password_file`.",
    )
    password_file: FilePath | None = Field(
        default=None,
        description="File whose only line is the password, which nobody else may read: mode 600, or 640 if it belongs "
        "to root and to vmerge's group; this or `password_env`.",
    )
    tls: TlsSettings = Field(default=TlsSettings(), description="TLS to the server.")
    _password: SecretStr = PrivateAttr(default=SecretStr(""))

    @field_validator("host")
    @classmethod
    def _is_a_host(cls, value: str | None) -> str | None:
        if value is not None and (
            not value or value.count(":") == 1 or not value.isprintable() or set(value) & set("/ []@")
        ):
            raise problem(f"{value!r} is no host name or address", hint="Write the host alone; `port` is its own key.")
        return value

    @field_validator("unix_socket")
    @classmethod
    def _resolve(cls, value: str | None, info: ValidationInfo) -> str | None:
        return None if value is None else str(_place(info).folder / value)

    @model_validator(mode="after")
    def _one_address(self) -> Self:
        if (self.host is None) == (self.unix_socket is None):
            found = "neither `host` nor" if self.host is None else "both `host` and"
            raise problem(f"has {found} `unix_socket`", hint="Give exactly one of them.")
        if self.unix_socket is not None and "port" in self.model_fields_set:
            raise problem("has `port` beside `unix_socket`", hint="A socket has no port: remove one.", key="port")
        if self.unix_socket is not None and self.tls.mode is TlsMode.VERIFY_IDENTITY:
            raise problem(
                "the mode verify_identity has no host to verify with `unix_socket`",
                hint="Use `mode: verify_ca`, or `host`.",
                key="tls/mode",
            )
        return self

    @model_validator(mode="after")
    def _read_password(self, info: ValidationInfo) -> Self:
        if (self.password_env is None) == (self.password_file is None):
            found = "neither `password_env` nor" if self.password_env is None else "both `password_env` and"
            raise problem(f"has {found} `password_file`", hint="Give exactly one of them.")
        place = _place(info)
        if self.password_env is not None:
            self._password = secret_from_environment(self.password_env, place.environment)
        elif self.password_file is not None:
            self._password = secret_from_file(place.folder / self.password_file)
        return self

    @property
    def address(self) -> str:
        """The server's address in one spelling, so that equal servers compare equal."""
        if self.unix_socket is not None:
            return self.unix_socket
        host = (self.host or "").lower()
        return f"{'localhost' if host in _THIS_MACHINE else host}:{self.port}"

    def endpoint(self, role: str) -> Endpoint:
        """Return what ``vmerge.mysql.connect`` takes; ``role`` is how messages name the server."""
        return Endpoint(
            role=role,
            host=self.host or "localhost",
            port=self.port,
            user=self.user,
            password=self._password.get_secret_value(),
            unix_socket=self.unix_socket,
            tls=self.tls.settings(),
        )


class Target(Server):
    """The server that the shards are merged into."""

    control_database: DatabaseName = Field(
        default="_vmerge",
        description="Database of vmerge's own tables. Default _vmerge: sorts first, and no application uses it.",
    )


class Stream(Server):
    """One source shard."""

    databases: dict[DatabaseName, DatabaseName] = Field(
        min_length=1, description="Source database → target database. Databases that are not named are not carried."
    )
    start: Annotated[StartAt | GtidSet, BeforeValidator(_start)] = Field(
        default=StartAt.CURRENT,
        description="Where a stream without a checkpoint starts: `current`, `earliest`, or {gtid: set} for everything "
        "behind the set. Default current: it needs nothing that the source may have purged.",
    )

    @field_validator("databases")
    @classmethod
    def _one_source_each(cls, value: dict[str, str]) -> dict[str, str]:
        sources: dict[str, str] = {}
        for source, target in value.items():
            if target in sources:
                raise problem(
                    f"`{sources[target]}` and `{source}` both become `{target}`",
                    hint="Databases of one server cannot be merged into one: give each its own target.",
                    key=source,
                )
            sources[target] = source
        return value


class Limits(Section):
    """Bounds on what may last."""

    conflict_timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=300.0,
        description="How long one key conflict may last, counted while all sibling streams run, before the stream "
        "stops with the key's name. Default 300: a lagging sibling releases the key in seconds and a restarted one in "
        "a minute; what lasts longer is worth a person's look. Waiting holds no lock, so more costs lag only.",
    )
    stop_timeout_seconds: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = Field(
        default=15.0,
        description="How long a stop may take, in every state, before what hangs is named and vmerge exits. Default "
        "15: several times what the largest batch takes to commit, and below the 30 s and 90 s that Kubernetes and "
        "systemd grant. Docker grants 10: set stop_grace_period.",
    )


DdlPolicy = Annotated[OnDdl, Field(strict=False)]


class Workflow(Section):
    """One workflow file."""

    workflow: Name = Field(description="The workflow's name: letters, digits, `_`, `.`, `-`; at most 64.")
    target: Target = Field(description="The server that the shards are merged into.")
    streams: dict[Name, Stream] = Field(min_length=1, description="The source shards by name, such as `-80`.")
    tables: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = Field(
        default=("*.*",),
        description="The tables to carry: patterns `database.table` with shell wildcards, in the target's names. "
        "Default *.*: every table of the databases that the streams name.",
    )
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(),
        description="Tables that are not carried, though `tables` takes them in: patterns like those.",
    )
    rules: dict[str, Rule] = Field(
        default={},
        description="What becomes of the rows of single tables on their way: `database.table`, in the target's names "
        "→ a rule. A table with a rule is carried by the names of its columns, one without by their places.",
    )
    applier: Annotated[ApplierSetting, Field(strict=False)] = Field(
        default=ApplierSetting.AUTO,
        description="How rows are sent: `events` as row events, with BINLOG; `statements` as INSERT, UPDATE and "
        "DELETE; `auto` chooses by table: events where the account may use BINLOG and the columns are equal, else "
        "statements where the target's columns keep every value. Default auto: `vmerge check` and `vmerge show` tell "
        "the choice.",
    )
    on_ddl: DdlPolicy = Field(
        default=OnDdl.STOP,
        description="What becomes of a schema change of a merged table: stop, ignore (pass it; rows that do not fit "
        "stop the stream) or execute (run it once, when all streams that fill the table have come to it). Default "
        "stop: the target's tables are the operator's, and nothing is changed in them that nobody asked for.",
    )
    true_duplicates: TrueDuplicates = Field(
        default=TrueDuplicates(), description="What becomes of rows that are proven true duplicates, by table."
    )
    limits: Limits = Field(default=Limits(), description="Bounds on what may last.")
    _path: Path = PrivateAttr(default=Path())

    @field_validator("tables", "exclude")
    @classmethod
    def _are_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            table_pattern(text)
        return value

    @model_validator(mode="after")
    def _servers_differ(self) -> Self:
        seen = {self.target.address: ""}
        for name, stream in self.streams.items():
            other = seen.setdefault(stream.address, name)
            if other == name:
                continue
            what = f"stream `{other}`" if other else "the target"
            raise problem(
                f"stream `{name}` has the same address as {what} ({stream.address})",
                hint="Each shard and the target must be a server of its own.",
                key=f"streams/{name}",
            )
        return self

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        targets = self.target_databases
        if self.target.control_database in targets:
            raise problem(
                f"the control database `{self.target.control_database}` is also merged into",
                hint="Give vmerge's own tables a database of their own.",
                key="target/control_database",
            )
        for index, text in enumerate(self.tables):
            require_database(text, targets, f"tables/{index}")
        for index, text in enumerate(self.exclude):
            require_database(text, targets, f"exclude/{index}")
        for text in self.true_duplicates.tables:
            require_database(text, targets, "true_duplicates/tables")
        require_rules_fit(self.rules, targets, self.streams, self.tables, self.exclude)
        return self

    @property
    def path(self) -> Path:
        """The file that the workflow was loaded from."""
        return self._path

    @property
    def target_databases(self) -> tuple[str, ...]:
        """The databases of the target that rows go to, sorted."""
        return tuple(sorted({name for stream in self.streams.values() for name in stream.databases.values()}))

    @property
    def target_endpoint(self) -> Endpoint:
        """The target, as the drivers take it."""
        return self.target.endpoint("target")

    def source_endpoint(self, stream: str) -> Endpoint:
        """Return one stream's source, as the drivers take it."""
        return self.streams[stream].endpoint(f"stream {stream}")

    def rules_of(self, stream: str) -> StreamRules:
        """Return which tables one stream carries, and how."""
        named = {ruled_table(text, self.target_databases): rule.of_stream(stream) for text, rule in self.rules.items()}
        rules = {name: rule for name, rule in named.items() if name is not None}
        return StreamRules.build(self.streams[stream].databases, self.tables, exclude=self.exclude, table_rules=rules)
