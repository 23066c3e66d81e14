"""Checks of what a build has planned, unit by unit and group by group, before any of it can be reached."""

from __future__ import annotations

from collections.abc import Sequence

from myria import errors
from myria.settings.planner import PlannerSettings
from myria.topics.model import Node, Participants, PlanEvent
from myria.topics.validation import Candidate, Violation, validate, validate_unit

_VIOLATIONS_KEPT = 20


def check_unit(
    nodes: Sequence[Node], events: Sequence[PlanEvent], *, participants: Participants, settings: PlannerSettings
) -> None:
    """Check the nodes of a planned unit, its top node last, against the validation rules.

    Raises:
        BuildInvalid: they break one.
    """
    _refuse(validate_unit(nodes, events, participants=participants, settings=settings))


def check_groups(
    groups: Sequence[Node], stored: Sequence[Node], *, participants: Participants, settings: PlannerSettings
) -> None:
    """Check groups above units against the same rules; `stored` are all of their children.

    Raises:
        BuildInvalid: one of them breaks a rule.
    """
    children = {node.rendering_id: node for node in stored}
    for group in groups:
        kept = {child: children[child] for child in group.children}
        violations = validate(
            Candidate(
                participants=participants,
                settings=settings,
                root=group.rendering_id,
                nodes=[group],
                events=[],
                scope_events=group.events,
                kept=kept,
            )
        )
        violations.extend(
            Violation(
                rule="no_avoidable_singleton_leaf",
                message="one event alone where it could be merged",
                node_id=child.node_id,
            )
            for child in kept.values()
            if child.events < 2
        )
        _refuse(violations)


def broken(rule: str, message: str) -> errors.BuildInvalid:
    """Return the refusal of a plan that breaks a rule as a whole."""
    return errors.BuildInvalid(message, violations=[{"rule": rule, "message": message}])


def _refuse(violations: Sequence[Violation]) -> None:
    if violations:
        raise errors.BuildInvalid(
            violations[0].message,
            violations=[
                {
                    "rule": violation.rule,
                    "message": violation.message,
                    "node_id": violation.node_id.hex() if violation.node_id is not None else None,
                }
                for violation in violations[:_VIOLATIONS_KEPT]
            ],
        )
