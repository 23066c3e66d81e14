"""A real Kubernetes control plane on loopback: etcd, kube-apiserver and kube-controller-manager, without any node.

RBAC is on; people have tokens of a file, pods and the operator real tokens of their ServiceAccounts. It is Kubernetes
1.20 (scripts/build_control_plane.py) unless KUBEBUILDER_ASSETS names a newer one: what is newer than 1.20 is dropped
there, and checked elsewhere.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.kubernetes import manifests
from tests.kubernetes.api import Api, ApiError
from tests.kubernetes.certificates import write_certificates
from tests.support.place import fast_folder
from tests.support.processes import Guardian, Spawned, Spawner, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
ADMIN_TOKEN = "admin-token"
PEOPLE = {"anna": "edit", "vera": "view", "otto": None}
"""People by name, with the cluster's role they have in each test's namespace; the token is the name and `-token`."""

CEL_SINCE = 25
"""The first minor version that evaluates rules in CEL."""
_TTL_SINCE, _TTL_GATE = 23, "--feature-gates=TTLAfterFinished=true"

_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: None
    users: [system:apiserver, system:kube-controller-manager]
  - level: None
    nonResourceURLs: ["/readyz*", "/livez*", "/healthz*", "/version"]
  - level: RequestResponse
    verbs: [create, update, patch, delete]
    resources: [{group: myria.dev, resources: [myriarebuilds]}]
  - level: Metadata
"""


class NotBuilt(Exception):
    """There is no control plane on this machine; the message says what to do."""


