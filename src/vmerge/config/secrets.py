"""Passwords from the environment or from files.

Knows: where a secret may be kept, and that it is never printed. Never knows: which server it opens. Used by
``workflow.py``.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from vmerge.config.problem import problem

MAX_SECRET_BYTES = 4096
"""Far above any password; what is larger is some other file."""

_OTHERS = stat.S_IRWXO


def secret_from_environment(name: str, environment: Mapping[str, str]) -> SecretStr:
    """Return a variable's value.

    Raises:
        PydanticCustomError: it is not set, or empty.
    """
    value = environment.get(name)
    if not value:
        state = "not set" if value is None else "empty"
        raise problem(
            f"the environment variable {name} is {state}",
            key="password_env",
            hint=f"Export {name} with the account's password before starting vmerge, or use `password_file`.",
        )
    return SecretStr(value)


def secret_from_file(path: Path) -> SecretStr:
    """Return a file's only line. A group may read the file: orchestrators mount secrets for one; everybody may not.

    Raises:
        PydanticCustomError: the file is missing, open to everybody, empty, or not one line of UTF-8.
    """
    content = _read(path)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _unusable(path, "is not UTF-8 text") from error
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise _unusable(path, "is empty")
    if "\n" in text:
        raise _unusable(path, "has more than one line")
    return SecretStr(text)


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(path, "is not a regular file")
        if status.st_mode & _OTHERS:
            raise problem(
                f"the password file {path} is open to every user of this machine (mode {status.st_mode & 0o777:o})",
                key="password_file",
                hint=f"chmod 600 {path}",
            )
        if status.st_size > MAX_SECRET_BYTES:
            raise _unusable(path, f"is larger than {MAX_SECRET_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror or error}") from error


def _unusable(path: Path, why: str) -> Exception:
    return problem(
        f"the password file {path} {why}",
        key="password_file",
        hint="Write the account's password into it, in one line; a relative path starts at the workflow file.",
    )
