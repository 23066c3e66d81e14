"""How callers reach the pods, and prove who they are."""

from __future__ import annotations

import json
from pathlib import Path

from myria.access.issuers import load_issuers
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.app import build_app
from myria_server.http.sse import MESSAGE_PATH, STREAM_PATH
from tests.chart.rendering import (
    NAMESPACE,
    dsn_of,
    environment,
    environment_of,
    keys_read,
    render,
    rendered,
    values_of,
)


def test_the_server_accepts_the_names_it_is_called_by() -> None:
    """Host headers of the Service, of the Ingress and of the route pass, so that no client is refused."""
    hosts = json.loads(environment(rendered("everything").pod("server"), "server")["MYRIA_MCP_ALLOWED_HOSTS"])
    service = f"{'memory-store'}.{NAMESPACE}"
    assert hosts == [
        "memory-store",
        service,
        f"{service}.svc",
        f"{service}.svc.cluster.local",
        "memory.example.org",
        "memory2.example.org",
        "route.example.org",
        "memory.internal",
    ]
    command = rendered("everything").pod("test").containers[0]["command"]
    assert command[command.index("--url") + 1] == f"http://{service}:8321/mcp"


def test_callers_need_keys_unless_the_values_say_otherwise() -> None:
    """Serving pods are told how callers prove who they are; without keys there is neither a Job nor a key to test."""
    for name, mode in (("default", "keys"), ("everything", "keys"), ("unauthenticated", "none")):
        server = rendered(name).pod("server")
        assert environment(server, "server")["MYRIA_AUTH_MODE"] == mode
        assert ("--insecure" in server.container("server")["command"]) == (mode == "none")
    assert "admin-key" not in {pod.component for pod in rendered("unauthenticated").pods()}
    assert keys_read(rendered("unauthenticated").pod("test")) == set()


def test_tokens_of_its_own_and_of_other_issuers_can_be_taken(tmp_path: Path) -> None:
    """Serving pods read the issuers from their file, and clients outside find where to get a token, and get one."""
    given = rendered("tokens")
    server = given.pod("server")
    variables = environment(server, "server")
    (held,) = [one["data"]["issuers.yaml"] for one in given.of("ConfigMap") if "issuers.yaml" in one["data"]]
    mounts = {one["mountPath"]: one["name"] for one in server.container("server")["volumeMounts"]}
    assert mounts[variables["MYRIA_AUTH_ISSUERS_FILE"].rpartition("/")[0]] == "issuers"
    (tmp_path / "issuers.yaml").write_text(held)
    (issuer,) = load_issuers(str(tmp_path / "issuers.yaml"))
    assert (issuer.name, issuer.issuer) == ("login", "https://login.example.org/realms/a")
    read = {key: one for key, one in environment_of(server.container("server")).items() if key.startswith("MYRIA_")}
    auth = Settings.load(None, environ=read).auth
    assert (auth.public_url, auth.server, auth.mode) == ("https://memory.example.org", True, "keys")
    assert "memory.example.org" in json.loads(variables["MYRIA_MCP_ALLOWED_HOSTS"])
    paths = [
        "/mcp",
        "/api/v1",
        "/v1",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-authorization-server",
        "/oauth",
    ]
    (ingress,) = given.of("Ingress")
    assert [one["path"] for one in ingress["spec"]["rules"][0]["http"]["paths"]] == paths
    (routed,) = given.of("HTTPRoute")
    assert [one["path"]["value"] for one in routed["spec"]["rules"][0]["matches"]] == paths
    plain = rendered("default").pod("server")
    assert not [name for name in environment(plain, "server") if name.startswith("MYRIA_AUTH_") and "MODE" not in name]
    ingress = {"ingress": {"enabled": True, "hosts": [{"host": "memory.example.org"}]}}
    (plain_ingress,) = render(ingress).of("Ingress")
    assert [one["path"] for one in plain_ingress["spec"]["rules"][0]["http"]["paths"]] == ["/mcp", "/api/v1", "/v1"]
    notes = given.notes
    assert "https://memory.example.org/mcp alone" in " ".join(notes.split())


def test_every_path_that_is_open_to_clients_is_led_to_the_service() -> None:
    """What the server answers outside the cluster, but for probes and figures, lies below one of the default paths."""
    (ingress,) = rendered("tokens").of("Ingress")
    led = [one["path"] for one in ingress["spec"]["rules"][0]["http"]["paths"]]
    settings = Settings(auth=AuthSettings(mode="keys", public_url="https://memory.example.org", server=True))
    app = build_app(Memory("postgresql://a:b@c/d", settings), settings)
    inside = {"/livez", "/healthz", "/readyz", "/metrics", "/health", "/ready"}
    paths = {*app.at} | {str(getattr(route, "path", "")) for route in app.beside.routes}
    # The transport of 2024 is off; who switches it on leads these two to the pods as well.
    by_hand = {STREAM_PATH, MESSAGE_PATH}
    for path in paths - inside - by_hand:
        assert any(path == prefix or path.startswith(prefix + "/") for prefix in led), path


