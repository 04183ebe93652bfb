"""From whom an order may take a stream."""

from __future__ import annotations

import itertools

from vmerge.core.ownership import Claim, place_of


def test_nobody_takes_back_what_was_taken_from_him() -> None:
    """Of orders that were each given after the one before had the stream, only a later one takes it from an earlier."""
    names = ["", "db1:1:a", "db1:1:b", "db2:7:c"]
    for found, owner in itertools.pairwise(names):
        claim = Claim("a", owner, found)
        assert [name for name in names if claim.covers(name)] == [found, owner]


def test_of_two_orders_at_once_one_gets_the_stream() -> None:
    """Two orders that found the same owner never take the stream from each other."""
    one, other = Claim("a", "db1:1:a", ""), Claim("a", "db2:7:b", "")
    assert not one.covers(other.owner) and not other.covers(one.owner)


def test_place_of_an_owner() -> None:
    """An owner's name tells host and process, whatever the host is called; an unknown one tells nothing."""
    assert place_of("db7:4711:0a1b2c3d") == "db7, process 4711"
    assert place_of("fe80::1:4711:0a1b2c3d") == "fe80::1, process 4711"
    assert place_of("") == ""
