"""Runs a node's containers isolated, each as on a cluster: with a network, a root file system and a user of its own.

Nothing about a pod is rewritten. Each has a network namespace and an address (network.py), so all listen on the ports
they say; each container has a root file system of its own (container.py) with its volumes where it mounts them: Secret,
ConfigMap, emptyDir, and claims, whose folders outlive the pod; a volume of another kind is refused. The token, the
authority and the namespace of its ServiceAccount lie where they always do. The container's security context is real:
the image's user 10001 unless it says otherwise, no capabilities, no way to gain any, a read-only root, fsGroup.

What stands in for the image is this Python environment and the project, read-only, with the image's variables; the
name of the image does not matter, except that `images` may lay further folders over it, for "another version".
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

from tests.install.container import enter_as_fork
from tests.install.network import GATEWAY, Network
from tests.kubernetes.api import Json
from tests.kubernetes.certificates import IN_CLUSTER
from tests.kubernetes.container_env import CannotStart
from tests.kubernetes.control_plane import ROOT, ControlPlane
from tests.kubernetes.node import Container, Node, Pod
from tests.support.counts import SOAK
from tests.support.forking import Forked
from tests.support.processes import Guardian

IMAGE_USER = 10001
IMAGE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    "USER": "myria",
    "HOME": "/tmp",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MYRIA_EMBEDDINGS_MODEL": "off",
}
"""As in the Dockerfile, but for where the programs are, and without vectors."""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

Mount = tuple[str, str, bool]


class Isolated:
    """The runtime of isolated containers."""

    host = GATEWAY
    api_server = (IN_CLUSTER, 443)
    entrypoint: Sequence[str] = ("myria",)

    def __init__(self, node: Node) -> None:
        self._node = node
        self.images: dict[str, list[tuple[Path, Path]]] = {}
        """Folders to lay over the image, by the image's name: `{"myria:next": [(folder, where)]}`."""
        self.network = Network(node.api, node.namespace, node.folder / "hosts", node.control_plane.address)
        self.forks = not SOAK
        """Whether `myria` is forked, with all of it imported, instead of started from the image."""
        self._networks: dict[str, int] = {}

    def open(self, pod: Pod) -> str:
        """Make a pod's network; return its address."""
        self._networks[pod.uid], address = self.network.pod()
        return address

    def environment(self, pod: Pod) -> Mapping[str, str]:
        """Return the image's variables."""
        return IMAGE_ENVIRONMENT

    def run(
        self, container: Container, command: Sequence[str], environment: Mapping[str, str], output: BinaryIO
    ) -> subprocess.Popen[bytes]:
        """Start the command as process 1 of its container."""
        pod = container.pod
        context = {**pod.spec.get("securityContext", {}), **container.spec.get("securityContext", {})}
        user = context.get("runAsUser", IMAGE_USER)
        if context.get("runAsNonRoot") and user == 0:
            raise CannotStart("container has runAsNonRoot and image will run as root")
        fs_group = context.get("fsGroup")
        root = pod.folder / f"{container.name}.root"
        root.mkdir(exist_ok=True)
        specification: dict[str, Any] = {
            "root": str(root),
            "mounts": [*self._mounts(container, fs_group), *self._image(container.spec["image"])],
            "command": command,
            "environment": environment,
            "folder": container.spec.get("workingDir", "/tmp"),
            "user": user,
            "group": context.get("runAsGroup", IMAGE_USER if user == IMAGE_USER else 0),
            "groups": [*context.get("supplementalGroups", []), *([fs_group] if fs_group is not None else [])],
            "read_only": bool(context.get("readOnlyRootFilesystem")),
            "hostname": pod.name[:63],
        }
        file = pod.folder / f"{container.name}.json"
        file.write_text(json.dumps(specification), encoding="utf-8")
        if self.forks and command[0] == "myria" and container.spec["image"] not in self.images:
            network = f"/proc/{os.getpid()}/fd/{self._networks[pod.uid]}"
            fork = Forked(
                command[1:],
                env=environment,
                cwd=Path(specification["folder"]),
                output=output.fileno(),
                enter=partial(enter_as_fork, file, network),
            )
            return cast("subprocess.Popen[bytes]", fork)
        with self.network.inside(self._networks[pod.uid]):
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("container.py")), str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={},
                start_new_session=True,
            )

    def connect(self, pod: Pod, port: int, timeout_s: float) -> socket.socket:
        """Return a connection to a pod's address."""
        return self.network.connect(pod.address, port, timeout_s)

    def close(self, pod: Pod) -> None:
        """Give up a pod's network."""
        with contextlib.suppress(KeyError):
            self.network.forget(self._networks.pop(pod.uid))

    def stop(self) -> None:
        """End all networks."""
        self.network.close()

    def _image(self, image: str) -> Iterator[Mount]:
        shown = [Path("/usr"), Path("/opt")]
        for folder in (ROOT, Path(sys.base_prefix), Path(sys.prefix)):
            if not any(folder.is_relative_to(other) for other in shown):
                shown.append(folder)
                yield str(folder), str(folder), True
        for folder, where in self.images.get(image, []):
            yield str(folder), str(where), True

    def _mounts(self, container: Container, fs_group: int | None) -> Iterator[Mount]:
        pod = container.pod
        volumes = {volume["name"]: volume for volume in pod.spec.get("volumes", [])}
        yield str(self.network.hosts), "/etc/hosts", False
        for mount in sorted(container.spec.get("volumeMounts", []), key=lambda mount: str(mount["mountPath"])):
            folder = self._volume(pod, volumes[mount["name"]], fs_group)
            yield str(folder / mount.get("subPath", "")), mount["mountPath"], mount.get("readOnly", False)
        if account := pod.account():
            yield str(account), _ACCOUNT, True

    def _volume(self, pod: Pod, volume: Json, fs_group: int | None) -> Path:
        folder: Path = pod.folder / "volumes" / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            folder.chmod(0o777)
        elif "persistentVolumeClaim" in volume:
            folder = self._claim(volume["persistentVolumeClaim"]["claimName"])
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

    def _claim(self, name: str) -> Path:
        """Return the folder of a claim; it is made on first use, and stays as long as the node."""
        node, kind = self._node, "PersistentVolumeClaim"
        claim = node.api.find(kind, name, node.namespace)
        if claim is None:
            raise CannotStart(f'persistentvolumeclaim "{name}" not found')
        folder = node.folder / "claims" / str(claim["metadata"]["uid"])
        if not folder.exists():
            folder.mkdir(parents=True)
            folder.chmod(0o755)
        if claim.get("status", {}).get("phase") != "Bound":
            status = {"phase": "Bound", "accessModes": claim["spec"]["accessModes"]}
            node.insist(lambda: node.api.patch(kind, name, {"status": status}, node.namespace, subresource="status"))
        return folder

    def _write(self, folder: Path, kind: str, name: str, volume: Json) -> None:
        data = self._node.sources.data(kind, name)
        if data is None:
            if volume.get("optional"):
                return
            raise CannotStart(f'{kind.lower()} "{name}" not found')
        items = {item["key"]: item["path"] for item in volume.get("items", [])}
        for key, where in (items or {key: key for key in data}).items():
            if key not in data:
                raise CannotStart(f"{kind} {name} has no key {key}")
            (folder / where).write_text(data[key], encoding="utf-8")
            (folder / where).chmod(volume.get("defaultMode", 0o644))


class IsolatedNode(Node):
    """A node whose containers are isolated."""

    runtime: Isolated

    def __init__(self, control_plane: ControlPlane, guardian: Guardian, namespace: str) -> None:
        super().__init__(control_plane, guardian, namespace, Isolated)
