"""MyriaRebuild's definition: what the API server, the rules in CEL and the operator accept and refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import cel
import jsonschema
import kubernetes_validate
import pytest
import yaml

from myria.log.limits import MAX_REASON
from myria_operator import reasons
from myria_operator.decide import EXCLUSIVE, NO_APPROVAL, violations
from tests.kubernetes import manifests
from tests.kubernetes.api import ApiError, Json, path
from tests.kubernetes.control_plane import CEL_SINCE
from tests.kubernetes.place import Place, rebuild
from tests.support.skips import not_here

Spec = dict[str, Any]

SNAPSHOT = "snap_" + "0123456789abcdef" * 2
FULL: Spec = {
    "full": True,
    "publish": "Hold",
    "parallelism": 4,
    "deadlineSeconds": 7200,
    "backoffLimit": 3,
    "jobTTLSeconds": 600,
    "resources": {
        "requests": {"cpu": "1", "memory": "512Mi"},
        "limits": {"ephemeral-storage": "1.5G"},
    },
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "batch", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "low-priority",
}
OTHER: Spec = {
    "full": False,
    "publish": "Auto",
    "parallelism": 2,
    "backoffLimit": 4,
    "jobTTLSeconds": 601,
    "resources": {"requests": {"cpu": "2"}},
    "nodeSelector": {"disk": "slow"},
    "tolerations": [],
    "priorityClassName": "high-priority",
}
"""Another value for each field of a build that is fixed."""


IDENTITY = "tenant, trigger and reason cannot be changed; create another MyriaRebuild with the values you want"
BUILD = (
    "of build only deadlineSeconds can be changed; abort this MyriaRebuild and create another one with the build "
    "you want"
)
ROLLBACK = "rollback cannot be added, changed or removed; create another MyriaRebuild with the rollback you want"
ABORT = "an abort cannot be taken back; create another MyriaRebuild to build again"
APPROVE = "an approval cannot be taken back; roll back with a MyriaRebuild that has a rollback"


def spec(**fields: Any) -> Spec:
    """Return a spec of tenant `default`."""
    return {"tenant": "default", **fields}


GOOD: dict[str, Spec] = {
    "a tenant is enough": spec(),
    "no tenant": {"trigger": "Manual"},
    "nothing": {},
    "everything": spec(trigger="Manual", reason="because", suspend=False, abort=False, approve=False, build=FULL),
    "an empty build": spec(build={}),
    "rollback to the previous": spec(rollback={"to": "previous"}),
    "rollback to a snapshot": spec(rollback={"to": SNAPSHOT}),
    "rollback, suspended": spec(rollback={"to": "previous"}, suspend=True),
    "rollback, approve false": spec(rollback={"to": "previous"}, approve=False),
    "triggered": spec(trigger="TailThreshold"),
    "the longest names": {"tenant": "a" * 63, "reason": "x" * MAX_REASON},
    "a tenant with every sign": {"tenant": "0Az._-9"},
    "approved from the start": spec(approve=True, build={"publish": "Hold"}),
    "the greatest numbers": spec(
        build={"parallelism": 64, "deadlineSeconds": 604800, "backoffLimit": 100, "jobTTLSeconds": 2592000}
    ),
    "the smallest numbers": spec(
        build={"parallelism": 1, "deadlineSeconds": 10, "backoffLimit": 0, "jobTTLSeconds": 0}
    ),
}
BAD: dict[str, Spec] = {
    "both build and rollback": spec(build={}, rollback={"to": "previous"}),
    "an empty tenant": {"tenant": ""},
    "a tenant too long": {"tenant": "a" * 64},
    "a tenant with a slash": {"tenant": "a/b"},
    "a tenant that begins with a dot": {"tenant": ".a"},
    "a tenant that is a number": {"tenant": 7},
    "an unknown trigger": spec(trigger="Cron"),
    "a trigger in small letters": spec(trigger="manual"),
    "a reason too long": spec(reason="x" * (MAX_REASON + 1)),
    "an abort in words": spec(abort="true"),
    "an empty rollback": spec(rollback={}),
    "rollback to a name": spec(rollback={"to": "yesterday"}),
    "rollback to nothing": spec(rollback={"to": ""}),
    "rollback to something in capitals": spec(rollback={"to": SNAPSHOT.upper()}),
    "an unknown publish": spec(build={"publish": "Never"}),
    "no pods": spec(build={"parallelism": 0}),
    "too many pods": spec(build={"parallelism": 65}),
    "half a pod": spec(build={"parallelism": 1.5}),
    "absurdly many pods": spec(build={"parallelism": 10**12}),
    "no time": spec(build={"deadlineSeconds": 9}),
    "too much time": spec(build={"deadlineSeconds": 604801}),
    "less than no failures": spec(build={"backoffLimit": -1}),
    "too many failures": spec(build={"backoffLimit": 101}),
    "a time to live below zero": spec(build={"jobTTLSeconds": -1}),
    "a quantity in words": spec(build={"resources": {"requests": {"cpu": "lots"}}}),
    "a quantity that is a number": spec(build={"resources": {"limits": {"memory": 1}}}),
    "a quantity below zero": spec(build={"resources": {"limits": {"memory": "-1Gi"}}}),
    "too many node labels": spec(build={"nodeSelector": {f"l{number}": "x" for number in range(17)}}),
    "a node label too long": spec(build={"nodeSelector": {"disk": "x" * 64}}),
    "too many tolerations": spec(build={"tolerations": [{"operator": "Exists"}] * 17}),
    "an unknown toleration": spec(build={"tolerations": [{"operator": "Perhaps"}]}),
    "a priority class in capitals": spec(build={"priorityClassName": "High"}),
}
"""Refused by structure alone, on every API server."""

CHANGES: dict[str, tuple[Spec, Spec, list[str]]] = {
    "nothing": (spec(build=FULL), spec(build=FULL), []),
    "suspend and back": (spec(suspend=True), spec(suspend=False), []),
    "suspend for the first time": (spec(), spec(suspend=True), []),
    "suspend removed": (spec(suspend=True), spec(), []),
    "abort": (spec(), spec(abort=True), []),
    "abort from false": (spec(abort=False), spec(abort=True), []),
    "abort false removed": (spec(abort=False), spec(), []),
    "abort taken back": (spec(abort=True), spec(abort=False), [ABORT]),
    "abort removed": (spec(abort=True), spec(), [ABORT]),
    "approve": (spec(build={"publish": "Hold"}), spec(build={"publish": "Hold"}, approve=True), []),
    "approve without a build": (spec(), spec(approve=True), []),
    "approve taken back": (spec(approve=True), spec(approve=False), [APPROVE]),
    "approve removed": (spec(approve=True), spec(), [APPROVE]),
    "approve a rollback": (
        spec(rollback={"to": "previous"}),
        spec(rollback={"to": "previous"}, approve=True),
        [NO_APPROVAL],
    ),
    "abort and approve at once": (spec(), spec(abort=True, approve=True), []),
    "another tenant": (spec(), {"tenant": "other"}, [IDENTITY]),
    "another trigger": (spec(trigger="Manual"), spec(trigger="Inactivity"), [IDENTITY]),
    "a trigger later": (spec(), spec(trigger="Manual"), [IDENTITY]),
    "a trigger removed": (spec(trigger="Manual"), spec(), [IDENTITY]),
    "another reason": (spec(reason="a"), spec(reason="b"), [IDENTITY]),
    "a reason later": (spec(), spec(reason=""), [IDENTITY]),
    "a longer deadline": (spec(build=FULL), spec(build={**FULL, "deadlineSeconds": 9999}), []),
    "a deadline later": (spec(build={"full": True}), spec(build={"full": True, "deadlineSeconds": 60}), []),
    "a deadline for a default build": (spec(), spec(build={"deadlineSeconds": 60}), []),
    "a deadline removed with its build": (spec(build={"deadlineSeconds": 60}), spec(), []),
    "an empty build later": (spec(), spec(build={}), []),
    "a build later": (spec(), spec(build={"full": True}), [BUILD]),
    "a build removed": (spec(build=FULL), spec(), [BUILD]),
    "rollback later": (spec(), spec(rollback={"to": "previous"}), [ROLLBACK]),
    "rollback removed": (spec(rollback={"to": "previous"}), spec(), [ROLLBACK]),
    "rollback elsewhere": (spec(rollback={"to": "previous"}), spec(rollback={"to": SNAPSHOT}), [ROLLBACK]),
    "build becomes rollback": (spec(build=FULL), spec(rollback={"to": "previous"}), [BUILD, ROLLBACK]),
    "everything at once": (
        spec(abort=True, approve=True, build=FULL),
        {"tenant": "other", "rollback": {"to": "previous"}, "approve": True},
        [IDENTITY, BUILD, ROLLBACK, ABORT, NO_APPROVAL],
    ),
    **{
        f"build.{name} changed": (spec(build=FULL), spec(build={**FULL, name: value}), [BUILD])
        for name, value in OTHER.items()
    },
    **{
        f"build.{name} removed": (
            spec(build=FULL),
            spec(build={key: one for key, one in FULL.items() if key != name}),
            [BUILD],
        )
        for name in OTHER
    },
    **{f"build.{name} later": (spec(build={}), spec(build={name: value}), [BUILD]) for name, value in OTHER.items()},
}
"""Old spec, new spec, and the messages with which the change is refused."""


@pytest.fixture(scope="module")
def shipped() -> Json:
    """The definition as it is shipped."""
    return manifests.definition()


@pytest.fixture(scope="module")
def spec_schema(shipped: Json) -> Json:
    """The schema of spec, with the rules in CEL."""
    found: Json = manifests.schema(shipped)["properties"]["spec"]
    return found


def walk(schema: Json, where: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every schema inside a schema, with its path."""
    yield where, schema
    for name, one in schema.get("properties", {}).items():
        yield from walk(one, f"{where}.{name}")
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from walk(schema[inner], f"{where}[]")


