"""A daemon's folder: whose it is, and that nobody else may look into it.

Knows: the lock, and modes of files. Never knows: what is kept there. Used by the daemon and the command line.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vmerge.errors import DaemonError

LOCK_NAME = "daemon.lock"


def open_private(path: Path) -> IO[str]:
    """Open a file to read and append, closed to other users, making it if need be; a link there is refused."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    file = os.fdopen(descriptor, "a+")
    os.fchmod(descriptor, 0o600)  # also one that was there before, or that an odd umask made
    return file


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a state folder, so that one daemon at most uses it; it is made if missing, closed to other users.

    Raises:
        DaemonError: another process holds it, it cannot be made, or other users can change what is in it.
    """
    try:
        _make(folder)
        _require_ours(folder)
        lock = open_private(folder / LOCK_NAME)
    except OSError as error:
        raise DaemonError(
            f"the state folder {folder} cannot be used: {error.strerror}",
            hint="Name one that you may write with --state-dir or VMERGE_STATE_DIR.",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise DaemonError(
                f"a daemon runs already with the state folder {folder} (pid {lock.read().strip() or 'unknown'})",
                hint="Stop it with `vmerge daemon stop`, or give this one another --state-dir.",
            ) from error
        try:
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
        except OSError as error:
            raise DaemonError(
                f"the state folder {folder} cannot be written: {error.strerror}",
                hint="Make room on its disk, or name another with --state-dir.",
            ) from error
        yield


def _make(folder: Path) -> None:
    """Make a folder and what leads to it, closed to others whatever the umask is."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def _require_ours(folder: Path) -> None:
    """Refuse a folder in which others could put links where our files come, or replace them.

    Raises:
        DaemonError: it is another user's, or others may write in it; or it is a link that another user made.
    """
    user = os.geteuid()
    hint = "Name a folder of your own with --state-dir or VMERGE_STATE_DIR; one that does not exist yet is made."
    if folder.lstat().st_uid != user or folder.stat().st_uid != user:
        raise DaemonError(f"the state folder {folder} belongs to another user", hint=hint)
    mode = folder.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise DaemonError(
            f"other users may write in the state folder {folder} (mode {mode & 0o7777:o})",
            hint=f"chmod 700 {folder}, if all that is in it is yours. {hint}",
        )


def is_locked(folder: Path) -> bool:
    """Whether a daemon runs with a state folder. A dead process that nobody has waited for yet holds no lock."""
    try:
        with (folder / LOCK_NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
