"""What an examination of servers, accounts and schemas found, as plain data.

Knows: the shape of a finding. Never knows: how it was found or how it is printed. Made by ``core/table_checks.py`` and
``mysql/preflight.py``; printed by the command line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Severity(Enum):
    """Whether the workflow can run."""

    ERROR = "error"
    """It cannot, or would not be exact."""
    WARNING = "warning"
    """It can; somebody should know what to expect."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit. ``id`` is a short word that stays the same between versions."""

    id: str
    severity: Severity
    where: str
    """The server, and the table if it is about one: ``target``, ``stream -80``, ``stream -80, shop_0.customer``."""
    text: str
    hint: str

    def text_for_operator(self) -> str:
        """Return the finding in two lines, as the command line prints it."""
        return f"{self.severity.value}: {self.where}: {self.text} [{self.id}]\n  {self.hint}"


def error(id: str, where: str, text: str, hint: str) -> Finding:
    """Make a finding that keeps the workflow from running."""
    return Finding(id, Severity.ERROR, where, text, hint)


def warning(id: str, where: str, text: str, hint: str) -> Finding:
    """Make a finding that does not."""
    return Finding(id, Severity.WARNING, where, text, hint)


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that an examination found, in the order it looked."""

    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Findings:
        """Collect findings; one that is found twice counts once."""
        return cls(tuple(dict.fromkeys(findings)))

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the workflow from running."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The other findings."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARNING)

    def as_data(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        return {
            "can_run": not self.errors,
            "findings": [
                {
                    "id": finding.id,
                    "severity": finding.severity.value,
                    "where": finding.where,
                    "text": finding.text,
                    "hint": finding.hint,
                }
                for finding in self.findings
            ],
        }