def refusals_in_cel(spec_schema: Json, old: Spec | None, new: Spec) -> list[str]:
    """Return the messages of the rules in CEL that refuse a change; on creation, those without oldSelf count."""
    return [
        rule["message"]
        for rule in spec_schema["x-kubernetes-validations"]
        if (old is not None or "oldSelf" not in rule["rule"])
        and cel.evaluate(rule["rule"], {"self": new, **({} if old is None else {"oldSelf": old})}) is not True
    ]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_judged_alike_by_cel_and_by_the_operator(change: str, spec_schema: Json) -> None:
    """CEL refuses the changes of the table with its messages, the operator those specs that no change may lead to."""
    old, new, messages = CHANGES[change]
    assert refusals_in_cel(spec_schema, old, new) == messages
    assert violations(new) == [message for message in messages if message in {EXCLUSIVE, NO_APPROVAL}]


@pytest.mark.parametrize("case", GOOD)
def test_good_specs_break_no_rule(case: str, spec_schema: Json) -> None:
    """A new resource that is fine is fine for CEL and for the operator, and may stay as it is."""
    good = {"tenant": "default", **GOOD[case]}  # the API server fills the default in first
    assert refusals_in_cel(spec_schema, None, good) == violations(good) == []
    assert refusals_in_cel(spec_schema, good, good) == []


