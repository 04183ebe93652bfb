"""Two daemons run one workflow by mistake: the later one has it, and the data stays exact."""

from __future__ import annotations

import pytest
from tests.faults.conftest import NewSite, Report
from tests.faults.test_crashes import wait_for_progress, workload_on

from vmerge.lab.servers import Lab

pytestmark = [pytest.mark.server, pytest.mark.faults]


def test_older_daemon_is_fenced(lab: Lab, new_site: NewSite, report: Report) -> None:
    """The older daemon's streams end in an error that says why, and change nothing of the newer one's."""
    older = new_site()
    newer = older.twin()
    with workload_on(lab, older) as workload:
        older.start_daemon()
        wait_for_progress(older)
        try:
            newer.start_daemon()
            for name in older.shards:
                message = older.wait_for(name, state="error")["message"]
                assert "taken over by another daemon" in message
            report.done["streams fenced"] += len(older.shards)
            assert set(newer.stored("state").values()) == {"running"}
            # An operator stops what is left of the older daemon's workflow: that must not reach the newer one.
            older.vmerge("stop", older.workflow)
            wait_for_progress(newer)
            workload.finish()
            newer.require_exact()
            assert set(newer.stored("state").values()) == {"running"}
        finally:
            newer.end()
