"""An operator that is told to end: after an uninstall it ends the builds, before an upgrade it leaves them alone."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.kubernetes.api import condition
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.place import OPERATOR
from tests.support.processes import Spawned, wait_until


def start(installation: Installation) -> Spawned:
    """Start an operator that belongs to a Deployment, and wait until it has seen that."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "operator", "image": "myria"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": OPERATOR}, "spec": spec}
    installation.place.admin.create(deployment, installation.place.name)
    operator = installation.start(operator_deployment=OPERATOR)
    operator.wait_for('"action": "deployment_seen"')
    return operator


def test_an_uninstalled_operator_ends_the_builds(installation: Installation, tmp_path: Path) -> None:
    """Its Deployment is gone: the build ends and says so, its Job goes, nothing is published, the rights go last."""
    place = installation.place
    installation.append(12)
    gate = tmp_path / "go"
    waiting = f'until [ -e {gate} ]; do sleep 0.05; done; exec "$@"'
    installation.node.rewrites = lambda _pod, command: ["/bin/sh", "-c", waiting, "sh", *command]
    operator = start(installation)
    place.rebuild("cut-off")
    wait_until(installation.node.running, 60, "the pod")
    place.admin.delete("Deployment", OPERATOR, place.name)
    operator.signal(signal.SIGTERM)
    operator.wait()
    (build,) = installation.builds()
    assert build["status"] == "failed"
    assert '"Uninstalled"' in build["error"]
    ended = place.get("cut-off")
    assert reason(ended) == ("False", "Uninstalled")
    assert "create another MyriaRebuild" in condition(ended, "Succeeded")["message"]
    wait_until(lambda: place.jobs_of(ended) == [], 60, "the end of the Job")
    assert place.admin.find("Role", OPERATOR, place.name) is None
    wait_until(lambda: place.admin.find("RoleBinding", OPERATOR, place.name) is None, 60, "the end of its rights")
    wait_until(lambda: place.admin.find("ServiceAccount", OPERATOR, place.name) is None, 60, "the end of its account")
    gate.touch()
    wait_until(lambda: not installation.node.running(), 120, "the end of the pod")
    assert installation.active() is None
    assert [one["status"] for one in installation.builds()] == ["failed"]


def test_rights_stay_with_an_installation_that_came_back(installation: Installation) -> None:
    """A Deployment of the same name that was made meanwhile is another one: builds end, its rights stay."""
    place = installation.place
    operator = start(installation)
    there = place.admin.get("Deployment", OPERATOR, place.name)
    place.admin.delete("Deployment", OPERATOR, place.name)
    wait_until(lambda: place.admin.find("Deployment", OPERATOR, place.name) is None, 60, "the end of the Deployment")
    again = {key: there[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": OPERATOR}}
    place.admin.create(again, place.name)
    operator.signal(signal.SIGTERM)
    operator.wait()
    assert place.admin.find("Role", OPERATOR, place.name) is not None
    assert place.admin.find("RoleBinding", OPERATOR, place.name) is not None


def test_an_operator_that_is_not_uninstalled_leaves_builds_alone(installation: Installation) -> None:
    """Its Deployment is there, or a refusal hides whether it is: the build goes on, the next one writes its end."""
    place = installation.place
    installation.append(12)
    installation.node.accepts = lambda _pod: False
    operator = start(installation)
    place.rebuild("goes-on")
    wait_until(lambda: place.admin.objects("Pod", place.name), 60, "the pod")
    operator.signal(signal.SIGTERM)
    operator.wait()
    assert [one["finished_at"] for one in installation.builds()] == [None]
    replacing = installation.start(operator_deployment=OPERATOR)
    replacing.wait_for('"action": "deployment_seen"')
    binding = place.admin.get("RoleBinding", OPERATOR, place.name)
    place.admin.delete("RoleBinding", OPERATOR, place.name)
    wait_until(
        lambda: not place._may(place.operator, "list", "myria.dev", "myriarebuilds"), 60, "the end of its rights"
    )
    replacing.signal(signal.SIGTERM)
    replacing.wait()
    assert [one["finished_at"] for one in installation.builds()] == [None]
    place.admin.create({key: binding[key] for key in ("apiVersion", "kind", "roleRef", "subjects")} | {
        "metadata": {"name": OPERATOR}
    }, place.name)  # fmt: skip
    wait_until(lambda: place._may(place.operator, "list", "myria.dev", "myriarebuilds"), 60, "its rights")
    installation.node.accepts = lambda _pod: True
    installation.start(operator_deployment=OPERATOR)
    assert reason(place.wait_terminal("goes-on", 120)) == ("True", "BuildPublished")