def test_a_changed_issuer_restarts_the_serving_pods_alone() -> None:
    """They read the file once, at their start."""
    (issuer,) = values_of("tokens")["auth"]["issuers"]
    auth = {"publicUrl": "https://memory.example.org"}
    sets = [render({"auth": {**auth, "issuers": [{**issuer, "leeway_s": leeway}]}}).pods() for leeway in (10, 20)]
    before, after = [{pod.component: pod.metadata.get("annotations") for pod in pods} for pods in sets]
    assert [component for component in before if before[component] != after[component]] == ["server"]


def test_with_a_certificate_everything_speaks_https() -> None:
    """Probes, the Service, scrapes of serving pods and `helm test`, which alone is given the authority and no key."""
    given = rendered("tokens")
    server = given.pod("server")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert server.container("server")[probe]["httpGet"]["scheme"] == "HTTPS"
        assert "scheme" not in rendered("default").pod("server").container("server")[probe]["httpGet"]
    read = {key: one for key, one in environment_of(server.container("server")).items() if key.startswith("MYRIA_")}
    assert Settings.load(None, environ=read).mcp.scheme == "https"
    services = {one["metadata"]["name"]: one for one in given.of("Service")}
    assert services["memory-myria"]["spec"]["ports"][0]["appProtocol"] == "https"
    schemes = {
        monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]: endpoint.get("scheme")
        for monitor in given.of("ServiceMonitor")
        for endpoint in monitor["spec"]["endpoints"]
    }
    assert schemes == {"server": "https", "operator": None}
    test = given.pod("test")
    command = test.containers[0]["command"]
    assert command[command.index("--url") + 1] == f"https://memory-myria.{NAMESPACE}:8321/mcp"
    assert environment_of(test.containers[0])["SSL_CERT_FILE"] == "/etc/myria/authority/ca.crt"
    (volume,) = [one for one in test.spec["volumes"] if one["name"] == "authority"]
    assert volume["secret"] == {"secretName": "memory-certificate", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    for pod in given.pods():
        holds_key = "tls" in [one["name"] for one in pod.spec["volumes"]]
        assert holds_key == (pod.component == "server")
    assert "https://memory-myria" in given.notes


def test_the_first_key_is_made_by_who_can_only_make_secrets() -> None:
    """One container creates the Secret, the next has it as a variable and the control plane's connection string."""
    default = rendered("default")
    pod = default.pod("admin-key")
    assert default.one("Role", "memory-myria-admin-key")["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}
    ]
    assert pod.spec["serviceAccountName"] == "memory-myria-admin-key"
    assert pod.container("secret")["command"][:3] == ["myria", "make-key-secret", "memory-myria-admin-key"]
    assert dsn_of(pod, "secret") is None
    assert dsn_of(pod, "key") == ("memory-myria-postgres", "operator-dsn")
    assert dsn_of(pod, "key", "FIRST_KEY") == ("memory-myria-admin-key", "key")
    assert environment(pod, "key")["MYRIA_MIGRATE_WAIT_S"] == "300"
    full = rendered("everything").pod("admin-key").container("key")["command"]
    assert full[:6] == ["myria", "key", "create", "admin", "--key-env", "FIRST_KEY"]
    pairs = list(zip(full[6::2], full[7::2], strict=True))
    assert pairs == [
        ("--tenant", "team_a"),
        *(("--role", role) for role in ("append", "read", "admin")),
        *(("--face", face) for face in ("core", "admin")),
        *(("--as", participant) for participant in ("ops", "team:a")),
    ]
    assert dsn_of(rendered("everything").pod("test"), "smoke", "MYRIA_KEY") == ("memory-first-key", "token")


def test_a_key_of_ones_own_needs_no_rights() -> None:
    """With auth.existingSecret nothing is made: no account, no Role, no token; the key is only made known."""
    own = rendered("own-key")
    pod = own.pod("admin-key")
    assert [one["name"] for one in pod.containers] == ["key"]
    assert pod.spec["automountServiceAccountToken"] is False
    assert pod.spec["serviceAccountName"] == own.pod("server").spec["serviceAccountName"]
    assert not [
        one for one in own.objects if one["metadata"]["name"] == "memory-myria-admin-key" and one["kind"] == "Role"
    ]
    for component, container, variable in (("admin-key", "key", "FIRST_KEY"), ("test", "smoke", "MYRIA_KEY")):
        assert dsn_of(own.pod(component), container, variable) == ("keys-from-the-vault", "key")


def test_without_a_first_key_nothing_is_made_or_tested() -> None:
    """auth.adminKey.create=false leaves the Job and `helm test` out; callers need keys all the same."""
    without = render({"auth": {"adminKey": {"create": False}}, "networkPolicy": {"enabled": True}})
    assert {pod.component for pod in without.pods()} == {"server", "operator", "builder"}
    assert environment(without.pod("server"), "server")["MYRIA_AUTH_MODE"] == "keys"
    assert "helm test" not in without.notes
    assert "get secret memory-myria-admin-key" not in without.notes
    assert "myria key create ada" in without.notes
    policies = {one["metadata"]["name"] for one in without.of("NetworkPolicy")}
    assert policies == {f"memory-myria-{component}" for component in ("server", "operator", "builder")}
