"""Every known class of fault is played by a story or a test, or does not concern vmerge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

TESTS = Path(__file__).parent.parent
HAZARDS: dict[str, dict[str, Any]] = yaml.safe_load((TESTS / "hazards.yaml").read_text())
STORIES = {path.parent.name: yaml.safe_load(path.read_text()) for path in TESTS.glob("scenarios/*/story.yaml")}
PLAYED = {number for story in STORIES.values() for number in story.get("hazards", ())}
NUMBERS = [f"B{number:03}" for number in range(2, 140, 2)]


def test_no_class_is_missing() -> None:
    """The list has every number: the classes are numbered in steps of two."""
    assert list(HAZARDS) == NUMBERS


def test_stories_name_classes_of_the_list() -> None:
    """No story plays a class that nobody knows."""
    assert HAZARDS.keys() >= PLAYED


@pytest.mark.parametrize("number", NUMBERS)
def test_each_class_is_played_or_does_not_concern_us(number: str) -> None:
    """A class has a story or a test that exists, or the reason why it needs none, and not both."""
    hazard = HAZARDS[number]
    for name in hazard.get("tests", ()):
        path, _, function = name.partition("::")
        assert f"\ndef {function}(" in (TESTS.parent / path).read_text(), name
    is_played = number in PLAYED or bool(hazard.get("tests"))
    assert is_played != bool(hazard.get("absent"))
    assert hazard.keys() <= {"fault", "tests", "absent"}
