"""Pods that the API server's admission refuses: the resource says why, and does not keep others waiting for long."""

from __future__ import annotations

from tests.kubernetes.api import Json, condition, path
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.versions import Versions
from tests.support.processes import wait_until

_QUOTAS = path("Pod", None, "{}").replace("/pods", "/resourcequotas")


def messages(versions: list[Json], reason_: str) -> set[str]:
    """Return what the versions of a resource said in Succeeded=Unknown with a reason."""
    shown = [condition(one, "Succeeded") for one in versions]
    return {one["message"] for one in shown if (one.get("status"), one.get("reason")) == ("Unknown", reason_)}


def test_a_missing_priority_class_is_named_and_the_slot_is_given_up(installation: Installation) -> None:
    """PodsRefused has admission's words; after the time given the build ends with them, and the next one is built."""
    place = installation.place
    installation.append(12)
    installation.start(operator_pod_start_timeout_s="15")
    versions = Versions(place.control_plane, place.name).start()
    try:
        refused = place.rebuild("refused", build={"priorityClassName": "nowhere"})
        wait_until(installation.builds, 60, "the build")
        waiting = place.rebuild("waiting")
        ended = place.wait_terminal("refused", 120)
        assert reason(ended) == ("False", "PodsRefused")
        message = condition(ended, "Succeeded")["message"]
        assert "no PriorityClass with name nowhere was found" in message
        assert "mend the quota, the priority class" in message
        assert reason(place.wait_terminal("waiting", 120)) == ("True", "BuildPublished")
        seen = versions.seen()
        (told, *_) = messages(seen[refused["metadata"]["uid"]], "PodsRefused")
        assert "no PriorityClass with name nowhere was found" in told
        assert told.endswith("given up after 15 s without a pod at work")
        expected = "waits for the MyriaRebuild refused of the same tenant to end"
        assert expected in messages(seen[waiting["metadata"]["uid"]], "Queued")
        assert versions.contradictions() == []
    finally:
        versions.stop()
    wait_until(lambda: place.jobs_of(ended) == [], 60, "the end of the Job that had no pods")
    assert [one["status"] for one in installation.builds()] == ["failed", "succeeded"]


def test_a_build_goes_on_once_its_pods_are_let_in(installation: Installation) -> None:
    """A quota that refuses pods is named; without it the same Job makes its pod, and the build is published."""
    place = installation.place
    installation.append(12)
    quotas = _QUOTAS.format(place.name)
    hard = {"pods": "0"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": hard}}
    place.admin.request("POST", quotas, quota)
    # A controller that is not there would fill in the status, which admission goes by.
    merge = "application/merge-patch+json"
    status = {"status": {"hard": hard, "used": {"pods": "0"}}}
    place.admin.request("PATCH", f"{quotas}/none/status", status, content_type=merge)
    installation.start()
    place.rebuild("limited")
    wait_until(lambda: reason(place.get("limited")) == ("Unknown", "PodsRefused"), 120, "PodsRefused")
    assert "exceeded quota: none" in condition(place.get("limited"), "Succeeded")["message"]
    place.admin.request("DELETE", f"{quotas}/none")

    def tried_again() -> bool:
        """The Job controller waits longer and longer; a Job that changes is looked at once."""
        (job,) = place.jobs_of(place.get("limited"))
        place.admin.patch(
            "Job",
            job["metadata"]["name"],
            {"metadata": {"annotations": {"a": job["metadata"]["resourceVersion"]}}},
            place.name,
        )
        return bool(place.admin.objects("Pod", place.name))

    wait_until(tried_again, 120, "the pod")
    assert reason(place.wait_terminal("limited", 120)) == ("True", "BuildPublished")
