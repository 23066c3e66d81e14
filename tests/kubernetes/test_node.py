"""The helper that plays a node, with the real Job controller: a node as far as Jobs can tell."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from tests.kubernetes.api import Json, condition
from tests.kubernetes.node import BAD_IMAGE, Node
from tests.kubernetes.place import Place
from tests.support.processes import wait_until

FOREVER = "import time\ntime.sleep(600)"


def job(name: str, program: str, *, image: str = "test", **spec: Any) -> Json:
    """Return a Job whose pods run a Python program."""
    pod = spec.pop("pod", {})
    env = spec.pop("env", [])
    container = {"name": "main", "image": image, "command": ["python", "-c"], "args": [program], "env": env}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **pod}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template, **spec},
    }


def ended(place: Place, name: str, *, touch: bool = False) -> Callable[[], bool]:
    """Return whether a Job is Complete or Failed, as a condition to wait for.

    Args:
        place: where the Job is.
        name: of the Job.
        touch: let the Job controller look at the Job again each time. That of 1.20 sets its wake-up for the deadline
            when it first sees the Job. If its status update then conflicts, the second try stores a later start, so
            the wake-up comes a moment before the deadline, and none follows until something of the Job changes.
    """

    def check() -> bool:
        if touch:
            place.admin.patch("Job", name, {"metadata": {"annotations": {"touched": str(time.time_ns())}}}, place.name)
        return bool(place.admin.get("Job", name, place.name)["status"].get("conditions"))

    return check


def state(place: Place, job_name: str) -> Json:
    """Return the state of the container of a Job's only pod."""
    (pod,) = place.pods_of(job_name)
    found: Json = pod["status"]["containerStatuses"][0]["state"]
    return found


def test_a_job_runs_its_pods_and_completes(place: Place, node: Node) -> None:
    """The command runs with its environment, its output is kept, and the Job is Complete when all pods exited 0."""
    place.secret("database", {"dsn": "postgresql://somewhere"})
    program = "import os; print(os.environ['WHO'], os.environ['DSN'], os.environ['TWICE'])"
    env = [
        {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['job-name']"}}},
        {"name": "DSN", "valueFrom": {"secretKeyRef": {"name": "database", "key": "dsn"}}},
        {"name": "TWICE", "value": "$(WHO)+$(WHO) $(NOBODY) $$(WHO)"},
    ]
    place.admin.create(job("hello", program, env=env, completions=2, parallelism=2), place.name)
    wait_until(ended(place, "hello"), 30)
    found = place.admin.get("Job", "hello", place.name)
    assert condition(found, "Complete")["status"] == "True"
    assert found["status"]["succeeded"] == 2
    assert set(node.logs().values()) == {"hello postgresql://somewhere hello+hello $(NOBODY) $(WHO)\n"}
    assert not node.running()


def test_an_exit_status_reaches_the_pod_and_fails_the_job(place: Place, node: Node) -> None:
    """A non-zero exit status fails the pod, and beyond the backoff limit the Job."""
    place.admin.create(job("bad", "raise SystemExit(7)"), place.name)
    wait_until(ended(place, "bad"), 30)
    assert condition(place.admin.get("Job", "bad", place.name), "Failed")["reason"] == "BackoffLimitExceeded"
    assert state(place, "bad")["terminated"]["exitCode"] == 7


def test_killed_and_evicted_pods_are_replaced(place: Place, node: Node) -> None:
    """A killed pod reports 137, an evicted one Evicted; the Job controller makes another one for each."""
    place.admin.create(job("stubborn", FOREVER, backoffLimit=5), place.name)
    wait_until(node.running, 20)
    first = node.running()[0]
    node.kill(first.name)
    wait_until(lambda: [one for one in node.running() if one.name != first.name], 30)
    second = node.running()[0]
    node.evict(second.name)
    wait_until(lambda: [one for one in node.running() if one.name not in {first.name, second.name}], 60)
    pods = {one["metadata"]["name"]: one["status"] for one in place.pods_of("stubborn")}
    assert pods[first.name]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert pods[second.name]["reason"] == "Evicted"


def test_deleting_a_job_ends_its_pods_gracefully(place: Place, node: Node) -> None:
    """The process gets SIGTERM and its grace period; then Job and pod are gone."""
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('told'), sys.exit(3)))\n"
        "print('up', flush=True)\n"
        "time.sleep(600)"
    )
    place.admin.create(job("gone", program), place.name)
    wait_until(lambda: "up" in "".join(node.logs().values()), 20)
    place.admin.delete("Job", "gone", place.name)
    wait_until(lambda: not place.pods_of("gone"), 30)
    assert "told" in "".join(node.logs().values())
    assert not node.running()


