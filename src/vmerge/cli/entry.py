"""Where a process of the command line begins.

Knows: what Ctrl-C means while modules load, which takes a good part of a second. Never knows: a command. Users: the
console script and `vmerge.__main__`.
"""

import io
import os
import signal
import sys

from vmerge.cli.exit_codes import INTERRUPTED


def run() -> None:
    """Run the command line of this process.

    Ctrl-C while it loads ends it at once: nothing has begun yet, and an exception could be lost in a module's loading.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # else whoever started us wants it ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from vmerge.cli.main import main  # here, since it loads all modules

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it: not every terminal is UTF-8
    try:
        signal.signal(signal.SIGINT, handler)
        main(prog_name="vmerge")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
