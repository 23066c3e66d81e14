"""Plays the kubelet: runs the real commands of a namespace's Pods as local processes, and reports like a node.

It binds waiting pods to its node, resolves their environment (values, Secrets, ConfigMaps, the downward API), runs the
first container's command, and reports phase, conditions and container statuses. A deleted pod gets SIGTERM, after its
grace period SIGKILL, and goes away. `activeDeadlineSeconds`, exit statuses and bad images work as on a node.

What it does not play: images, volumes, probes, init containers, more than one container, restartPolicy other than
Never. ServiceAccount files lie in a folder of the pod (`SERVICE_ACCOUNT_FOLDER` in its environment) instead of under
/var/run, and KUBECONFIG names a file with the same token.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx

from tests.kubernetes.api import Api, ApiError, Json, insist, path
from tests.kubernetes.container_env import NODE, CannotStart, Sources, expand
from tests.kubernetes.control_plane import ControlPlane
from tests.support.guardian import started
from tests.support.processes import Guardian

logger = logging.getLogger(__name__)

BAD_IMAGE = "missing/"
"""Images whose name begins like this cannot be pulled."""
SERVICE_ACCOUNT_FOLDER = "SERVICE_ACCOUNT_FOLDER"

_EXIT_POLL_S = 0.01
_RETRY_S = 0.2
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH", "COVERAGE_PROCESS_START")


@dataclass(slots=True)
class RunningPod:
    """A pod whose command runs here, and what is to become of it."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    started: float
    """On the monotonic clock, in seconds."""
    verdict: Json = field(default_factory=dict)
    """Status fields that the end of the process is reported with, instead of what its exit status says."""
    reports: bool = True
    """False: nobody hears of it any more (its node is cut off)."""
    ended: bool = False
    reporting: threading.Lock = field(default_factory=threading.Lock)
    """Held while its state is reported, so that the start never comes after the end."""

    @property
    def pid(self) -> int:
        """The process id of its command."""
        return self.process.pid


