"""sysbench's load on two shards, merged by the daemon."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.server, pytest.mark.long]


@pytest.mark.parametrize("load", ["oltp_write_only", "oltp_read_write"])
def test_a_minute_of_sysbench_ends_equal(load: str) -> None:
    """After a minute of sysbench's writes the lag is back at zero, and the target is the union of the shards."""
    command = (sys.executable, "-m", "vmerge.lab.soak", "--minutes", "1", "--rate", "100", "--load", load)
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "PASSED"
    assert re.search(r"load +\d+,\d{3} transactions by sysbench", done.stdout)
