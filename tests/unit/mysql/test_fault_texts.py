"""What is told of a server's message: never a row's value."""

from __future__ import annotations

import pytest
from pymysql.err import OperationalError

from vmerge.mysql.faults import describe


@pytest.mark.parametrize(
    ("errno", "text"),
    [
        (1062, "Duplicate entry '4711' for key 't.k'"),
        (1366, "Incorrect integer value: '4711' for column 'c' at row 1"),
        (1526, "Table has no partition for value 4711"),
        (1644, "the trigger says 4711"),
        (1863, "Found a row in wrong partition p0 (id:4711)"),
        (4999, "some new error about '4711'"),
    ],
)
def test_values_are_left_out(errno: int, text: str) -> None:
    """Quoted or not, a value is told of no error, and the number of each is."""
    told = describe(OperationalError(errno, text))
    assert "4711" not in told and str(errno) in told
