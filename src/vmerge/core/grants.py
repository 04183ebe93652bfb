"""Privileges as data, and as GRANT statements.

Knows: how GRANT is written. Never knows: who needs which privilege (``accounts.py``). Used by whoever names one.
"""

from __future__ import annotations

from dataclasses import dataclass

REPLICATION_SLAVE = "REPLICATION SLAVE"
REPLICATION_APPLIER = "REPLICATION_APPLIER"
TRIGGER = "TRIGGER"
"""An account without it does not see whether a table has triggers, which statements would fire."""

ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on one database, or on ``*.*``.

    A server takes what an account may on a database from the one grant whose pattern fits best, and adds nothing from
    others. So whoever is told to grant something is told the whole grant, in one spelling.
    """

    privileges: tuple[str, ...]
    database: str | None = None

    def statement(self, account: str) -> str:
        """Return the GRANT for an account, as SQL writes it, such as `vmerge`@`%`."""
        return f"GRANT {', '.join(self.privileges)} ON {self.place} TO {account};"

    @property
    def place(self) -> str:
        """What stands behind ON, where a database's name is a pattern: `_` and `%` stand for any character."""
        if self.database is None:
            return "*.*"
        pattern = self.database.replace("\\", "\\\\").replace("_", r"\_").replace("%", r"\%").replace("`", "``")
        return f"`{pattern}`.*"


def account_name(user: str, host: str = "") -> str:
    """Return an account as SQL writes it; without a host it is one for every host."""
    quoted = [f"`{part.replace('`', '``')}`" for part in (user, host) if part]
    return "@".join(quoted)
