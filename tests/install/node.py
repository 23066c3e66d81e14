"""Plays a whole node: runs pods as they really are in the API server, each container isolated, with real probes.

Pods come from whoever makes them: the controller-manager (Deployments, StatefulSets, Jobs) or Helm. The node binds
them and goes the kubelet's way: init containers in order, then containers, with command, args and environment resolved
(values, Secrets, ConfigMaps, the downward API), restarts as `restartPolicy` says, startup, liveness and readiness
probes over HTTP and TCP with their periods and thresholds, conditions and container statuses (so Endpoints follow), and
on deletion SIGTERM, the grace period, SIGKILL.

Nothing about a pod is rewritten. Each has a network namespace and an address (network.py), so all listen on the ports
they say; each container has a root file system of its own (container.py) with its volumes where it mounts them: Secret,
ConfigMap, emptyDir, and claims, whose folders outlive the pod. The token, the authority and the namespace of its
ServiceAccount lie where they always do. The container's security context is real: the image's user 10001 unless it
says otherwise, no capabilities, no way to gain any, a read-only root, fsGroup.

What stands in for the image is this Python environment and the project, read-only, with the image's variables; the
name of the image does not matter, except that `images` may lay further folders over it, for "another version".

An image whose name begins with `missing/` cannot be pulled.

What it does not play: resources, seccomp, lifecycle hooks, sidecars, volumes of other kinds, exec probes; a pod that
asks for one of the last four does not start, and says why. The back-off between restarts begins at half a second.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx

from tests.install.network import Network
from tests.kubernetes.api import Api, ApiError, Json, insist, path
from tests.kubernetes.certificates import IN_CLUSTER
from tests.kubernetes.container_env import NODE, CannotStart, Sources, expand
from tests.kubernetes.control_plane import ROOT, ControlPlane
from tests.kubernetes.kubelet import BAD_IMAGE
from tests.support.guardian import started
from tests.support.processes import Guardian

logger = logging.getLogger(__name__)

IMAGE_USER = 10001
IMAGE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    "USER": "myria",
    "HOME": "/tmp",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""As in the Dockerfile, but for where the programs are."""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TICK_S = 0.05
_RETRY_S = 0.3
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 10.0

Mount = tuple[str, str, bool]


