"""A daemon takes a workflow from another that runs it: the later one has it, and the data stays exact."""

from __future__ import annotations

import pytest
from tests.faults.conftest import NewSite, Report, Servers
from tests.faults.test_crashes import wait_for_progress, workload_on
from tests.operating import insert_customers

from vmerge.lab.proxy import Proxy
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
            newer.start_daemon("--take-over")
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


def test_older_daemon_that_is_idle_is_fenced(new_site: NewSite, servers: Servers, report: Report) -> None:
    """An older daemon that commits nothing learns of the newer one all the same, and takes nothing back."""
    with Proxy(servers.a.host, servers.a.port) as source:
        older = new_site(places={"a": source})
        newer = older.twin()
        older.start_daemon()
        older.wait_for("a", is_at_head=True)
        older.write_workflow()  # from here on without the proxy
        source.freeze()  # the older one's reading goes on hearing nothing, so it commits nothing either
        try:
            newer.start_daemon("--take-over")
            newer.wait_for("a", is_at_head=True)
            source.cut()
            source.thaw()
            message = older.wait_for("a", state="error")["message"]
            assert f"process {newer.client.status()['pid']}" in message
            report.done["streams fenced that committed nothing"] += 1
            insert_customers(newer.shards["a"], 10**9, 20)
            newer.require_exact()
            assert newer.streams()["a"]["restarts"] == 0
            assert set(newer.stored("state").values()) == {"running"}
        finally:
            newer.end()
            older.end()
