"""Ends a lab whose owner died: kills its servers, removes its folder.

Knows: the end of a pipe that the owner holds, its own process group (every server of the lab is in it) and the
lab's folder. Never knows: servers, MySQL or vmerge; it runs as a script of its own with the standard library only.
Started by ``servers.py``, which says a byte before it closes the pipe when it has cleaned up by itself.

A parent-death signal would not do: it fires when the *thread* that forked ends, and leaves the folder behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time


def main(folder: str) -> None:
    """Waits for the owner's word or death."""
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    if os.read(sys.stdin.fileno(), 1):
        return
    group = os.getpgrp()
    # Killing the group kills its leader, this process, too; so a child outside of the group does it.
    if os.fork() == 0:
        os.setpgid(0, 0)
        _kill(group)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)
    signal.pause()


def _kill(group: int) -> None:
    """Kills until nobody is left: a server may have been between fork and exec at the first try."""
    for _ in range(500):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
