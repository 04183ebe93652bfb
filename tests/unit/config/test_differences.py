"""Two loads of a folder: what an operator is told of their differences, and what never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from vmerge.config import FolderChanges, Workflow, compare_folders, load_workflow

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
SECRETS = {"T": "target's", "A": "a's", "B": "b's"}


def document(**changes: Any) -> dict[str, Any]:
    """Return a workflow file's content."""
    streams = {
        "a": {"host": "h1", "user": "u", "password_env": "A", "databases": {"d": "d"}},
        "b": {"host": "h2", "user": "u", "password_env": "B", "databases": {"d": "d"}},
    }
    target = {"host": "t", "user": "u", "password_env": "T"}
    return {"workflow": "w", "target": target, "streams": streams, **changes}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files are written."""
    return tmp_path


def load(folder: Path, content: dict[str, Any], secrets: dict[str, str] | None = None) -> dict[str, Workflow]:
    """Return a folder of one workflow."""
    path = folder / "w.yaml"
    path.write_text(yaml.safe_dump(content))
    workflow = load_workflow(path, secrets or SECRETS)
    return {workflow.workflow: workflow}


def changed(before: dict[str, Workflow], after: dict[str, Workflow]) -> tuple[str, ...]:
    """Return the lines about the one workflow."""
    return compare_folders(before, after).changed.get("w", ())


def test_values_and_lists_are_told_as_they_stand_in_the_file(folder: Path) -> None:
    """Each key that differs is told with both values, and defaults stand for what is left out."""
    before = load(folder, document())
    content = document(tables=["d.x", "d.y"], limits={"conflict_timeout_seconds": 5})
    content["streams"]["a"] |= {"port": 3307, "start": {"gtid": f"{UUID}:1-5"}}
    assert changed(before, load(folder, content)) == (
        "streams.a.port: 3306 → 3307",
        f"streams.a.start: current → {UUID}:1-5",
        "tables: [*.*] → [d.x, d.y]",
        "limits.conflict_timeout_seconds: 300.0 → 5.0",
    )


def test_streams_that_come_and_go_are_told_by_their_keys(folder: Path) -> None:
    """A stream that is gone and one that is new are told key by key."""
    before = load(folder, document())
    content = document()
    content["streams"] = {"a": content["streams"]["a"], "c": content["streams"]["b"]}
    lines = changed(before, load(folder, content))
    assert "streams.c.host: (none) → h2" in lines and "streams.b.host: h2 → (none)" in lines


def test_a_new_password_is_told_without_its_value(folder: Path) -> None:
    """That a secret is another one counts, and neither old nor new is shown."""
    lines = changed(load(folder, document()), load(folder, document(), {**SECRETS, "B": "changed"}))
    assert lines == ("streams.b: another password",)


def test_another_spelling_is_no_change(folder: Path) -> None:
    """A file that means the same restarts nothing."""
    assert changed(load(folder, document()), load(folder, document(tables=["*.*"]))) == ()


def test_names_decide_what_is_added_and_removed(folder: Path) -> None:
    """A workflow under another name is another workflow."""
    before, after = load(folder, document()), load(folder, document(workflow="v"))
    assert compare_folders(before, after) == FolderChanges(("v",), ("w",), {})
