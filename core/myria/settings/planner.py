"""Settings of the planner, which makes topics out of a scope's events. The rules of planning take them as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from myria.errors import ConfigurationError
from myria.settings.sections import Section, section

if TYPE_CHECKING:
    from pydantic import Field


@section
class PlannerSettings(Section):
    """How a scope's events become topics. A change replans every scope at the next build."""

    hash_cut: ClassVar[int] = 256
    """One event in so many begins a segment by its hash alone, which bounds dense streams. Nobody need set it."""

    gap_s: Annotated[int, Field(ge=1, le=86_400 * 365)] = 1800
    """Silence between two events that begins a new segment."""
    marker_types: tuple[str, ...] = ("topic_marker", "marker", "task_start", "task_boundary", "session_start")
    """Event types that begin a new segment."""
    leaf_min: Annotated[int, Field(ge=2, le=64)] = 2
    """Fewest events of a leaf topic, wherever a merge is possible."""
    leaf_target: Annotated[int, Field(ge=2, le=256)] = 5
    """Events of a typical leaf topic."""
    leaf_max: Annotated[int, Field(ge=2, le=1024)] = 12
    """Most events of a leaf topic."""
    max_children: Annotated[int, Field(ge=16, le=256)] = 16
    """Most children of an internal topic; beyond it a level is added."""
    # At least 16, the widest digit of the calendar trie.
    subjects: bool = True
    """Whether builds also gather what different conversations say about one subject. A change replans no tree."""

    def rules(self) -> None:
        """A leaf must be splittable: min <= target <= max, and two smallest leaves fit into one largest."""
        if not self.leaf_min <= self.leaf_target <= self.leaf_max:
            raise ConfigurationError(
                f"planner.leaf_target must lie between leaf_min and leaf_max: "
                f"{self.leaf_min} <= {self.leaf_target} <= {self.leaf_max} does not hold.",
                field="planner.leaf_target",
            )
        if self.leaf_max < 2 * self.leaf_min - 1:
            raise ConfigurationError(
                f"planner.leaf_max ({self.leaf_max}) must be at least 2 * leaf_min - 1 "
                f"({2 * self.leaf_min - 1}), or some numbers of events cannot be divided.",
                field="planner.leaf_max",
            )
