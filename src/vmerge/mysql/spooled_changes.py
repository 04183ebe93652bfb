"""The changes of a run that is too long for memory, in a temporary database file.

Knows: how a row's change is found by its key on disk. Never knows: what a change means; that is ``core/fold.py``,
whose ``Changes`` protocol this serves. The file has no name: it is gone when its owner is, however that ends.
"""

from __future__ import annotations

import sqlite3
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmerge.core.fold import Change
from vmerge.core.rowimage import Key
from vmerge.core.spool_use import SpoolUse
from vmerge.errors import SpoolFailed

_LENGTH_BYTES = 4
_CACHE_KIBIBYTES = 16 * 1024

_SET_UP = (
    "PRAGMA journal_mode = OFF",  # nothing of it outlives the process
    "PRAGMA synchronous = OFF",
    f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}",
    "PRAGMA locking_mode = EXCLUSIVE",
    "CREATE TABLE change (number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, before BLOB, after BLOB)",
)
_FIND = "SELECT before, after FROM change WHERE key = ?"
_PUT = (
    "INSERT INTO change (key, before, after) VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET before = excluded.before, after = excluded.after"
)
_WALK = "SELECT before, after FROM change ORDER BY number"


class SpooledChanges:
    """One table's changes on disk, in bounded memory.

    Owner: the thread that made it, or the leader of a joint commit while that thread is parked. Never closed while
    another thread may read it: that ends the process. It is closed, too, when nobody refers to it any more.
    """

    def __init__(self, folder: Path | None = None, use: SpoolUse | None = None) -> None:
        """Make the file in ``folder`` (the system's temporary folder if None); ``use`` is told its size.

        Raises:
            SpoolFailed: the file cannot be made.
        """
        self._place = folder or Path(tempfile.gettempdir())
        self._use = use or SpoolUse()
        self._put_bytes = 0
        weakref.finalize(self, self._use.is_without, self._number)
        with self._failing():
            with tempfile.NamedTemporaryFile(dir=folder, prefix="vmerge-") as file:
                self._database = sqlite3.connect(file.name, isolation_level=None, check_same_thread=False)
                for statement in _SET_UP:
                    self._database.execute(statement)
            self._database.execute("BEGIN")  # never ended: what is in a transaction is written out when it has to be

    def find(self, key: Key) -> Change | None:
        """See ``Changes``. Raises ``SpoolFailed`` when the file cannot be read."""
        with self._failing():
            change: Change | None = self._database.execute(_FIND, (_encoded(key),)).fetchone()
        return change

    def put(self, key: Key, change: Change) -> None:
        """See ``Changes``. Raises ``SpoolFailed`` when the file cannot be written."""
        encoded = _encoded(key)
        with self._failing():
            self._database.execute(_PUT, (encoded, *change))
        self._put_bytes += len(encoded) + sum(map(len, filter(None, change)))
        self._use.has(self._number, self._put_bytes)

    def __iter__(self) -> Iterator[Change]:
        """See ``Changes``. Raises ``SpoolFailed`` when the file cannot be read."""
        with self._failing():
            yield from self._database.execute(_WALK)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()
        self._use.is_without(self._number)

    @property
    def _number(self) -> int:
        """Its own among the files in ``use``: those that are descriptors are positive."""
        return -id(self)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise SpoolFailed(f"the rows of a long run cannot be kept in {self._place}: {error}") from error


def _encoded(key: Key) -> bytes:
    """Return the parts of a key as one text of bytes; each with its length, so that no two keys become one."""
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "little") + part for part in key)
