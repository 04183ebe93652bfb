"""The words and data of a wait: who is waited for, what holds the key, and what will end it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmerge.core import evidence
from vmerge.core.blocked import Blocked, Remedy
from vmerge.core.evidence import Held, Presence
from vmerge.core.position import GtidSet
from vmerge.core.verdict import Finding, Permanent, Proof, Transient, Unproven
from vmerge.hosting.waits import ends_with, wait_sentence, wait_snapshot

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
HELD = Held(
    table=("shop", "customer"),
    key="email",
    key_columns=("email",),
    key_values=("secret@example.org",),
    own="id=5",
    holder="id=17",
    own_presence=Presence.ALIVE,
    holder_presences={"-80": Presence.CHANGED, "80-": Presence.GONE},
)
TESTIMONY = evidence.Testimony((HELD,), {"-80": GtidSet.parse(f"{UUID}:1-500"), "80-": GtidSet.parse(f"{UUID}:1-9")})
BLOCKED = Blocked(96.8, 5, "u:1", "customer.email", ())
TRANSIENT = replace(BLOCKED, finding=Transient(HELD, ("-80",)), testimony=TESTIMONY)


def sentence(blocked: Blocked, applied: int = 88) -> str:
    """Return what is told of a wait of stream 80-, while -80 has applied so many transactions."""
    positions = {"-80": GtidSet.parse(f"{UUID}:1-{applied}"), "80-": GtidSet.parse(f"{UUID}:1-7")}
    return wait_sentence(wait_snapshot("80-", blocked, positions, 3.2))


@pytest.mark.parametrize(
    ("blocked", "words"),
    [
        (BLOCKED, "waits on a sibling since 3.2 s for customer.email"),
        (replace(BLOCKED, key="", unfree=("-80",)), "waits on a sibling since 3.2 s for a key; not running: -80"),
        (
            TRANSIENT,
            "waits on -80 since 3.2 s: customer.email held by id=17; -80 is 412 transactions before its fence",
        ),
        (
            replace(TRANSIENT, remedy=Remedy.JOINING, unfree=("c0-",)),
            "waits on -80 since 3.2 s: customer.email held by id=17; -80 is 412 transactions before its fence (joining)"
            "; not running: c0-",
        ),
        (
            replace(TRANSIENT, finding=Transient(HELD, ("80-",)), remedy=Remedy.JUMPING),
            "waits since 3.2 s: customer.email held by id=17 of -80; its own later transactions release it (jumping)",
        ),
        (
            replace(TRANSIENT, finding=Transient(HELD, ("c0-",))),
            "waits on c0- since 3.2 s: customer.email held by id=17 of -80; c0- releases it",
        ),
        (
            replace(TRANSIENT, finding=Transient(None, ())),
            "waits since 3.2 s for customer.email, which no row holds any more",
        ),
        (
            replace(TRANSIENT, finding=Permanent(Proof.DUPLICATE, HELD, "-80")),
            "waits since 3.2 s: customer.email held by id=17 of -80; a true duplicate, if that is found once more",
        ),
        (
            replace(TRANSIENT, finding=Permanent(Proof.FOREIGN_ROW, HELD, None)),
            "waits since 3.2 s: customer.email held by id=17; a row that no shard has, if that is found once more",
        ),
        (
            replace(BLOCKED, finding=Unproven("the source of -80 could not be asked")),
            "waits since 3.2 s for customer.email; what holds it is not known: the source of -80 could not be asked",
        ),
    ],
)
def test_sentence(blocked: Blocked, words: str) -> None:
    """Before any evidence the key and who is not running; after it the holder, whose it is, and how far that is."""
    assert sentence(blocked) == words


def test_fence_that_is_reached() -> None:
    """One transaction is told as one, and a fence that is reached as reached."""
    assert sentence(TRANSIENT, applied=499).endswith("-80 is 1 transaction before its fence")
    assert sentence(TRANSIENT, applied=600).endswith("-80 has reached its fence")


@pytest.mark.parametrize(
    ("finding", "unfree", "words"),
    [
        (None, (), None),
        (Unproven("silence"), (), None),
        (Transient(HELD, ("-80",)), (), "transactions of -80"),
        (Transient(HELD, ("-80",)), ("-80",), "transactions of -80; `vmerge start -- WORKFLOW -80` lets it run"),
        (Transient(HELD, ("80-",)), (), "later transactions of its own, by a jump or a joint commit"),
        (
            Permanent(Proof.DUPLICATE, HELD, "-80"),
            (),
            "a repair: one of the two rows is changed or deleted at its source",
        ),
    ],
)
def test_what_would_end_it(finding: Finding | None, unfree: tuple[str, ...], words: str | None) -> None:
    """A wait that lasts says what would end it, as soon as that is known."""
    assert ends_with("80-", replace(BLOCKED, finding=finding, unfree=unfree)) == words


def test_no_row_values() -> None:
    """A status has primary keys and names, and no value of any key."""
    assert "secret" not in str(wait_snapshot("80-", TRANSIENT, {}, 3.2))
