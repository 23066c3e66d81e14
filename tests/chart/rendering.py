"""The chart as the tests see it: rendered objects by value set, their pods, and refusals."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "myria"
VALUES = Path(__file__).parent / "values"
SETS = sorted(path.stem for path in VALUES.glob("*.yaml"))
AS_SUBCHART = ("subchart",)
RELEASE, NAMESPACE = "memory", "agents"

VARIABLE = "MYRIA_POSTGRES_DSN"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod that a rendered object stands for: where it came from, its metadata and spec."""

    source: str
    metadata: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def component(self) -> str:
        """What it is for."""
        return str(self.metadata["labels"]["app.kubernetes.io/component"])

    @property
    def containers(self) -> list[Json]:
        """Its containers, those that run first included."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self, name: str) -> Json:
        """Return one of its containers."""
        (found,) = [one for one in self.containers if one["name"] == name]
        return found


class Rendered:
    """What `helm template` gives."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.notes = next(text for name, text in files.items() if name.endswith("NOTES.txt"))

    @cached_property
    def objects(self) -> list[Json]:
        """Everything that Kubernetes is given; do not change it."""
        return [
            document
            for name, text in self.files.items()
            if not name.endswith(".txt")
            for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
            if document
        ]

    def of(self, kind: str) -> list[Json]:
        """Return the objects of a kind."""
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind: str, name: str) -> Json:
        """Return one object."""
        (found,) = [one for one in self.of(kind) if one["metadata"]["name"] == name]
        return found

    def pods(self) -> Iterator[Pod]:
        """Yield every pod that comes of it, those of builds included."""
        for one in self.objects:
            source = f"{one['kind']}/{one['metadata']['name']}"
            if one["kind"] == "Pod":
                yield Pod(source=source, metadata=one["metadata"], spec=one["spec"])
            elif one["kind"] in ("Deployment", "StatefulSet", "Job"):
                template = one["spec"]["template"]
                yield Pod(source=source, metadata=template["metadata"], spec=template["spec"])
        for template in self.pod_templates():
            yield Pod(
                source=f"PodTemplate/{template['metadata']['name']}",
                metadata=template["template"]["metadata"],
                spec=template["template"]["spec"],
            )

    def pod(self, component: str) -> Pod:
        """Return the one pod of a component."""
        (found,) = [one for one in self.pods() if one.component == component]
        return found

    def pod_templates(self) -> list[Json]:
        """Return the templates of builds that ConfigMaps hold."""
        return [
            yaml.load(one["data"]["pod-template.yaml"], Loader=yaml.CSafeLoader)
            for one in self.of("ConfigMap")
            if "pod-template.yaml" in one["data"]
        ]


def values_of(name: str) -> Json:
    """Return a value set."""
    found: Json = yaml.safe_load((VALUES / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


@cache
def chart() -> helm.Chart:
    """Return the loaded chart."""
    return helm.Chart.load(CHART)


@cache
def parent_chart() -> helm.Chart:
    """Return a chart that depends on it."""
    with tempfile.TemporaryDirectory() as folder:
        parent = Path(folder) / "platform"
        shutil.copytree(CHART, parent / "charts" / "myria")
        (parent / "Chart.yaml").write_text(
            "apiVersion: v2\nname: platform\nversion: 1.0.0\n"
            "dependencies:\n  - {name: myria, version: 0.1.0, condition: myria.enabled}\n",
            encoding="utf-8",
        )
        return helm.Chart.load(parent)


@cache
def _rendered(name: str) -> Rendered:
    loaded = parent_chart() if name in AS_SUBCHART else chart()
    return Rendered(loaded.render(values_of(name), name=RELEASE, namespace=NAMESPACE))


def rendered(name: str) -> Rendered:
    """Return a value set rendered; do not change it."""
    return _rendered(name)


def render(values: Mapping[str, Any] | None = None, **options: Any) -> Rendered:
    """Return values rendered.

    Raises:
        helm_python.HelmError: they are refused.
    """
    given: Json = {"name": RELEASE, "namespace": NAMESPACE, **options}
    return Rendered(chart().render(copy.deepcopy(dict(values or {})), **given))


def dsn_of(pod: Pod, container: str, variable: str = VARIABLE) -> tuple[str, str] | None:
    """Return Secret and key of a container's connection string."""
    for one in pod.container(container).get("env", []):
        if one["name"] == variable:
            reference = one["valueFrom"]["secretKeyRef"]
            return reference["name"], reference["key"]
    return None


def environment(pod: Pod, container: str) -> dict[str, str]:
    """Return the plain variables of a container."""
    return {one["name"]: one["value"] for one in pod.container(container)["env"] if "value" in one}


def keys_read(pod: Pod) -> set[tuple[str, str]]:
    """Return every key of a Secret that a pod reads, through whatever."""
    found = set()
    for container in pod.containers:
        for one in container.get("env", []):
            if reference := (one.get("valueFrom") or {}).get("secretKeyRef"):
                found.add((reference["name"], reference["key"]))
    assert not any("secret" in volume for volume in pod.spec["volumes"])
    return found


def environment_of(container: Json) -> dict[str, str]:
    """Return a container's variables, those from Secrets with a text in their place."""
    return {one["name"]: one.get("value", "postgresql://a:b@c/d") for one in container.get("env", [])}