def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace_period(place: Place, node: Node) -> None:
    """SIGKILL follows SIGTERM once terminationGracePeriodSeconds are over."""
    program = (
        "import signal, time\n"
        "signal.signal(15, lambda *_: print('heard', flush=True))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(600)"
    )
    place.admin.create(job("deaf", program, pod={"terminationGracePeriodSeconds": 3}), place.name)
    wait_until(lambda: "up" in "".join(node.logs().values()), 20)
    (one,) = node.running()
    place.admin.delete("Job", "deaf", place.name)
    wait_until(lambda: not place.pods_of("deaf") and not node.running(), 20)
    assert "heard" in "".join(node.logs().values())
    assert one.process.returncode == -signal.SIGKILL


def test_deadlines_of_pod_and_job_are_honoured(place: Place, node: Node) -> None:
    """A pod past its activeDeadlineSeconds fails; a Job past its own has its pods deleted and fails."""
    # Without further tries, a pod that was deleted at the deadline may be counted as a failure first.
    place.admin.create(job("slow-pod", FOREVER, pod={"activeDeadlineSeconds": 1}), place.name)
    place.admin.create(job("slow-job", FOREVER, activeDeadlineSeconds=1, backoffLimit=5), place.name)
    wait_until(ended(place, "slow-pod"), 30)
    wait_until(ended(place, "slow-job", touch=True), 30)
    assert place.pods_of("slow-pod")[0]["status"]["reason"] == "DeadlineExceeded"
    assert condition(place.admin.get("Job", "slow-job", place.name), "Failed")["reason"] == "DeadlineExceeded"
    wait_until(lambda: not node.running(), 20)


def test_pods_that_cannot_start_say_why_and_wait(place: Place, node: Node) -> None:
    """A bad image or a missing Secret leaves the pod Pending with a reason; the Secret may come later."""
    env = [{"name": "DSN", "valueFrom": {"secretKeyRef": {"name": "late", "key": "dsn"}}}]
    place.admin.create(job("no-image", "", image=f"{BAD_IMAGE}builder:1"), place.name)
    place.admin.create(job("no-secret", "", env=env), place.name)

    def reasons() -> list[str]:
        pods = place.pods_of("no-image") + place.pods_of("no-secret")
        statuses = [one["status"].get("containerStatuses", [{}])[0] for one in pods]
        return [one.get("state", {}).get("waiting", {}).get("reason", "") for one in statuses]

    wait_until(lambda: reasons() == ["ImagePullBackOff", "CreateContainerConfigError"], 30)
    place.secret("late", {"dsn": "now"})
    wait_until(ended(place, "no-secret"), 30)
    place.admin.delete("Job", "no-image", place.name)
    wait_until(lambda: not place.pods_of("no-image"), 30)


def test_a_lost_node_takes_the_process_and_a_cut_off_one_leaves_a_zombie(place: Place, node: Node) -> None:
    """Both pods vanish without a last word and are replaced; only the cut-off one's process lives on."""
    # The Job controller waits ten seconds and more before it replaces a pod.
    place.admin.create(job("wanderer", FOREVER, backoffLimit=5), place.name)
    wait_until(node.running, 20)
    first = node.running()[0]
    node.lose(first.name)
    wait_until(lambda: [one.name for one in node.running()] not in ([], [first.name]), 90)
    second = node.running()[0]

    def seen() -> bool:
        phase = place.admin.get("Pod", second.name, place.name).get("status", {}).get("phase")
        active = place.admin.get("Job", "wanderer", place.name)["status"].get("active")
        return (phase, active) == ("Running", 1)

    # Until the Job controller has seen the pod that it made, it would not notice that this pod is gone.
    wait_until(seen, 90)
    zombie = node.cut_off(second.name)
    wait_until(lambda: len(node.running()) == 2, 90)
    assert first.process.poll() is not None
    assert zombie.process.poll() is None
    assert [one["metadata"]["name"] for one in place.pods_of("wanderer")] == [node.running()[1].name]


def test_pods_have_the_token_of_their_account(place: Place, node: Node) -> None:
    """A pod can use the API as its ServiceAccount, by KUBECONFIG or by the files that every pod has."""
    program = (
        "import os, pathlib, subprocess, sys\n"
        "folder = pathlib.Path(os.environ['SERVICE_ACCOUNT_FOLDER'])\n"
        "print(*((folder / one).read_text()[:10] for one in ('namespace', 'ca.crt')), (folder / 'token').exists())\n"
        "subprocess.run(['kubectl', 'auth', 'whoami'], stdout=sys.stdout, stderr=sys.stdout)\n"
        "subprocess.run(['kubectl', 'auth', 'can-i', 'patch', 'myriarebuilds', '--subresource=status'])\n"
        "subprocess.run(['kubectl', 'auth', 'can-i', 'list', 'pods'])\n"
    )
    place.admin.create(job("who", program, pod={"serviceAccountName": "myria-builder"}), place.name)
    wait_until(ended(place, "who"), 30)
    (log,) = node.logs().values()
    assert log.startswith(f"{place.name} -----BEGIN True\n"), log
    assert log.endswith("yes\nno\n"), log
