"""Plays a node: takes a namespace's pods as they are in the API server, lives their lives, and reports them.

Pods come from whoever makes them: the controllers (Jobs, Deployments, StatefulSets), Helm, or a test. The node takes as
many as it has slots for, binds them, and goes the kubelet's way: init containers in order, then containers, with
command, args and environment resolved (values, Secrets, ConfigMaps, the downward API), restarts as `restartPolicy` says
with a back-off that begins at half a second, startup, liveness and readiness probes over HTTP and TCP, phases,
conditions and container statuses, `activeDeadlineSeconds`; on deletion SIGTERM, the grace period, SIGKILL. Tests refuse
pods, change their commands, kill and evict them, lose the node or cut it off.

In what a container runs is a Runtime's matter: a plain process (processes.py), or a process with a network, an address
and a root file system of its own (tests/install/isolation.py).

What it does not play: resources, seccomp, lifecycle hooks, sidecars, block devices, exec probes; a container that asks
for one of the last four does not start, and says why. An image whose name begins with `missing/` cannot be pulled.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, Self

import httpx

from tests.kubernetes.api import Api, ApiError, Json, insist, path
from tests.kubernetes.container_env import NODE, CannotStart, Sources, expand
from tests.kubernetes.control_plane import ControlPlane
from tests.support.guardian import started
from tests.support.processes import Guardian

logger = logging.getLogger(__name__)

BAD_IMAGE = "missing/"
"""Images whose name begins like this cannot be pulled."""
PROBES = ("startup", "liveness", "readiness")

_ADMIT_S = 0.02
_START_AGAIN_S = 1.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 0.5, 10.0
_NEVER = float("inf")
_TRUSTING = ssl._create_unverified_context()  # noqa: S323 - a kubelet trusts whoever answers its probes
_LOST, _CANNOT_RUN = -signal.SIGKILL, 127


class Runtime(Protocol):
    """Runs a node's containers: a sandbox for each pod, a process group for each start of a container."""

    host: str
    """The node's own address, as its pods see it."""
    api_server: tuple[str, int]
    """Where its pods find the API server."""
    entrypoint: Sequence[str]
    """The command of a container that names none."""

    def open(self, pod: Pod) -> str:
        """Make a pod's sandbox; return its address."""

    def environment(self, pod: Pod) -> Mapping[str, str]:
        """Return what every container of a pod has besides its own variables."""

    def run(
        self, container: Container, command: Sequence[str], environment: Mapping[str, str], output: BinaryIO
    ) -> subprocess.Popen[bytes]:
        """Start a container's process, first of a session of its own.

        Raises:
            CannotStart: something that the container asks for is not there, or not played.
            OSError: the command cannot be run.
        """

    def connect(self, pod: Pod, port: int, timeout_s: float) -> socket.socket:
        """Return a connection to a pod, as from the node."""

    def close(self, pod: Pod) -> None:
        """Take a pod's sandbox down."""

    def stop(self) -> None:
        """End with the node."""


