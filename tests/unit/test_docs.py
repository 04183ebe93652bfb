"""What the documentation says of the code, compared with the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from vmerge import errors
from vmerge.cli.exit_codes import INTERRUPTED, MEANINGS
from vmerge.cli.main import main
from vmerge.core.states import Phase, StreamState

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])}
COMMAND = re.compile(r"(?:^ {4,}|`)vmerge ((?:daemon |quarantine )?[a-z]+)([^`\n]*)", re.MULTILINE)


def rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page."""
    lines = PAGES[page].read_text().splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]


def error_classes(root: type[errors.VmergeError] = errors.VmergeError) -> Iterator[type[errors.VmergeError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from error_classes(child)


def test_every_error_is_documented_with_its_exit_code_and_kind() -> None:
    """docs/errors.md has exactly the classes of the tree, each with its exit code and what becomes of the stream."""
    documented = [row[:3] for row in rows("docs/errors.md") if len(row) > 3 and row[1].isdigit()]
    tree = [[f"`{one.__name__}`", str(one.exit_code), one.verdict.value] for one in error_classes()]
    assert sorted(documented) == sorted(tree)


def test_every_exit_code_is_told() -> None:
    """The codes of the errors, of a command that is done and of one that was interrupted are those that help tells."""
    assert {one.exit_code for one in error_classes()} | {0, INTERRUPTED} == MEANINGS.keys()


def test_every_error_has_a_remedy() -> None:
    """Each error says in docs/errors.md what to do, and so does each hint of one that stops a stream."""
    assert all(row[4] for row in rows("docs/errors.md") if len(row) > 3 and row[1].isdigit())
    assert all(one.default_hint.endswith(".") for one in error_classes())


def test_every_state_and_phase_is_documented() -> None:
    """docs/errors.md has exactly the states and phases that a status shows."""
    first = [row[0].strip("`") for row in rows("docs/errors.md") if row[0].startswith("`")]
    assert [word for word in first if not word[0].isupper()] == [one.value for one in (*StreamState, *Phase)]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """Every relative link of a page leads to a file, and to a heading in it if it names one."""
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[page].read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = PAGES[page].parent / path if path else PAGES[page]
        assert file.exists(), target
        headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings]


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    """Every command and option of vmerge that a page names is one."""
    for names, arguments in COMMAND.findall(PAGES[page].read_text()):
        command = command_named(names.split())
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", arguments)) <= known, f"vmerge {names}{arguments}"


def command_named(names: list[str]) -> click.Command:
    command: click.Command = main
    for name in names:
        assert isinstance(command, click.Group), names
        assert name in command.commands, names
        command = command.commands[name]
    return command
