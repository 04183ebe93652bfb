"""How much of the disk a stream uses for now.

Knows: the sizes of temporary files that are open. Never knows: files. Filled by ``mysql/spool.py`` and
``mysql/spooled_changes.py``, read by the status.
"""

from __future__ import annotations


class SpoolUse:
    """Bytes by file. Any thread may call, also while objects are collected: each step is one of the dictionary's."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def has(self, file: int, size: int) -> None:
        """Say that a file has so many bytes now; ``file`` is any number that is its own."""
        self._sizes[file] = size

    def is_without(self, file: int) -> None:
        """Say that a file is gone."""
        self._sizes.pop(file, None)

    @property
    def byte_count(self) -> int:
        """The bytes of all files."""
        return sum(self._sizes.copy().values())
