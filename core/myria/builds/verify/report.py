"""What a verification proves, and what it found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SHOWN_FAILURES = 20
"""Failures of a check that the report describes; all are counted."""

CHECKS: Mapping[str, str] = {
    "participants": "every scope is canonical, its key recomputes, its members are exactly its participants",
    "log": "every event has a scope, its idempotency key recomputes, its transaction is of this database",
    "withdrawals": "what withdrawals say of events is what the log gives when it is folded anew",
    "notes": "the notes are what the log gives when it is folded anew",
    "sessions": "the sessions are what the log gives when it is folded anew",
    "links": "the links between notes are what the log gives when it is folded anew",
    "feedback": "the feedback on tools is what the log gives when it is folded anew",
    "evaluations": "the ratings of notes are what the log gives when it is folded anew",
    "turns": "the turns, and how far their sessions have come, are what the log gives when it is folded anew",
    "registrations": "the agents and sessions of REST are what the log gives when it is folded anew",
    "receipts": "the receipts of erasures follow from each other, and name what is kept for them",
    "vectors": "every vector is of an event that may have one, with its model's dimensions, and none is missing",
    "leaf_refs": "every leaf's refs resolve to events of its own scope, in order, none internal; node_ids recompute",
    "renderings": "every rendering's id recomputes unless a receipt names it; children, topic, anchor event exist",
    "subjects": "every node of subjects recomputes from its children, which exist; roots and records have an owner",
    "snapshots": "every snapshot's state fits its build, and its tail bound hides no event",
    "lineage": "every kept snapshot's lineage is its parent's and itself",
    "active_pointer": "one active snapshot at most, and it is where the pointer and its history say",
    "staging": "nothing that was not published can be reached",
    "scope_roots": "every root row has its scope and rendering, under a number that something owns",
    "trees": "no child is missing or out of place; counts, spans and internal node_ids recompute",
    "coverage": "every event up to the cutoff, neither internal nor withdrawn, is in exactly one leaf of its scope",
    "search_blocks": "the search blocks hold exactly the scope's events, each under its leaf",
    "subject_trees": "subjects reach leaves of their scope's tree alone, and its leaves alone hold keys",
    "block_content": "every search block recomputes from its events, byte for byte",
    "replan": "planning every scope anew, by its stored plans where it has some, gives the same root renderings "
    "(archived snapshots of another planner or other settings are left out)",
    "vector_digests": "every vector stands under the digest of the text that its event says",
    "subjects_anew": "planning the subjects of all leaves anew gives the same root and the same holders of keys",
}
"""What each check proves, by its name; `DEEP` names the deep ones."""

DEEP = frozenset({"block_content", "replan", "subjects_anew", "vector_digests"})

Progress = Callable[[str, int, int], None]
"""Called with (check, done, total)."""


@dataclass(slots=True, kw_only=True)
class Check:
    """One invariant's result: how many things were examined, what failed, and how long it took in seconds."""

    name: str
    examined: int = 0
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def fail(self, message: str) -> None:
        """Record a failure; beyond the twentieth only its number."""
        self.failed += 1
        if len(self.failures) < SHOWN_FAILURES:
            self.failures.append(message)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "check": self.name,
            "proves": CHECKS[self.name],
            "examined": self.examined,
            "failed": self.failed,
            "failures": list(self.failures),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a verification found. `unreachable` counts renderings that no root leads to: garbage, not a failure."""

    tenant: str
    snapshots: tuple[str, ...]
    checks: tuple[Check, ...]
    unreachable: int

    @property
    def failed(self) -> int:
        """The number of failures over all checks."""
        return sum(check.failed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "tenant": self.tenant,
            "ok": self.failed == 0,
            "snapshots": list(self.snapshots),
            "unreachable_renderings": self.unreachable,
            "checks": [check.to_json() for check in self.checks],
        }
