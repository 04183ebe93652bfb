"""Settings of the searches, and the count of what they searched.

CI runs what fits into about a minute, the same each time; ``-m long`` runs the rest. The numbers searched are printed
at the end of the session: a search that found nothing because it looked at nothing shall not go unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.sim.search import Tally

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
CI = settings(max_examples=500, derandomize=True, deadline=None, suppress_health_check=_SLOW, database=None)
LONG = settings(max_examples=30_000, deadline=None, suppress_health_check=_SLOW, print_blob=True)

_tallies = pytest.StashKey[dict[str, Tally]]()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Counts what this test searches."""
    counted = Tally()
    yield counted
    request.config.stash.setdefault(_tallies, {})[request.node.name] = counted


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was searched."""
    tallies = config.stash.get(_tallies, {})
    if tallies:
        terminalreporter.section("simulator: what was searched")
    for name, counted in tallies.items():
        terminalreporter.line(f"{name}: {counted}")
    if len(tallies) > 1:
        total = Tally()
        for counted in tallies.values():
            total.add(counted)
        terminalreporter.line(f"in all: {total}")
