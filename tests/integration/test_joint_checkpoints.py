"""The guard of a joint commit: each member's row must be as it was offered."""

from __future__ import annotations

import pytest

from vmerge.core.events import Transaction
from vmerge.core.joint import Offer, Part
from vmerge.core.ownership import Claim
from vmerge.core.position import Gtid, GtidSet
from vmerge.errors import JointRefused
from vmerge.lab.servers import Server
from vmerge.mysql.checkpoints import ControlTables

pytestmark = pytest.mark.server

ONE, TWO = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"
NEXT = [Gtid.parse(f"{ONE}:{number}") for number in (90, 92)]
CLAIM = Claim("-80", "us", "us")


def part_from(position: GtidSet, gtid: Gtid = NEXT[0]) -> Part:
    """Return a part of one transaction behind a position."""
    run = (Transaction(gtid, 1_000_000, (), 0),)
    return Part.of_run(Offer("-80", 0, 0.0, 0.0, position, run, None, None), 1)


@pytest.mark.parametrize(
    "written",
    [
        "",
        f"{ONE}:1-80",
        f"{TWO}:5:1-3:8,\n{ONE.upper()}:4-7:1-2",
        f"{ONE}:1-80:tag:1-3:7,{TWO}:Other:1",
        ",".join(f"{number:08x}-1111-1111-1111-111111111111:1-{number}" for number in range(3000, 1, -1)),
    ],
    ids=["nothing", "one", "holes", "tags", "many"],
)
def test_a_position_that_was_read_is_the_one_that_is_stored(target: Server, database: str, written: str) -> None:
    """However a start position was written: what a stream reads at its opening holds as the guard of its row."""
    tables = ControlTables(database, "w")
    with target.connect() as connection:
        tables.create(connection)
        tables.register(connection, CLAIM, GtidSet.parse(written))
        position, epoch = tables.take_over(connection, CLAIM)
        for gtid in NEXT:  # once as it was registered, once as a joint commit left it
            part = part_from(position, gtid)
            tables.write_joint_checkpoint(connection, part, epoch)
            position = part.position
        assert tables.read_streams(connection)["-80"].position == GtidSet.parse(written).advanced(NEXT)


def test_a_member_that_moved_or_started_anew_is_refused(target: Server, database: str) -> None:
    """Another position or another epoch matches no row, and the row stays as it is."""
    tables = ControlTables(database, "w")
    start = GtidSet.parse(f"{ONE}:1-80")
    with target.connect() as connection:
        tables.create(connection)
        tables.register(connection, CLAIM, start)
        _, epoch = tables.take_over(connection, CLAIM)
        with pytest.raises(JointRefused):
            tables.write_joint_checkpoint(connection, part_from(GtidSet.parse(f"{ONE}:1-79")), epoch)
        _, newer = tables.take_over(connection, CLAIM)
        with pytest.raises(JointRefused):
            tables.write_joint_checkpoint(connection, part_from(start), epoch)
        assert tables.read_streams(connection)["-80"].position == start
        tables.write_joint_checkpoint(connection, part_from(start), newer)
