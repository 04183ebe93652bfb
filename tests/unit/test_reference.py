"""The reference of the workflow keys."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date() -> None:
    """docs/reference.md is what scripts/reference prints for the models of today."""
    printed = subprocess.run([sys.executable, ROOT / "scripts" / "reference"], capture_output=True, check=True).stdout
    assert (ROOT / "docs" / "reference.md").read_bytes() == printed
