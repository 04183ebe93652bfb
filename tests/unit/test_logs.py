"""The log: one line a record, for a person or for a machine."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from vmerge import logs

LOGGER = logging.getLogger("vmerge.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """The logger of the process is as it was."""
    logger = logging.getLogger("vmerge")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def written(log_format: logs.LogFormat) -> str:
    """Return what two records come to: one about a stream, one with an error whose text has two lines."""
    output = io.StringIO()
    logs.set_up(output=output, log_format=log_format)
    LOGGER.info("reached %s", "its “head”", extra={"stream": "-80"})
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        LOGGER.exception("internal error")
    LOGGER.debug("not told")
    return output.getvalue()


def test_json_lines() -> None:
    """Each line is one JSON object that tells time, level, stream and message, and an error's traceback inside it."""
    first, second = (json.loads(line) for line in written(logs.LogFormat.JSON).splitlines())
    assert (first["level"], first["stream"], first["message"]) == ("INFO", "-80", "reached its “head”")
    assert first["at"].endswith("Z") and len(first["at"]) == len("2026-01-01T00:00:00.000Z")
    assert second["stream"] is None and "ValueError: first\nsecond" in second["traceback"]


def test_text_lines() -> None:
    """A person reads level, stream and message."""
    assert written(logs.LogFormat.TEXT).splitlines()[0].endswith(" INFO -80: reached its “head”")
