"""Where secrets may stand, and who else may read them there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic_core import PydanticCustomError

from vmerge.config.secrets import openness_of, require_private, secret_from_file, token_from_file
from vmerge.errors import ConfigError

WORD = "hidden-word"
Make = Callable[[int], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a file with one word, of a mode."""

    def make(mode: int) -> Path:
        path = tmp_path / f"secret_{mode:o}"
        path.write_text(f"{WORD}\n")
        path.chmod(mode)
        return path

    return make


def refusal(path: Path) -> str:
    """Return why a password, a token and a key are refused there: in the same words, and without the word."""
    texts = []
    for read in (secret_from_file, lambda path: require_private(path, "key")):
        with pytest.raises(PydanticCustomError) as raised:
            read(path)
        texts.append(str(raised.value))
    with pytest.raises(ConfigError) as refused:
        token_from_file(path)
    texts.append(refused.value.message)
    ends = {text.partition(str(path))[2] for text in texts}
    assert len(ends) == 1
    assert WORD not in str(texts) + refused.value.hint
    return ends.pop()


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_the_owner_alone_is_read(make: Make, mode: int) -> None:
    """What nobody else may read is taken, without its line end."""
    assert secret_from_file(make(mode)).get_secret_value() == WORD


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o601, 0o666])
def test_a_file_that_is_open_to_everybody_is_refused(make: Make, mode: int) -> None:
    """Reading, writing and searching by others are all refused, with the mode."""
    assert f"open to every user of this machine (mode {mode:o})" in refusal(make(mode))


@pytest.mark.parametrize("mode", [0o640, 0o660, 0o620])
def test_our_own_file_is_no_group_s(make: Make, mode: int) -> None:
    """A file of ours needs no group to be read by us, so a group that may is a mistake."""
    assert f"open to a group of users (mode {mode:o})" in refusal(make(mode))


def test_a_link_is_followed_and_its_target_counts(make: Make, tmp_path: Path) -> None:
    """Kubernetes mounts secrets as links: what they lead to must be closed."""
    link = tmp_path / "link"
    link.symlink_to(make(0o600))
    assert secret_from_file(link).get_secret_value() == WORD
    link.unlink()
    link.symlink_to(make(0o644))
    assert "open to every user" in refusal(link)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes into and a missing file end in a message, and in no wait."""
    assert "is not a regular file" in refusal(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    assert "is not a regular file" in refusal(pipe)
    assert "No such file" in refusal(tmp_path / "absent")


@pytest.mark.parametrize(("mode", "openness"), [(0o640, ""), (0o440, ""), (0o660, "changes by a group of users")])
def test_a_group_may_read_what_another_user_owns(mode: int, openness: str) -> None:
    """So are secrets handed over by root: `root:vmerge`, mode 640 or 440; nobody but root may write there."""
    assert openness_of(mode, owner=0, reader=10001)[0] == openness
