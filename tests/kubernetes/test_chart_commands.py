"""The commands of the chart's own pods against a real API server, with the rights that the chart gives them."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import helm_python as helm
import pytest

from myria.access.secrets import parse_key
from tests.chart.rendering import Json, Rendered, chart, render
from tests.kubernetes import manifests
from tests.kubernetes.api import ApiError
from tests.kubernetes.node import Node
from tests.kubernetes.place import Place, kubectl_program, rebuild
from tests.support.processes import Spawner, wait_until

TRIAL = {"postgres": {"mode": "trial"}}


def grant(place: Place, account: str) -> None:
    """Make a ServiceAccount of the chart with its Role, as `helm install` would."""
    for one in render(TRIAL, name="myria", namespace=place.name).objects:
        if one["kind"] in ("ServiceAccount", "Role", "RoleBinding") and one["metadata"]["name"] == account:
            place.admin.apply(one, place.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a command ended."""

    returncode: int
    said: str


@pytest.fixture
def myria(place: Place, spawn: Spawner) -> Callable[..., Done]:
    """Run a command as a ServiceAccount."""

    def run(account: str, *arguments: str) -> Done:
        program = spawn.myria(*arguments, env={"KUBECONFIG": str(place.kubeconfig(account))})
        return Done(returncode=program.wait(), said=program.output())

    return run


def login(secret: Json) -> dict[str, str]:
    """Return what a Secret holds."""
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def test_logins_are_made_once_and_kept(place: Place, myria: Callable[..., Done]) -> None:
    """Each Secret gets a password of its own and the string with it; the second run changes nothing."""
    grant(place, "myria-logins")
    command = (
        *("make-logins", "--host", f"db.{place.name}", "--database", "memory", "--label", "example.org/kind=login"),
        *("login-server=myria_server", "login-builder=myria_builder"),
    )
    first = myria("myria-logins", *command)
    assert first.returncode == 0, first.said
    assert "made login-server, login-builder" in first.said
    made = {name: place.admin.get("Secret", name, place.name) for name in ("login-server", "login-builder")}
    for name, role in (("login-server", "myria_server"), ("login-builder", "myria_builder")):
        held = login(made[name])
        assert held["username"] == role
        assert len(held["password"]) >= 32
        assert held["dsn"] == f"postgresql://{role}:{held['password']}@db.{place.name}:5432/memory"
        assert made[name]["type"] == "kubernetes.io/basic-auth"
        assert made[name]["metadata"]["labels"] == {"example.org/kind": "login"}
    assert login(made["login-server"])["password"] != login(made["login-builder"])["password"]
    again = myria("myria-logins", *command)
    assert again.returncode == 0
    assert "2 were there already" in again.said
    for name, before in made.items():
        assert place.admin.get("Secret", name, place.name)["data"] == before["data"]


def test_making_logins_cannot_read_secrets(place: Place, myria: Callable[..., Done]) -> None:
    """Its Role lets it create, and nothing else; without the Role the error says what is refused."""
    place.secret("other", {"a": "b"})
    grant(place, "myria-logins")
    api = place.control_plane.api(place.token("myria-logins"))
    with pytest.raises(ApiError, match="forbidden"):
        api.get("Secret", "other", place.name)
    api.close()
    refused = myria("myria-builder", "make-logins", "--host", "db", "a=b")
    assert refused.returncode == 6
    assert "create secrets" in refused.said


def test_a_keys_secret_is_made_once_and_kept(place: Place, myria: Callable[..., Done]) -> None:
    """A Secret gets a new random key in the field that was asked for; the second run leaves it as it is."""
    grant(place, "myria-admin-key")
    command = ("make-key-secret", "first-key", "--field", "token", "--label", "example.org/kind=key")
    first = myria("myria-admin-key", *command)
    assert first.returncode == 0, first.said
    made = place.admin.get("Secret", "first-key", place.name)
    assert made["metadata"]["labels"] == {"example.org/kind": "key"}
    text = login(made)["token"]
    assert parse_key(text) is not None
    assert text not in first.said
    again = myria("myria-admin-key", *command)
    assert again.returncode == 0
    assert "there already" in again.said
    assert place.admin.get("Secret", "first-key", place.name)["data"] == made["data"]
    assert myria("myria-admin-key", "make-key-secret", "other-key").returncode == 0
    assert login(place.admin.get("Secret", "other-key", place.name))["key"] != text


