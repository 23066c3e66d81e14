"""The tests' node itself: containers are as closed as on a cluster, and its pods live as a kubelet has them live."""

from __future__ import annotations

import textwrap
from typing import Any

from tests.install.isolation import IsolatedNode
from tests.kubernetes.api import Json, condition
from tests.kubernetes.node import Pod
from tests.kubernetes.place import Place
from tests.support.processes import wait_until

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
}

LOOK = """
import os, pathlib, socket
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print("user", os.getuid(), "process", os.getpid(), "capabilities", int(status["CapEff"], 16), int(status["CapBnd"], 16))
for name in ("/etc/own", "/own", "/tmp/own"):
    try:
        pathlib.Path(name).write_text("x")
        print("wrote", name)
    except OSError as error:
        print("cannot write", name, error.strerror)
print("others' files", os.path.exists("/root/.ssh"), os.path.exists("/home"))
print("word", os.environ["WORD"], pathlib.Path("/etc/words/word").read_text())
print("host", socket.gethostname(), "variables of the test", "PYTEST_CURRENT_TEST" in os.environ)
"""


def pod(name: str, *containers: Json, **spec: Any) -> Json:
    """Return a pod that is not restarted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": list(containers),
            **spec,
        },
    }


def python(name: str, program: str, **fields: Any) -> Json:
    """Return a container that runs a program."""
    return {"name": name, "image": "test", "command": ["python", "-c", textwrap.dedent(program)], **fields}


def phase(place: Place, name: str) -> str:
    """Return a pod's phase."""
    found: str = place.admin.get("Pod", name, place.name)["status"]["phase"]
    return found


def test_a_container_is_closed(place: Place, node: IsolatedNode) -> None:
    """It has its user, no capability, a read-only root, its own processes and volumes, and waits for its Secret."""
    container = python(
        "look",
        LOOK,
        securityContext=RESTRICTED,
        env=[{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "words", "key": "word"}}}],
        volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}, {"name": "words", "mountPath": "/etc/words"}],
    )
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "words", "secret": {"secretName": "words"}}]
    place.admin.create(pod("closed", container, volumes=volumes), place.name)

    def waits() -> bool:
        statuses = place.admin.get("Pod", "closed", place.name)["status"].get("containerStatuses") or [{}]
        return "CreateContainerConfigError" in str(statuses[0].get("state"))

    wait_until(waits, 10, "a pod that waits for its Secret")
    place.secret("words", {"word": "sesame"})
    wait_until(lambda: phase(place, "closed") == "Succeeded", 10, "the pod's end")
    assert node.log("closed").splitlines() == [
        "user 10001 process 1 capabilities 0 0",
        "cannot write /etc/own Read-only file system",
        "cannot write /own Read-only file system",
        "wrote /tmp/own",
        "others' files False False",
        "word sesame sesame",
        "host closed variables of the test False",
    ]


