"""The Job of a build as a pure function of the installation's pod template and the resource's few fields.

A MyriaRebuild never chooses image, command, volumes or service account: otherwise, anyone who may create one could run
any program with access to the database's Secret.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from myria.errors import ConfigurationError
from myria.settings import REBUILD_VARIABLES, OperatorSettings
from myria_operator.naming import job_name
from myria_operator.observed import Job, Rebuild
from myria_rebuilds.report import BuildFacts
from myria_rebuilds.resource import API_VERSION, KIND, Json

CONTAINER: Final = "builder"
BAD_INPUT_STATUSES: Final = (2, 3, 6)
"""Exit statuses of a builder that no retry mends: wrong arguments, unknown build, wrong set-up (docs/errors.md)."""
ENDED_STATUSES: Final = (4, 7)
"""Exit statuses of a builder whose build has ended without a result: another pod would find the same."""
STOP_DEADLINE_S: Final = 1
"""The deadline that stops a Job at once and keeps it, with its failed pods' logs."""

COMPONENT_LABELS: Final = {
    "app.kubernetes.io/name": "myria",
    "app.kubernetes.io/component": "builder",
    "app.kubernetes.io/managed-by": "myria-operator",
}
SELECTOR: Final = ",".join(f"{key}={value}" for key, value in COMPONENT_LABELS.items())
"""Label selector of the Jobs that the operator made."""


PodTemplate = Mapping[str, Any]
"""The checked `template` of a PodTemplate object: metadata and spec of a build's pod."""


def read_pod_template(path: Path) -> PodTemplate:
    """Return the template in a file.

    Raises:
        ConfigurationError: it cannot be read, or a pod made from it could not run a build.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"the pod template {path} cannot be read: {error.strerror}; set operator.pod_template",
            field="operator.pod_template",
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the pod template {path} is not YAML: {error}", field="operator.pod_template"
        ) from error
    return checked_pod_template(document, str(path))


def checked_pod_template(document: Any, source: str) -> PodTemplate:
    """Check a PodTemplate object and return its `template`; `source` names it in errors.

    Raises:
        ConfigurationError: a pod made from it could not run a build; the message says what to change.
    """

    def refuse(what: str) -> ConfigurationError:
        return ConfigurationError(f"the pod template {source} {what}", field="operator.pod_template")

    if not isinstance(document, dict) or document.get("kind") != "PodTemplate" or document.get("apiVersion") != "v1":
        raise refuse("must be one object of apiVersion v1 and kind PodTemplate")
    template = document.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise refuse("has no template.spec")
    spec = template["spec"]
    containers = spec.get("containers")
    if not isinstance(containers, list) or not all(isinstance(container, dict) for container in containers):
        raise refuse("has no list of containers")
    builders = [container for container in containers if container.get("name") == CONTAINER]
    if len(builders) != 1:
        raise refuse(f"must have exactly one container named {CONTAINER}")
    if len(containers) > 1:
        raise refuse(f"must have no container beside {CONTAINER}, which would keep a pod from ending")
    builder = builders[0]
    if not builder.get("image"):
        raise refuse(f"names no image for the container {CONTAINER}")
    if builder.get("args"):
        raise refuse(f"must leave args of the container {CONTAINER} to the operator; put them into command")
    if spec.get("restartPolicy", "Never") != "Never":
        raise refuse("must have restartPolicy Never")
    if spec.get("activeDeadlineSeconds") is not None:
        raise refuse("must leave activeDeadlineSeconds out; it belongs to the Job (operator.deadline_s)")
    reserved_names = {variable.get("name") for variable in builder.get("env") or ()} & set(REBUILD_VARIABLES)
    if reserved_names:
        raise refuse(f"must not set {', '.join(sorted(reserved_names))}; the operator does")
    return template


def manifest(
    rebuild: Rebuild, build: BuildFacts, template: PodTemplate, settings: OperatorSettings, *, pods: int
) -> Json:
    """Return the Job of a build. It must be created (POST), never applied, so that an existing Job is not changed."""
    name = job_name(rebuild.name, rebuild.uid)
    labels = {**COMPONENT_LABELS, "myria.dev/rebuild-uid": rebuild.uid}
    spec_build = rebuild.build
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": rebuild.namespace,
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": rebuild.name,
                    "uid": rebuild.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "NonIndexed",
            "backoffLimit": spec_build.get("backoffLimit", settings.backoff_limit),
            "activeDeadlineSeconds": spec_build.get("deadlineSeconds", settings.deadline_s),
            "ttlSecondsAfterFinished": spec_build.get("jobTTLSeconds", settings.job_ttl_s),
            "podFailurePolicy": {
                "rules": [
                    {
                        "action": "Ignore",
                        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                    },
                    {
                        "action": "FailJob",
                        "onExitCodes": {
                            "containerName": CONTAINER,
                            "operator": "In",
                            "values": sorted((*BAD_INPUT_STATUSES, *ENDED_STATUSES)),
                        },
                    },
                ]
            },
            "template": _pod(rebuild, build, template, labels),
        },
    }


def job_change(rebuild: Rebuild, job: Job) -> Json:
    """Return the merge patch that makes a Job's suspension and deadline what the spec says."""
    spec: Json = {}
    suspend = rebuild.wants("suspend")
    if job.halted != suspend:
        # API servers before 1.21 drop `suspend` without a word: there, a parallelism of 0 takes the pods away.
        spec = {"suspend": suspend, "parallelism": 0 if suspend else job.completions}
    deadline_s = rebuild.build.get("deadlineSeconds", job.deadline_s)
    if deadline_s != job.deadline_s:
        spec["activeDeadlineSeconds"] = deadline_s
    return {"spec": spec}


def _pod(rebuild: Rebuild, build: BuildFacts, template: PodTemplate, labels: Mapping[str, str]) -> Json:
    """Return a build's pod: a copy of the installation's template with the build's arguments and identity.

    `build` is the build's row, `spec_build` what the resource's spec asks for.
    """
    pod: Json = copy.deepcopy(dict(template))
    metadata = pod.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    # Kubernetes names a Job's pods itself, and puts them into the Job's namespace.
    metadata.pop("name", None)
    metadata.pop("namespace", None)
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"
    (container,) = spec["containers"]
    container["args"] = ["--tenant", build.tenant, "--build", build.row.build_id]
    variables = dict(zip(REBUILD_VARIABLES, (rebuild.namespace, rebuild.name, rebuild.uid), strict=True))
    container["env"] = [
        *(container.get("env") or []),
        *({"name": name, "value": value} for name, value in variables.items()),
    ]
    spec_build = rebuild.build
    # Resources and priority class replace the template's, as requests and limits belong together; selector and
    # tolerations add to it (docs/kubernetes.md).
    if spec_build.get("resources"):
        container["resources"] = copy.deepcopy(dict(spec_build["resources"]))
    if spec_build.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **spec_build["nodeSelector"]}
    if spec_build.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or []), *copy.deepcopy(list(spec_build["tolerations"]))]
    if spec_build.get("priorityClassName"):
        spec["priorityClassName"] = spec_build["priorityClassName"]
    return pod
