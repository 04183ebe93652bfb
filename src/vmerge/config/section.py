"""What all sections of a workflow file have in common.

Knows: that unknown keys are errors and values keep their types. Never knows: any key. Used by the models of this
package.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One mapping of keys in a workflow file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)
