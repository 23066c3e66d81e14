"""The first key of an installation: made by it, good for calls, and the way to further keys."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cryptography import x509

from tests.chart.rendering import render
from tests.install.isolation import IsolatedNode
from tests.install.releases import UNAUTHENTICATED, Release
from tests.install.test_releases import NO_DEFINITION, connect, pods, port_of, rows
from tests.kubernetes.node import Pod
from tests.kubernetes.place import Place
from tests.server.wire import call, headers
from tests.support.certificates import self_signed
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database, Databases
from tests.support.processes import wait_until

EVENT = {"timestamp": "2026-03-01T10:00:00Z", "channel": "chat", "payload": {"text": "Who asks?", "speaker": "ada"}}


@pytest.fixture
def database(databases: Databases) -> Iterator[Database]:
    """A database of the owner's without any migration."""
    made = databases.create_empty()
    yield made
    databases.drop(made)


def append(port: int, key: str | None, scheme: str = "http") -> httpx.Response:
    """Append an event, with a key or without; again when this process was too slow for the server, as clients do."""
    answer = send(port, key, scheme)
    return append(port, key, scheme) if answer.status_code == httpx.codes.REQUEST_TIMEOUT else answer


def send(port: int, key: str | None, scheme: str) -> httpx.Response:
    """Send an event, with a key or without."""
    credential = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.post(
        f"{scheme}://127.0.0.1:{port}/mcp",
        json=call("myria_append_event", EVENT),
        headers={**headers("myria_append_event"), **credential},
        timeout=PATIENCE_S,
        trust_env=False,
        verify=False,
    )


def is_refused(port: int, key: str | None, scheme: str = "http") -> bool:
    """Tell whether a call is answered with 401 and a challenge, as opposed to having been taken."""
    answer = append(port, key, scheme)
    if answer.status_code == 200:
        assert answer.json()["result"]["structuredContent"]["event_id"]
        return False
    assert answer.status_code == 401, answer.text
    assert answer.headers["www-authenticate"].startswith("Bearer")
    return True


def port_of_pod(node: IsolatedNode, pod: Pod) -> int:
    """Return a port of this machine that leads to one serving pod, past the Service."""
    return node.runtime.network.reach((pod.address, 8321))[1]


def execute(node: IsolatedNode, place: Place, name: str, command: list[str]) -> dict[str, Any]:
    """Run a command as `kubectl exec` runs it in the operator's container: its image, variables, user and volumes.

    The node has no kubelet's endpoint to attach to, so a pod that is otherwise the same runs it; return its JSON.
    """
    (operator,) = pods(node, "operator")
    (container,) = [one for one in operator.spec["containers"] if one["name"] == "operator"]
    kept = {key: value for key, value in container.items() if not key.endswith("Probe") and key != "ports"}
    spec = {key: value for key, value in operator.spec.items() if key not in {"initContainers", "nodeName"}}
    spec |= {"restartPolicy": "Never", "containers": [{**kept, "command": [*command, "--json"]}]}
    place.admin.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, place.name)

    def phase() -> str:
        return str(place.admin.get("Pod", name, place.name)["status"].get("phase"))

    wait_until(lambda: phase() in {"Succeeded", "Failed"}, 60, "the command's end")
    printed = node.log(name)
    assert phase() == "Succeeded", printed
    answer: dict[str, Any] = json.loads(printed[printed.index("{\n") if "{\n" in printed else printed.index("{") :])
    return answer


def secret(place: Place, name: str) -> str:
    """Return the key that a Secret holds."""
    return base64.b64decode(place.admin.get("Secret", name, place.name)["data"]["key"]).decode()