def find_programs() -> Path:
    """Return the folder with the three programs.

    Raises:
        NotBuilt: they are not there, and nothing is built from here.
    """
    found = subprocess.run(
        [sys.executable, ROOT / "scripts/build_control_plane.py", "--find"], capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise NotBuilt(found.stderr.strip())
    return Path(found.stdout.strip())


def _minor_version(programs: Path) -> int:
    told = subprocess.run([programs / "kube-apiserver", "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"v1\.(\d+)", told)
    assert match is not None, told
    return int(match[1])


class ControlPlane:
    """Started by making it, stopped by `close()`; the data lies in memory where the machine has room for it.

    `url` and `ca` say how to reach it, `admin` is everybody's master. `api(token)` is any other identity.
    """

    def __init__(self, guardian: Guardian) -> None:
        self._programs = find_programs()
        self.minor = _minor_version(self._programs)
        """The version behind `1.`."""
        self._spawn = Spawner(guardian)
        self.folder = Path(tempfile.mkdtemp(prefix="myria-kube-", dir=fast_folder()))
        guardian.tell(f"folder {self.folder}")
        write_certificates(self.folder)
        self.ca = self.folder / "ca.crt"
        self.trust = ssl.create_default_context(cafile=str(self.ca))
        self.address = ("127.0.0.1", free_port())
        self.url = f"https://127.0.0.1:{self.address[1]}"
        self._write_configuration()
        self.admin = self.api(ADMIN_TOKEN)
        try:
            self._start_etcd()
            self.start_api_server()
            # The garbage collector looks for new kinds twice a minute: it should know ours from its start.
            self.install(manifests.definition())
            for role in manifests.people_roles():
                self.admin.apply(role)
            self._start_controllers()
        except BaseException:
            self.close()
            raise

    def api(self, token: str) -> Api:
        """Return the access of whoever has the token."""
        return Api(self.url, self.trust, token)

    def person(self, name: str) -> Api:
        """Return the access of one of `PEOPLE`."""
        return self.api(f"{name}-token")

    def token(self, namespace: str, account: str) -> str:
        """Return a new token of a ServiceAccount, good for the whole session."""
        answer = self.admin.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": [], "expirationSeconds": 86_400},
            },
        )
        token: str = answer["status"]["token"]
        return token

    def kubeconfig(self, path: Path, token: str, namespace: str = "default", *, url: str | None = None) -> Path:
        """Write a kubeconfig for the holder of the token; return its path. `url` puts a proxy in between."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
            "clusters": [
                {"name": "test", "cluster": {"server": url or self.url, "certificate-authority": str(self.ca)}}
            ],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        path.write_text(json.dumps(content), encoding="utf-8")
        path.chmod(0o600)
        return path

    def install(self, definition: Mapping[str, Any]) -> None:
        """Install or replace a CustomResourceDefinition (without rules in CEL where they are unknown); wait for it."""
        if self.minor < CEL_SINCE:
            definition = manifests.without_cel(definition)
        name = definition["metadata"]["name"]
        applied = self.admin.apply(definition)
        version = applied["metadata"]["generation"]

        def served() -> bool:
            try:
                found = self.admin.get("CustomResourceDefinition", name)
                conditions = {one["type"]: one["status"] for one in found["status"].get("conditions") or []}
                if found["metadata"]["generation"] < version or conditions.get("Established") != "True":
                    return False
                self.admin.request("GET", f"/apis/{definition['spec']['group']}/v1alpha1/myriarebuilds")
            except ApiError as error:
                if error.status != 404:
                    raise
                return False
            return True

        wait_until(served, 60, "the CustomResourceDefinition")

    def start_api_server(self) -> None:
        """Start the API server on the data there is, and wait until it is ready."""
        folder = self.folder
        self._api_server = self._run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd_url}",
            "--etcd-compaction-interval=0",
            "--enable-priority-and-fairness=false",  # it counts all the time, also while nobody asks
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.address[1]}",
            f"--tls-cert-file={folder / 'server.crt'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            f"--cert-dir={folder}",
            "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
            "--event-ttl=2h",
            f"--audit-policy-file={folder / 'audit-policy.yaml'}",
            f"--audit-log-path={folder / 'audit.log'}",
            *([_TTL_GATE] if self.minor < _TTL_SINCE else []),
        )
        self._wait_ready(self._api_server)
        if hasattr(self, "_controllers"):
            # They would come back by themselves, but after waits that grow with each restart.
            self._controllers.kill()
            self._start_controllers()

    def stop_api_server(self) -> None:
        """Kill the API server (on SIGTERM it would wait for open watches); its data stay."""
        self._api_server.kill()

    def restart_api_server(self, away_s: float = 0.0) -> None:
        """Take the API server away for a while, then start it on the same data."""
        self.stop_api_server()
        time.sleep(away_s)
        self.start_api_server()

    def freeze_api_server(self) -> None:
        """Make the API server silent: connections stay open, and nothing answers until `thaw_api_server()`."""
        self._api_server.signal(signal.SIGSTOP)

    def thaw_api_server(self) -> None:
        """Let a silent API server go on."""
        self._api_server.signal(signal.SIGCONT)

    def audit(self, since: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return the requests that ended after position `since` in the audit log, and the position to go on from.

        Each has `verb`, `user`, `objectRef`, `responseStatus`, `requestReceivedTimestamp`; controllers are left out.
        """
        with (self.folder / "audit.log").open("rb") as log:
            log.seek(since)
            read = log.read()
        complete = read[: read.rfind(b"\n") + 1]
        return [json.loads(line) for line in complete.splitlines()], since + len(complete)

    def close(self) -> None:
        """Kill everything and forget the data."""
        self.admin.close()
        for process in self._processes():
            process.kill()
        self._spawn.end_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> Iterator[Spawned]:
        for name in ("_controllers", "_api_server", "_etcd"):
            if (process := getattr(self, name, None)) is not None:
                yield process

    def _write_configuration(self) -> None:
        people = [f'{ADMIN_TOKEN},admin,admin,"system:masters"']
        people += ['controllers-token,system:kube-controller-manager,controllers,"system:masters"']
        people += [f"{name}-token,{name},{name}" for name in PEOPLE]
        (self.folder / "tokens.csv").write_text("\n".join(people) + "\n", encoding="utf-8")
        (self.folder / "audit-policy.yaml").write_text(_AUDIT_POLICY, encoding="utf-8")

    def _run(self, program: str, *arguments: str) -> Spawned:
        """Start one of the programs, which may take memory instead of collecting it again and again."""
        return self._spawn(self._programs / program, *arguments, cwd=self.folder, env={"GOGC": "400"})

    def _start_etcd(self) -> None:
        self._etcd_url, peers = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        self._etcd = self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--log-level=error",
        )

    def _start_controllers(self) -> None:
        kubeconfig = self.kubeconfig(self.folder / "controllers.kubeconfig", "controllers-token")
        self._controllers = self._run(
            "kube-controller-manager",
            f"--kubeconfig={kubeconfig}",
            # Not podgc: the tests' nodes are no objects, and it would take their pods away every minute.
            "--controllers=job,deployment,replicaset,statefulset,endpoint,ttl-after-finished,garbagecollector,namespace,"
            "clusterrole-aggregation",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            *([_TTL_GATE, "--port=0"] if self.minor < _TTL_SINCE else []),
            f"--cert-dir={self.folder}",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            "--concurrent-namespace-syncs=4",
        )

    def _wait_ready(self, process: Spawned) -> None:
        def ready() -> bool:
            if process.process.poll() is not None:
                raise AssertionError(f"kube-apiserver ended:\n{process.output()[-3000:]}")
            return self.admin.ready()

        wait_until(ready, 180, "the API server")
