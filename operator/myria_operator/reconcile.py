"""Reconcile one MyriaRebuild: observe everything, decide, write the status if it differs, else take one step.

Level-based: only the present state matters, not what happened before or where an operator was interrupted. The
resource is read first, then its Job, then the database, so that the results of a finished Job are always seen. What
keeps a pass from ending (a conflict, an outage) is raised, and the queue repeats the pass later.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from myria.errors import ClusterRefused, ClusterUnavailable, UnavailableError
from myria.settings import OperatorSettings
from myria_operator import reasons
from myria_operator.decide import FALSE, UNKNOWN, Condition, Decision, Do, Step, decide, transitions, with_times
from myria_operator.jobs import STOP_DEADLINE_S, PodTemplate, job_change, manifest
from myria_operator.ledger import Ledger
from myria_operator.naming import event_name, job_name
from myria_operator.observed import MANAGER, REQUEST_LABEL, Job, Observed, Rebuild, Situation
from myria_rebuilds.connection import Connection
from myria_rebuilds.report import BuildFacts
from myria_rebuilds.resource import API_VERSION, EVENTS, JOBS, KIND, PLURAL, PODS, REBUILDS, Json

logger = logging.getLogger(__name__)

AT_ONCE: Final = 0.0
"""Delay in seconds that a pass returns if it changed something: observe again at once, there may be more to do."""
_CHECK_AGAIN_S: Final = 10.0
"""Seconds after which a resource is looked at again when only time can change it (a lease that runs out)."""
_NO_POD_S: Final = 1.0
"""As `_CHECK_AGAIN_S`, while a Job has no pod; also the shortest wait for a build that is about to be given up."""
_DEFINITION_S: Final = 30.0
"""Seconds until a status field that the installed CustomResourceDefinition did not know is written again."""
_UNDECLARED: Final = re.compile(r"\.status\.(\w+)[^:]*: field not declared in schema")

_BEFORE_THE_STATUS: Final = frozenset({Do.CLOSE_REQUEST, Do.GIVE_UP, Do.DELETE})
"""Steps taken before the status is written: once it is final, nobody looks at the resource again."""

_WITHOUT_POD: Final = frozenset({reasons.STARTING, reasons.POD_NOT_STARTING, reasons.PODS_REFUSED})
"""Reasons of a resource whose Job exists, but none of whose pods was seen at work."""

_TROUBLES: Final = frozenset(
    {
        reasons.PERMISSION_MISSING,
        reasons.DATABASE_UNAVAILABLE,
        reasons.CRD_OUTDATED,
        reasons.POD_NOT_STARTING,
        reasons.PODS_REFUSED,
    }
)
"""Reasons whose Kubernetes Events are warnings although nothing has ended."""


_LIVING: Final = frozenset({"Pending", "Running", "Unknown"})
"""Phases of pods that may still work."""


class Reconciler:
    """Reconciles resources by name."""

    def __init__(self, api: Connection, ledger: Ledger, template: PodTemplate, settings: OperatorSettings) -> None:
        self._api = api
        self._ledger = ledger
        self._template = template
        self._settings = settings
        self._undeclared: dict[str, float] = {}
        """By status field that the installed definition does not know: when that was last found (monotonic clock)."""

    async def reconcile(self, name: str) -> float | None:
        """Bring one resource a step forward; return the seconds until the next pass, None when an event starts it.

        Raises:
            UnavailableError, ClusterRefused: try again later.
        """
        rebuild = await self._read(name)
        if rebuild is None:
            return None
        try:
            return await self._advance(rebuild)
        except ClusterRefused as error:
            if error.details["status"] in {404, 409}:  # it was written meanwhile, or is gone
                raise ClusterUnavailable(error.message, status=error.details["status"]) from error
            if error.details["status"] == 403 and error.details["resource"] != f"{PLURAL}/status":
                await self._report_trouble(rebuild, reasons.PERMISSION_MISSING, error.message)
            raise
        except ClusterUnavailable:
            raise
        except UnavailableError as error:
            message = f"the operator cannot reach the database and goes on later: {error}"
            await self._report_trouble(rebuild, reasons.DATABASE_UNAVAILABLE, message)
            raise

    async def _read(self, name: str) -> Rebuild | None:
        """Return a resource, or None when there is none; end the work left by deleted resources of the same name.

        The unfinished work is read before the resource: if its owner is missing afterwards, the owner was deleted. In
        the other order the work could belong to a resource created in between, and served by another operator.
        """
        unfinished: list[tuple[str, str | None, str]] = []
        outage: UnavailableError | None = None
        try:
            unfinished = await self._ledger.of_name(name)
        except UnavailableError as error:
            outage = error
        rebuild = await self._fetch(name)
        if rebuild is None and outage is not None:
            raise outage
        for tenant, build_id, owner_uid in unfinished:
            if rebuild is not None and owner_uid == rebuild.uid:
                continue
            logger.info("a resource is gone", extra={"action": "resource_gone", "resource": name, "uid": owner_uid})
            if build_id is not None:
                await self._ledger.abort(tenant, build_id, name=name, reason="it is gone")
            else:
                await self._ledger.close_request(owner_uid)
            await self._delete_job(name, owner_uid)
        return rebuild

    async def _fetch(self, name: str) -> Rebuild | None:
        """Return the resource of this name, None if there is none or it is being deleted."""
        body = await self._api.get(REBUILDS, name)
        rebuild = Rebuild.from_object(body) if body is not None else None
        return None if rebuild is None or rebuild.deleting else rebuild

    async def _delete_job(self, name: str, uid: str) -> None:
        """Delete the Job of a resource that is gone, without waiting for Kubernetes' garbage collector."""
        body = await self._api.get(JOBS, job_name(name, uid))
        if body is not None and (job := Job.from_object(body)).owner_uid == uid:
            await self._api.delete(JOBS, job.name, job.uid)

    async def _advance(self, rebuild: Rebuild) -> float | None:
        """Observe, decide, and write the status or take one step; return as `reconcile` does.

        A status that differs is written first, and the step is left to the next pass; `_BEFORE_THE_STATUS` names the
        exceptions.
        """
        installation = await self._ledger.installation()
        owner_installation = rebuild.status.get("installationID")
        if owner_installation is None:
            return await self._claim(rebuild, installation)
        if owner_installation != installation or (rebuild.settled and not _needs_attention(rebuild)):
            return None
        observed = await self._observe(rebuild, installation)
        decision = decide(observed)
        step = decision.step
        if step.do not in _BEFORE_THE_STATUS and await self._write(rebuild, decision):
            return AT_ONCE
        if step.do is Do.NOTHING:
            return _recheck_after_s(observed)
        fields = {"action": step.do.value, "resource": rebuild.name, "tenant": rebuild.tenant}
        logger.info("%s", step.do, extra=fields)
        return await self._carry_out(step, observed)

    async def _claim(self, rebuild: Rebuild, installation: str) -> float:
        """Write this installation's id into the status, before anything else is done for the resource.

        While the installed definition drops the field, nothing is done: two installations could both take the resource.
        """
        new_status = {"observedGeneration": rebuild.generation, "installationID": installation}
        if "installationID" in self._known_fields(new_status):
            await self._apply(rebuild, new_status)
        return AT_ONCE if "installationID" in self._known_fields(new_status) else _DEFINITION_S

    async def _observe(self, rebuild: Rebuild, installation: str) -> Observed:
        """Read everything that the decision needs: first the Job, then the database, last the pods."""
        job = None
        if rebuild.rollback_to is None and rebuild.status.get("jobName"):
            body = await self._api.get(JOBS, job_name(rebuild.name, rebuild.uid))
            job = Job.from_object(body) if body is not None else None
        situation, build = await self._ledger.look(rebuild)
        request_id = rebuild.labels.get(REQUEST_LABEL)
        is_surplus = False
        if build is None and situation.request_id is None and request_id is not None and not rebuild.settled:
            await self._ledger.adopt(rebuild.tenant, request_id, rebuild.name, rebuild.uid)
            situation, build = await self._ledger.look(rebuild)
            # Surplus: a slow operator made this resource again, after its first copy had got its build and was deleted.
            is_surplus = build is None and situation.request_id is None and rebuild.manager_of("tenant") == MANAGER
        target = None
        if rebuild.rollback_to is not None and situation.moved_to is None and situation.tenant_known:
            target = await self._ledger.target(rebuild, situation)
        pod_problem = None
        is_without_pod = rebuild.condition(reasons.SUCCEEDED).get("reason") in _WITHOUT_POD
        if is_without_pod and job is not None and not job.finished and build is not None and not build.alive:
            pod_problem = await pods_problem(self._api, job)
        return Observed(
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

    async def _report_trouble(self, rebuild: Rebuild, reason: str, message: str) -> None:
        """Write into a resource's status why the operator cannot go on; if that fails, only log it."""
        installation = rebuild.status.get("installationID")
        if installation is None or rebuild.settled or rebuild.awaits_approval:
            return
        if rebuild.condition(reasons.SUCCEEDED).get("reason") == reason:
            return
        observed = Observed(
            rebuild=rebuild,
            installation=installation,
            situation=Situation(tenant_known=True),
            trouble=(reason, message),
        )
        try:
            await self._write(rebuild, decide(observed))
        except (ClusterRefused, ClusterUnavailable) as error:
            logger.info("trouble could not be told: %s", error.message, extra={"action": "status_not_written"})

    async def _write(self, rebuild: Rebuild, decision: Decision) -> bool:
        """Write a status that differs from the one read, and an Event for each transition; tell if that changed it."""
        new_status = self._known_fields(with_times(decision, rebuild, self._now_text()))
        if new_status == rebuild.status:
            return False
        written = await self._apply(rebuild, new_status)
        for condition in transitions(decision, rebuild):
            await self._make_event(rebuild, condition)
        return bool(written["metadata"]["resourceVersion"] != rebuild.resource_version)

    async def _apply(self, rebuild: Rebuild, new_status: Mapping[str, Any]) -> Json:
        """Apply a status and return the resource; leave out, and report, fields that the installed definition drops."""
        while True:
            known_fields = self._known_fields(new_status)
            try:
                written = await self._api.apply_status(
                    rebuild.name, rebuild.uid, known_fields, resource_version=rebuild.resource_version
                )
            except (ClusterRefused, ClusterUnavailable) as error:
                undeclared = _UNDECLARED.search(error.message)
                if undeclared is None or undeclared[1] not in known_fields:
                    raise
                await self._report_undeclared(rebuild, [undeclared[1]])
                continue
            # Other API servers drop such fields without a word.
            if missing := known_fields.keys() - (written.get("status") or {}).keys():
                await self._report_undeclared(rebuild, sorted(missing))
            return written

    def _known_fields(self, new_status: Mapping[str, Any]) -> Json:
        """Return a status without the fields that the definition was found to drop in the last `_DEFINITION_S`."""
        since = time.monotonic() - _DEFINITION_S
        return {name: value for name, value in new_status.items() if self._undeclared.get(name, since - 1) < since}

    async def _report_undeclared(self, rebuild: Rebuild, names: Iterable[str]) -> None:
        self._undeclared |= dict.fromkeys(names, time.monotonic())
        dropped = ", ".join(f"status.{name}" for name in names)
        message = f"the installed CustomResourceDefinition drops {dropped}; apply crds/myriarebuild.yaml anew"
        logger.error("%s", message, extra={"action": "crd_outdated", "resource": rebuild.name})
        await self._make_event(rebuild, Condition(reasons.SUCCEEDED, UNKNOWN, reasons.CRD_OUTDATED, message))

    async def _make_event(self, rebuild: Rebuild, condition: Condition) -> None:
        """Create the Kubernetes Event of a transition; a refusal is only logged.

        The Event's name is derived from the transition, so a repeated pass does not create a second one.
        """
        now = self._now_text()
        name = event_name(
            rebuild.name, rebuild.uid, condition.kind, condition.status, condition.reason, str(rebuild.generation)
        )
        is_bad = condition.status == FALSE and condition.kind == reasons.SUCCEEDED
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
            await self._api.create(EVENTS, event)
        except (ClusterRefused, ClusterUnavailable) as error:
            if error.details.get("status") != 409:  # it is there already
                logger.info("an Event was not made: %s", error.message, extra={"action": "event_not_made"})

    def _now_text(self) -> str:
        return self._ledger.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _carry_out(self, step: Step, observed: Observed) -> float | None:
        """Take one step; return the seconds until the next pass."""
        api, ledger = self._api, self._ledger
        rebuild, build, job = observed.rebuild, observed.build, observed.job
        suspended = rebuild.wants("suspend")
        match step.do:
            case Do.DELETE:
                await api.delete(REBUILDS, rebuild.name, rebuild.uid)
            case Do.ASK:
                await ledger.ask(rebuild)
            case Do.SUSPEND_REQUEST:
                await ledger.suspend_request(rebuild, suspended=suspended)
            case Do.CLOSE_REQUEST:
                await ledger.close_request(rebuild.uid)
            case Do.GIVE_UP:
                await ledger.give_up(rebuild)
            case Do.TAKE_UP:
                await ledger.take_up(rebuild.tenant)
                situation, build = await ledger.look(rebuild)
                if build is None and situation.unfinished_build_id is None:  # automatic builds pause
                    return _CHECK_AGAIN_S
            case Do.ROLL_BACK if observed.target is not None and observed.target.snapshot_id is not None:
                await ledger.roll_back(rebuild, observed.target.snapshot_id)
            case Do.SUSPEND_BUILD if build is not None:
                await ledger.suspend_build(build, suspended=suspended)
            case Do.MAKE_JOB if build is not None:
                await self._make_job(rebuild, build)
            case Do.NOTE_JOB if build is not None and job is not None:
                await ledger.note_job(build, job.uid)
            case Do.CHANGE_JOB if job is not None:
                await api.patch(JOBS, job.name, job_change(rebuild, job))
            case Do.STOP_JOB if job is not None and not job.had_pods:
                # There are no logs to keep, and a deadline does not end a Job whose pods are refused.
                await api.delete(JOBS, job.name, job.uid)
            case Do.STOP_JOB if job is not None:
                await api.patch(JOBS, job.name, {"spec": {"activeDeadlineSeconds": STOP_DEADLINE_S}})
            case Do.END_BUILD if build is not None:
                current = await self._fetch(rebuild.name) if job is None else rebuild
                # If the Job is gone because its resource was deleted, no worker was lost: the next pass cleans up.
                if current is not None and current.uid == rebuild.uid:
                    await ledger.end_build(build.tenant, build.row.build_id, step.reason, step.message)
            case Do.ABORT if build is not None:
                await ledger.abort(build.tenant, build.row.build_id, name=rebuild.name, reason="its abort is set")
            case Do.ABORT if (request_id := observed.situation.request_id) is not None:
                await ledger.abort(rebuild.tenant, request_id, name=rebuild.name, reason="its abort is set")
            case Do.PUBLISH if build is not None:
                await ledger.publish(rebuild, build)
        return AT_ONCE

    async def _make_job(self, rebuild: Rebuild, build: BuildFacts) -> None:
        """Create the build's Job and record it in the database."""
        max_pods = int(rebuild.build.get("parallelism", self._settings.default_parallelism))
        pods = max(1, await self._ledger.scopes_to_build(build, max_pods))  # more pods than changed scopes would idle
        job_manifest = manifest(rebuild, build, self._template, self._settings, pods=pods)
        try:
            job = Job.from_object(await self._api.create(JOBS, job_manifest))
        except ClusterRefused as error:
            await self._handle_refused_job(rebuild, build, job_manifest["metadata"]["name"], error)
            return
        if not await self._ledger.note_job(build, job.uid):
            # Another operator's Job came first, and is gone (deleted, or past its TTL): this second one must go.
            logger.warning("a second Job is taken back", extra={"action": "job_taken_back", "resource": rebuild.name})
            await self._api.delete(JOBS, job.name, job.uid)

    async def _handle_refused_job(self, rebuild: Rebuild, build: BuildFacts, name: str, error: ClusterRefused) -> None:
        """Record the Job if it exists already and is the build's own; else end the build, or raise what may pass."""
        code = error.details["status"]
        reason, message = reasons.JOB_REFUSED, error.message
        if code == 409:
            body = await self._api.get(JOBS, name)
            if body is None:
                return
            existing = Job.from_object(body)
            if existing.owner_uid == rebuild.uid:
                await self._ledger.note_job(build, existing.uid)
                return
            reason, message = reasons.JOB_CONFLICT, f"a Job {name} exists already, and is not this resource's"
        is_going = code == 404 or "NamespaceTerminating" in error.details["causes"]
        is_rbac = code == 403 and 'cannot create resource "jobs"' in error.message
        if is_going or is_rbac or code == 401:
            raise error
        await self._ledger.end_build(build.tenant, build.row.build_id, reason, message)


def _needs_attention(rebuild: Rebuild) -> bool:
    """Tell whether a settled resource may still need work: its spec was changed, or its Job may have to be stopped."""
    if rebuild.status.get("observedGeneration") != rebuild.generation:
        return True
    return bool(rebuild.status.get("jobName")) and rebuild.condition(reasons.SUCCEEDED).get("status") == FALSE


def _recheck_after_s(observed: Observed) -> float | None:
    """Return the seconds until a resource with nothing to do is looked at again; None if an event will say so."""
    build, job = observed.build, observed.job
    if observed.rebuild.settled or build is None or build.outcome is not None or build.job_uid is None:
        return None
    if observed.pod_problem is not None and build.podless_s is not None:
        return min(_CHECK_AGAIN_S, max(_NO_POD_S, observed.pod_start_timeout_s - build.podless_s))
    # The Job does not change when its pods are refused, so no watch reports it.
    has_no_pod = job is not None and job.active == 0 and not build.alive
    return _NO_POD_S if has_no_pod and not observed.rebuild.wants("suspend") else _CHECK_AGAIN_S


async def pods_problem(api: Connection, job: Job) -> tuple[str, str] | None:
    """Return why no pod of a Job works: POD_NOT_STARTING or PODS_REFUSED, and a message; None if nothing is known.

    The message has the words of the kubelet, the scheduler or the API server's admission.
    """
    try:
        pods = await api.objects(PODS, labelSelector=f"job-name={job.name}")
        for pod in pods:
            if problem := not_starting(pod):
                return reasons.POD_NOT_STARTING, f"pod {pod['metadata']['name']}: {problem}"
        if any((pod.get("status") or {}).get("phase") in _LIVING for pod in pods):
            return None
        of_job = f"involvedObject.kind=Job,involvedObject.name={job.name},involvedObject.uid={job.uid}"
        events = await api.objects(EVENTS, fieldSelector=f"{of_job},reason=FailedCreate,type=Warning")
    except ClusterRefused:
        return None  # only details are lost; the permission review at the start names the missing right
    refusal = newest_refusal(events, since=max((pod["metadata"]["creationTimestamp"] for pod in pods), default=""))
    return (reasons.PODS_REFUSED, refusal) if refusal is not None else None


def not_starting(pod: Mapping[str, Any]) -> str | None:
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


def newest_refusal(events: Sequence[Mapping[str, Any]], *, since: str) -> str | None:
    """Return the newest refusal of a Job's pods; None if pods were created after it (the last at `since`, RFC 3339)."""

    def last_seen(event: Mapping[str, Any]) -> str:
        series = (event.get("series") or {}).get("lastObservedTime")
        return str(series or event.get("lastTimestamp") or event.get("eventTime") or "")

    if not events:
        return None
    newest = max(events, key=last_seen)
    return str(newest.get("message") or "no reason given") if last_seen(newest) >= since else None
