"""The requests that the operator sends to the Kubernetes API, one method for each purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes.aio.client import Configuration

from myria.errors import ClusterRefused
from myria_operator.facts import MANAGER
from myria_operator.failpoints import write
from myria_rebuilds.connection import MERGE_PATCH, Connection
from myria_rebuilds.resource import PLURAL, Json


class Api(Connection):
    """The objects of one namespace.

    Every method raises:
        ClusterUnavailable: no answer, 429 or 5xx; whether a write happened is not known. `details` may hold
            `retry_after_s`, the wait that the API server asks for.
        ClusterRefused: any other refusal; `details` hold `status`, `reason`, `verb` and `resource`.
    """

    def __init__(self, configured: Configuration, namespace: str) -> None:
        super().__init__(configured, namespace, MANAGER)
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._core = f"/api/v1/namespaces/{namespace}"

    async def rebuild(self, name: str) -> Json | None:
        """Return a MyriaRebuild, None when there is none."""
        return await self._found("get", PLURAL, f"{self._rebuilds}/{name}")

    async def rebuilds(self) -> list[Json]:
        """Return every MyriaRebuild."""
        return await self._all(PLURAL, self._rebuilds, {})

    async def make_rebuild(self, manifest: Json) -> Json:
        """Make a MyriaRebuild."""
        async with write("make_rebuild"):
            return await self._ask("create", PLURAL, "POST", self._rebuilds, body=manifest, query=self._as_manager)

    async def delete_rebuild(self, name: str, uid: str) -> None:
        """Delete a MyriaRebuild, provided that it is still the same one."""
        async with write("delete_rebuild"):
            await self._delete(PLURAL, f"{self._rebuilds}/{name}", uid)

    async def apply_status(self, name: str, uid: str, resource_version: str, status: Mapping[str, Any]) -> Json:
        """Replace our status of the resource read as `resource_version`; after a conflict, read the resource again."""
        async with write("status"):
            return await self.apply_rebuild_status(name, uid, status, resource_version=resource_version)

    async def job(self, name: str) -> Json | None:
        """Return a Job, None when there is none."""
        return await self._found("get", "jobs", f"{self._jobs}/{name}")

    async def jobs(self, selector: str) -> list[Json]:
        """Return the Jobs with certain labels."""
        return await self._all("jobs", self._jobs, {"labelSelector": selector})

    async def make_job(self, manifest: Json) -> Json:
        """Make a Job."""
        async with write("make_job"):
            return await self._ask("create", "jobs", "POST", self._jobs, body=manifest, query=self._as_manager)

    async def stop_job(self, name: str, deadline_s: int) -> Json:
        """Give a Job a deadline that has already passed."""
        async with write("stop_job"):
            return await self._patch_job(name, {"spec": {"activeDeadlineSeconds": deadline_s}})

    async def change_job(self, name: str, patch: Json) -> Json:
        """Change a Job by merge patch."""
        async with write("change_job"):
            return await self._patch_job(name, patch)

    async def delete_job(self, name: str, uid: str) -> None:
        """Delete a Job and its pods, provided that it is still the same one."""
        async with write("delete_job"):
            await self._delete("jobs", f"{self._jobs}/{name}", uid)

    async def deployment(self, name: str) -> Json | None:
        """Return a Deployment, None when there is none."""
        return await self._found("get", "deployments", f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{name}")

    async def remove_rights(self, name: str) -> None:
        """Delete a Role, and through the garbage collector its RoleBinding and the account that this names.

        Whoever deletes its own Role or RoleBinding may delete nothing more, so the others are made to go with the Role.

        Args:
            name: of Role and RoleBinding.
        """
        rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        role = await self._found("get", "roles", f"{rights}/roles/{name}")
        binding = await self._found("get", "rolebindings", f"{rights}/rolebindings/{name}")
        if role is None or binding is None:
            return
        uid = role["metadata"]["uid"]
        owner = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "name": name, "uid": uid}
        owned = {"metadata": {"ownerReferences": [owner]}}
        (account,) = binding["subjects"]
        for resource, path in (
            ("serviceaccounts", f"{self._core}/serviceaccounts/{account['name']}"),
            ("rolebindings", f"{rights}/rolebindings/{name}"),
        ):
            try:
                await self._ask("patch", resource, "PATCH", path, body=owned, content_type=MERGE_PATCH)
            except ClusterRefused as error:
                if error.details["status"] not in {403, 404}:  # an account that the chart did not make is not ours
                    raise
        await self._delete("roles", f"{rights}/roles/{name}", uid)

    async def pods(self, job: str) -> list[Json]:
        """Return the pods of a Job."""
        return await self._all("pods", f"{self._core}/pods", {"labelSelector": f"job-name={job}"})

    async def refused_pods(self, job: str, uid: str) -> list[Json]:
        """Return the Events by which the Job controller tells that pods of a Job were refused."""
        about = {"kind": "Job", "name": job, "uid": uid}
        selector = ",".join(f"involvedObject.{field}={value}" for field, value in about.items())
        return await self._all(
            "events", f"{self._core}/events", {"fieldSelector": f"{selector},reason=FailedCreate,type=Warning"}
        )

    async def make_event(self, manifest: Json) -> None:
        """Make a Kubernetes Event; do nothing when one of its name exists already."""
        try:
            async with write("event"):
                await self._ask("create", "events", "POST", f"{self._core}/events", body=manifest)
        except ClusterRefused as error:
            if error.details["status"] != 409:
                raise

    async def may(self, verb: str, group: str, resource: str) -> bool:
        """Tell whether this identity may use a verb on a resource (`jobs`, `myriarebuilds/status`) here."""
        plural, _, subresource = resource.partition("/")
        attributes = {"namespace": self.namespace, "verb": verb, "group": group, "resource": plural}
        if subresource:
            attributes["subresource"] = subresource
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = await self._ask("create", "selfsubjectaccessreviews", "POST", path, body=body)
        return bool(answer["status"].get("allowed"))

    async def _patch_job(self, name: str, patch: Json) -> Json:
        return await self._ask(
            "patch",
            "jobs",
            "PATCH",
            f"{self._jobs}/{name}",
            body=patch,
            query=self._as_manager,
            content_type=MERGE_PATCH,
        )