def test_build_beside_rollback_is_refused_with_a_sentence(spec_schema: Json) -> None:
    """What every API server refuses by structure is refused in CEL and by the operator as well, with words."""
    assert refusals_in_cel(spec_schema, None, spec(build={}, rollback={"to": "previous"})) == [EXCLUSIVE]
    assert violations(spec(build={}, rollback={"to": "previous"})) == [EXCLUSIVE]


@pytest.mark.parametrize("case", [*GOOD, *BAD])
def test_the_schema_decides_by_structure(case: str, spec_schema: Json) -> None:
    """Bounds, names and exclusivity are in the schema: it accepts the good specs and refuses the bad ones."""
    validator = jsonschema.Draft202012Validator(spec_schema)
    assert validator.is_valid({**GOOD, **BAD}[case]) == (case in GOOD)


def test_the_api_server_accepts(place: Place) -> None:
    """A real API server accepts the good specs, and drops nothing of them."""
    for case, good in GOOD.items():
        created = place.admin.create(rebuild("case") | {"spec": good}, place.name, dry_run=True)
        assert created["spec"] == {"tenant": "default", **good}, case
        assert "status" not in created


def test_the_api_server_refuses(place: Place) -> None:
    """A real API server refuses every bad spec as invalid, and a resource without spec."""
    for case, bad in BAD.items():
        with pytest.raises(ApiError) as refusal:
            place.admin.create(rebuild("case") | {"spec": bad}, place.name, dry_run=True)
        assert refusal.value.reason == "Invalid", case
    with pytest.raises(ApiError, match="spec: Required value"):
        place.admin.create({key: one for key, one in rebuild("case").items() if key != "spec"}, place.name)