class Node:
    """The one node of a namespace, from `start()` to `stop()`.

    Args:
        control_plane: whose pods these are.
        namespace: whose pods it runs; another namespace has another node.
        runtime: makes what its containers run in.
        environment: added to every pod's environment where the pod has no such variable.
        slots: pods that run at once; more stay Pending, as on a full node.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        guardian: Guardian,
        namespace: str,
        runtime: Callable[[Node], Runtime],
        *,
        environment: Mapping[str, str] | None = None,
        slots: int = 16,
    ) -> None:
        self.control_plane = control_plane
        self.namespace = namespace
        self.environment = dict(environment or {})
        self.slots = slots
        self.accepts: Callable[[Json], bool] = lambda _pod: True
        """Tells whether a waiting pod may start; tests make pods wait with it (no node fits)."""
        self.rewrites: Callable[[Json, list[str]], list[str]] = as_written
        """Returns the command to run instead; tests make pods fail with it."""
        self.pods: dict[str, Pod] = {}
        """Every pod that came here, by uid, oldest first; those that have gone too."""
        self.api: Api = control_plane.api("admin-token")
        self.sources = Sources(self.api, namespace)
        self.stopping = threading.Event()
        self.folder = Path(tempfile.mkdtemp(prefix="myria-node-"))
        self.folder.chmod(0o755)
        guardian.tell(f"folder {self.folder}")
        self.runtime = runtime(self)
        self._guardian = guardian
        self._lock = threading.Lock()
        self._taken: set[str] = set()
        self._watching = threading.Thread(target=self._watch, name=f"node {namespace}", daemon=True)

    # What tests see and do.

    def start(self) -> Self:
        """Begin to run pods."""
        self._watching.start()
        return self

    def stop(self) -> None:
        """End without a word to the API server: processes are killed, pods stay as they were reported last."""
        self.stopping.set()
        for pod in list(self.pods.values()):
            pod.changed.set()
            pod.thread.join(15)
        self.runtime.stop()
        self.api.close()  # the watch ends by itself when its time is over
        shutil.rmtree(self.folder, ignore_errors=True)

    def running(self) -> list[Pod]:
        """Return the pods of which something runs now, first started first; cut-off ones included."""
        return sorted((pod for pod in list(self.pods.values()) if pod.runs), key=lambda pod: pod.started)

    def logs(self) -> Mapping[str, str]:
        """Return what the containers of all pods have printed, one after the other, by the pods' names."""
        logs: dict[str, str] = {}
        for pod in list(self.pods.values()):
            logs[pod.name] = logs.get(pod.name, "") + "".join(each.log for each in pod.containers)
        return logs

    def log(self, name: str) -> str:
        """Return what a pod has printed, also after its end."""
        return self.logs().get(name, "")

    def kill(self, name: str) -> None:
        """Kill a pod's processes with SIGKILL, as when memory runs out: they end with exit status 137."""
        self._named(name).kill()

    def evict(self, name: str) -> None:
        """Evict a pod for want of a node's resources: it is killed and fails with reason Evicted."""
        pod = self._named(name)
        pod.verdict = {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", **_transition()}
            ],
        }
        pod.kill()

    def lose(self, name: str) -> None:
        """Lose the node under a pod: its processes are gone, and it is removed by force, never reported ended."""
        pod = self._named(name)
        pod.gone = True
        pod.kill()
        self.api.delete("Pod", name, self.namespace, grace_s=0, uid=pod.uid)

    def cut_off(self, name: str) -> Pod:
        """Cut a pod's node off: the pod is removed by force while its processes go on, zombies. Returns it."""
        pod = self._named(name)
        pod.is_cut_off = True
        self.api.delete("Pod", name, self.namespace, grace_s=0, uid=pod.uid)
        return pod

    def _named(self, name: str) -> Pod:
        running = self.running()
        for pod in running:
            if pod.name == name:
                return pod
        raise AssertionError(f"no pod {name} runs here; running: {[pod.name for pod in running]}")

    # What its pods use.

    def take(self, pod: Pod) -> bool:
        """Return whether a waiting pod may start now; it has a slot from then on, until it leaves."""
        with self._lock:
            if self.stopping.is_set() or len(self._taken) >= self.slots or not self.accepts(pod.manifest):
                return False
            self._taken.add(pod.uid)
            return True

    def leave(self, pod: Pod) -> None:
        """Free a pod's slot."""
        with self._lock:
            self._taken.discard(pod.uid)

    def tell(self, line: str) -> None:
        """Tell the guardian."""
        with self._lock:
            self._guardian.tell(line)

    def insist(self, call: Callable[[], object]) -> None:
        """Call until the API server has heard it."""
        insist(call, self.stopping)

    def _watch(self) -> None:
        for event, manifests in self.api.follow("Pod", self.namespace, self.stopping):
            if event == "LISTED":
                for uid in self.pods.keys() - {manifest["metadata"]["uid"] for manifest in manifests}:
                    self.pods[uid].see(None)
            for manifest in manifests:
                self._see(manifest, deleted=event == "DELETED")

    def _see(self, manifest: Json, *, deleted: bool = False) -> None:
        uid = manifest["metadata"]["uid"]
        if uid in self.pods:
            self.pods[uid].see(None if deleted else manifest)
        elif not deleted:
            pod = Pod(self, manifest)
            pod.thread.start()
            self.pods[uid] = pod


