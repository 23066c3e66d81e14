"""The rules of a MyriaRebuild's spec that the CustomResourceDefinition states in CEL, in Python, and with its messages.

API servers before 1.25 do not evaluate them, so the operator does. Pure functions over plain dicts; a test compares
both with a table of accepted and refused changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Spec = Mapping[str, Any]

_BUILD_FIXED: Final = (
    "full",
    "force",
    "publish",
    "parallelism",
    "backoffLimit",
    "jobTTLSeconds",
    "resources",
    "nodeSelector",
    "tolerations",
    "priorityClassName",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TransitionRule:
    """A rule about a change: `allows(old, new)` tells whether it may happen, `message` says what to do instead."""

    message: str
    allows: Callable[[Spec, Spec], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecRule:
    """A rule about one spec, whatever it was before."""

    message: str
    allows: Callable[[Spec], bool]


def _fixed(names: tuple[str, ...]) -> Callable[[Spec, Spec], bool]:
    return lambda old, new: all((name in old, old.get(name)) == (name in new, new.get(name)) for name in names)


def _build_fixed(old: Spec, new: Spec) -> bool:
    """An absent build is the same as an empty one, so a deadline can be given to a default build later."""
    return _fixed(_BUILD_FIXED)(old.get("build", {}), new.get("build", {}))


def _only_turns_true(name: str) -> Callable[[Spec, Spec], bool]:
    return lambda old, new: not old.get(name) or bool(new.get(name))


TRANSITION_RULES: Final = (
    TransitionRule(
        message="tenant, trigger and reason cannot be changed; create another MyriaRebuild with the values you want",
        allows=_fixed(("tenant", "trigger", "reason")),
    ),
    TransitionRule(
        message="of build only deadlineSeconds can be changed; abort this MyriaRebuild and create another one with "
        "the build you want",
        allows=_build_fixed,
    ),
    TransitionRule(
        message="rollback cannot be added, changed or removed; create another MyriaRebuild with the rollback you want",
        allows=_fixed(("rollback",)),
    ),
    TransitionRule(
        message="an abort cannot be taken back; create another MyriaRebuild to build again",
        allows=_only_turns_true("abort"),
    ),
    TransitionRule(
        message="an approval cannot be taken back; roll back with a MyriaRebuild that has a rollback",
        allows=_only_turns_true("approve"),
    ),
)

SPEC_RULES: Final = (
    # The schema's `not: {required: ...}` makes every API server refuse this too, but with no readable message.
    SpecRule(
        message="build and rollback exclude each other; leave one of them out",
        allows=lambda spec: "build" not in spec or "rollback" not in spec,
    ),
    SpecRule(
        message="approve publishes a held build, and a rollback needs no approval; leave approve out",
        allows=lambda spec: "rollback" not in spec or not spec.get("approve"),
    ),
)


def violations(old: Spec | None, new: Spec) -> list[str]:
    """Return the messages of the rules that `new` breaks, in the order of the definition; none when it is fine.

    Args:
        old: the spec before the change; None for a new resource, or where it is not known.
        new: the spec as it is now. Its shape and bounds are the API server's business.
    """
    messages = [] if old is None else [rule.message for rule in TRANSITION_RULES if not rule.allows(old, new)]
    return messages + [rule.message for rule in SPEC_RULES if not rule.allows(new)]