def test_structure_holds_for_changes_too(place: Place) -> None:
    """A rollback cannot be added to a build on any API server, rules in CEL or not."""
    place.rebuild("one", build={"full": True})
    with pytest.raises(ApiError, match="must not validate the schema"):
        place.admin.patch("MyriaRebuild", "one", {"spec": {"rollback": {"to": "previous"}}}, place.name)


def test_a_newer_api_server_refuses_changes_with_the_same_words(place: Place) -> None:
    """Where the API server evaluates CEL, it refuses the table's changes with the rules' messages."""
    if place.control_plane.minor < CEL_SINCE:
        not_here(f"the control plane is 1.{place.control_plane.minor}; rules in CEL need 1.{CEL_SINCE}")
    for number, (old, new, messages) in enumerate(CHANGES.values()):
        place.admin.create(rebuild(f"change-{number}") | {"spec": old}, place.name)
        changed = {"apiVersion": "myria.dev/v1alpha1", "kind": "MyriaRebuild", "spec": new}
        current = place.get(f"change-{number}")["metadata"]
        replaced = {**changed, "metadata": {key: current[key] for key in ("name", "resourceVersion")}}
        where = path("MyriaRebuild", f"change-{number}", place.name)
        try:
            place.admin.request("PUT", where, replaced)
            refused = ""
        except ApiError as error:
            refused = error.message
        assert [message for message in messages if message not in refused] == []
        assert bool(refused) == bool(messages)


def test_fields_that_nobody_declared_are_dropped(place: Place) -> None:
    """A pod template in a resource reaches nobody: it would let any author run any image beside the Secret."""
    template = {"spec": {"containers": [{"name": "x", "image": "evil"}]}}
    created = place.rebuild("one", build={"template": template, "image": "evil"}, command=["evil"])
    assert created["spec"] == {"tenant": "default", "trigger": "Manual", "build": {}}


def test_status_is_a_subresource_with_conditions_by_type(place: Place) -> None:
    """Status cannot be created along or patched with the spec; two managers may each own a condition."""
    created = place.admin.create({**rebuild("one"), "status": {"jobName": "forged"}}, place.name)
    assert "status" not in created
    patched = place.admin.patch("MyriaRebuild", "one", {"status": {"jobName": "forged"}}, place.name)
    assert "status" not in patched
    for manager, kind in (("a", reasons.SUCCEEDED), ("b", reasons.PUBLISHED)):
        conditions = [_condition(kind, "True", reasons.BUILD_PUBLISHED)]
        body = {key: created[key] for key in ("apiVersion", "kind")}
        body |= {"metadata": {"name": "one"}, "status": {"conditions": conditions}}
        place.admin.apply(body, place.name, manager=manager, subresource="status")
    assert {one["type"] for one in place.get("one")["status"]["conditions"]} == {"Succeeded", "Published"}