class _NodeStops(Exception):
    """The node ends, and its pods with it."""


class Pod:
    """A pod and the thread that lives its life; `manifest` is what the API server said last."""

    def __init__(self, node: Node, manifest: Json) -> None:
        self.node = node
        self.manifest = manifest
        self.spec: Json = manifest["spec"]
        self.name: str = manifest["metadata"]["name"]
        self.uid: str = manifest["metadata"]["uid"]
        self.labels: Mapping[str, str] = manifest["metadata"].get("labels", {})
        self.folder: Path = node.folder / self.uid
        self.address = ""
        self.init = [Container(self, each) for each in self.spec.get("initContainers", [])]
        self.main = [Container(self, each) for each in self.spec["containers"]]
        self.verdict: Json = {}
        """Status fields that its end is reported with, instead of what its containers say; once set, it ends."""
        self.gone = False
        """The API server has it no more, or soon: nothing is reported, and what runs is killed at once."""
        self.is_cut_off = False
        """Nothing is heard and nothing reported any more; what runs goes on."""
        self.changed = threading.Event()
        """Set when its thread has something to look at."""
        self.thread = threading.Thread(target=self._live, name=f"pod {self.name}", daemon=True)
        self._policy: str = self.spec.get("restartPolicy", "Always")
        self._reported: Json = {}
        self._taken_at = 0.0
        self._start_time = ""
        self._transitions: dict[str, Json] = {}

    @property
    def component(self) -> str:
        """What it is for."""
        return self.labels.get("app.kubernetes.io/component", "")

    @property
    def containers(self) -> list[Container]:
        """Its containers, in the order of their start."""
        return [*self.init, *self.main]

    @property
    def runs(self) -> bool:
        """Whether a process of it runs."""
        return any(each.runs for each in self.containers)

    @property
    def started(self) -> float:
        """When its first container was started, on the monotonic clock, in seconds."""
        return min(each.first_start for each in self.containers)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of its only container."""
        (container,) = self.main
        assert container.process is not None
        return container.process

    @property
    def pid(self) -> int:
        """The process id, and the group's, of its only container."""
        return self.process.pid

    @property
    def ready(self) -> bool:
        """Whether all containers are ready, as reported last."""
        return any(
            each["type"] == "Ready" and each["status"] == "True" for each in self._reported.get("conditions", [])
        )

    @property
    def deleted(self) -> bool:
        """Whether its end was asked for."""
        return self.gone or "deletionTimestamp" in self.manifest["metadata"]

    def see(self, manifest: Json | None) -> None:
        """Take what the API server says of it now, None when it is gone."""
        if not self.is_cut_off:
            self.gone = self.gone or manifest is None
            self.manifest = manifest or self.manifest
            self.changed.set()

    def kill(self) -> None:
        """Kill what runs of it, and wait for its end."""
        for each in self.containers:
            each.kill()

    def account(self) -> Path | None:
        """Write the files of its ServiceAccount into a folder and return it; None when the pod asks for none.

        Raises:
            CannotStart: there is no such account.
        """
        if not self.spec.get("automountServiceAccountToken", True):
            return None
        control_plane, namespace = self.node.control_plane, self.node.namespace
        name = self.spec.get("serviceAccountName") or "default"
        folder = self.folder / "account"
        folder.mkdir(exist_ok=True)
        try:
            token = control_plane.token(namespace, name)
        except ApiError as error:
            raise CannotStart(f'serviceaccount "{name}" not found: {error.message}') from None
        authority = control_plane.ca.read_text(encoding="ascii")
        for key, value in {"token": token, "ca.crt": authority, "namespace": namespace}.items():
            (folder / key).write_text(value, encoding="utf-8")
        return folder

    # Its life.

    def _live(self) -> None:
        with contextlib.suppress(_NodeStops):
            if self.manifest["status"].get("phase") not in {"Succeeded", "Failed"} and self._is_taken():
                try:
                    self._run()
                    self._end_containers()
                finally:
                    self.kill()
                    self.node.runtime.close(self)
                    self.node.leave(self)
                self._report(over=True)
            while not self.deleted:
                self._pause()
            if not self.gone:
                self.node.insist(
                    lambda: self.node.api.delete("Pod", self.name, self.node.namespace, grace_s=0, uid=self.uid)
                )

    def _pause(self, until: float = _NEVER) -> None:
        """Return when something may have changed, at the latest at a time of the monotonic clock."""
        if not self.node.stopping.is_set():
            self.changed.wait(None if until == _NEVER else max(0.0, until - time.monotonic()))
            self.changed.clear()
        if self.node.stopping.is_set():
            raise _NodeStops

    def _is_taken(self) -> bool:
        """Wait until the node takes it; return False when it is deleted before."""
        while not self.deleted:
            if self.node.take(self):
                return True
            self._pause(time.monotonic() + _ADMIT_S)
        return False

    def _run(self) -> None:
        """Run its containers until the pod is over."""
        self._taken_at, self._start_time = time.monotonic(), _now()
        self.folder.mkdir()
        self.folder.chmod(0o755)
        if not self.spec.get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name}, "target": target}
            where = f"{path('Pod', self.name, self.node.namespace)}/binding"
            self.node.insist(lambda: self.node.api.request("POST", where, binding))
        self.address = self.node.runtime.open(self)
        if self.manifest["status"].get("phase") == "Running":  # on a node before this one: its processes are gone
            for each in self.main:
                each.exit_status = _LOST
        while not self._is_over():
            for each in self._current():
                if each.due_at(self._policy) <= time.monotonic():
                    each.start()
            self._report()
            self._pause(min(self._deadline(), *(each.due_at(self._policy) for each in self._current())))

    def _current(self) -> list[Container]:
        """Return the containers whose turn it is: an init container at a time, then all the others."""
        return next(([each] for each in self.init if not each.succeeded), self.main)

    def _deadline(self) -> float:
        limit = self.manifest["spec"].get("activeDeadlineSeconds")
        return _NEVER if limit is None else self._taken_at + float(limit)

    def _is_over(self) -> bool:
        if time.monotonic() >= self._deadline() and not self.verdict:
            self.verdict = {
                "phase": "Failed",
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            }
        return self.deleted or bool(self.verdict) or all(each.is_final(self._policy) for each in self._current())

    def _end_containers(self) -> None:
        """End what still runs: SIGTERM, the grace period, SIGKILL; at once when the pod is gone already."""
        asked_at = time.monotonic()
        for each in self.containers:
            each.terminate()
        while self.runs and not self.gone:
            grace = self.manifest["metadata"].get("deletionGracePeriodSeconds")
            limit = asked_at + (self.spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace)
            if time.monotonic() >= limit:
                break
            self._report()
            self._pause(limit)
        self.kill()

    def _report(self, *, over: bool = False) -> None:
        if over:
            phase = "Succeeded" if all(each.succeeded for each in self.main) else "Failed"
        else:
            phase = "Running" if all(each.begun for each in self.main) else "Pending"
        initialized = all(each.succeeded for each in self.init)
        ready = not over and initialized and all(each.ready for each in self.main)
        held = {"PodScheduled": True, "Initialized": initialized, "ContainersReady": ready, "Ready": ready}
        for kind, holds in held.items():
            value = "True" if holds else "False"
            if self._transitions.get(kind, {}).get("status") != value:
                self._transitions[kind] = {"type": kind, "status": value, **_transition()}
        verdict = self.verdict if over else {}
        status: Json = {
            "phase": phase,
            "startTime": self._start_time,
            "hostIP": self.node.runtime.host,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "initContainerStatuses": [each.status() for each in self.init],
            "containerStatuses": [each.status() for each in self.main],
            **verdict,
            "conditions": [*self._transitions.values(), *verdict.get("conditions", [])],
        }
        if status == self._reported or self.gone or self.is_cut_off:
            return
        body = {"metadata": {"uid": self.uid}, "status": status}
        self.node.insist(lambda: self.node.api.patch("Pod", self.name, body, self.node.namespace, subresource="status"))
        self._reported = status