class Node:
    """The one node of a namespace, from `start()` to `close()`.

    `images`: folders to lay over the image, by the image's name: `{"myria:next": [(folder, where)]}`.
    """

    def __init__(self, control_plane: ControlPlane, guardian: Guardian, namespace: str) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        self.images: dict[str, list[tuple[Path, Path]]] = {}
        self.api: Api = control_plane.api("admin-token")
        self.sources = Sources(self.api, namespace)
        self.stopping = threading.Event()
        self._guardian = guardian
        self._telling = threading.Lock()
        self.folder = Path(tempfile.mkdtemp(prefix="myria-node-"))
        self.folder.chmod(0o755)
        guardian.tell(f"folder {self.folder}")
        host, _, port = control_plane.url.removeprefix("https://").partition(":")
        self.network = Network(self.api, namespace, self.folder / "hosts", (host, int(port)))
        self.pods: dict[str, Pod] = {}
        """Every pod that came here, by uid, oldest first; those that have gone too."""
        self._watching = threading.Thread(target=self._watch, name=f"node {namespace}", daemon=True)

    def start(self) -> Node:
        """Begin to run pods."""
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        if self.api.find("Node", NODE) is None:  # without it the garbage collector of pods takes them after 40 s
            self.api.create(manifest)
        self._watching.start()
        return self

    def close(self) -> None:
        """End without a word to the API server: processes are killed."""
        self.stopping.set()
        for one in list(self.pods.values()):
            one.thread.join(15)
        self.network.close()
        self.api.close()  # the watch ends by itself when its time is over
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self) -> Iterator[tuple[str, str]]:
        """Yield the names of pods and what their containers have printed."""
        for one in list(self.pods.values()):
            yield one.name, one.log()

    def log(self, name: str) -> str:
        """Return what the containers of a pod have printed, one after the other; also after its end."""
        return "".join(text for found, text in self.logs() if found == name)

    def living(self) -> list[Pod]:
        """Return the pods of which something runs."""
        return [one for one in list(self.pods.values()) if any(each.runs for each in one.containers)]

    def tell(self, line: str) -> None:
        """Tell the guardian."""
        with self._telling:
            self._guardian.tell(line)

    def insist(self, call: Callable[[], object]) -> None:
        """Call until the API server has heard it."""
        insist(call, self.stopping)

    def claim(self, name: str) -> Path:
        """Return the folder of a claim; it is made on first use, and stays as long as the node."""
        found = self.api.find("PersistentVolumeClaim", name, self.namespace)
        if found is None:
            raise CannotStart(f'persistentvolumeclaim "{name}" not found')
        folder = self.folder / "claims" / str(found["metadata"]["uid"])
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o755)
        if found.get("status", {}).get("phase") != "Bound":
            status = {"phase": "Bound", "accessModes": found["spec"]["accessModes"]}
            self.insist(
                lambda: self.api.patch(
                    "PersistentVolumeClaim", name, {"status": status}, self.namespace, subresource="status"
                )
            )
        return folder

    def _watch(self) -> None:
        while not self.stopping.is_set():
            try:
                pods, version = self.api.resource_version("Pod", self.namespace)
                present = {pod["metadata"]["uid"] for pod in pods}
                for uid, one in list(self.pods.items()):
                    if uid not in present:
                        one.gone = True
                for pod in pods:
                    self._see(pod)
                for kind, pod in self.api.watch("Pod", self.namespace, since=version, timeout_s=20):
                    if self.stopping.is_set():
                        return
                    if kind == "ERROR":
                        break
                    if kind == "DELETED":
                        if pod["metadata"]["uid"] in self.pods:
                            self.pods[pod["metadata"]["uid"]].gone = True
                    else:
                        self._see(pod)
            except (httpx.TransportError, ApiError, RuntimeError) as error:
                if not self.stopping.is_set():
                    logger.info("the node of %s waits for the API server: %s", self.namespace, error)
                    self.stopping.wait(_RETRY_S)

    def _see(self, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self.pods:
            self.pods[uid].manifest = pod
        else:
            one = self.pods[uid] = Pod(self, pod)
            one.thread.start()


class Pod:
    """A pod and the thread that lives its life; `manifest` is what the API server said last."""

    def __init__(self, node: Node, manifest: Json) -> None:
        self.node = node
        self.manifest = manifest
        self.spec: Json = manifest["spec"]
        self.name: str = manifest["metadata"]["name"]
        self.uid: str = manifest["metadata"]["uid"]
        self.labels: Mapping[str, str] = manifest["metadata"].get("labels", {})
        self.gone = False
        self.address = ""
        self.network = -1
        self.folder = node.folder / self.uid
        self.init = [Container(self, one) for one in self.spec.get("initContainers", [])]
        self.main = [Container(self, one) for one in self.spec["containers"]]
        self._reported: Json = {}
        self._start_time = _now()
        self._transitions: dict[str, tuple[str, str]] = {}
        self.thread = threading.Thread(target=self._live, name=f"pod {self.name}", daemon=True)

    @property
    def component(self) -> str:
        """What it is for."""
        return self.labels.get("app.kubernetes.io/component", "")

    @property
    def containers(self) -> list[Container]:
        """Its containers, in the order of their start."""
        return [*self.init, *self.main]

    @property
    def ready(self) -> bool:
        """Whether all containers are ready, as reported last."""
        return any(one["type"] == "Ready" and one["status"] == "True" for one in self._reported.get("conditions", []))

    @property
    def deleted(self) -> bool:
        """Whether its end was asked for."""
        return self.gone or "deletionTimestamp" in self.manifest["metadata"]

    def log(self) -> str:
        """Return what its containers have printed."""
        return "".join(one.log for one in self.containers)

    def _live(self) -> None:
        metadata = self.manifest["metadata"]
        if self.manifest["status"].get("phase") in ("Succeeded", "Failed"):
            if self.deleted:
                self._remove()
            return
        self.folder.mkdir()
        self.folder.chmod(0o755)
        if not self.spec.get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name}, "target": target}
            where = f"{path('Pod', self.name, metadata['namespace'])}/binding"
            self.node.insist(lambda: self.node.api.request("POST", where, binding))
        self.network, self.address = self.node.network.pod()
        try:
            phase = self._run()
            self._end_containers()
            if phase and not self.node.stopping.is_set():
                self._report(phase)
            while not self.deleted and not self.node.stopping.wait(_TICK_S):
                pass
            if not self.node.stopping.is_set() and not self.gone:
                self._remove()
        finally:
            for one in self.containers:
                one.kill()
            with contextlib.suppress(ValueError):
                self.node.network.forget(self.network)

    def _run(self) -> str:
        """Run everything until the pod is over; return its phase, empty when nobody will hear it."""
        for one in self.init:
            while not one.succeeded:
                if self._over():
                    return "Failed"
                self._start(one)
                self._report("Pending")
                while one.runs and not self._over():
                    self._pause()
                if one.ended and not one.succeeded and self.spec["restartPolicy"] == "Never":
                    return "Failed"
        while True:
            for one in self.main:
                if one.due(self.spec["restartPolicy"]):
                    self._start(one)
            if all(one.final(self.spec["restartPolicy"]) for one in self.main):
                return "Succeeded" if all(one.succeeded for one in self.main) else "Failed"
            if self._over():
                return "Failed"
            self._report("Running" if all(one.begun for one in self.main) else "Pending")
            self._pause()

    def _over(self) -> bool:
        limit = self.spec.get("activeDeadlineSeconds")
        begun = min((one.first_start for one in self.containers if one.begun), default=time.monotonic())
        late = limit is not None and time.monotonic() - begun > limit
        return self.deleted or late or self.node.stopping.is_set()

    def _pause(self) -> None:
        self.node.stopping.wait(_TICK_S)

    def _start(self, one: Container) -> None:
        """Start a container that is due, once its back-off is over and all it needs is there."""
        while time.monotonic() < one.not_before:
            if self._over():
                return
            self._pause()
        image = one.spec["image"]
        if image.startswith(BAD_IMAGE):
            one.waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}"'}
            one.not_before = time.monotonic() + 1.0
            return
        try:
            one.start()
        except (CannotStart, ApiError, httpx.TransportError) as error:
            one.waiting = {"reason": "CreateContainerConfigError", "message": str(error)}
            one.not_before = time.monotonic() + 1.0  # a kubelet tries again: what is missing may have come

    def _end_containers(self) -> None:
        """End what still runs: SIGTERM, the grace period, SIGKILL; at once when the pod is gone already."""
        grace = self.manifest["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = self.spec.get("terminationGracePeriodSeconds", 30)
        for one in self.containers:
            one.terminate()
        deadline = time.monotonic() + grace
        while any(one.runs for one in self.containers) and time.monotonic() < deadline:
            if self.gone or self.node.stopping.is_set():
                break
            self._report("Running")
            self._pause()
        for one in self.containers:
            one.kill()

    def _remove(self) -> None:
        self.node.insist(lambda: self.node.api.delete("Pod", self.name, self.node.namespace, grace_s=0, uid=self.uid))

    def _report(self, phase: str) -> None:
        over = phase in ("Succeeded", "Failed")
        initialized = all(one.succeeded for one in self.init)
        ready = not over and initialized and all(one.ready for one in self.main)
        held = {
            "PodScheduled": True,
            "Initialized": initialized,
            "ContainersReady": ready,
            "Ready": ready,
        }
        conditions = []
        for kind, holds in held.items():
            value = "True" if holds else "False"
            if self._transitions.get(kind, ("", ""))[0] != value:
                self._transitions[kind] = (value, _now())
            conditions.append({"type": kind, "status": value, "lastTransitionTime": self._transitions[kind][1]})
        status: Json = {
            "phase": phase,
            "startTime": self._start_time,
            "hostIP": "10.44.0.1",
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": conditions,
            "initContainerStatuses": [one.status() for one in self.init],
            "containerStatuses": [one.status() for one in self.main],
        }
        if status == self._reported:
            return
        body = {"metadata": {"uid": self.uid}, "status": status}
        self.node.insist(lambda: self.node.api.patch("Pod", self.name, body, self.node.namespace, subresource="status"))
        self._reported = status


class Container:
    """One container of a pod: its process, its restarts, and what its probes say."""

    def __init__(self, pod: Pod, spec: Json) -> None:
        self._pod = pod
        self.spec = spec
        self.name: str = spec["name"]
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = -1
        self.waiting: Json = {"reason": "PodInitializing"}
        self.not_before = 0.0
        self.first_start = float("inf")
        self._log = pod.folder / f"{self.name}.log"
        self._started_at = ""
        self._finished_at = ""
        self._probes: Probes | None = None
        self._reaped = False

    @property
    def begun(self) -> bool:
        """Whether it was ever started."""
        return self.process is not None

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        if self.process is None:
            return False
        running = self.process.poll() is None
        if not running and not self._reaped:
            self._reap()
        return running

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self.process is not None and not self.runs

    @property
    def succeeded(self) -> bool:
        """Whether its process has ended well."""
        return self.ended and self.process is not None and self.process.returncode == 0

    @property
    def ready(self) -> bool:
        """Whether it runs, and its readiness probe agrees."""
        return self.runs and self._probes is not None and self._probes.ready

    @property
    def log(self) -> str:
        """What it has printed, over all restarts."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def final(self, policy: str) -> bool:
        """Return whether it has ended and will not be restarted."""
        return self.ended and (policy == "Never" or (policy == "OnFailure" and self.succeeded))

    def due(self, policy: str) -> bool:
        """Return whether it should be started now."""
        return not self.runs and not self.final(policy) and time.monotonic() >= self.not_before

    def start(self) -> None:
        """Start it.

        Raises:
            CannotStart: something that it asks for is not there, or not played.
        """
        pod, node = self._pod, self._pod.node
        refused = self.spec.keys() & {"lifecycle", "volumeDevices"}
        if refused:
            raise CannotStart(f"{', '.join(sorted(refused))} is not played here")
        context = {**pod.spec.get("securityContext", {}), **self.spec.get("securityContext", {})}
        user = context.get("runAsUser", IMAGE_USER)
        if context.get("runAsNonRoot") and user == 0:
            raise CannotStart("container has runAsNonRoot and image will run as root")
        fs_group = context.get("fsGroup")
        given = {
            **IMAGE_ENVIRONMENT,
            "HOSTNAME": pod.name,
            "KUBERNETES_SERVICE_HOST": IN_CLUSTER,
            "KUBERNETES_SERVICE_PORT": "443",
            "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        }
        environment = node.sources.resolve(pod.manifest, self.spec, given, address=pod.address)
        command = [
            expand(part, environment) for part in [*self.spec.get("command", ["myria"]), *self.spec.get("args", [])]
        ]
        root = pod.folder / f"{self.name}.root"
        root.mkdir(exist_ok=True)
        specification = {
            "root": str(root),
            "mounts": [*self._mounts(fs_group), *self._image()],
            "command": command,
            "environment": environment,
            "folder": self.spec.get("workingDir", "/tmp"),
            "user": user,
            "group": context.get("runAsGroup", IMAGE_USER if user == IMAGE_USER else 0),
            "groups": [*context.get("supplementalGroups", []), *([fs_group] if fs_group is not None else [])],
            "read_only": bool(context.get("readOnlyRootFilesystem")),
            "hostname": pod.name[:63],
        }
        file = pod.folder / f"{self.name}.json"
        file.write_text(json.dumps(specification), encoding="utf-8")
        with self._log.open("ab") as output, node.network.inside(pod.network):
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("container.py")), str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={},
                start_new_session=True,
            )
        node.tell(f"process {self.process.pid} {started(self.process.pid)}")
        self.first_start = min(self.first_start, time.monotonic())
        self.restarts += 1
        self._started_at, self._reaped = _now(), False
        self._probes = Probes(self)
        self._probes.thread.start()

    def terminate(self) -> None:
        """Ask its process to end."""
        if self.runs and self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill its process and all it has started."""
        if self.process is not None:
            if self.runs:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def fail(self) -> None:
        """End it because of its startup or liveness probe, as on deletion; its end is seen by its pod."""
        grace = self._pod.spec.get("terminationGracePeriodSeconds", 30)
        self.terminate()
        deadline = time.monotonic() + grace
        while self.runs and time.monotonic() < deadline and not self._pod.node.stopping.wait(_TICK_S):
            pass
        self.kill()

    def probe(self, kind: str) -> bool | None:
        """Ask a probe once; None when it has none."""
        probe = self.spec.get(f"{kind}Probe")
        if probe is None:
            return None
        limit = float(probe.get("timeoutSeconds", 1))
        network, address = self._pod.node.network, self._pod.address
        try:
            if "httpGet" in probe:
                port = self._port(probe["httpGet"]["port"])
                connection = http.client.HTTPConnection(address, port, timeout=limit)
                connection.sock = network.connect(address, port, limit)
                with contextlib.closing(connection):
                    connection.request(
                        "GET", probe["httpGet"].get("path", "/"), headers={"User-Agent": "kube-probe/1.20"}
                    )
                    return 200 <= connection.getresponse().status < 400
            network.connect(address, self._port(probe["tcpSocket"]["port"]), limit).close()
        except (OSError, http.client.HTTPException):
            return False
        return True

    @property
    def stopping(self) -> threading.Event:
        """Set when the node ends."""
        return self._pod.node.stopping

    def status(self) -> Json:
        """Return its entry in the pod's status."""
        state: Json
        if self.process is None:
            state = {"waiting": self.waiting}
        elif self.runs:
            state = {"running": {"startedAt": self._started_at}}
        else:
            code = self.process.returncode if self.process.returncode >= 0 else 128 - self.process.returncode
            state = {
                "terminated": {
                    "exitCode": code,
                    "reason": "Completed" if code == 0 else "Error",
                    "startedAt": self._started_at,
                    "finishedAt": self._finished_at,
                    **({"message": self.log[-1500:]} if code else {}),
                }
            }
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": "",
            "ready": self.ready or (self.succeeded and self in self._pod.init),
            "started": self.runs and self._probes is not None and self._probes.started,
            "restartCount": max(0, self.restarts),
            "state": state,
        }

    def _reap(self) -> None:
        assert self.process is not None
        self._reaped, self._finished_at = True, _now()
        self._pod.node.tell(f"done {self.process.pid}")
        wait = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** max(0, self.restarts))
        self.not_before = time.monotonic() + wait

    def _port(self, named: str | int) -> int:
        if isinstance(named, int):
            return named
        return next(int(one["containerPort"]) for one in self.spec["ports"] if one.get("name") == named)

    def _image(self) -> Iterator[Mount]:
        shown: list[Path] = []
        for folder in (ROOT, Path(sys.base_prefix), Path(sys.prefix)):
            if not any(folder.is_relative_to(one) for one in (Path("/usr"), Path("/opt"), *shown)):
                shown.append(folder)
                yield str(folder), str(folder), True
        for folder, where in self._pod.node.images.get(self.spec["image"], []):
            yield str(folder), str(where), True

    def _mounts(self, fs_group: int | None) -> Iterator[Mount]:
        volumes = {one["name"]: one for one in self._pod.spec.get("volumes", [])}
        yield str(self._pod.node.network.hosts), "/etc/hosts", False
        for mount in sorted(self.spec.get("volumeMounts", []), key=lambda one: str(one["mountPath"])):
            folder = self._volume(volumes[mount["name"]], fs_group)
            yield str(folder / mount.get("subPath", "")), mount["mountPath"], mount.get("readOnly", False)
        if self._pod.spec.get("automountServiceAccountToken", True):
            yield str(self._account()), _ACCOUNT, True

    def _volume(self, volume: Json, fs_group: int | None) -> Path:
        folder: Path = self._pod.folder / "volumes" / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            folder.chmod(0o777)
        elif "persistentVolumeClaim" in volume:
            folder = self._pod.node.claim(volume["persistentVolumeClaim"]["claimName"])
        elif "configMap" in volume:
            self._write(folder, "ConfigMap", volume["configMap"]["name"], volume["configMap"])
        elif "secret" in volume:
            self._write(folder, "Secret", volume["secret"]["secretName"], volume["secret"])
        else:
            raise CannotStart(f"the volume {volume['name']} is of a kind that is not played here")
        if fs_group is not None and ("emptyDir" in volume or "persistentVolumeClaim" in volume):
            os.chown(folder, -1, fs_group)
            folder.chmod(folder.stat().st_mode & 0o777 | 0o2070)
        return folder

    def _write(self, folder: Path, kind: str, name: str, volume: Json) -> None:
        data = self._pod.node.sources.data(kind, name)
        if data is None:
            if volume.get("optional"):
                return
            raise CannotStart(f'{kind.lower()} "{name}" not found')
        wanted = (
            {one["key"]: one["path"] for one in volume["items"]} if "items" in volume else {key: key for key in data}
        )
        for key, where in wanted.items():
            if key not in data:
                raise CannotStart(f"{kind} {name} has no key {key}")
            (folder / where).write_text(data[key], encoding="utf-8")
            (folder / where).chmod(volume.get("defaultMode", 0o644))

    def _account(self) -> Path:
        folder: Path = self._pod.folder / "account"
        folder.mkdir(exist_ok=True)
        node, name = self._pod.node, self._pod.spec.get("serviceAccountName") or "default"
        try:
            token = node.control_plane.token(node.namespace, name)
        except ApiError as error:
            raise CannotStart(f'serviceaccount "{name}" not found: {error.message}') from None
        for key, value in (
            ("token", token),
            ("ca.crt", node.control_plane.ca.read_text(encoding="ascii")),
            ("namespace", node.namespace),
        ):
            (folder / key).write_text(value, encoding="utf-8")
        return folder