def test_a_whole_status_is_kept_and_its_bounds_hold(place: Place) -> None:
    """Every status field survives the API server; numbers below zero and words without end do not."""
    place.rebuild("one")
    status = {
        "observedGeneration": 1,
        "installationID": "5f0c" * 8,
        "conditions": [_condition(kind, "Unknown", reasons.PENDING) for kind in reasons.CONDITION_TYPES],
        "jobName": "one-0123456789",
        "buildID": "bld_" + "0" * 32,
        "snapshotID": SNAPSHOT,
        "previousSnapshotID": SNAPSHOT,
        "cutoff": 2**40,
        "eventRange": {"first": 1, "last": 2**40},
        "progress": {"tasks": 3, "done": 2, "degraded": 0},
        "counts": {"events": 7, "rows_nodes": 3},
        "startedAt": "2026-11-21T12:00:00Z",
        "completedAt": "2026-11-21T12:00:01.5Z",
        "durationSeconds": 1,
    }
    declared = manifests.schema(manifests.definition())["properties"]["status"]["properties"]
    assert set(status) == set(declared)
    kept = place.admin.patch("MyriaRebuild", "one", {"status": status}, place.name, subresource="status")
    assert kept["status"] == status
    for bad in ({"cutoff": -1}, {"jobName": "x" * 64}, {"counts": {str(n): n for n in range(65)}}):
        with pytest.raises(ApiError, match=r"Invalid value|Too long|Too many"):
            place.admin.patch("MyriaRebuild", "one", {"status": bad}, place.name, subresource="status")


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
def test_the_definition_is_valid_for_newer_versions(version: str, shipped: Json) -> None:
    """Strict schemas of newer Kubernetes know every field of the definition, its rules in CEL included."""
    kubernetes_validate.validate(shipped, version, strict=True)


def test_everything_is_bounded_and_described(shipped: Json) -> None:
    """Every string, list, map and number has bounds, every field a description, and only the tenant a default."""
    schema = manifests.schema(shipped)
    for where, one in walk(schema):
        assert ("default" in one) == (where == ".spec.tenant"), where
        if where != ".metadata" and not where.endswith("[]"):
            assert one.get("description", "").endswith("."), where
        if one.get("type") == "string":
            assert "maxLength" in one, where
        if one.get("type") == "array":
            assert "maxItems" in one, where
        if "additionalProperties" in one:
            assert "maxProperties" in one, where
        if one.get("type") == "integer" and where.startswith(".spec"):
            assert {"minimum", "maximum"} <= set(one), where
        assert not {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"} & set(one), where


def test_the_rules_in_cel_are_few_simple_and_helpful(spec_schema: Json) -> None:
    """At most seven rules, on spec alone, with has(), ==, !, and, or; each message says what to do."""
    found = spec_schema["x-kubernetes-validations"]
    assert len(found) <= 7
    for rule in found:
        assert not re.sub(r"has\(|\)|\(|==|&&|\|\||!|(self|oldSelf)(\.[A-Za-z]+)+|\s", "", rule["rule"])
        assert re.search("; (create|abort|roll back|leave)", rule["message"])
    assert all("x-kubernetes-validations" not in one for where, one in walk(spec_schema, "spec") if where != "spec")
    messages = [rule["message"] for rule in found]
    assert messages == [IDENTITY, BUILD, ROLLBACK, ABORT, APPROVE, EXCLUSIVE, NO_APPROVAL]


def test_the_variant_for_old_servers_differs_in_the_rules_alone(shipped: Json) -> None:
    """Without its rules in CEL the definition is the same in every other respect."""
    bare = manifests.without_cel(shipped)
    assert "x-kubernetes-validations" not in yaml.safe_dump(bare)
    manifests.schema(bare)["properties"]["spec"]["x-kubernetes-validations"] = manifests.schema(shipped)["properties"][
        "spec"
    ]["x-kubernetes-validations"]
    assert bare == shipped


def test_reasons_fit_the_schema_and_are_documented(shipped: Json) -> None:
    """Every reason is a legal one, said once, and docs/kubernetes.md explains it."""
    status = manifests.schema(shipped)["properties"]["status"]["properties"]
    pattern = status["conditions"]["items"]["properties"]["reason"]["pattern"]
    named = {name: value for name, value in vars(reasons).items() if name.isupper() and isinstance(value, str)}
    assert len(set(named.values())) == len(named)
    page = (manifests.ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    for name, value in named.items():
        assert re.fullmatch(pattern, value)
        assert value.lower() == name.replace("_", "").lower()
        assert f"`{value}`" in page, value


def _condition(kind: str, status: str, reason: str) -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "as told",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-11-21T12:00:00Z",
    }