def test_a_second_installation_is_told_about_the_definition(place: Place) -> None:
    """Where the definition is not this release's, installing fails with the value to set, and works with it."""
    with helm.Config(kubeconfig_path=place.kubeconfig(), namespace=place.name) as config:
        with pytest.raises(helm.HelmError, match=r"this is a second installation, so set crds\.enabled to false"):
            config.render(chart(), {}, name="myria", namespace=place.name)
        assert config.render(chart(), {"crds": {"enabled": False}}, name="myria", namespace=place.name)


def test_two_installations_do_not_share_a_namespace(place: Place) -> None:
    """An operator of another release in the namespace is found, and named."""
    (deployment,) = [
        one
        for one in render(TRIAL, name="first", namespace=place.name).of("Deployment")
        if one["metadata"]["name"] == "first-myria-operator"
    ]
    place.admin.apply(deployment, place.name)
    values = {"crds": {"enabled": False}}
    with helm.Config(kubeconfig_path=place.kubeconfig(), namespace=place.name) as config:
        with pytest.raises(helm.HelmError, match="holds the installation first already"):
            config.render(chart(), values, name="second", namespace=place.name)
        assert config.render(chart(), values, name="first", namespace=place.name)


def test_the_notes_ask_for_a_secret_only_while_it_is_missing(place: Place) -> None:
    """Once the Secret is there, the command to make it is left out."""
    values = {"crds": {"enabled": False}}
    with helm.Config(kubeconfig_path=place.kubeconfig(), namespace=place.name) as config:
        before = config.render(chart(), values, name="myria", namespace=place.name)["myria/templates/NOTES.txt"]
        place.secret("myria-postgres", {"server-dsn": "a"})
        after = config.render(chart(), values, name="myria", namespace=place.name)["myria/templates/NOTES.txt"]
    assert "create secret generic myria-postgres" in before
    assert "create secret generic" not in after


def commands(notes: str) -> list[str]:
    """Return the commands in the notes as they are printed: indented lines, with those that they are continued on."""
    found: list[str] = []
    for line in notes.splitlines():
        if found and found[-1].endswith("\\"):
            found[-1] += "\n" + line
        elif line.startswith("  ") and line[2:3].isalpha():
            found.append(line)
    return found


