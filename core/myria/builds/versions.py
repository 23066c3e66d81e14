"""What a snapshot was made with, as its row stores it: `<planner> analysis-1 blocks-1 subjects-1`.

A change of planner, analysis or block layout makes every scope dirty. A change of the rules of subjects replans no
tree: the next build plans the subjects of all scopes, but nothing else of scopes without new events.
"""

from __future__ import annotations

from myria.settings.planner import PlannerSettings
from myria.text.kinds import kinds_digest
from myria.topics.identity import settings_digest
from myria.topics.subjects import SUBJECTS_VERSION
from myria.versions import ANALYSIS_VERSION, BLOCK_VERSION, PLANNER_VERSION


def fingerprint(settings: PlannerSettings) -> str:
    """Return the fingerprint of a snapshot that this program makes with these settings."""
    of_trees = f"{settings_digest(settings).hex()} analysis-{ANALYSIS_VERSION} blocks-{BLOCK_VERSION}"
    return f"{of_trees} subjects-{SUBJECTS_VERSION}-{kinds_digest()}" if settings.subjects else of_trees


def of_trees(stored: str) -> str:
    """Return the part of a fingerprint about the trees of time and the search blocks."""
    return stored.partition(" subjects-")[0]


def of_subjects(stored: str) -> str:
    """Return the version of the rules of subjects; empty without subjects."""
    return stored.partition(" subjects-")[2]


def needs_subjects(stored: str, parent: str) -> bool:
    """Tell whether a snapshot with one fingerprint has subjects that its parent lacks, or planned by other rules."""
    return of_subjects(stored) not in ("", of_subjects(parent))


def plans_alike(stored: str, settings: PlannerSettings) -> bool:
    """Tell whether this program would plan the same trees as a snapshot's; the layout of blocks may differ."""
    return stored.partition(" blocks-")[0] == fingerprint(settings).partition(" blocks-")[0]


def subjects_alike(stored: str, settings: PlannerSettings) -> bool:
    """Tell whether a snapshot has subjects and this program would plan the same ones."""
    return plans_alike(stored, settings) and of_subjects(stored) == of_subjects(fingerprint(settings)) != ""


def planner_number() -> int:
    """Return the number at the end of the planner's version."""
    return int(PLANNER_VERSION.rsplit("-", 1)[-1])
