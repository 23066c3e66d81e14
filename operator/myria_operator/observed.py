"""The observed state, as frozen values: a MyriaRebuild, its Job, its build, its tenant's situation. No I/O in here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from myria_operator import reasons
from myria_rebuilds.report import BuildFacts

MANAGER: Final = "myria-operator"
"""The field manager under which the operator writes."""
REQUEST_LABEL: Final = "myria.dev/request"
"""Label of resources that the operator made: the row of `rebuild_requests` they were made from."""

TRIGGERS: Final = {"Manual": "manual", "Inactivity": "inactivity", "TailThreshold": "tail_threshold"}
"""A trigger as the database calls it, by the name in a spec."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuild:
    """A MyriaRebuild as the API server returned it; `spec` and `status` are its own dicts, never changed."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    created_at: str
    deleting: bool
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    managed_fields: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def from_object(cls, body: Mapping[str, Any]) -> Rebuild:
        """Return the value of an API object."""
        metadata = body["metadata"]
        return cls(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            generation=metadata.get("generation", 0),
            resource_version=metadata["resourceVersion"],
            created_at=metadata.get("creationTimestamp", ""),
            deleting="deletionTimestamp" in metadata,
            labels=metadata.get("labels") or {},
            spec=body.get("spec") or {},
            status=body.get("status") or {},
            managed_fields=metadata.get("managedFields") or (),
        )

    @property
    def tenant(self) -> str:
        """The tenant; `default` where an older definition did not fill it in."""
        return str(self.spec.get("tenant", "default"))

    @property
    def trigger(self) -> str:
        """The trigger by its name in the database."""
        return TRIGGERS.get(self.spec.get("trigger", "Manual"), "manual")

    @property
    def build(self) -> Mapping[str, Any]:
        """How to build; empty for a default build."""
        return self.spec.get("build") or {}

    @property
    def rollback_to(self) -> str | None:
        """The snapshot to go back to, or `previous`; None for a build."""
        rollback = self.spec.get("rollback")
        return None if rollback is None else str(rollback["to"])

    def wants(self, switch: str) -> bool:
        """Tell whether `suspend`, `abort` or `approve` is set."""
        return bool(self.spec.get(switch))

    def condition(self, kind: str) -> Mapping[str, Any]:
        """Return one of its conditions as they were written, or an empty mapping."""
        for condition in self.status.get("conditions") or ():
            if condition.get("type") == kind:
                return condition  # type: ignore[no-any-return]
        return {}

    @property
    def settled(self) -> bool:
        """Whether its status is final, whatever happens to its Job and build."""
        return self.condition(reasons.SUCCEEDED).get("status") in {"True", "False"} and not self.awaits_approval

    @property
    def awaits_approval(self) -> bool:
        """Whether its build is held, and neither approved nor aborted yet."""
        return self.condition(reasons.PUBLISHED).get("reason") == reasons.AWAITING_APPROVAL

    @property
    def author(self) -> str | None:
        """The field manager that asked for it: the writer of `spec.tenant`, or of `spec` if the tenant is a default."""
        return self.manager_of("tenant") or self.manager_of()

    def manager_of(self, *path: str) -> str | None:
        """Return the name of the field manager that last wrote a field of the spec (`managedFields`), or None."""
        field_path = [f"f:{part}" for part in ("spec", *path)]
        latest: tuple[str, str] | None = None
        for entry in self.managed_fields:
            fields: Any = entry.get("fieldsV1") or {}
            for part in field_path:
                fields = fields.get(part) if isinstance(fields, Mapping) else None
            if fields is not None:
                latest = max(latest or ("", ""), (str(entry.get("time", "")), str(entry.get("manager", ""))))
        return latest[1] if latest is not None else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A Job; `failed_reason` and `failed_message` are those of its condition Failed.

    `had_pods`: it has or had pods that the Job controller counted.
    """

    name: str
    uid: str
    owner_uid: str | None
    active: int
    complete: bool
    failed: bool
    had_pods: bool = True
    failed_reason: str = ""
    failed_message: str = ""
    suspend: bool = False
    parallelism: int = 1
    completions: int = 1
    deadline_s: int | None = None
    deleting: bool = False

    @property
    def finished(self) -> bool:
        """Whether it is complete or has failed: the Job controller does nothing more for it."""
        return self.complete or self.failed

    @property
    def halted(self) -> bool:
        """Whether its spec forbids it to run pods."""
        return self.suspend or self.parallelism == 0

    @classmethod
    def from_object(cls, body: Mapping[str, Any]) -> Job:
        """Return the value of an API object."""
        metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
        owners = [
            reference["uid"] for reference in metadata.get("ownerReferences") or () if reference.get("controller")
        ]
        true_conditions = {
            condition["type"]: condition
            for condition in status.get("conditions") or ()
            if condition.get("status") == "True"
        }
        failed = true_conditions.get("Failed")
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            owner_uid=owners[0] if owners else None,
            active=status.get("active", 0),
            complete="Complete" in true_conditions,
            failed=failed is not None,
            had_pods=any(status.get(count) for count in ("active", "succeeded", "failed")),
            failed_reason=(failed or {}).get("reason", ""),
            failed_message=(failed or {}).get("message", ""),
            suspend=bool(spec.get("suspend")),
            parallelism=spec.get("parallelism", 1),
            completions=spec.get("completions") or 1,
            deadline_s=spec.get("activeDeadlineSeconds"),
            deleting="deletionTimestamp" in metadata,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """What the database says about a resource besides its build: a row of `rebuilds.situation`, explained there.

    `unfinished_resource`: the resource that owns the tenant's unfinished build, or None. `ahead`: the number of the
    installation's unfinished builds that come before this one's; `ahead_names`: the owners of the first of them.
    `failed_last`: the tenant's last build failed, so that it may not have the last slot.
    """

    tenant_known: bool
    request_id: str | None = None
    suspended: bool = False
    closed: bool = False
    build_tenant_id: str | None = None
    build_id: str | None = None
    unfinished_build_id: str | None = None
    unfinished_resource: str | None = None
    ahead: int = 0
    ahead_names: Sequence[str] = ()
    failed_last: bool = False
    paused: bool = False
    moved_from: str | None = None
    moved_to: str | None = None
    moved_at: datetime | None = None
    active_snapshot_id: str | None = None
    previous_snapshot_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A snapshot that a rollback may go to; `problem` is a reason of `reasons.py`, with a message, when it may not."""

    snapshot_id: str | None = None
    problem: str | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """Everything from which a resource's status and next step are decided.

    The Job was read before the database: a Job that is complete has its build's end in `build`. `trouble` is a reason
    and a message that keep the operator from going on now (a missing permission, a database that is away).
    `pod_problem`: the reason (PODS_REFUSED, POD_NOT_STARTING) and the message of why no pod of the Job works.
    `is_surplus`: the operator made it for a request that another resource has fulfilled.
    """

    rebuild: Rebuild
    installation: str
    situation: Situation
    job: Job | None = None
    build: BuildFacts | None = None
    target: Target | None = None
    pod_problem: tuple[str, str] | None = None
    pod_start_timeout_s: float = 600.0
    max_builds: int = 4
    is_surplus: bool = False
    trouble: tuple[str, str] | None = None

    @property
    def slots(self) -> int:
        """How many builds may run at once, this one included: the last slot is kept for tenants that do not fail."""
        return max(1, self.max_builds - 1) if self.situation.failed_last else self.max_builds

    @property
    def wants_job(self) -> bool:
        """Whether to make the build's Job now: it has none, a slot is free, and neither suspend nor abort is set."""
        return (
            self.build is not None
            and self.build.outcome is None
            and self.build.job_uid is None
            and not self.rebuild.wants("suspend")
            and not self.rebuild.wants("abort")
            and self.situation.ahead < self.slots
        )
