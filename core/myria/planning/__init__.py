"""The deterministic planner: a pure function from a scope's events to its topic tree (trap 11).

Events are cut into units (`stretches`), units into leaves (`leaves`), both are described (`describe`) and given
identities (`identity`), and a content-defined trie of units makes one tree (`trie`). `scope` puts this together for
full and incremental builds; `validation` holds any tree against the rules of §12.
"""

from myria.planning.model import (
    EventReader,
    Node,
    Outline,
    PlanEvent,
    Ref,
    TreeReader,
    Unit,
    UnitKey,
    level_name,
)
from myria.planning.scope import (
    UnitChanges,
    UnitSplitter,
    changed_units,
    plan_scope,
    plan_unit,
    split_units,
    unit_starts,
)
from myria.planning.settings import PLANNER_VERSION, PlannerSettings, settings_digest
from myria.planning.trie import assemble
from myria.planning.validation import RULE_NAMES, Candidate, SourceEvent, Violation, validate

__all__ = [
    "PLANNER_VERSION",
    "RULE_NAMES",
    "Candidate",
    "EventReader",
    "Node",
    "Outline",
    "PlanEvent",
    "PlannerSettings",
    "Ref",
    "SourceEvent",
    "TreeReader",
    "Unit",
    "UnitChanges",
    "UnitKey",
    "UnitSplitter",
    "Violation",
    "assemble",
    "changed_units",
    "level_name",
    "plan_scope",
    "plan_unit",
    "settings_digest",
    "split_units",
    "unit_starts",
    "validate",
]
