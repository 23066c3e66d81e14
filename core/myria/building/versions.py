"""What a snapshot was made with; another value makes every scope dirty."""

from __future__ import annotations

from myria.analysis import ANALYSIS_VERSION
from myria.analysis.kinds import kinds_digest
from myria.index import BLOCK_VERSION
from myria.planning.settings import PLANNER_VERSION, PlannerSettings, settings_digest
from myria.planning.subjects import SUBJECTS_VERSION


def fingerprint(settings: PlannerSettings) -> str:
    """Return the text that a snapshot keeps of how it was made: planner, its settings, analysis, block layout."""
    of_time = f"{settings_digest(settings).hex()} analysis-{ANALYSIS_VERSION} blocks-{BLOCK_VERSION}"
    return of_time + _of_subjects() if settings.subjects else of_time


def plans_alike(stored: str, settings: PlannerSettings) -> bool:
    """Tell whether a snapshot with this fingerprint was planned as it would be now, however its blocks are laid out."""
    return stored.partition(" blocks-")[0] == fingerprint(settings).partition(" blocks-")[0]


def files_alike(stored: str, settings: PlannerSettings) -> bool:
    """Tell whether a snapshot with this fingerprint has the subjects that would be planned now."""
    return settings.subjects and plans_alike(stored, settings) and stored.endswith(_of_subjects())


def planner_number() -> int:
    """Return the number at the end of the planner's version."""
    return int(PLANNER_VERSION.rsplit("-", 1)[-1])


def _of_subjects() -> str:
    return f" subjects-{SUBJECTS_VERSION}-{kinds_digest()}"
