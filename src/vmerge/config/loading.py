"""Workflow files to ``Workflow``, or one clear message.

Knows: files, and how to say what is wrong in them: file, line, what, and what to do. Never knows: servers. Used by the
command line and the daemon.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from vmerge.config.document import MAX_FILE_BYTES, Document, DocumentError, parse_document
from vmerge.config.document import Place as DocumentPlace
from vmerge.config.problem import PROBLEM
from vmerge.config.rules import Rule, TrueDuplicates
from vmerge.config.workflow import Limits, Place, Stream, Target, TlsSettings, Workflow
from vmerge.errors import ConfigError

SUFFIXES = (".yaml", ".yml")

_MODELS: dict[DocumentPlace, type[BaseModel]] = {
    (): Workflow,
    ("target",): Target,
    ("target", "tls"): TlsSettings,
    ("streams", "*"): Stream,
    ("streams", "*", "tls"): TlsSettings,
    ("rules", "*"): Rule,
    ("true_duplicates",): TrueDuplicates,
    ("limits",): Limits,
}
"""The model at each place; ``*`` stands for the name of a stream or a table."""

_PLAIN_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text; a number in its place stands in quotes",
    "string_too_short": "must not be empty",
    "dict_type": "must be a mapping of keys",
    "model_type": "must be a mapping of keys",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
}
"""What pydantic says in the words of Python, by the type of its error."""


def load_workflow(path: Path, environment: Mapping[str, str] | None = None) -> Workflow:
    """Load and validate one workflow file and the secrets it names; ``environment`` is the process's by default.

    Raises:
        ConfigError: the file, or a secret, cannot be used.
    """
    environment = os.environ if environment is None else environment
    try:
        document = parse_document(_read(path))
    except DocumentError as error:
        raise _error(path, error.line, error.text, error.hint) from error
    if document.data is None:
        raise _error(path, None, "is empty", "Start from the commented example, config/workflow.example.yaml.")
    if not isinstance(document.data, dict):
        raise _error(path, 1, "is not a mapping of keys", "It must begin with a line like `workflow: NAME`.")
    try:
        workflow = Workflow.model_validate(document.data, context=Place(path.resolve().parent, environment))
    except ValidationError as error:
        # The cause is dropped: its text would repeat what stands in the file.
        raise _from_validation(path, document, error) from None
    workflow._path = path
    return workflow


def load_folder(folder: Path, environment: Mapping[str, str] | None = None) -> list[Workflow]:
    """Load every ``*.yaml`` and ``*.yml`` of a folder, in the order of their names. Hidden files are left out.

    Raises:
        ConfigError: the folder or one of the files cannot be used, or two files name one workflow or merge one
            shard's database to the same place.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name[0] != ".")
    except NotADirectoryError as error:
        hint = "A daemon hosts the files of a folder; `vmerge run FILE` runs one."
        raise _error(folder, None, "is no folder", hint) from error
    except OSError as error:
        raise _error(folder, None, f"cannot be read: {error.strerror}", "Name a folder of workflow files.") from error
    workflows: dict[str, Workflow] = {}
    for path in paths:
        workflow = load_workflow(path, environment)
        other = workflows.setdefault(workflow.workflow, workflow)
        if other is not workflow:
            text = f"names its workflow `{workflow.workflow}`, as {other.path} does"
            raise _error(path, None, text, "Give each workflow a name of its own.")
    _refuse_shared_ways(list(workflows.values()))
    return list(workflows.values())


