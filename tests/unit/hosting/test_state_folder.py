"""State folders: whose they are, and that nothing in them is open to others, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmerge.errors import DaemonError
from vmerge.hosting.state_folder import LOCK_NAME, is_locked, locked_folder, open_private


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Nothing may depend on a umask: the one here closes nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_closed_to_others(tmp_path: Path) -> None:
    """The folder, the folders that lead to it, and the files in it are their owner's alone."""
    folder = tmp_path / "state" / "vmerge"
    with locked_folder(folder):
        assert is_locked(folder)
        open_private(folder / "daemon.log").close()
    assert [mode_of(path) for path in (folder.parent, folder)] == [0o700, 0o700]
    assert [mode_of(folder / name) for name in (LOCK_NAME, "daemon.log")] == [0o600, 0o600]
    assert not is_locked(folder)


def test_a_file_that_was_open_is_closed(tmp_path: Path) -> None:
    """A log of an earlier version, or one that was copied, does not stay readable."""
    path = tmp_path / "daemon.log"
    path.touch(0o644)
    open_private(path).close()
    assert mode_of(path) == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Nothing is made in it: others could have put a link where our file comes."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with (
        pytest.raises(DaemonError, match=f"other users may write in the state folder .*mode {mode:o}") as raised,
        locked_folder(folder),
    ):
        pass
    assert f"chmod 700 {folder}" in raised.value.hint
    assert list(folder.iterdir()) == []


def test_a_folder_that_others_may_read_will_do(tmp_path: Path) -> None:
    """What is in it is closed by itself."""
    folder = tmp_path / "readable"
    folder.mkdir(mode=0o755)
    with locked_folder(folder):
        assert mode_of(folder / LOCK_NAME) == 0o600


@pytest.mark.parametrize("name", [LOCK_NAME, "daemon.log"])
def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path, name: str) -> None:
    """Whatever it leads to stays as it was."""
    folder, victim = tmp_path / "state", tmp_path / "victim"
    folder.mkdir(mode=0o700)
    victim.write_text("precious")
    victim.chmod(0o644)
    (folder / name).symlink_to(victim)
    with pytest.raises(DaemonError if name == LOCK_NAME else OSError), locked_folder(folder):
        open_private(folder / name)
    assert (victim.read_text(), mode_of(victim)) == ("precious", 0o644)


def test_another_user_s_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could change everything in it; so could who made a link to a folder of ours."""
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)  # only root could give a folder away
    with pytest.raises(DaemonError, match="belongs to another user"), locked_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_link_of_ours_to_a_folder_of_ours_is_followed(tmp_path: Path) -> None:
    """An operator may keep the folder on another disk."""
    (tmp_path / "disk").mkdir(mode=0o700)
    link = tmp_path / "state"
    link.symlink_to(tmp_path / "disk")
    with locked_folder(link):
        assert is_locked(tmp_path / "disk")
