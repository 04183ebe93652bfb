"""Random faults under a live workload of conflicts: after each the target is the union of the shards, byte for byte.

``VMERGE_FAULTS_SECONDS`` and ``VMERGE_FAULTS_SEED`` set how long the long run takes, and what it chooses;
``VMERGE_FAULTS_ONLY`` is a pattern of the kinds that it chooses from.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import pytest
from tests.faults.campaign import Campaign, Fault, Scene, report_lines
from tests.faults.conftest import Report, Servers
from tests.faults.disasters import FAULTS
from tests.faults.hot_site import CampaignSite
from tests.faults.losses import LOSSES
from tests.faults.test_crashes import wait_for_progress

from vmerge.lab.proxy import Proxy
from vmerge.lab.servers import Lab
from vmerge.lab.workload_process import HotKeysProcess

pytestmark = [pytest.mark.server, pytest.mark.faults]

RATE = 100.0
CI_SECONDS, CI_SEED = 25.0, 7
LONG_SECONDS = float(os.environ.get("VMERGE_FAULTS_SECONDS", "1800"))
SLACK_SECONDS = 600.0


def run_campaign(
    lab: Lab,
    servers: Servers,
    report: Report,
    chosen: Iterable[Fault],
    *,
    seconds: float,
    seed: int,
    at_least: int = 0,
) -> Campaign:
    """Do chosen faults for so long; what came of them is printed in any case."""
    with ExitStack() as stack:
        sources = {
            name: stack.enter_context(Proxy(server.host, server.port)) for name, server in servers.shards().items()
        }
        target = stack.enter_context(Proxy(servers.target.host, servers.target.port))
        name = f"campaign_{seed}"
        site = CampaignSite(lab, name, servers.shards(), servers.target, places={**sources, "target": target})
        site.execute_schema_changes()
        stack.callback(site.end)
        site.start_daemon()
        places = tuple(site.shards.values())
        workload = stack.enter_context(HotKeysProcess(lab, places, seconds=10 * seconds + 3600, rate=RATE, seed=seed))
        wait_for_progress(site)
        campaign = Campaign(Scene(site, servers, sources, target, workload, random.Random(seed)))
        try:
            campaign.run(chosen, seconds, at_least)
            workload.finish()
            site.require_exact()
        finally:
            report.lines += report_lines(campaign, seed)
    return campaign


def test_faults_of_all_kinds(lab: Lab, servers: Servers, report: Report) -> None:
    """The usual kinds of faults and as many other quick ones as there is time for: vmerge gets over each by itself."""
    usual = [fault for fault in FAULTS if fault.is_usual]
    others = [fault for fault in (*FAULTS, *LOSSES) if fault.is_quick and not fault.is_usual]
    random.Random(CI_SEED).shuffle(others)
    campaign = run_campaign(
        lab, servers, report, (*usual, *others), seconds=CI_SECONDS, at_least=len(usual), seed=CI_SEED
    )
    assert len(campaign.recoveries) >= len(usual)


@pytest.mark.long
@pytest.mark.timeout(2 * LONG_SECONDS + SLACK_SECONDS)
def test_random_faults_long(lab: Lab, servers: Servers, report: Report) -> None:
    """The same for all kinds, each chosen by its weight, for half an hour or as long as is asked for."""
    seed = int(os.environ.get("VMERGE_FAULTS_SEED", random.randrange(1_000_000)))
    campaign = run_campaign(lab, servers, report, by_weight(seed), seconds=LONG_SECONDS, seed=seed)
    assert campaign.recoveries


def by_weight(seed: int) -> Iterator[Fault]:
    """Yield faults by chance, for ever."""
    pattern = os.environ.get("VMERGE_FAULTS_ONLY", "")
    faults = [fault for fault in (*FAULTS, *LOSSES) if re.search(pattern, fault.words)]
    chance = random.Random(seed)
    while True:
        yield from chance.choices(faults, [fault.weight for fault in faults])
