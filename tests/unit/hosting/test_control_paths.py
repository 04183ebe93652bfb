"""The paths of the control API, and what the page about them says."""

from __future__ import annotations

import re
from pathlib import Path

from vmerge.hosting.control_paths import known_paths

PAGE = Path(__file__).parents[3] / "docs" / "control.md"


def test_every_path_is_documented() -> None:
    """docs/control.md has exactly the methods and paths that a daemon answers."""
    documented = re.findall(r"^\| `(GET|POST) (/[^`?]*)", PAGE.read_text(), re.MULTILINE)
    assert set(documented) == {*known_paths(), ("GET", "/")}
