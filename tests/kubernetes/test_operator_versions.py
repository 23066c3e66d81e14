"""What a watcher sees of a MyriaRebuild is consistent in every version of it, not only at the end."""

from __future__ import annotations

import pytest

from tests.kubernetes.node import as_written
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.versions import Versions, contradictions
from tests.support.processes import wait_until


def test_a_pod_that_reports_before_the_operator_ends_nothing(installation: Installation) -> None:
    """completedAt is written by the operator with Succeeded; the pod, which is always first here, tells neither."""
    place = installation.place
    installation.append(12)
    installation.node.rewrites = as_written
    installation.node.accepts = lambda _pod: False
    operator = installation.start()
    versions = Versions(place.control_plane, place.name).start()
    try:
        place.rebuild("told")
        wait_until(lambda: place.admin.objects("Pod", place.name), 60, "the pod")
        operator.kill()
        installation.node.accepts = lambda _pod: True
        wait_until(lambda: "counts" in place.get("told")["status"], 120, "the last report of the pod")
        told = place.get("told")
        assert reason(told)[0] == "Unknown"
        assert not {"completedAt", "durationSeconds"} & set(told["status"])
        installation.start()
        ended = place.wait_terminal("told", 120)
        assert reason(ended) == ("True", "BuildPublished")
        assert {"completedAt", "durationSeconds"} <= set(ended["status"])
        assert versions.contradictions() == []
    finally:
        versions.stop()


def test_every_version_of_many_rebuilds_is_consistent(installation: Installation) -> None:
    """Builds of two tenants, a rollback, a held build and its approval, a failure: each version is sound by itself."""
    place = installation.place
    installation.node.rewrites = as_written
    tenants = ("default", "b")
    for tenant in tenants:
        installation.append(12, tenant=tenant)
    installation.start()
    versions = Versions(place.control_plane, place.name).start()
    try:
        for tenant in tenants:
            place.rebuild(tenant, tenant=tenant)
        place.rebuild("nobody", tenant="nobody")
        for tenant in tenants:
            assert reason(place.wait_terminal(tenant, 120)) == ("True", "BuildPublished")
        installation.append(12, start=50_000)
        place.rebuild("held", build={"publish": "Hold"})
        assert reason(place.wait_terminal("held", 120)) == ("True", "Held")
        place.admin.patch("MyriaRebuild", "held", {"spec": {"approve": True}}, place.name)
        place.wait_condition("held", "Published", ("True",), 120)
        place.rebuild("back", rollback={"to": "previous"})
        assert reason(place.wait_terminal("back", 120)) == ("True", "RolledBack")
        assert reason(place.wait_terminal("nobody", 120)) == ("False", "UnknownTenant")
        assert versions.contradictions() == []
        assert len(versions.seen()) == len(tenants) + 3
    finally:
        versions.stop()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"completedAt": "2026-01-01T00:00:09Z"}, "completedAt is 2026-01-01T00:00:09Z while Succeeded is Unknown"),
        ({"durationSeconds": 3}, "durationSeconds is 3 while Succeeded is Unknown"),
        ({"observedGeneration": 7}, "Succeeded answers to another generation than the status"),
        (
            {"progress": {"tasks": 4, "done": 4}},
            "progress is {'tasks': 4, 'done': 4} while the message says 2 of 4 scopes",
        ),
    ],
)
def test_contradictions_are_found(change: dict[str, object], problem: str) -> None:
    """The check itself: a version that contradicts itself is found, a sound one is not."""
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": "Building",
            "message": "2 of 4 scopes up to",
            "observedGeneration": 1,
        }
        for kind, status in (("Succeeded", "Unknown"), ("Published", "Unknown"), ("Suspended", "False"))
    ]
    status = {"observedGeneration": 1, "conditions": conditions, "progress": {"tasks": 4, "done": 2}}
    resource = {"metadata": {"generation": 9}, "status": status}
    assert list(contradictions(resource)) == []
    assert problem in list(contradictions({**resource, "status": {**status, **change}}))
