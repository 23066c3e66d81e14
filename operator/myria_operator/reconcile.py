"""Reconcile one MyriaRebuild: read everything, derive its status, write it if it differs, take one step, repeat.

Level-based: only the present state matters, not what happened before or where an operator was interrupted. The
resource is read first, then its Job, then the database, so that the results of a finished Job are always seen.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from myria.errors import ClusterRefused, ClusterUnavailable, UnavailableError
from myria.settings import OperatorSettings
from myria_operator import reasons, status
from myria_operator.api import Api
from myria_operator.facts import MANAGER, REQUEST_LABEL, Job, Rebuild, Situation
from myria_operator.jobs import STOP_DEADLINE_S, PodTemplate, manifest, pods_of, suspension
from myria_operator.ledger import Ledger
from myria_operator.naming import event_name, job_name
from myria_operator.status import RebuildView
from myria_operator.steps import Do, Step, next_step
from myria_rebuilds.resource import API_VERSION, KIND, PLURAL, Json

logger = logging.getLogger(__name__)

_STEPS: Final = 12
"""Steps of one resource in a row before other resources get their turn."""
_CONFLICTS: Final = 3
"""Conflicts of one resource in a row that are retried at once; after more of them the resource waits."""
_CHECK_AGAIN_S: Final = 10.0
"""Seconds after which a resource is looked at again when only time can change it (a lease that runs out)."""
_NO_POD_S: Final = 1.0
"""The same while a Job has no pod; also the shortest such wait for a build that is about to be given up."""
_DEFINITION_S: Final = 30.0
"""Seconds after which a field that the installed definition did not know is tried again."""
_UNDECLARED: Final = re.compile(r"\.status\.(\w+)[^:]*: field not declared in schema")


class Reconciler:
    """Reconciles resources by name."""

    def __init__(self, api: Api, ledger: Ledger, template: PodTemplate, settings: OperatorSettings) -> None:
        self._api = api
        self._ledger = ledger
        self._template = template
        self._settings = settings
        self._keeps_suspend: bool | None = None
        """Whether the API server keeps a Job's `suspend`; None until it was tried."""
        self._undeclared: dict[str, float] = {}
        """Status fields that the installed definition was found not to know, and when, by the monotonic clock."""

    async def reconcile(self, name: str) -> float | None:
        """Bring one resource forward; return the seconds until the next look, None when an event will start it.

        Raises:
            UnavailableError, ClusterRefused: try again later.
        """
        known: Rebuild | None = None
        conflicts = 0
        for _ in range(_STEPS):
            if known is None:
                known = await self._read(name)
                if known is None:
                    return None
            try:
                outcome = await self._once(known)
            except ClusterRefused as error:
                # It was written meanwhile, or is gone: read it again. After several conflicts in a row, wait instead.
                conflicts += 1
                if error.details["status"] == 409 and conflicts > _CONFLICTS:
                    raise ClusterUnavailable(error.message, status=409) from error
                if error.details["status"] not in {404, 409} or conflicts > _CONFLICTS:
                    raise
                known = None
                continue
            if isinstance(outcome, Rebuild):
                known = outcome  # as the API server answered to our write: nothing newer was there
            elif outcome is _MORE:
                known = None
            else:
                return outcome
        return 0.0

    async def _read(self, name: str) -> Rebuild | None:
        """Return a resource, None when there is none, and end what belongs to deleted resources of the same name.

        Unfinished work is read before the resource: an owner that is missing afterwards is gone. In the other order the
        work could belong to a resource made in between, which another operator has taken on.
        """
        unfinished: list[tuple[str, str | None, str]] = []
        away: UnavailableError | None = None
        try:
            unfinished = await self._ledger.of_name(name)
        except UnavailableError as error:
            away = error
        resource = await self._api.rebuild(name)
        known = Rebuild.from_object(resource) if resource is not None else None
        if known is not None and known.deleting:
            known = None
        if away is None:
            uid = known.uid if known is not None else None
            await self._end_orphans(name, [row for row in unfinished if row[2] != uid])
        elif known is None:
            raise away
        return known

    async def _is_there(self, rebuild: Rebuild) -> bool:
        resource = await self._api.rebuild(rebuild.name)
        if resource is None:
            return False
        now = Rebuild.from_object(resource)
        return now.uid == rebuild.uid and not now.deleting

    async def _end_orphans(self, name: str, orphans: Sequence[tuple[str, str | None, str]]) -> None:
        for tenant, build_id, owner in orphans:
            logger.info("a resource is gone", extra={"action": "resource_gone", "resource": name, "uid": owner})
            if build_id is not None:
                await self._ledger.abort(tenant, build_id)
            else:
                await self._ledger.close_request(owner)
            await self._delete_job(name, owner)

    async def _once(self, rebuild: Rebuild) -> Rebuild | float | None:
        owner = rebuild.status.get("installationID")
        try:
            installation = await self._ledger.installation()
        except UnavailableError as error:
            if owner is None:
                raise
            await self._tell_trouble(rebuild, str(owner), error)
            raise
        if owner is None:
            return await self._claim(rebuild, installation)
        if owner != installation:
            return None
        if status.settled(rebuild) and not _needs_attention(rebuild):
            return None
        try:
            view = await self._look(rebuild, installation)
            derived = status.derive(view)
            step = next_step(view, derived.succeeded.status)
            # Requests and the like are closed before the end is written: afterwards nobody looks at the resource again.
            if step.do not in {Do.CLOSE_REQUEST, Do.GIVE_UP, Do.DELETE} and not self._tries_again(
                rebuild, derived, step
            ):
                written = await self._write(rebuild, derived)
                if written is not None:
                    return written
            if step.do is Do.NOTHING:
                return _again(view)
            fields = {"action": step.do.value, "resource": rebuild.name, "tenant": rebuild.tenant}
            logger.info("%s", step.do, extra=fields)
            return await self._do(step, view)
        except ClusterRefused as error:
            if error.details["status"] == 403 and error.details["resource"] != f"{PLURAL}/status":
                await self._tell_trouble(rebuild, installation, error)
            raise
        except UnavailableError as error:
            if not isinstance(error, ClusterUnavailable):
                await self._tell_trouble(rebuild, installation, error)
            raise

    async def _claim(self, rebuild: Rebuild, installation: str) -> Rebuild | float | None:
        """Write this installation's id before anything else, and check that the definition keeps our status."""
        wanted = {"observedGeneration": rebuild.generation, "installationID": installation}
        if "installationID" not in self._declared(wanted):
            return _DEFINITION_S
        written = await self._apply(rebuild, wanted)
        if written.get("status", {}).get("installationID") != installation:
            # The definition drops the owner: two installations might both take the resource.
            await self._outdated(Rebuild.from_object(written), ["installationID"])
            return _DEFINITION_S
        return Rebuild.from_object(written)

    async def _look(self, rebuild: Rebuild, installation: str) -> RebuildView:
        job = None
        if rebuild.rollback_to is None and rebuild.status.get("jobName"):
            body = await self._api.job(job_name(rebuild.name, rebuild.uid))
            job = Job.from_object(body) if body is not None else None
        situation, build = await self._ledger.look(rebuild)
        request = rebuild.labels.get(REQUEST_LABEL)
        is_surplus = False
        if build is None and situation.request_id is None and request is not None and not status.settled(rebuild):
            await self._ledger.adopt(rebuild.tenant, request, rebuild.name, rebuild.uid)
            situation, build = await self._ledger.look(rebuild)
            # A slow operator made a resource again that had its build already and has been deleted since.
            is_surplus = build is None and situation.request_id is None and rebuild.manager_of("tenant") == MANAGER
        target = None
        if rebuild.rollback_to is not None and situation.moved_to is None and situation.tenant_known:
            target = await self._ledger.target(rebuild, situation)
        pod_problem = None
        waits = rebuild.condition(reasons.SUCCEEDED).get("reason") in _WITHOUT_POD
        if waits and job is not None and not job.finished and build is not None and not build.alive:
            pod_problem = await self._pod_problem(job)
        return RebuildView(
            rebuild=rebuild,
            installation=installation,
            situation=situation,
            job=job,
            build=build,
            target=target,
            pod_problem=pod_problem,
            pod_start_timeout_s=self._settings.pod_start_timeout_s,
            max_builds=self._settings.max_builds,
            is_surplus=is_surplus,
        )

    async def _write(self, rebuild: Rebuild, derived: status.Derived) -> Rebuild | None:
        """Write a status that differs from what was read and make Events of its transitions; return the new one."""
        wanted = self._declared(status.with_times(derived, rebuild, self._time()))
        if wanted == rebuild.status:
            return None
        news = status.transitions(derived, rebuild)
        written = await self._apply(rebuild, wanted)
        missing = sorted(set(self._declared(wanted)) - set(written.get("status") or {}))
        if missing:
            await self._outdated(Rebuild.from_object(written), missing)
        for condition in news:
            await self._tell(rebuild, condition)
        changed = Rebuild.from_object(written)
        return changed if changed.resource_version != rebuild.resource_version else None

    def _tries_again(self, rebuild: Rebuild, derived: status.Derived, step: Step) -> bool:
        """Tell whether the resource reports a missing permission and the only news is that the step is tried again.

        Such a status is not written: otherwise each attempt would withdraw the report and make it again.
        """
        if step.do is Do.NOTHING or rebuild.condition(reasons.SUCCEEDED).get("reason") != reasons.PERMISSION_MISSING:
            return False

        def comparable(shown: Mapping[str, Any]) -> tuple[Json, Json]:
            statuses = {condition["type"]: condition["status"] for condition in shown.get("conditions") or []}
            return {name: value for name, value in shown.items() if name != "conditions"}, statuses

        wanted = self._declared(status.with_times(derived, rebuild, self._time()))
        return comparable(wanted) == comparable(rebuild.status)

    def _time(self) -> str:
        return self._ledger.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _declared(self, wanted: Mapping[str, Any]) -> Json:
        """Return a status without the fields that the installed definition did not know when last tried."""
        now = time.monotonic()
        self._undeclared = {name: at for name, at in self._undeclared.items() if now - at <= _DEFINITION_S}
        return {name: value for name, value in wanted.items() if name not in self._undeclared}

    async def _apply(self, rebuild: Rebuild, wanted: Mapping[str, Any]) -> Json:
        """Write a status, leaving out what an older definition refuses."""
        while True:
            try:
                return await self._api.apply_status(
                    rebuild.name, rebuild.uid, rebuild.resource_version, self._declared(wanted)
                )
            except (ClusterRefused, ClusterUnavailable) as error:
                unknown = _UNDECLARED.search(error.message)
                if unknown is None or unknown[1] not in self._declared(wanted):
                    raise
                await self._outdated(rebuild, [unknown[1]])

    async def _outdated(self, rebuild: Rebuild, missing: Sequence[str]) -> None:
        """Note fields that the installed definition does not know, and report that it must be applied again."""
        for name in missing:
            self._undeclared.setdefault(name, time.monotonic())
        dropped = ", ".join(f"status.{name}" for name in missing)
        message = f"the installed CustomResourceDefinition drops {dropped}; apply crds/myriarebuild.yaml anew"
        logger.error("%s", message, extra={"action": "crd_outdated", "resource": rebuild.name})
        condition = status.Condition(
            kind=reasons.SUCCEEDED, status=status.UNKNOWN, reason=reasons.CRD_OUTDATED, message=message
        )
        await self._tell(rebuild, condition)

    async def _tell_trouble(self, rebuild: Rebuild, installation: str, error: Exception) -> None:
        """Write on the resource what keeps the operator from going on; a failure to write it is only logged."""
        if isinstance(error, ClusterRefused):
            trouble = reasons.PERMISSION_MISSING, error.message
        else:
            trouble = reasons.DATABASE_UNAVAILABLE, f"the operator cannot reach the database and goes on later: {error}"
        if status.settled(rebuild) or status.awaits_approval(rebuild):
            return
        view = RebuildView(
            rebuild=rebuild, installation=installation, situation=Situation(tenant_known=True), trouble=trouble
        )
        derived = status.derive(view)
        shown = rebuild.condition(reasons.SUCCEEDED)
        if (shown.get("status"), shown.get("reason")) == (derived.succeeded.status, derived.succeeded.reason):
            return
        try:
            await self._write(rebuild, derived)
        except (ClusterRefused, ClusterUnavailable) as second:
            logger.info("trouble could not be told: %s", second.message, extra={"action": "status_not_written"})

    async def _do(self, step: Step, view: RebuildView) -> float | None:
        rebuild, build, job, ledger = view.rebuild, view.build, view.job, self._ledger
        suspended = rebuild.wants("suspend")
        if step.do is Do.DELETE:
            await self._api.delete_rebuild(rebuild.name, rebuild.uid)
        elif step.do is Do.ASK:
            await ledger.ask(rebuild)
        elif step.do is Do.SUSPEND_REQUEST:
            await ledger.suspend_request(rebuild, suspended=suspended)
        elif step.do is Do.CLOSE_REQUEST:
            await ledger.close_request(rebuild.uid)
        elif step.do is Do.GIVE_UP:
            await ledger.give_up(rebuild)
        elif step.do is Do.TAKE_UP:
            await ledger.take_up(rebuild.tenant)
            situation, build = await ledger.look(rebuild)
            if build is None and situation.unfinished_build_id is None:  # automatic builds pause
                return _CHECK_AGAIN_S
        elif step.do is Do.ROLL_BACK and view.target is not None and view.target.snapshot_id is not None:
            await ledger.roll_back(rebuild, view.target.snapshot_id)
        elif build is None:
            return None
        elif step.do is Do.SUSPEND_BUILD:
            await ledger.suspend_build(build, suspended=suspended)
        elif step.do is Do.MAKE_JOB:
            return await self._make_job(view)
        elif step.do is Do.NOTE_JOB and job is not None:
            await ledger.note_job(build, job.uid)
        elif step.do is Do.CHANGE_JOB and job is not None:
            await self._change_job(view, job)
        elif step.do is Do.STOP_JOB and job is not None and not job.had_pods:
            # There are no logs to keep, and a deadline does not end a Job whose pods are refused.
            await self._api.delete_job(job.name, job.uid)
        elif step.do is Do.STOP_JOB and job is not None:
            await self._api.stop_job(job.name, STOP_DEADLINE_S)
        elif step.do is Do.END_BUILD:
            if job is None and not await self._is_there(rebuild):
                return _MORE  # its Job was deleted with it: no worker was lost, and the next read ends what is left
            await ledger.end_build(build.tenant, build.row.build_id, step.reason, step.message)
        elif step.do is Do.ABORT:
            await ledger.abort(build.tenant, build.row.build_id)
        elif step.do is Do.PUBLISH:
            await ledger.publish(rebuild, build)
        return _MORE

    async def _make_job(self, view: RebuildView) -> float | None:
        rebuild, build = view.rebuild, view.build
        if build is None:
            return None
        parallelism = int(rebuild.build.get("parallelism", self._settings.default_parallelism))
        scopes = await self._ledger.scopes_to_build(build, parallelism) if parallelism > 1 else 1
        wanted = manifest(rebuild, build, self._template, self._settings, pods=pods_of(rebuild, scopes, self._settings))
        try:
            made = Job.from_object(await self._api.make_job(wanted))
        except ClusterRefused as error:
            return await self._job_refused(view, wanted, error)
        if not await self._ledger.note_job(build, made.uid):
            # Another operator's Job was first and is gone already (deleted, or past its TTL): this second one must go.
            logger.warning("a second Job is taken back", extra={"action": "job_taken_back", "resource": rebuild.name})
            await self._api.delete_job(made.name, made.uid)
        return _MORE

    async def _job_refused(self, view: RebuildView, wanted: Json, error: ClusterRefused) -> float | None:
        build, name = view.build, wanted["metadata"]["name"]
        if build is None:
            return None
        code = error.details["status"]
        if code == 409:
            body = await self._api.job(name)
            if body is None:
                return _MORE
            existing = Job.from_object(body)
            if existing.owner_uid == view.rebuild.uid:
                await self._ledger.note_job(build, existing.uid)
                return _MORE
            message = f"a Job {name} exists already, and is not this resource's"
            await self._ledger.end_build(build.tenant, build.row.build_id, reasons.JOB_CONFLICT, message)
            return _MORE
        is_going = code == 404 or "NamespaceTerminating" in error.details["causes"]
        is_rbac = code == 403 and f'cannot create resource "{error.details["resource"]}"' in error.message
        if is_going or is_rbac or code == 401:
            raise error
        await self._ledger.end_build(build.tenant, build.row.build_id, reasons.JOB_REFUSED, error.message)
        return _MORE

    async def _change_job(self, view: RebuildView, job: Job) -> None:
        rebuild, build = view.rebuild, view.build
        if build is None:
            return
        spec: Json = {}
        wanted = rebuild.build.get("deadlineSeconds")
        if wanted is not None and wanted != job.deadline_s:
            spec["activeDeadlineSeconds"] = wanted
        suspend = rebuild.wants("suspend")
        if job.halted != suspend:
            pods = await self._pods_again(view)
            spec |= suspension(suspend=suspend, pods=pods, understood=self._keeps_suspend)["spec"]
        changed = Job.from_object(await self._api.change_job(job.name, {"spec": spec}))
        if suspend and not changed.halted:
            # API servers before 1.21 silently drop `suspend`: there, a parallelism of 0 stops the pods.
            self._keeps_suspend = False
            again = suspension(suspend=True, pods=0, understood=False)
            await self._api.change_job(job.name, again)

    async def _pods_again(self, view: RebuildView) -> int:
        body = await self._api.job(job_name(view.rebuild.name, view.rebuild.uid))
        return int((body or {}).get("spec", {}).get("completions") or 1)

    async def _delete_job(self, name: str, uid: str) -> None:
        """Delete the Job of a resource that is gone, without waiting for Kubernetes' garbage collector."""
        body = await self._api.job(job_name(name, uid))
        if body is not None and Job.from_object(body).owner_uid == uid:
            await self._api.delete_job(body["metadata"]["name"], body["metadata"]["uid"])

    async def _pod_problem(self, job: Job) -> tuple[str, str] | None:
        """Return why no pod of a Job works, in words of the kubelet, the scheduler or the API server's admission."""
        try:
            pods = await self._api.pods(job.name)
            for pod in pods:
                if problem := pod_problem(pod):
                    return reasons.POD_NOT_STARTING, f"pod {pod['metadata']['name']}: {problem}"
            if any((pod.get("status") or {}).get("phase") in _LIVING for pod in pods):
                return None
            refusals = await self._api.refused_pods(job.name, job.uid)
        except ClusterRefused:
            return None  # only details are lost; the permission review at the start names the missing right
        problem = refused_pods(refusals, since=max((pod["metadata"]["creationTimestamp"] for pod in pods), default=""))
        return (reasons.PODS_REFUSED, problem) if problem is not None else None

    async def _tell(self, rebuild: Rebuild, condition: status.Condition) -> None:
        """Make one Kubernetes Event of a transition; a refusal is only logged."""
        now = self._ledger.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        name = event_name(
            rebuild.name, rebuild.uid, condition.kind, condition.status, condition.reason, str(rebuild.generation)
        )
        is_bad = condition.status == status.FALSE and condition.kind == reasons.SUCCEEDED
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": rebuild.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": rebuild.namespace,
                "name": rebuild.name,
                "uid": rebuild.uid,
                "resourceVersion": rebuild.resource_version,
            },
            "reason": condition.reason,
            "message": condition.message or condition.reason,
            "type": "Warning" if is_bad or condition.reason in _TROUBLES else "Normal",
            "source": {"component": MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self._api.make_event(event)
        except (ClusterRefused, ClusterUnavailable) as error:
            logger.info("an Event was not made: %s", error.message, extra={"action": "event_not_made"})


_MORE: Final = -1.0
"""Returned by a part of a reconciliation: read everything again, there may be more to do."""

_LIVING: Final = frozenset({"Pending", "Running", "Unknown"})
"""Phases of pods that may still work."""

_WITHOUT_POD: Final = frozenset({reasons.STARTING, reasons.POD_NOT_STARTING, reasons.PODS_REFUSED})
"""Reasons of a resource whose Job is there and whose pods were not seen at work."""

_TROUBLES: Final = frozenset(
    {
        reasons.PERMISSION_MISSING,
        reasons.DATABASE_UNAVAILABLE,
        reasons.CRD_OUTDATED,
        reasons.POD_NOT_STARTING,
        reasons.PODS_REFUSED,
    }
)


def pod_problem(pod: Mapping[str, Any]) -> str | None:
    """Return why a pod does not start, None when it does or has."""
    pod_status = pod.get("status") or {}
    for container in pod_status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    for condition in pod_status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}".rstrip(": ")
    return None