class Kubelet:
    """The one node of a namespace, from `start()` to `stop()`.

    Args:
        control_plane: whose pods these are.
        namespace: whose pods it runs; another namespace has another kubelet.
        environment: added to every pod's environment where the pod has no such variable.
        slots: pods that run at once; more stay Pending, as on a full node.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        guardian: Guardian,
        namespace: str,
        *,
        environment: Mapping[str, str] | None = None,
        slots: int = 16,
    ) -> None:
        self.namespace = namespace
        self.environment = dict(environment or {})
        self.slots = slots
        self.accepts: Callable[[Json], bool] = lambda _pod: True
        """Tells whether a waiting pod may start; tests make pods wait with it (no node fits)."""
        self.rewrites: Callable[[Json, list[str]], list[str]] = lambda _pod, command: command
        """Returns the command to run instead; tests make pods fail with it."""
        self._control_plane = control_plane
        self._guardian = guardian
        self._api: Api = control_plane.api("admin-token")
        self._sources = Sources(self._api, namespace)
        self._folder = Path(tempfile.mkdtemp(prefix="myria-node-"))
        guardian.tell(f"folder {self._folder}")
        self._lock = threading.RLock()
        self._seen: dict[str, Json] = {}
        self._running: dict[str, RunningPod] = {}
        self._logs: dict[str, Path] = {}
        self._starting: set[str] = set()
        self._waiting: set[str] = set()
        self._done: set[str] = set()
        self._removed: set[str] = set()
        self._deadlines: dict[str, float] = {}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._watch, name=f"kubelet watch {namespace}", daemon=True),
            threading.Thread(target=self._tick, name=f"kubelet tick {namespace}", daemon=True),
        ]

    # What tests see and do.

    def start(self) -> Kubelet:
        """Begin to run pods."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """End without a word to the API server: processes are killed, pods stay as they were reported last."""
        self._stopping.set()
        self._threads[1].join(15)  # the watch ends by itself when its time is over
        with self._lock:
            for one in self._running.values():
                self._kill(one)
                one.process.wait()
        self._api.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def running(self) -> list[RunningPod]:
        """Return the pods whose command runs now, oldest first; cut-off ones included."""
        with self._lock:
            alive = [one for one in self._running.values() if one.process.poll() is None]
        return sorted(alive, key=lambda one: one.started)

    def log(self, name: str) -> str:
        """Return what a pod has printed, also after its end."""
        found = self._logs.get(name)
        return found.read_text(encoding="utf-8", errors="replace") if found is not None and found.exists() else ""

    def logs(self) -> Mapping[str, str]:
        """Return what all pods have printed, by name."""
        return {name: self.log(name) for name in sorted(self._logs)}

    def kill(self, name: str) -> None:
        """Kill a pod's process with SIGKILL, as when memory runs out: the pod fails with exit status 137."""
        with self._lock:
            self._kill(self._named(name))

    def evict(self, name: str) -> None:
        """Evict a pod for want of a node's resources: it is killed and fails with reason Evicted."""
        with self._lock:
            one = self._named(name)
            one.verdict = {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "The node was low on resource: memory.",
                "conditions": [_condition("DisruptionTarget", "True", "TerminationByKubelet")],
            }
            self._kill(one)

    def lose(self, name: str) -> None:
        """Lose the node under a pod: its process is gone, and the pod is removed by force, never reported ended."""
        with self._lock:
            one = self._named(name)
            one.reports = False
            self._kill(one)
        self._api.delete("Pod", name, self.namespace, grace_s=0, uid=one.uid)

    def cut_off(self, name: str) -> RunningPod:
        """Cut a pod's node off: the pod is removed by force while its process goes on, a zombie. Returns it."""
        with self._lock:
            one = self._named(name)
            one.reports = False
        self._api.delete("Pod", name, self.namespace, grace_s=0, uid=one.uid)
        return one

    # The node.

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                pods, version = self._api.resource_version("Pod", self.namespace)
                with self._lock:
                    self._seen = {pod["metadata"]["uid"]: pod for pod in pods}
                for kind, pod in self._api.watch("Pod", self.namespace, since=version, timeout_s=20):
                    if self._stopping.is_set():
                        return
                    if kind == "ERROR":
                        break
                    with self._lock:
                        if kind == "DELETED":
                            self._seen.pop(pod["metadata"]["uid"], None)
                        else:
                            self._seen[pod["metadata"]["uid"]] = pod
                    self._act()
            except (httpx.TransportError, ApiError, RuntimeError) as error:
                if not self._stopping.is_set():
                    logger.info("the kubelet of %s waits for the API server: %s", self.namespace, error)
                    self._stopping.wait(_RETRY_S)

    def _tick(self) -> None:
        while not self._stopping.wait(_EXIT_POLL_S):
            with self._lock:
                ended = [one for one in self._running.values() if one.process.poll() is not None]
                for one in ended:
                    del self._running[one.uid]
                    self._done.add(one.uid)
            for one in ended:
                self._in_background(self._report_end, one)
            self._act()

    def _act(self) -> None:
        """Bring what runs here in line with the pods as last seen."""
        with self._lock:
            for one in self._running.values():
                if one.uid not in self._seen and one.reports:  # removed by force: a kubelet kills at once as well
                    one.reports = False
                    self._kill(one)
            for uid, pod in self._seen.items():
                deleted = "deletionTimestamp" in pod["metadata"]
                if uid in self._running:
                    if self._running[uid].reports:  # a node that is cut off hears of nothing
                        self._end_when_told(self._running[uid], pod, deleted=deleted)
                elif uid in self._starting:
                    continue
                elif deleted and (uid not in self._done or _has_ended(pod)):
                    if uid not in self._removed:
                        self._removed.add(uid)
                        self._in_background(self._remove, pod)
                elif uid not in self._done and uid not in self._waiting and not _has_ended(pod):
                    self._take(uid, pod)

    def _take(self, uid: str, pod: Json) -> None:
        """Start a new pod, if it may; declare one dead that ran before this kubelet did."""
        if pod["status"].get("phase") == "Running":
            self._done.add(uid)
            self._in_background(self._report, pod["metadata"], _ended(pod["spec"]["containers"][0], -9, "", {}))
        elif len(self._running) + len(self._starting) < self.slots and self.accepts(pod):
            self._starting.add(uid)
            self._in_background(self._start, pod)

    def _in_background(self, call: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=call, args=arguments, daemon=True).start()

    def _end_when_told(self, one: RunningPod, pod: Json, *, deleted: bool) -> None:
        """Begin its end when it was deleted or its deadline passed; make an end when its grace period is over."""
        now = time.monotonic()
        limit = pod["spec"].get("activeDeadlineSeconds")
        if limit is not None and now - one.started > limit and not one.verdict:
            one.verdict = {
                "phase": "Failed",
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            }
            self._terminate(one, pod["spec"].get("terminationGracePeriodSeconds", 30))
        if deleted and one.uid not in self._deadlines:
            self._terminate(one, pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if now > self._deadlines.get(one.uid, float("inf")):
            self._kill(one)

    def _terminate(self, one: RunningPod, grace_s: float) -> None:
        self._deadlines[one.uid] = time.monotonic() + grace_s
        with contextlib.suppress(ProcessLookupError):
            one.process.send_signal(signal.SIGTERM)

    def _start(self, pod: Json) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        container = pod["spec"]["containers"][0]
        if not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            self._insist(lambda: self._api.request("POST", f"{path('Pod', name, self.namespace)}/binding", binding))
        if container["image"].startswith(BAD_IMAGE):
            self._wait(pod, "ImagePullBackOff", f'Back-off pulling image "{container["image"]}"')
            return
        try:
            one = self._launch(pod, container)
        except (CannotStart, ApiError, httpx.TransportError) as error:
            self._wait(pod, "CreateContainerConfigError", str(error))
            self._stopping.wait(1.0)
            with self._lock:  # a kubelet tries again: what is missing may have come
                self._waiting.discard(uid)
            return
        except OSError as error:
            with self._lock:
                self._starting.discard(uid)
                self._done.add(uid)
            self._report(pod["metadata"], _ended(container, 127, f"cannot run: {error}", {}))
            return
        with self._lock:
            self._running[uid] = one
            self._starting.discard(uid)
        now = _now()
        conditions = [_condition(kind, "True") for kind in ("PodScheduled", "Initialized", "Ready", "ContainersReady")]
        status = _container_status(container, {"running": {"startedAt": now}}, ready=True, began=True)
        with one.reporting:
            if one.ended:
                return
            self._report(
                pod["metadata"],
                {
                    "phase": "Running",
                    "startTime": now,
                    "hostIP": "127.0.0.1",
                    "podIP": "127.0.0.1",
                    "conditions": conditions,
                    "containerStatuses": [status],
                },
            )

    def _wait(self, pod: Json, reason: str, message: str) -> None:
        with self._lock:
            self._starting.discard(pod["metadata"]["uid"])
            self._waiting.add(pod["metadata"]["uid"])
        container = pod["spec"]["containers"][0]
        waiting = {"waiting": {"reason": reason, "message": message}}
        self._report(
            pod["metadata"],
            {
                "phase": "Pending",
                "conditions": [_condition("PodScheduled", "True"), _condition("Ready", "False", "ContainersNotReady")],
                "containerStatuses": [_container_status(container, waiting, ready=False, began=False)],
            },
        )

    def _launch(self, pod: Json, container: Json) -> RunningPod:
        metadata = pod["metadata"]
        folder = self._folder / metadata["uid"]
        folder.mkdir(exist_ok=True)  # it may have been tried before
        environment = self._resolve(pod, container, folder)
        command = [expand(part, environment) for part in [*container.get("command", []), *container.get("args", [])]]
        command = self.rewrites(pod, command)
        if not command:
            raise CannotStart("the container has no command, and there is no image to take one from")
        if re.fullmatch(r"(.*/)?python3?", command[0]):
            command[0] = sys.executable
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        self._guardian_tell(f"process {process.pid} {started(process.pid)}")
        self._logs[metadata["name"]] = log
        return RunningPod(
            namespace=self.namespace,
            name=metadata["name"],
            uid=metadata["uid"],
            labels=metadata.get("labels", {}),
            process=process,
            folder=folder,
            log=log,
            started=time.monotonic(),
        )

    def _resolve(self, pod: Json, container: Json, folder: Path) -> dict[str, str]:
        host, _, port = self._control_plane.url.removeprefix("https://").partition(":")
        account = folder / "serviceaccount"
        environment = {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "HOSTNAME": pod["metadata"]["name"],
            "PYTHONUNBUFFERED": "1",
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "KUBERNETES_SERVICE_PORT_HTTPS": port,
            **self.environment,
        }
        if pod["spec"].get("automountServiceAccountToken", True):
            account.mkdir(exist_ok=True)
            name = pod["spec"].get("serviceAccountName") or "default"
            try:
                token = self._control_plane.token(self.namespace, name)
            except ApiError as error:
                raise CannotStart(f'serviceaccount "{name}" not found: {error.message}') from None
            (account / "token").write_text(token, encoding="utf-8")
            (account / "ca.crt").write_bytes(self._control_plane.ca.read_bytes())
            (account / "namespace").write_text(self.namespace, encoding="utf-8")
            environment[SERVICE_ACCOUNT_FOLDER] = str(account)
            kubeconfig = self._control_plane.kubeconfig(folder / "kubeconfig", token, self.namespace)
            environment["KUBECONFIG"] = str(kubeconfig)
        return self._sources.resolve(pod, container, environment, address="127.0.0.1")

    def _report_end(self, one: RunningPod) -> None:
        with contextlib.suppress(ProcessLookupError):  # what the command left behind goes with its pod
            os.killpg(one.pid, signal.SIGKILL)
        self._guardian_tell(f"done {one.pid}")
        with one.reporting:
            one.ended = True
            with self._lock:
                pod = self._seen.get(one.uid)
            if not one.reports or pod is None:
                return
            self._report(pod["metadata"], _ended(pod["spec"]["containers"][0], one.process.returncode, "", one.verdict))

    def _report(self, metadata: Json, status: Json) -> None:
        body = {"metadata": {"uid": metadata["uid"]}, "status": status}
        self._insist(lambda: self._api.patch("Pod", metadata["name"], body, self.namespace, subresource="status"))

    def _remove(self, pod: Json) -> None:
        metadata = pod["metadata"]
        self._insist(lambda: self._api.delete("Pod", metadata["name"], self.namespace, grace_s=0, uid=metadata["uid"]))

    def _insist(self, call: Callable[[], object]) -> None:
        """Call until the API server has heard it."""
        insist(call, self._stopping)

    def _named(self, name: str) -> RunningPod:
        for one in self._running.values():
            if one.name == name:
                return one
        raise AssertionError(f"no pod {name} runs here; running: {[one.name for one in self._running.values()]}")

    def _kill(self, one: RunningPod) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)

    def _guardian_tell(self, line: str) -> None:
        with self._lock:
            self._guardian.tell(line)


def _has_ended(pod: Json) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def _ended(container: Json, exit_status: int, message: str, verdict: Json) -> Json:
    """Return the status of a pod whose command ended; a negative exit status is the signal that ended it."""
    code = 128 - exit_status if exit_status < 0 else exit_status
    terminated = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "finishedAt": _now(),
        **({"message": message} if message else {}),
    }
    conditions: Iterable[Json] = verdict.get("conditions", [])
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [_container_status(container, {"terminated": terminated}, ready=False, began=False)],
        **verdict,
        "conditions": [
            _condition("PodScheduled", "True"),
            _condition("Ready", "False", "PodCompleted" if code == 0 else "PodFailed"),
            *conditions,
        ],
    }


def _container_status(container: Json, state: Json, *, ready: bool, began: bool) -> Json:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": began,
        "restartCount": 0,
        "state": state,
    }


def _condition(kind: str, status: str, reason: str = "") -> Json:
    found = {"type": kind, "status": status, "lastTransitionTime": _now()}
    return {**found, "reason": reason} if reason else found


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