def _refuse_shared_ways(workflows: Sequence[Workflow]) -> None:
    """Refuse two workflows that carry one shard's database to one place: each row would come twice."""
    ways: dict[tuple[str, ...], Workflow] = {}
    for workflow in workflows:
        for name, stream in workflow.streams.items():
            for source, target in stream.databases.items():
                way = (stream.address, source, workflow.target.address, target)
                other = ways.setdefault(way, workflow)
                if other is not workflow:
                    text = (
                        f"stream `{name}` carries `{source}` to `{target}`, as {other.path} does from the same server"
                    )
                    raise _error(workflow.path, None, text, "Merge each shard's database once; remove one of them.")


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise _error(path, None, "is a folder", "Name one workflow file; `vmerge daemon start` takes a folder.")
        if path.exists() and not path.is_file():
            raise _error(path, None, "is not a regular file", "Name a workflow file.")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _error(path, None, f"cannot be read: {reason}", "Check the path and the file's mode.") from error
    if len(content) > MAX_FILE_BYTES:
        raise _error(path, None, f"is larger than {MAX_FILE_BYTES // 1024} KiB", "Name a workflow file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _error(path, line, "is not UTF-8 text", "Save the file as UTF-8.") from error


def _error(path: Path, line: int | None, text: str, hint: str | None) -> ConfigError:
    where = f"{path}, line {line}" if line is not None else str(path)
    return ConfigError(f"{where}: {text}", hint=hint)


class _Finding(NamedTuple):
    """One validation error, put into words."""

    is_unknown_key: bool
    line: int
    text: str
    hint: str | None


def _from_validation(path: Path, document: Document, error: ValidationError) -> ConfigError:
    """Tell the first of the errors: a misspelt key before the key that is missing because of it, then by line."""
    findings = [_put_into_words(document, details) for details in error.errors(include_url=False)]
    first = min(findings, key=lambda finding: (not finding.is_unknown_key, finding.line))
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return _error(path, first.line, first.text + more, first.hint)


def _put_into_words(document: Document, details: ErrorDetails) -> _Finding:
    kind, place = details["type"], tuple(details["loc"])
    context: Mapping[str, Any] = details.get("ctx", {})
    if kind == PROBLEM:
        for part in filter(None, context["key"].split("/")):
            place = (*place, int(part) if part.isdigit() and place in (("tables",), ("exclude",)) else part)
    is_key = place[-1:] == ("[key]",)
    place = place[:-1] if is_key else place
    line = document.line_of(place) or 1
    shown = _show(place)
    match kind:
        case "extra_forbidden":
            return _Finding(True, line, f"{shown} is not a known key", _suggest(place))
        case "missing":
            return _Finding(False, line, f"{shown} is missing", _describe(place))
        case "vmerge_problem":
            return _Finding(False, line, f"{shown}: {context['text']}", context["hint"])
        case "string_pattern_mismatch":  # the value is not shown: it may be a password in the wrong place
            return _Finding(False, line, f"{shown} has characters that are not allowed, or too many", _describe(place))
    plain = _PLAIN_WORDS.get(kind) or details["msg"].replace("Input should", "must")
    return _Finding(False, line, f"{shown} {plain}", _describe(place))


def _show(place: DocumentPlace) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    return f"`{''.join(parts).removeprefix('.')}`" if parts else "the file"


def _model_at(place: DocumentPlace) -> type[BaseModel] | None:
    if len(place) >= 2 and place[0] in ("streams", "rules"):
        place = (place[0], "*", *place[2:])
    return _MODELS.get(place)


def _suggest(place: DocumentPlace) -> str:
    """Say what an unknown key may have been meant to be."""
    *enclosing, key = place
    if key == "password":
        return "Passwords do not stand in workflow files: use `password_env` or `password_file`."
    model = _model_at(tuple(enclosing))
    known = sorted(model.model_fields) if model is not None else []
    close = get_close_matches(str(key).lower(), known, n=1)
    if close:
        return f"Did you mean `{close[0]}`?"
    if key in Workflow.model_fields:
        return f"`{key}` belongs to the top level of the file."
    for other, candidate in _MODELS.items():
        if key in candidate.model_fields and other:
            return f"`{key}` belongs under `{'.'.join(map(str, other)).replace('*', 'NAME')}`."
    return f"Known keys here: {', '.join(known)}."


def _describe(place: DocumentPlace) -> str | None:
    """Return the reference text of the key at a place, or of the nearest one that encloses it."""
    for length in range(len(place), 0, -1):
        model = _model_at(place[: length - 1])
        field = model.model_fields.get(str(place[length - 1])) if model is not None else None
        if field is not None and field.description:
            return f"`{place[length - 1]}`: {field.description}"
    return None
