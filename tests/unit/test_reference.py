"""The pages that are made from the code, and what the code must say for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vmerge.config.workflow import Workflow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config" / "workflow.example.yaml"
MADE = {"docs/reference.md": "scripts/reference", "docs/commands.md": "scripts/commands"}


@pytest.mark.parametrize("page", MADE)
def test_a_made_page_is_up_to_date(page: str) -> None:
    """The page is what its script prints for the code of today; if not, run the script as its first lines say."""
    printed = subprocess.run([sys.executable, ROOT / MADE[page]], capture_output=True, check=True).stdout
    assert (ROOT / page).read_bytes() == printed


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that a key may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not None:
        for part in get_args(annotation):
            yield from models_in(part)


def fields(model: type[BaseModel] = Workflow) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key of a workflow file with its field, sections before what is in them."""
    for name, field in model.model_fields.items():
        yield name, field
        for section in models_in(field.annotation):
            yield from fields(section)


FIELDS = dict(fields())


@pytest.mark.parametrize("name", FIELDS)
def test_every_key_is_described(name: str) -> None:
    """Each key has a text that ends as a sentence; one with a default of its own says what it is and why."""
    field = FIELDS[name]
    text = field.description or ""
    assert text.endswith(".")
    plain = field.is_required() or field.default in (None, {}, ()) or isinstance(field.default, BaseModel)
    assert plain or f"Default {as_written(field.default)}" in text


def as_written(default: Any) -> str:
    """Return a default as it stands in a file."""
    if isinstance(default, tuple):
        return ", ".join(default)
    return f"{default:g}" if isinstance(default, float) else str(getattr(default, "value", default))


@pytest.mark.parametrize("name", FIELDS)
def test_every_key_is_in_the_commented_example(name: str) -> None:
    """The example shows each key, in use or behind a comment sign."""
    assert f"{name}:" in EXAMPLE.read_text()


@pytest.mark.parametrize("name", FIELDS)
def test_every_number_has_a_unit(name: str) -> None:
    """A key with a number names its unit, but a port, which has none."""
    annotation = FIELDS[name].annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if {int, float}.intersection(parts):
        assert name == "port" or name.endswith(("_seconds", "_bytes"))


def test_the_example_is_yaml() -> None:
    """The example is one mapping whose keys at the top are keys of a workflow."""
    assert yaml.safe_load(EXAMPLE.read_text()).keys() <= Workflow.model_fields.keys()
