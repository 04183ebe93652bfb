"""One workflow's file → its supervisor, behind the workflow's lock.

Knows: which gate and which assembly a supervisor gets. Never knows: when it is started. Used by the daemon and by
``vmerge run``.
"""

from __future__ import annotations

import logging
from pathlib import Path

from vmerge.config import Workflow
from vmerge.hosting.assembly import WorkflowAssembly, new_owner, workflow_facts
from vmerge.hosting.story import workflow_story
from vmerge.hosting.supervisor import Supervisor
from vmerge.hosting.tenure import Approach, Tenure
from vmerge.mysql.preflight import examine, require
from vmerge.mysql.workflow_lock import MySqlWorkflowLock
from vmerge.stopping import Clock

logger = logging.getLogger(__name__)


def make_tenure(workflow: Workflow, clock: Clock, approach: Approach, former: Tenure | None = None) -> Tenure:
    """Return the gate of a workflow: with the lock of a former one, where that is the same lock."""
    lock = MySqlWorkflowLock(workflow.target_endpoint, workflow.target.control_database, workflow.workflow, new_owner())
    standing = None
    if former is not None:
        assert isinstance(former.lock, MySqlWorkflowLock), "locks of workflows come from here"
        if former.lock.is_same(lock):
            former.lock.use(workflow.target_endpoint)
            lock, standing = former.lock, former.standing
        else:
            former.close()
    return Tenure(
        workflow.workflow,
        lock,
        approach,
        clock,
        examine=lambda: require(examine(workflow_facts(workflow))),
        standing=standing,
    )


def make_supervisor(workflow: Workflow, clock: Clock, tenure: Tenure, spool_folder: Path | None = None) -> Supervisor:
    """Return the supervisor of one workflow; nothing runs yet. The log hears what the file decides."""
    logger.info("%s", workflow_story(workflow))
    assembly = WorkflowAssembly(workflow, clock=clock, spool_folder=spool_folder)
    return Supervisor(
        workflow.workflow,
        workflow.streams,
        assembly,
        tenure,
        clock=clock,
        stop_timeout_seconds=workflow.limits.stop_timeout_seconds,
    )
