"""What a validator says about a workflow file: a text, a hint, and the key that is meant.

Knows: how to carry these three through pydantic. Never knows: files or lines. Used by the other modules here.
"""

from __future__ import annotations

from pydantic_core import PydanticCustomError

PROBLEM = "vmerge_problem"


def problem(text: str, *, hint: str, key: str = "") -> PydanticCustomError:
    """Make the error that a validator raises. ``key`` is the key below the validated one that is meant, if any."""
    return PydanticCustomError(PROBLEM, "{text}", {"text": text, "hint": hint, "key": key})