class Container:
    """One container of a pod: its process, its restarts, and what its probes say."""

    def __init__(self, pod: Pod, spec: Json) -> None:
        self.pod = pod
        self.spec = spec
        self.name: str = spec["name"]
        self.process: subprocess.Popen[bytes] | None = None
        self.exit_status: int | None = None
        """How its last process ended; a negative one is the signal that ended it."""
        self.first_start = _NEVER
        """On the monotonic clock, in seconds."""
        self._waiting: Json = {"reason": "PodInitializing"}
        self._not_before = 0.0
        self._restarts = 0
        self._log = pod.folder / f"{self.name}.log"
        self._started_at = self._finished_at = _now()
        self._finished = threading.Event()
        self._probes: Probes | None = None

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.exit_status is None

    @property
    def begun(self) -> bool:
        """Whether it was ever started."""
        return self.runs or self.exit_status is not None

    @property
    def succeeded(self) -> bool:
        """Whether its process has ended well."""
        return self.exit_status == 0

    @property
    def ready(self) -> bool:
        """Whether it runs, and its readiness probe agrees."""
        return self.runs and self._probes is not None and self._probes.ready

    @property
    def log(self) -> str:
        """What it has printed, over all restarts."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def is_final(self, policy: str) -> bool:
        """Return whether it has ended and will not be restarted."""
        again = not self.succeeded if self in self.pod.init or policy == "OnFailure" else True
        return self.exit_status is not None and (policy == "Never" or not again)

    def due_at(self, policy: str) -> float:
        """Return when it should be started, on the monotonic clock."""
        return _NEVER if self.runs or self.is_final(policy) else self._not_before

    def start(self) -> None:
        """Start it, or say in its status why it waits."""
        node = self.pod.node
        if self.spec["image"].startswith(BAD_IMAGE):
            self._wait("ImagePullBackOff", f'Back-off pulling image "{self.spec["image"]}"')
            return
        try:
            process = self._run()
        except (CannotStart, ApiError, httpx.TransportError) as error:
            self._wait("CreateContainerConfigError", str(error))
            return
        except OSError as error:
            self._log.write_text(f"cannot run: {error}\n", encoding="utf-8")
            self._begin()
            self._end(_CANNOT_RUN)
            return
        self._begin()
        self.process, self.exit_status = process, None
        node.tell(f"process {process.pid} {started(process.pid)}")
        self._probes = Probes(self, self._finished)
        threading.Thread(target=self._await_end, args=(process,), name=f"end of {self.name}", daemon=True).start()

    def terminate(self) -> None:
        """Ask its process to end."""
        if self.runs and self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill its process and all it has started, and wait for its end."""
        if self.runs and self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._finished.wait()

    def fail(self) -> None:
        """End it because of its startup or liveness probe, as on deletion; its end is seen by its pod."""
        self.terminate()
        self._finished.wait(self.pod.spec.get("terminationGracePeriodSeconds", 30))
        self.kill()

    def probe(self, kind: str) -> bool:
        """Ask a probe once."""
        probe = self.spec[f"{kind}Probe"]
        asked = probe.get("httpGet") or probe["tcpSocket"]
        port = asked["port"]
        if isinstance(port, str):
            port = next(int(each["containerPort"]) for each in self.spec["ports"] if each.get("name") == port)
        limit = float(probe.get("timeoutSeconds", 1))
        try:
            with contextlib.closing(self.pod.node.runtime.connect(self.pod, port, limit)) as connected:
                if "httpGet" in probe:
                    connection = http.client.HTTPConnection(self.pod.address, port, timeout=limit)
                    connection.sock = _TRUSTING.wrap_socket(connected) if asked.get("scheme") == "HTTPS" else connected
                    with contextlib.closing(connection):
                        connection.request("GET", asked.get("path", "/"), headers={"User-Agent": "kube-probe/1.20"})
                        return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False
        return True

    def status(self) -> Json:
        """Return its entry in the pod's status."""
        state: Json = {"waiting": self._waiting}
        if self.runs:
            state = {"running": {"startedAt": self._started_at}}
        elif self.exit_status is not None:
            code = self.exit_status if self.exit_status >= 0 else 128 - self.exit_status
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
            "ready": self.ready or (self.succeeded and self in self.pod.init),
            "started": self.runs and self._probes is not None and self._probes.started,
            "restartCount": self._restarts,
            "state": state,
        }

    def _run(self) -> subprocess.Popen[bytes]:
        pod, runtime = self.pod, self.pod.node.runtime
        refused = self.spec.keys() & {"lifecycle", "volumeDevices", "restartPolicy"}
        refused |= {f"{kind}Probe" for kind in PROBES if "exec" in self.spec.get(f"{kind}Probe", {})}
        if refused:
            raise CannotStart(f"{', '.join(sorted(refused))} is not played here")
        host, port = runtime.api_server
        given = {
            "HOSTNAME": pod.name,
            "PYTHONUNBUFFERED": "1",
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
            **runtime.environment(pod),
            **pod.node.environment,
        }
        environment = pod.node.sources.resolve(pod.manifest, self.spec, given, address=pod.address)
        parts = [*self.spec.get("command", runtime.entrypoint), *self.spec.get("args", [])]
        command = pod.node.rewrites(pod.manifest, [expand(part, environment) for part in parts])
        if not command:
            raise CannotStart("the container has no command, and there is no image to take one from")
        with self._log.open("ab") as output:
            return runtime.run(self, command, environment, output)

    def _wait(self, reason: str, message: str) -> None:
        """Wait a moment, as a kubelet does that tries again: what is missing may have come."""
        self._waiting = {"reason": reason, "message": message}
        self._not_before = time.monotonic() + _START_AGAIN_S

    def _begin(self) -> None:
        self._restarts += self.begun
        self.first_start = min(self.first_start, time.monotonic())
        self._started_at = _now()
        self._finished = threading.Event()

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ChildProcessError):  # until it is waited for, the group's id is nobody else's
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what the command left behind goes with it
        status = process.wait()
        self.pod.node.tell(f"done {process.pid}")
        self._end(status)

    def _end(self, status: int) -> None:
        self._finished_at = _now()
        self._not_before = time.monotonic() + min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2**self._restarts)
        self.exit_status = status
        self._finished.set()
        self.pod.changed.set()


