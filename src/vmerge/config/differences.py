"""What two versions of a folder of workflow files differ in, for the operator who has changed it.

Knows: the models. Never knows: what a change means for streams that run. Values of secrets are compared and never told.
Used by the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from vmerge.config.workflow import Server, Workflow
from vmerge.core.predicate import Predicate


@dataclass(frozen=True, slots=True)
class FolderChanges:
    """Names of workflows; one that is renamed is removed and added."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: Mapping[str, tuple[str, ...]]
    """With what is different, a line each."""


def compare_folders(before: Mapping[str, Workflow], after: Mapping[str, Workflow]) -> FolderChanges:
    """Compare two loads of a folder, by the workflows' names."""
    both = [name for name in after if name in before]
    lines = {name: tuple(differences(before[name], after[name])) for name in both}
    return FolderChanges(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed={name: found for name, found in lines.items() if found},
    )


def differences(before: Workflow, after: Workflow) -> Iterator[str]:
    """Yield what differs, as ``key: old → new`` in the order of the file; nothing when both mean the same."""
    ours, theirs = dict(_flatten(before)), dict(_flatten(after))
    for key in dict.fromkeys((*theirs, *ours)):
        old, new = ours.get(key), theirs.get(key)
        if old != new:
            yield f"{key}: {_shown(old)} → {_shown(new)}"
    passwords = dict(_passwords(before))
    for place, password in _passwords(after):
        if passwords.get(place, password) != password:
            yield f"{place}: another password"


def _flatten(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    match value:
        case BaseModel():
            for name in type(value).model_fields:
                yield from _flatten(getattr(value, name), f"{key}.{name}")
        case Mapping():
            for name, one in value.items():
                yield from _flatten(one, f"{key}.{name}")
        case _:
            yield key.removeprefix("."), value


def _passwords(workflow: Workflow) -> Iterator[tuple[str, str]]:
    servers: dict[str, Server] = {"target": workflow.target}
    servers.update({f"streams.{name}": stream for name, stream in workflow.streams.items()})
    for place, server in servers.items():
        yield place, server.endpoint("").password


def _shown(value: object) -> str:
    match value:
        case None:
            return "(none)"
        case Predicate():
            return value.text
        case tuple():
            return "[" + ", ".join(map(str, value)) + "]"
        case _:
            return str(getattr(value, "value", value))
