"""A daemon's folder: whose it is, and that nobody else may look into it.

Knows: the lock, and modes of files. Never knows: what is kept there. Used by the daemon and the command line.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vmerge.errors import DaemonError

LOCK_NAME = "daemon.lock"


def open_private(path: Path) -> IO[str]:
    """Open a file to read and append, closed to other users, making it if need be."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+")


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a state folder, so that one daemon at most uses it; it is made if missing, closed to other users.

    Raises:
        DaemonError: another process holds it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
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