def test_the_notes_commands_run_as_they_are_printed(place: Place) -> None:
    """Each command of the notes with kubectl is pasted into a shell: what it makes is there."""
    values = {"crds": {"enabled": False}, "server": {"replicas": 0}}
    with helm.Config(kubeconfig_path=place.kubeconfig(), namespace=place.name) as config:
        files = config.render(chart(), values, name="myria", namespace=place.name)
    rendered = Rendered(files)
    for kind, name in (("Deployment", "myria"), ("Service", "myria")):
        place.admin.create(rendered.one(kind, name), place.name)
    place.secret("myria-admin-key", {"key": "myr_thefirstkey_0123"})
    environment = {**os.environ, "KUBECONFIG": str(place.kubeconfig()), "HOME": str(place.control_plane.folder)}
    environment["PATH"] = f"{Path(kubectl_program()).parent}{os.pathsep}{os.environ['PATH']}"
    ran: list[str] = []
    for command in commands(rendered.notes):
        if command.startswith("  helm ") or " port-forward " in command or " exec " in command:
            continue  # no Helm program here, and no kubelet to forward to; tests/install runs what exec would
        shell = subprocess.Popen(
            ["sh", "-c", command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if command.endswith("--watch"):
            assert shell.stdout is not None
            assert "NAME" in shell.stdout.readline(), command
            os.killpg(shell.pid, signal.SIGTERM)
            shell.communicate()
        else:
            printed, _ = shell.communicate()
            assert shell.returncode == 0, f"{command}\n{printed}"
            if " get secret " in command:
                assert printed == "myr_thefirstkey_0123"
        ran.append(command)
    assert len(ran) == 6
    assert place.admin.find("Secret", "myria-postgres", place.name) is not None
    made = {one["metadata"]["generateName"]: one["spec"] for one in place.rebuilds()}
    assert made == {
        "manual-": {"tenant": "default"},
        "back-": {"tenant": "default", "rollback": {"to": "previous"}},
    }
    (forward,) = [one for one in commands(rendered.notes) if " port-forward " in one]
    assert f"port-forward service/myria {rendered.one('Service', 'myria')['spec']['ports'][0]['port']}:" in forward


def test_an_upgrade_that_begins_to_ask_for_keys_says_so_loudly(place: Place) -> None:
    """The notes see that the pods of before asked for none, by their variable; once they ask, the sentence is gone."""

    def notes(**values: Json) -> str:
        with helm.Config(kubeconfig_path=place.kubeconfig(), namespace=place.name) as config:
            given = {"crds": {"enabled": False}, **values}
            return Rendered(config.render(chart(), given, name="myria", namespace=place.name)).notes

    def deployment(mode: str | None) -> Json:
        found = render({"server": {"replicas": 0}}, name="myria", namespace=place.name).one("Deployment", "myria")
        (container,) = found["spec"]["template"]["spec"]["containers"]
        container["env"] = [one for one in container["env"] if one["name"] != "MYRIA_AUTH_MODE"]
        if mode is not None:
            container["env"].append({"name": "MYRIA_AUTH_MODE", "value": mode})
        return found

    open_values: Json = {"auth": {"mode": "none"}, "server": {"allowUnauthenticated": True}}
    assert "CALLERS NEED A KEY" not in notes()
    for before, is_told in ((None, True), ("none", True), ("keys", False)):
        place.admin.apply(deployment(before), place.name)
        assert ("CALLERS NEED A KEY FROM NOW ON" in notes()) is is_told
        assert "CALLERS NEED A KEY" not in notes(**open_values)
    assert "--set auth.mode=none --set server.allowUnauthenticated=true" not in notes()


def test_an_upgrade_leaves_the_number_of_pods_to_whoever_scales(place: Place) -> None:
    """`kubectl scale` is kept, a changed value counts, and an autoscaler that comes finds the number as it was."""

    def deployment(**values: Json) -> Json:
        with helm.Config(kubeconfig_path=place.kubeconfig(), namespace=place.name) as config:
            given = {"crds": {"enabled": False}, **values}
            files = config.render(chart(), given, name="myria", namespace=place.name)
        return Rendered(files).one("Deployment", "myria")

    first = deployment()
    assert first["spec"]["replicas"] == 2
    place.admin.apply(first, place.name)
    place.admin.patch("Deployment", "myria", {"spec": {"replicas": 5}}, place.name, subresource="scale")
    assert deployment()["spec"]["replicas"] == 5
    assert deployment(server={"replicas": 3})["spec"]["replicas"] == 3
    assert deployment(autoscaling={"enabled": True})["spec"]["replicas"] == 5
    assert "replicas" not in deployment(server={"replicas": None})["spec"]


def test_rebuilds_are_listed_by_category_and_short_name(place: Place) -> None:
    """`kubectl get myria` and `kubectl get mrb` list them; EVENTS shows what was new, and the tenant has a default."""
    place.admin.create({**rebuild("one"), "spec": {}}, place.name)
    status = {"counts": {"events": 5120, "events_new": 17}}
    place.admin.patch("MyriaRebuild", "one", {"status": status}, place.name, subresource="status")
    for name in ("myria", "mrb"):
        header, row = place.kubectl("get", name).stdout.splitlines()
        assert "EVENTS" in header
        assert row.split()[:3] == ["one", "default", "17"], (header, row)


def test_the_nightly_example_makes_a_rebuild_each_time(place: Place, start_node: Callable[..., Node]) -> None:
    """Its Job runs kubectl with the rights of the example alone, and each run makes another MyriaRebuild."""
    objects = manifests.read(manifests.EXAMPLES / "nightly.yaml")
    for one in objects:
        if one["kind"] != "CronJob":
            place.admin.apply(manifests.bound(one, place.name), place.name)
    (held,) = [one["data"]["rebuild.yaml"] for one in objects if one["kind"] == "ConfigMap"]
    (cron,) = [one for one in objects if one["kind"] == "CronJob"]
    node = start_node()

    def mounted(_pod: Json, command: list[str]) -> list[str]:
        """Let the file of the ConfigMap be where the node has it."""
        return ["sh", "-c", f"{' '.join(command[:-1])} --filename=- <<'END'\n{held}\nEND\n"]

    node.rewrites = mounted
    for name in ("first", "second"):
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": cron["spec"]["jobTemplate"]["spec"],
        }
        place.admin.create(job, place.name)
    wait_until(lambda: len(place.rebuilds()) == 2, 60, "two rebuilds")
    for one in place.rebuilds():
        assert one["metadata"]["name"].startswith("nightly-")
        assert one["spec"] == {"tenant": "default", "reason": "Every night", "build": {"full": True}}
    api = place.control_plane.api(place.token("myria-nightly"))
    with pytest.raises(ApiError, match="forbidden"):
        api.get("MyriaRebuild", place.rebuilds()[0]["metadata"]["name"], place.name)
    api.close()
