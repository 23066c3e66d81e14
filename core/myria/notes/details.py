"""Optional texts beside a note (Memento's contract): its circumstances, its workspace, and the case it belongs to.

They are kept, shown and filtered by, but never searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Details:
    """Details of a note, or a filter on details; None says nothing.

    `case_id` holds together what was tried for one `goal`, `phase` and `resolution_status` say how far that is, and
    `outcome` what came of it; `assertion_status` is how the note is known, `affect` the mood in which it was kept.
    """

    context_summary: str | None = None
    workspace: str | None = None
    case_id: str | None = None
    goal: str | None = None
    outcome: str | None = None
    phase: str | None = None
    resolution_status: str | None = None
    assertion_status: str | None = None
    affect: str | None = None

    @classmethod
    def of(cls, given: Any) -> Details:
        """Return the details in the payload of a version's event; values that are no text are ignored."""
        if not isinstance(given, dict):
            return NO_DETAILS
        return cls(**{name: value for name in DETAILS if isinstance(value := given.get(name), str)})

    def to_json(self) -> dict[str, str]:
        """Return the details that are not None."""
        return {name: value for name in DETAILS if (value := getattr(self, name)) is not None}

    def brief(self) -> Details:
        """Return the details without those that only tell the circumstances."""
        return replace(self, context_summary=None, goal=None, outcome=None, affect=None)

    def answers(self, wanted: Details) -> bool:
        """Tell whether a note with these details passes a filter; a note of no workspace belongs to every one."""
        kept = self.to_json()
        if wanted.workspace is not None:
            kept.setdefault("workspace", wanted.workspace)
        return all(kept.get(name, "").casefold() == value.casefold() for name, value in wanted.to_json().items())

    def amended(self, changes: Details) -> Details:
        """Return the details with those replaced that are not None in `changes`."""
        return replace(self, **changes.to_json())

    def with_texts(self, texts: Mapping[str, str]) -> Details:
        """Return the details with some texts replaced, by their names."""
        return replace(self, **texts)


DETAILS = tuple(field.name for field in fields(Details))

NO_DETAILS = Details()
