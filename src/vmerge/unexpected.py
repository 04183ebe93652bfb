"""What is told of an error that nobody expected: what it is and where it came up, never what it says.

The text of such an error may be a server's, which quotes rows (error 1062 has the key's value), or name the very bytes
that could not be read. Row values are in no log, status or state; so its text is nowhere.

Knows: tracebacks. Never knows: where they are written. Used by the formats of the log, and by whoever puts such an
error into a message.
"""

from __future__ import annotations

import traceback

from vmerge.errors import VmergeError


def name_of(error: BaseException) -> str:
    """Return an error in a few words: an assertion's and our own errors' texts are known to hold no values."""
    if isinstance(error, VmergeError | AssertionError):
        return f"{type(error).__name__}: {error}"
    number = error.args[0] if error.args else None
    return f"{type(error).__name__} {number}" if type(number) is int else type(error).__name__


def traceback_of(error: BaseException) -> str:
    """Return where an error and those that led to it came up, the oldest first."""
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and before not in chain:
        chain.append(before)
    return "\n".join(map(_with_frames, reversed(chain)))


def _with_frames(error: BaseException) -> str:
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"Traceback (most recent call last):\n{frames}{name_of(error)}"
