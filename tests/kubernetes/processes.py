"""Runs a node's containers as plain processes of this machine: quick, and without root.

Images and volumes are not played. The files of the ServiceAccount lie in a folder of the pod (`SERVICE_ACCOUNT_FOLDER`
in its environment) instead of under /var/run, and KUBECONFIG names a file with the same token.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from tests.kubernetes.node import Container, Node, Pod
from tests.support.counts import SOAK
from tests.support.forking import Forked

SERVICE_ACCOUNT_FOLDER = "SERVICE_ACCOUNT_FOLDER"

_KEPT = (
    "MYRIA_EMBEDDINGS_MODEL",
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "LD_LIBRARY_PATH",
    "COVERAGE_PROCESS_START",
)


class Processes:
    """The runtime of plain processes; every pod has the machine's own address."""

    host = "127.0.0.1"
    entrypoint: Sequence[str] = ()

    def __init__(self, node: Node) -> None:
        self._control_plane = node.control_plane
        self.api_server = node.control_plane.address

    def open(self, pod: Pod) -> str:
        """Return the machine's address."""
        return self.host

    def environment(self, pod: Pod) -> Mapping[str, str]:
        """Return what is kept of this process's environment, folders of the pod's own, and its access to the API."""
        environment = {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "HOME": str(pod.folder),
            "TMPDIR": str(pod.folder),
        }
        if account := pod.account():
            token = (account / "token").read_text(encoding="utf-8")
            kubeconfig = self._control_plane.kubeconfig(pod.folder / "kubeconfig", token, pod.node.namespace)
            environment |= {SERVICE_ACCOUNT_FOLDER: str(account), "KUBECONFIG": str(kubeconfig)}
        return environment

    def run(
        self, container: Container, command: Sequence[str], environment: Mapping[str, str], output: BinaryIO
    ) -> subprocess.Popen[bytes]:
        """Start the command in the pod's folder."""
        if command[0] == "myria" and "PYTHONPATH" not in environment and not SOAK:
            fork = Forked(command[1:], env=environment, cwd=container.pod.folder, output=output.fileno())
            return cast("subprocess.Popen[bytes]", fork)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=container.pod.folder,
            start_new_session=True,
        )

    def connect(self, pod: Pod, port: int, timeout_s: float) -> socket.socket:
        """Return a connection to the machine's own port."""
        return socket.create_connection((pod.address, port), timeout_s)

    def close(self, pod: Pod) -> None:
        """Do nothing: there is no sandbox."""

    def stop(self) -> None:
        """Do nothing: there is nothing to end."""
