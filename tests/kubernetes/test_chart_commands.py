"""The commands of the chart's own pods against a real API server, with the rights that the chart gives them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import helm_python as helm
import pytest

from tests.chart.rendering import Json, chart, render
from tests.kubernetes.api import ApiError
from tests.kubernetes.place import Place

TRIAL = {"postgres": {"mode": "trial"}}


def grant(place: Place, account: str) -> None:
    """Make a ServiceAccount of the chart with its Role, as `helm install` would."""
    for one in render(TRIAL, name="myria", namespace=place.name).objects:
        if one["kind"] in ("ServiceAccount", "Role", "RoleBinding") and one["metadata"]["name"] == account:
            place.admin.apply(one, place.name)


def myria(place: Place, account: str, *arguments: str, url: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as a ServiceAccount; `url` puts a proxy in front of the API server."""
    return subprocess.run(
        [sys.executable, "-m", "myria_cli.main", *arguments],
        env={"KUBECONFIG": str(place.kubeconfig(account, url=url)), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def login(secret: Json) -> dict[str, str]:
    """Return what a Secret holds."""
    return {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}


def test_logins_are_made_once_and_kept(place: Place) -> None:
    """Each Secret gets a password of its own and the string with it; the second run changes nothing."""
    grant(place, "myria-logins")
    command = (
        *("make-logins", "--host", f"db.{place.name}", "--database", "memory", "--label", "example.org/kind=login"),
        *("login-server=myria_server", "login-builder=myria_builder"),
    )
    first = myria(place, "myria-logins", *command)
    assert first.returncode == 0, first.stderr
    assert "made login-server, login-builder" in first.stderr
    made = {name: place.admin.get("Secret", name, place.name) for name in ("login-server", "login-builder")}
    for name, role in (("login-server", "myria_server"), ("login-builder", "myria_builder")):
        held = login(made[name])
        assert held["username"] == role
        assert len(held["password"]) >= 32
        assert held["dsn"] == f"postgresql://{role}:{held['password']}@db.{place.name}:5432/memory"
        assert made[name]["type"] == "kubernetes.io/basic-auth"
        assert made[name]["metadata"]["labels"] == {"example.org/kind": "login"}
    assert login(made["login-server"])["password"] != login(made["login-builder"])["password"]
    again = myria(place, "myria-logins", *command)
    assert again.returncode == 0
    assert "2 were there already" in again.stderr
    for name, before in made.items():
        assert place.admin.get("Secret", name, place.name)["data"] == before["data"]


def test_making_logins_cannot_read_secrets(place: Place) -> None:
    """Its Role lets it create, and nothing else; without the Role the error says what is refused."""
    place.secret("other", {"a": "b"})
    grant(place, "myria-logins")
    api = place.control_plane.api(place.token("myria-logins"))
    with pytest.raises(ApiError, match="forbidden"):
        api.get("Secret", "other", place.name)
    api.close()
    refused = myria(place, "myria-builder", "make-logins", "--host", "db", "a=b")
    assert refused.returncode == 6
    assert "create secrets" in refused.stderr


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
    place.kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(deployment))
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
