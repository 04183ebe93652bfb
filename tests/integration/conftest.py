"""A server for the comparisons with the second reader."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vmerge.lab.servers import Lab, Server


@pytest.fixture(scope="session")
def untagged(lab: Lab) -> Iterator[Server]:
    """A server of its own: the library reads no set in which any GTID has a tag, and other tests tag theirs."""
    server = lab.start("untagged")
    yield server
    lab.remove(server)