class Probes:
    """The probes of one run of a container, in a thread of their own."""

    def __init__(self, container: Container, finished: threading.Event) -> None:
        self._container = container
        self._finished = finished
        self._probes: Mapping[str, Json] = {
            kind: container.spec[f"{kind}Probe"] for kind in PROBES if f"{kind}Probe" in container.spec
        }
        self.started = "startup" not in self._probes
        self.ready = self.started and "readiness" not in self._probes
        self._counts = dict.fromkeys(self._probes, 0)
        now = time.monotonic()
        self._next_at = {kind: now + probe.get("initialDelaySeconds", 0) for kind, probe in self._probes.items()}
        if self._probes:
            threading.Thread(target=self._ask, name=f"probes {container.name}", daemon=True).start()

    def _ask(self) -> None:
        while asked := [kind for kind in self._probes if (kind == "startup") != self.started]:
            kind = min(asked, key=lambda each: self._next_at[each])
            if self._finished.wait(max(0.0, self._next_at[kind] - time.monotonic())):
                return
            self._next_at[kind] = time.monotonic() + self._probes[kind].get("periodSeconds", 10)
            self._judge(kind, good=self._container.probe(kind))

    def _judge(self, kind: str, *, good: bool) -> None:
        probe, count = self._probes[kind], self._counts[kind]
        self._counts[kind] = count = max(1, count + 1) if good else min(-1, count - 1)
        if good and count >= probe.get("successThreshold", 1):
            if kind == "startup":
                self.started = True
                self.ready = "readiness" not in self._probes
            elif kind == "readiness":
                self.ready = True
        elif not good and -count >= probe.get("failureThreshold", 3):
            if kind == "readiness":
                self.ready = False
            else:
                logger.info("%s: the %s probe has failed", self._container.name, kind)
                self._container.fail()
        self._container.pod.changed.set()


def as_written(_pod: Json, command: list[str]) -> list[str]:
    """Return the pod's own command: what a node rewrites when nobody asks it to."""
    return command


def _transition() -> Json:
    return {"lastTransitionTime": _now()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
