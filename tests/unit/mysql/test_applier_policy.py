"""Whether grants let an account see triggers."""

from __future__ import annotations

import pytest

from vmerge.mysql.applier_policy import may_trigger


@pytest.mark.parametrize(
    ("grant", "sees"),
    [
        ("GRANT SELECT, TRIGGER ON `shop`.* TO `u`@`%`", True),
        ("GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION", True),
        ("GRANT TRIGGER ON `sho_`.* TO `u`@`%`", True),
        ("GRANT TRIGGER ON `s%`.* TO `u`@`%`", True),
        ('GRANT TRIGGER ON "shop".* TO "u"@"%"', True),
        ("GRANT SELECT ON `shop`.* TO `u`@`%`", False),
        ("GRANT TRIGGER ON `shop`.`customer` TO `u`@`%`", False),
        ("GRANT TRIGGER ON `shop\\_1`.* TO `u`@`%`", False),
        ("GRANT TRIGGER ON `shopping`.* TO `u`@`%`", False),
        ("GRANT `TRIGGER`@`%` TO `u`@`%`", False),
    ],
)
def test_a_grant(grant: str, sees: bool) -> None:
    """TRIGGER counts for the databases that the grant's pattern covers, and for whole databases only."""
    assert may_trigger(["GRANT USAGE ON *.* TO `u`@`%`", grant], "shop") is sees


def test_a_partial_revoke() -> None:
    """What was taken from one database is missing there alone."""
    grants = ["GRANT TRIGGER ON *.* TO `u`@`%`", "REVOKE TRIGGER ON `shop`.* FROM `u`@`%`"]
    assert not may_trigger(grants, "shop")
    assert may_trigger(grants, "other")


def test_the_pattern_that_fits_best_decides() -> None:
    """A grant with TRIGGER does not help where the server takes another one of the same database (seen on 9.7.4)."""
    other = "GRANT SELECT ON `shop\\_1`.* TO `u`@`%`"
    trigger = "GRANT TRIGGER ON `shop_1`.* TO `u`@`%`"
    assert may_trigger([trigger], "shop_1")
    assert not may_trigger([other, trigger], "shop_1")
    assert may_trigger([other, trigger, "GRANT TRIGGER ON *.* TO `u`@`%`"], "shop_1")
