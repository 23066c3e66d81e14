"""The planner's settings."""

from __future__ import annotations

from dataclasses import dataclass

from myria.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannerSettings:
    """The settings of a plan; another value makes every scope dirty.

    Raises:
        ConfigurationError: a bound contradicts another.
    """

    gap_us: int = 30 * 60 * 1_000_000
    """A silence of at least this many microseconds starts a new segment."""

    marker_types: tuple[str, ...] = ("topic_marker", "marker", "task_start", "task_boundary", "session_start")
    """Event types that start a new segment by themselves."""

    leaf_min: int = 2
    """Fewest events of a leaf where the scope has as many (the rule `no_avoidable_singleton_leaf`)."""

    leaf_target: int = 5
    """The size a leaf tends to: one subject is rarely shorter or longer than a few turns."""

    leaf_max: int = 12
    """Most events of a leaf."""

    max_fan_out: int = 16
    """Most children of an internal node; no less than 16, the widest digit of the calendar trie."""

    hash_cut: int = 256
    """One event in so many starts a segment by its hash alone, which bounds dense streams."""

    subjects: bool = True
    """Whether leaves are gathered by what they are about, too. It changes no tree of time."""

    def __post_init__(self) -> None:
        if self.gap_us < 1 or self.hash_cut < 2:
            raise ConfigurationError("planner.gap_us must be at least 1 and planner.hash_cut at least 2")
        if not 2 <= self.leaf_min <= self.leaf_target <= self.leaf_max:
            raise ConfigurationError("planner leaves need 2 <= leaf_min <= leaf_target <= leaf_max")
        if self.leaf_max < 2 * self.leaf_min - 1:
            raise ConfigurationError("planner.leaf_max must be at least 2 * leaf_min - 1, or some units cannot be cut")
        if self.max_fan_out < 16:
            raise ConfigurationError("planner.max_fan_out must be at least 16, the widest digit of the calendar trie")