def refused_pods(events: Sequence[Mapping[str, Any]], *, since: str) -> str | None:
    """Return why the newest of a Job's pods were refused, None when pods came after that (`since`, RFC 3339)."""

    def last_seen(event: Mapping[str, Any]) -> str:
        series = (event.get("series") or {}).get("lastObservedTime")
        return str(series or event.get("lastTimestamp") or event.get("eventTime") or "")

    if not events:
        return None
    newest = max(events, key=last_seen)
    return str(newest.get("message") or "no reason given") if last_seen(newest) >= since else None


def _needs_attention(rebuild: Rebuild) -> bool:
    """Tell whether a settled resource may still have something to do: its generation moved, or a Job to be stopped."""
    if rebuild.status.get("observedGeneration") != rebuild.generation:
        return True
    return bool(rebuild.status.get("jobName")) and rebuild.condition(reasons.SUCCEEDED).get("status") == status.FALSE


def _again(view: RebuildView) -> float | None:
    """Return when to look again although nothing is to be done now."""
    if status.settled(view.rebuild) or view.build is None or view.build.outcome is not None:
        return None
    if view.build.job_uid is None:
        return None
    if view.pod_problem is not None and view.build.podless_s is not None:
        return min(_CHECK_AGAIN_S, max(_NO_POD_S, view.pod_start_timeout_s - view.build.podless_s))
    # The Job does not change when its pods are refused, so no watch reports it.
    has_no_pod = view.job is not None and view.job.active == 0 and not view.build.alive
    return _NO_POD_S if has_no_pod and not view.rebuild.wants("suspend") else _CHECK_AGAIN_S


__all__ = ["Reconciler", "pod_problem", "refused_pods"]