class Probes:
    """The probes of one run of a container, in a thread of their own."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self.started = "startupProbe" not in container.spec
        self.ready = self.started and "readinessProbe" not in container.spec
        self._counts: dict[str, int] = {}
        self._process = container.process
        self.thread = threading.Thread(target=self._ask, name=f"probes {container.name}", daemon=True)

    def _ask(self) -> None:
        container = self._container
        begun = time.monotonic()
        next_at = {
            kind: begun + container.spec[f"{kind}Probe"].get("initialDelaySeconds", 0)
            for kind in ("startup", "liveness", "readiness")
            if f"{kind}Probe" in container.spec
        }
        while container.process is self._process and container.runs and not container.stopping.wait(_TICK_S):
            for kind, at in next_at.items():
                if time.monotonic() < at or self.started == (kind == "startup"):
                    continue
                next_at[kind] = time.monotonic() + container.spec[f"{kind}Probe"].get("periodSeconds", 10)
                self._judge(kind, good=bool(container.probe(kind)))

    def _judge(self, kind: str, *, good: bool) -> None:
        probe = self._container.spec[f"{kind}Probe"]
        count = self._counts.get(kind, 0)
        count = max(1, count + 1) if good else min(-1, count - 1)
        self._counts[kind] = count
        if good and count >= probe.get("successThreshold", 1):
            if kind == "startup":
                self.started = True
                self.ready = "readinessProbe" not in self._container.spec
            elif kind == "readiness":
                self.ready = True
        elif not good and -count >= probe.get("failureThreshold", 3):
            if kind == "readiness":
                self.ready = False
            else:
                logger.info("%s: the %s probe has failed", self._container.name, kind)
                self._container.fail()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
