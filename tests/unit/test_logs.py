"""The log: one line a record, for a person or for a machine."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator

import pytest
from pymysql.err import IntegrityError

from vmerge import logs

LOGGER = logging.getLogger("vmerge.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """The logger of the process is as it was."""
    logger = logging.getLogger("vmerge")
    before = logger.handlers[:], logger.level, logger.propagate
    hooks = threading.excepthook, sys.excepthook
    yield
    threading.excepthook, sys.excepthook = hooks
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
    """Each line is one JSON object that tells time, level, stream and message, and where an error came up."""
    first, second = (json.loads(line) for line in written(logs.LogFormat.JSON).splitlines())
    assert (first["level"], first["stream"], first["message"]) == ("INFO", "-80", "reached its “head”")
    assert first["at"].endswith("Z") and len(first["at"]) == len("2026-01-01T00:00:00.000Z")
    assert second["stream"] is None and second["traceback"].endswith("\nValueError")


def test_text_lines() -> None:
    """A person reads level, stream and message."""
    assert written(logs.LogFormat.TEXT).splitlines()[0].endswith(" INFO -80: reached its “head”")


@pytest.mark.parametrize("log_format", logs.LogFormat)
def test_what_an_unexpected_error_says_is_not_told(log_format: logs.LogFormat) -> None:
    """Of an error and of those that led to it the log has name, number and place; their texts may quote rows."""
    output = io.StringIO()
    logs.set_up(output=output, log_format=log_format)

    def fail() -> None:
        value = "secret@example.org"
        try:
            raise IntegrityError(1062, f"Duplicate entry '{value}' for key 'email'")
        except IntegrityError:
            raise KeyError(value)  # noqa: B904  # what led to it shows, too

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert "IntegrityError 1062" in output.getvalue() and "KeyError" in output.getvalue()
    assert "in fail" in output.getvalue() and "secret@example.org" not in output.getvalue()


def test_the_http_server_speaks_the_same_way() -> None:
    """What waitress has to say comes out as vmerge's own lines do, and only what is an error."""
    output = io.StringIO()
    logs.set_up(output=output, log_format=logs.LogFormat.JSON)
    logging.getLogger("waitress.queue").warning("Task queue depth is 1")
    logging.getLogger("waitress").error("broken")
    assert [json.loads(line)["message"] for line in output.getvalue().splitlines()] == ["broken"]
