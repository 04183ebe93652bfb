"""Collations, as far as row filters trust them.

Knows: which collations find texts equal only if their characters are, and the character sets of some others, by MySQL's
numbers. Never knows: columns or literals. Used by the filters' modules and ``core/risk.py``.
Source: information_schema.collations of MySQL 9.7.4; tests/integration/test_predicates.py compares with the server.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

BINARY = "binary"
_BINARY_ID = 63


@dataclass(frozen=True, slots=True)
class TextSort:
    """A collation that goes by the codes of characters, which are in the order of their bytes."""

    name: str
    pads: bool
    """Whether the shorter text goes on with spaces."""


SORTS = {
    46: TextSort("utf8mb4_bin", pads=True),
    47: TextSort("latin1_bin", pads=True),
    65: TextSort("ascii_bin", pads=True),
    83: TextSort("utf8mb3_bin", pads=True),
    309: TextSort("utf8mb4_0900_bin", pads=False),
}

_CHARSETS = {
    "utf8mb4": frozenset({45, 46, *range(224, 248), *range(255, 324)}),
    "utf8mb3": frozenset({33, 76, 83, *range(192, 216), 223}),
    "latin1": frozenset({5, 8, 15, 31, 47, 48, 49, 94}),
    "ascii": frozenset({11, 65}),
    BINARY: frozenset({_BINARY_ID}),
}


def charset_of(collation_id: int | None) -> str | None:
    """Return the character set of a collation; None for one that filters do not write texts in."""
    return next((name for name, ids in _CHARSETS.items() if collation_id in ids), None)


def could_be_equal(labels: tuple[bytes, ...], label: bytes) -> bool:
    """Whether some collation finds another label equal to this one, or this one equal to the empty text.

    In strict mode MySQL makes no table with such labels.
    """
    ours = folded(label)
    return any(folded(other) == ours for other in labels if other != label) or bool(label and not ours)


def folded(text: bytes) -> str:
    """Return a text in UTF-8 without what collations may overlook; more is overlooked here than in any of them."""
    plain = unicodedata.normalize("NFKD", text.decode("utf-8", "replace").casefold())
    return "".join(one for one in plain if unicodedata.category(one)[0] in "LNPS").casefold()