def test_probes_and_order_are_kept(place: Place, node: IsolatedNode) -> None:
    """Init containers end first; who is not ready gets no call; who fails its liveness is restarted."""
    served = """
    import http.server, pathlib
    work = pathlib.Path("/work")
    print("begun", (work / "first").exists(), flush=True)
    (work / "sick").unlink(missing_ok=True)
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            well = (work / "ready").exists() if self.path == "/ready" else not (work / "sick").exists()
            self.send_response(200 if well else 503)
            self.end_headers()
        def log_message(self, *_):
            pass
    http.server.HTTPServer(("", 8000), Answer).serve_forever()
    """
    mounts = [{"name": "work", "mountPath": "/work"}]
    live = {"httpGet": {"path": "/live", "port": 8000}, "periodSeconds": 1, "timeoutSeconds": 10}
    probes = {
        "startupProbe": {**live, "failureThreshold": 60},
        "readinessProbe": {
            "httpGet": {"path": "/ready", "port": 8000},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 1,
        },
        "livenessProbe": {**live, "failureThreshold": 2},
    }
    container = python("main", served, volumeMounts=mounts, **probes)
    first = python("first", 'open("/work/first", "w")', volumeMounts=mounts)
    wanted = pod("probed", container, initContainers=[first], restartPolicy="Always", terminationGracePeriodSeconds=1)
    wanted["spec"]["volumes"] = [{"name": "work", "emptyDir": {}}]
    wanted["metadata"]["labels"] = {"app": "probed"}
    place.admin.create(wanted, place.name)
    ports = [{"name": "http", "port": 80, "targetPort": 8000}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probed"}}
    place.admin.create({**service, "spec": {"selector": {"app": "probed"}, "ports": ports}}, place.name)

    def ready() -> bool:
        return condition(place.admin.get("Pod", "probed", place.name), "Ready").get("status") == "True"

    def served_by() -> list[str]:
        subsets = (place.admin.find("Endpoints", "probed", place.name) or {}).get("subsets") or []
        return [one["ip"] for subset in subsets for one in subset.get("addresses") or ()]

    def restarts() -> int:
        (status,) = place.admin.get("Pod", "probed", place.name)["status"]["containerStatuses"]
        found: int = status["restartCount"]
        return found

    wait_until(lambda: phase(place, "probed") == "Running", 10, "the pod's start")
    assert not ready()
    (work,) = (one.folder / "volumes" / "work" for one in node.pods.values() if one.name == "probed")
    (work / "ready").touch()
    wait_until(lambda: ready() and served_by(), 20, "a ready endpoint")
    (work / "ready").unlink()
    wait_until(lambda: not served_by(), 20, "the end of readiness")
    assert restarts() == 0
    (work / "sick").touch()
    wait_until(lambda: restarts() == 1, 20, "a restart")
    wait_until(lambda: node.log("probed") == "begun True\nbegun True\n", 20, "its second beginning")


def test_slots_commands_and_faults_are_a_tests_to_set(place: Place, node: IsolatedNode) -> None:
    """A refused pod waits; a killed one is restarted; an evicted one fails; a lost one goes, a cut-off one lives on."""
    asked: list[str] = []

    def refuse(manifest: Json) -> bool:
        asked.append(manifest["metadata"]["name"])
        return False

    def make(name: str, **spec: Any) -> Pod:
        place.admin.create(pod(name, python("main", "import time; time.sleep(600)"), **spec), place.name)
        wait_until(lambda: any(each.name == name for each in node.running()), 10, f"the start of {name}")
        return next(each for each in node.running() if each.name == name)

    node.accepts = refuse
    place.admin.create(pod("changed", python("main", "")), place.name)
    wait_until(lambda: len(asked) >= 3, 10, "refusals")
    assert phase(place, "changed") == "Pending"
    node.rewrites = lambda _pod, _command: ["echo", "changed"]
    node.accepts = lambda _pod: True
    wait_until(lambda: phase(place, "changed") == "Succeeded", 10, "the pod's end")
    assert node.log("changed") == "changed\n"
    node.rewrites = lambda _pod, command: command

    killed = make("killed", restartPolicy="Always")
    first = killed.pid
    node.kill("killed")
    wait_until(lambda: killed.runs and killed.pid != first, 10, "its second run")
    node.evict("killed")
    wait_until(lambda: phase(place, "killed") == "Failed", 10, "its failure")
    assert place.admin.get("Pod", "killed", place.name)["status"]["reason"] == "Evicted"

    lost, zombie = make("lost"), make("zombie")
    node.lose("lost")
    node.cut_off("zombie")
    assert not {"lost", "zombie"} & {each["metadata"]["name"] for each in place.admin.objects("Pod", place.name)}
    node.slots = 1
    place.admin.create(pod("waits", python("main", "")), place.name)
    wait_until(lambda: "waits" in {each.name for each in node.pods.values()}, 10, "the node's notice")
    assert (lost.runs, zombie.runs, phase(place, "waits")) == (False, True, "Pending")
    zombie.kill()
    wait_until(lambda: phase(place, "waits") == "Succeeded", 10, "the zombie's slot")
