"""Rows of a transaction that is too large for memory, in a temporary file.

Knows: how rows events lie in the file. Never knows: what the rows are for. Used by the reader through the
``RowStore`` protocol of ``core/binlog.py``. The file has no name: it is gone when its owner is, however that ends.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import IO

from vmerge.core.events import RowsEvent, RowsShape
from vmerge.core.spool_use import SpoolUse
from vmerge.errors import SpoolFailed

_HEAD = Struct("<IQ")
"""In front of each event's images: the number of its shape, and their length."""

_BUFFER_BYTES = 256 * 1024
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SpooledRows:
    """A ``RowStore`` in an unlinked temporary file.

    Promise: every walk gives all rows in the order in which they came, and holds one rows event and one buffer in
    memory; walks are independent of each other. Owner: the thread of the stream that filled it.
    """

    def __init__(self, folder: Path | None = None, use: SpoolUse | None = None) -> None:
        """Make the file in ``folder`` (the system's temporary folder if None); ``use`` is told its size.

        Raises:
            SpoolFailed: the file cannot be made.
        """
        self._place = folder or Path(tempfile.gettempdir())
        try:
            file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # closed with this object
        except OSError as error:
            raise self._failed(error) from error
        self._file = file
        self._use = use or SpoolUse()
        self._written_bytes = 0
        self._count = 0
        weakref.finalize(self, _let_go, file, self._use)
        self._shapes: list[RowsShape] = []
        self._numbers: dict[RowsShape, int] = {}
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0

    def extend(self, rows: Sequence[RowsEvent]) -> None:
        """Append rows.

        Raises:
            SpoolFailed: the file cannot be written.
        """
        self._count += len(rows)
        for shape, images in rows:
            number = self._numbers.get(shape)
            if number is None:
                number = self._numbers[shape] = len(self._shapes)
                self._shapes.append(shape)
            self._unwritten += (_HEAD.pack(number, len(images)), images)
            self._unwritten_bytes += _HEAD.size + len(images)
            if self._unwritten_bytes >= _BUFFER_BYTES:
                self._write()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RowsEvent]:
        """Walk the rows from the first on.

        Raises:
            SpoolFailed: the file cannot be written or read.
        """
        self._write()
        reader = io.BufferedReader(_FileFromStart(self._file.fileno()), _BUFFER_BYTES)
        try:
            while head := reader.read(_HEAD.size):
                number, length = _HEAD.unpack(head)
                yield RowsEvent(self._shapes[number], reader.read(length))
        except OSError as error:
            raise self._failed(error) from error

    def _write(self) -> None:
        pieces, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        try:
            for piece in _joined(pieces):
                view = memoryview(piece)
                while view:
                    written = self._file.write(view) or 0
                    self._written_bytes += written
                    view = view[written:]
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self._use.has(self._file.fileno(), self._written_bytes)

    def _failed(self, error: OSError) -> SpoolFailed:
        if error.errno in _NO_ROOM:
            return SpoolFailed(f"there is no room left in {self._place} for the rows of a large transaction")
        return SpoolFailed(f"the rows of a large transaction cannot be kept in {self._place}: {error.strerror}")


def _let_go(file: IO[bytes], use: SpoolUse) -> None:
    use.is_without(file.fileno())  # first: the number is another file's once it is closed
    file.close()


def _joined(pieces: list[bytes]) -> Iterator[bytes]:
    """Join small pieces into one; a large one is given as it is, not copied."""
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < _BUFFER_BYTES:
            small.append(piece)
            continue
        yield b"".join(small)
        small.clear()
        yield piece
    yield b"".join(small)


class _FileFromStart(io.RawIOBase):
    """Reads an open file with an offset of its own, so that walks do not disturb each other or the writer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what BufferedReader hands over
        data = os.pread(self._descriptor, min(len(buffer), _BUFFER_BYTES), self._offset)
        buffer[: len(data)] = data
        self._offset += len(data)
        return len(data)
