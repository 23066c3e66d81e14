"""What a snapshot was made with.

Another planner, analysis or layout of blocks makes every scope dirty. Other rules of subjects do not: builds bring the
subjects of all scopes up to date beside what else they do, a bounded number at a time, and the snapshot says how far
they came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from myria import errors
from myria.settings.planner import PlannerSettings
from myria.text.kinds import kinds_digest
from myria.topics.identity import settings_digest
from myria.topics.subjects import SUBJECTS_VERSION
from myria.versions import ANALYSIS_VERSION, BLOCK_VERSION, PLANNER_VERSION

_FINGERPRINT = re.compile(r"(?P<time>.*?)(?: subjects-(?P<subjects>\S+)(?: since-(?P<since>\d+) to-(?P<to>\d+))?)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint:
    """How a snapshot was made, as its row stores it."""

    time: str
    """Of the trees of time and the search blocks: planner, its settings, analysis, block layout."""

    subjects: str | None = None
    """The version of the rules of subjects; None without subjects."""

    since: int = 0
    """The number of the first snapshot whose build knew these rules of subjects, while not all scopes have such
    subjects: what was planned under older numbers is not to be built upon. 0 once all scopes have them."""

    filed_to: int | None = None
    """The last scope, in the order of their numbers, whose subjects are up to date; None once all scopes' are."""

    @classmethod
    def of(cls, stored: str) -> Fingerprint:
        """Return the value of a stored text.

        Raises:
            InternalError: it is no fingerprint.
        """
        match = _FINGERPRINT.fullmatch(stored)
        if match is None:
            raise errors.InternalError("a snapshot's fingerprint cannot be read", fingerprint=stored)
        part_way = match["to"] is not None
        return cls(
            time=match["time"],
            subjects=match["subjects"],
            since=int(match["since"]) if part_way else 0,
            filed_to=int(match["to"]) if part_way else None,
        )

    def part_way(self, since: int, filed_to: int) -> Fingerprint:
        """Return the same where scopes after `filed_to` have no subjects yet, or some planned before `since`."""
        return replace(self, since=since, filed_to=filed_to)

    def since_after(self, before: Fingerprint, number: int) -> int:
        """Return from which number on the subjects that a parent has are by these rules.

        Args:
            before: the parent's fingerprint.
            number: the parent's number.
        """
        return before.since if before.subjects == self.subjects else number + 1

    def filed_before(self, before: Fingerprint) -> int | None:
        """Return up to which scope a parent with the fingerprint `before` has subjects by these rules; None for all."""
        if self.subjects is None:
            return None
        return before.filed_to if before.subjects == self.subjects else 0

    def __str__(self) -> str:
        """Return the text that is stored."""
        subjects = f" subjects-{self.subjects}" if self.subjects is not None else ""
        return f"{self.time}{subjects}" + (
            f" since-{self.since} to-{self.filed_to}" if self.filed_to is not None else ""
        )


def fingerprint(settings: PlannerSettings) -> str:
    """Return the fingerprint of a snapshot that is made now, as text."""
    return str(
        Fingerprint(
            time=f"{settings_digest(settings).hex()} analysis-{ANALYSIS_VERSION} blocks-{BLOCK_VERSION}",
            subjects=f"{SUBJECTS_VERSION}-{kinds_digest()}" if settings.subjects else None,
        )
    )


def plans_alike(stored: str, settings: PlannerSettings) -> bool:
    """Tell whether a snapshot with this fingerprint was planned as it would be now, however its blocks are laid out."""
    return stored.partition(" blocks-")[0] == fingerprint(settings).partition(" blocks-")[0]


def files_alike_since(stored: str, settings: PlannerSettings) -> int | None:
    """Return from which number on the subjects of a snapshot with this fingerprint are such as would be planned now.

    None where none of them are.
    """
    of, now = Fingerprint.of(stored), Fingerprint.of(fingerprint(settings))
    return (
        of.since if now.subjects is not None and of.subjects == now.subjects and plans_alike(stored, settings) else None
    )


def planner_number() -> int:
    """Return the number at the end of the planner's version."""
    return int(PLANNER_VERSION.rsplit("-", 1)[-1])