def test_the_secrets_key_lets_callers_in_until_it_is_revoked(
    release: Release, node: IsolatedNode, place: Place, database: Database
) -> None:
    """By default a call without a key is 401; with the Secret's it works; the notes' command makes another.

    A revoked one is 401 on every pod. An upgrade changes neither the Secret nor what a key may do.
    """
    connect(node, database)
    release.install(NO_DEFINITION, wait_s=180)
    port, name = port_of(node, release), f"{release.fullname}-admin-key"
    key = secret(place, name)
    assert is_refused(port, None)
    wait_until(lambda: not is_refused(port, key), 60, "the first key to be known")

    notes = render(NO_DEFINITION, name=release.name, namespace=place.name).notes
    (line,) = [line for line in notes.splitlines() if " exec " in line]
    words = shlex.split(line)
    assert words[:5] == ["kubectl", "--namespace", place.name, "exec", f"deployment/{release.fullname}-operator"]
    made = execute(node, place, "exec-create", words[words.index("--") + 1 :])
    assert made["as"] == ["ada"]
    assert not is_refused(port, made["key"])

    execute(node, place, "exec-revoke", ["myria", "key", "revoke", key.split("_")[1]])
    servers = [port_of_pod(node, pod) for pod in pods(node, "server")]
    assert len(servers) == 2
    wait_until(lambda: all(is_refused(server, key) for server in servers), 30, "the end of the key on every pod")
    assert not any(is_refused(server, made["key"]) for server in servers)

    jobs_of_before = finished(place)
    release.upgrade(NO_DEFINITION, wait_s=180)
    wait_until(lambda: finished(place) - jobs_of_before, 60, "the second run")
    assert secret(place, name) == key
    assert [row["name"] for row in rows(database, "SELECT name FROM myria.keys ORDER BY name")] == ["ada", "admin"]
    assert is_refused(port, key)
    assert not is_refused(port, made["key"])


def finished(place: Place) -> set[str]:
    """Return the names of the key's Jobs that have succeeded."""
    found = place.admin.objects("Job", place.name, labels="app.kubernetes.io/component=admin-key")
    return {one["metadata"]["name"] for one in found if one.get("status", {}).get("succeeded")}


def test_a_key_of_ones_own_is_made_known_and_everything_speaks_https(
    release: Release, node: IsolatedNode, place: Place, database: Database
) -> None:
    """With auth.existingSecret the chart makes no Secret; the key in it works, in a tenant that was not there.

    With server.tls and auth.server, probes, callers and `helm test` speak HTTPS to an authorization server. Here every
    program is started from the image.
    """
    node.runtime.forks = False
    given = "myr_fromthevault_abcdefghijkmnpqrstuvwxyz23456789"
    connect(node, database)
    place.secret("vault", {"key": given})
    certificate, private = self_signed(x509.DNSName(f"{release.fullname}.{place.name}"))
    place.secret(
        "certificate",
        {"tls.crt": certificate.decode(), "tls.key": private.decode(), "ca.crt": certificate.decode()},
    )
    values = {
        "auth": {"existingSecret": "vault", "publicUrl": "https://memory.example.org", "server": True},
        "server": {"replicas": 1, "tenant": "acme", "tls": {"secretName": "certificate"}},
    }
    release.install(NO_DEFINITION, values, wait_s=180)
    port = port_of(node, release)
    wait_until(lambda: not is_refused(port, given, "https"), 60, "the key to be known")
    assert is_refused(port, None, "https")
    described = httpx.get(
        f"https://127.0.0.1:{port}/.well-known/oauth-authorization-server",
        timeout=PATIENCE_S,
        trust_env=False,
        verify=False,
    )
    assert described.json()["token_endpoint"] == "https://memory.example.org/oauth/token"
    assert place.admin.find("Secret", f"{release.fullname}-admin-key", place.name) is None
    assert [row["tenant_id"] for row in rows(database, "SELECT tenant_id FROM myria.keys")] == ["acme"]
    assert rows(database, "SELECT count(*) FROM myria.events WHERE tenant_id = 'acme'")[0][0] > 0
    release.test()


def test_an_upgrade_from_no_keys_to_keys_needs_no_gap(
    release: Release, node: IsolatedNode, place: Place, database: Database
) -> None:
    """As docs/upgrade.md says: without keys the command makes some already, and a key that is sent is ignored.

    After the upgrade that key works on the new pods, and callers without one are refused.
    """
    connect(node, database)
    release.install(NO_DEFINITION, UNAUTHENTICATED, {"server": {"replicas": 1}}, wait_s=180)
    port = port_of(node, release)
    made = execute(node, place, "exec-create", ["myria", "key", "create", "ada", "--as", "ada"])
    assert place.admin.find("Secret", f"{release.fullname}-admin-key", place.name) is None
    assert not is_refused(port, None)
    assert not is_refused(port, made["key"])

    (before,) = pods(node, "server")
    release.upgrade(NO_DEFINITION, {"server": {"replicas": 1}}, wait_s=180)
    wait_until(lambda: before not in node.running(), 60, "the end of the old server")
    assert is_refused(port, None)
    assert not is_refused(port, made["key"])
