"""Passwords from the environment or from files, and the token of the control server from a file.

Knows: where a secret may be kept, and that it is never printed. Never knows: what it opens. Used by ``workflow.py`` and
the command line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from vmerge.config.problem import problem
from vmerge.errors import ConfigError

MAX_SECRET_BYTES = 4096
"""Far above any password; what is larger is some other file."""

SHORTEST_TOKEN = 16
"""Below it, guessing is no hard work."""


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
    """Return a file's only line.

    Raises:
        PydanticCustomError: the file is missing, open to others, empty, or not one line of UTF-8.
    """
    try:
        return SecretStr(_only_line(path))
    except _Unusable as unusable:
        raise problem(
            f"the password file {path} {unusable.why}",
            key="password_file",
            hint=unusable.hint
            or "Write the account's password into it, in one line; a relative path starts at the workflow file.",
        ) from unusable


def require_private(path: Path, key: str) -> None:
    """Pass when nobody else may read a file that some library reads; ``key`` is where the workflow names it.

    Raises:
        PydanticCustomError: others may.
    """
    try:
        os.close(_open(path))
    except _Unusable as unusable:
        raise problem(
            f"the file {path} {unusable.why}", key=key, hint=unusable.hint or "Name a PEM file with the client's key."
        ) from unusable


def token_from_file(path: Path) -> str:
    """Return the token that stands in a file as its only line; see ``secret_from_file``.

    Raises:
        ConfigError: it is no such file, or the token does not fit into a header.
    """
    try:
        token = _only_line(path)
    except _Unusable as unusable:
        hint = unusable.hint or "Write a long random word into it, in one line."
        raise ConfigError(f"the token file {path} {unusable.why}", hint=hint) from unusable
    if len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(
            f"the token in {path} is shorter than {SHORTEST_TOKEN} characters, or has others than printable ASCII",
            hint="Write a long random word into it, such as `openssl rand -hex 32` prints.",
        )
    return token


class _Unusable(Exception):
    """A file that holds no secret: why, as the end of a sentence, and what helps if it is not the usual."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.hint = hint


def _only_line(path: Path) -> str:
    try:
        text = _read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _Unusable("is not UTF-8 text") from error
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise _Unusable("is empty")
    if "\n" in text:
        raise _Unusable("has more than one line")
    return text


def _read(path: Path) -> bytes:
    with os.fdopen(_open(path), "rb") as file:
        try:
            content = file.read(MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise _Unusable(f"cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_SECRET_BYTES:
        raise _Unusable(f"is larger than {MAX_SECRET_BYTES} bytes")
    return content


def _open(path: Path) -> int:
    """Open a regular file that is closed to others: what is looked at is what is read, whatever the path becomes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except OSError as error:
        raise _Unusable(f"cannot be read: {error.strerror or error}") from error
    try:
        _require_closed(os.fstat(descriptor), path)
    except _Unusable:
        os.close(descriptor)
        raise
    return descriptor


def _require_closed(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _Unusable("is not a regular file")
    openness, remedy = openness_of(status.st_mode, owner=status.st_uid, reader=os.geteuid())
    if openness:
        raise _Unusable(f"is open to {openness} (mode {status.st_mode & 0o7777:o})", f"{remedy} {path}")


def openness_of(mode: int, *, owner: int, reader: int) -> tuple[str, str]:
    """Return who else may read or write a secret file, and the command that ends it; nothing when nobody may.

    A group may read what another user owns: that is how orchestrators and service managers hand a secret of root's to
    one user. What the reader owns needs no group.
    """
    if mode & stat.S_IRWXO:
        return "every user of this machine", "chmod 600"
    if owner == reader and mode & stat.S_IRWXG:
        return "a group of users", "chmod 600"
    if mode & stat.S_IWGRP:
        return "changes by a group of users", "chmod 640"
    return "", ""
