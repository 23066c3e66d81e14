"""Releases over time: installed, upgraded, beside each other, removed; with a database of their own, as in earnest."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import helm_python as helm
import pytest

from myria_migrations import migrations
from tests.install.isolation import IsolatedNode
from tests.install.network import Address
from tests.install.releases import UNAUTHENTICATED, Release, chart_at, merged
from tests.kubernetes import manifests
from tests.kubernetes.api import Json
from tests.kubernetes.control_plane import ROOT, ControlPlane
from tests.kubernetes.node import Pod
from tests.kubernetes.operating import reason
from tests.kubernetes.place import Place
from tests.soak.wire import Client, HungUp
from tests.support.postgres import Database, Databases
from tests.support.processes import Guardian, wait_until

DEFINITION = "myriarebuilds.myria.dev"
ONE_SERVER = merged({"server": {"replicas": 1}}, UNAUTHENTICATED)
NO_DEFINITION = {"crds": {"enabled": False}}


@pytest.fixture
def empty(databases: Databases) -> Iterator[Callable[[], Database]]:
    """Make databases of the owner's without any migration."""
    made: list[Database] = []

    def make() -> Database:
        made.append(databases.create_empty())
        return made[-1]

    yield make
    for one in made:
        databases.drop(one)


@pytest.fixture
def bare_cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane without the definition, as before the first installation; afterwards it is as it was."""
    admin = control_plane.admin
    admin.delete("CustomResourceDefinition", DEFINITION)
    wait_until(lambda: admin.find("CustomResourceDefinition", DEFINITION) is None, 20, "the definition's end")
    yield control_plane
    if (found := admin.find("CustomResourceDefinition", DEFINITION)) is not None:
        shipped = manifests.without_cel(manifests.definition())
        shipped["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        plural = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        admin.request("PUT", f"{plural}/{DEFINITION}", shipped)
    control_plane.install(manifests.definition())


def connect(node: IsolatedNode, database: Database) -> None:
    """Give the namespace the Secret with four connection strings, as an administrator does."""
    tcp = database.tcp
    host, port = tcp.owner.rpartition("@")[2].partition("/")[0].split(":")
    where: Address = node.runtime.network.expose(5432, (host, int(port)))
    planes = {"server": tcp.server, "operator": tcp.operator, "builder": tcp.builder, "migrate": tcp.owner}
    data = {
        f"{plane}-dsn": dsn.replace(f"@{host}:{port}/", f"@{where[0]}:{where[1]}/") for plane, dsn in planes.items()
    }
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    secret: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "memory-myria-postgres"}}
    node.api.create({**secret, "data": encoded}, node.namespace)


def port_of(node: IsolatedNode, release: Release) -> int:
    """Return a port of this machine that leads to the release's Service."""
    service = node.api.get("Service", release.fullname, node.namespace)
    where = (service["spec"]["clusterIP"], 8321)
    wait_until(lambda: node.runtime.network._ready.get(where), 60, "an endpoint of the Service")
    return node.runtime.network.reach(where)[1]


def event(text: str) -> dict[str, object]:
    """Return the arguments of an append."""
    return {
        "timestamp": "2026-03-01T10:00:00Z",
        "channel": "chat",
        "participants": ["ana"],
        "payload": {"text": text, "speaker": "ana"},
    }


def append(port: int, text: str) -> None:
    """Append an event through the Service, on a connection of its own."""

    async def call() -> None:
        client = Client(port)
        reply = await client.call("append_event", event(text))
        client.hang_up()
        assert not reply.is_error, reply.content

    asyncio.run(call())


@contextmanager
def uninterrupted(port: int) -> Iterator[list[str]]:
    """Append through the Service without a pause during the block; yield what went wrong."""
    wrong: list[str] = []
    done = 0
    ending = threading.Event()

    def go_on() -> None:
        nonlocal done
        while not ending.wait(0.1):
            try:
                append(port, f"during the upgrade {done}")
            except (HungUp, AssertionError) as error:
                wrong.append(f"{done}: {error}")
            done += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield wrong
    finally:
        ending.set()
        thread.join()
        assert done > 20


def rows(database: Database, query: str) -> list[asyncpg.Record]:
    """Return rows as the superuser sees them."""

    async def read() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(database.superuser_dsn)
        try:
            return await connection.fetch(query)
        finally:
            await connection.close()

    return asyncio.run(read())


def pods(node: IsolatedNode, component: str) -> list[Pod]:
    """Return the running pods of a component."""
    return [one for one in node.running() if one.component == component]


def next_definition(definition: Json) -> None:
    """Change the definition as a later version of Myria might: one more served version, one more column."""
    (first,) = definition["spec"]["versions"]
    later = {**first, "name": "v1beta1", "storage": False}
    first["additionalPrinterColumns"].append({"name": "Reason-Given", "type": "string", "jsonPath": ".spec.reason"})
    definition["spec"]["versions"].append(later)


def test_an_upgrade_brings_values_definition_and_migration_and_nobody_notices(
    bare_cluster: ControlPlane, release: Release, node: IsolatedNode, empty: Callable[[], Database], tmp_path: Path
) -> None:
    """A changed value, a new version of the definition, a new image with a migration: appends never fail meanwhile.

    Afterwards uninstalling keeps the definition, the MyriaRebuilds and the data.
    """
    database, place = empty(), release.place
    connect(node, database)
    release.install(ONE_SERVER, wait_s=180)
    (before,) = pods(node, "server")
    place.rebuild("first")
    place.wait_terminal("first")

    version = migrations()[-1].version + 1
    package = tmp_path / "myria_migrations"
    shutil.copytree(ROOT / "migrations/myria_migrations", package, ignore=shutil.ignore_patterns("__pycache__"))
    later = package / "numbered" / f"{version:04}_later.sql"
    later.write_text("CREATE TABLE myria.later (it integer);\n", encoding="utf-8")
    node.runtime.images["myria:later"] = [(package, ROOT / "migrations/myria_migrations")]
    changed = {"image": {"tag": "later"}, "settings": {"mcp": {"drain_s": 2}}}
    with uninterrupted(port_of(node, release)) as wrong:
        release.upgrade(ONE_SERVER, changed, chart=chart_at(tmp_path / "later", next_definition), wait_s=180)
        wait_until(lambda: before not in node.running(), 30, "the end of the old server")
    assert wrong == []
    (after,) = pods(node, "server")
    assert after.spec["containers"][0]["image"] == "myria:later"
    assert after.spec["terminationGracePeriodSeconds"] == before.spec["terminationGracePeriodSeconds"] + 1
    assert rows(database, "SELECT max(version) FROM myria.schema_migrations")[0][0] == version
    where = f"/apis/myria.dev/v1beta1/namespaces/{place.name}/myriarebuilds/first"
    wait_until(lambda: place.admin.request("GET", where)["status"]["conditions"], 10, "the new version")
    assert "REASON-GIVEN" in place.kubectl("get", "myriarebuilds.v1alpha1.myria.dev").stdout

    release.uninstall()
    wait_until(lambda: not node.running(), 30, "the end of all pods")
    assert place.admin.find("CustomResourceDefinition", DEFINITION) is not None
    assert [one["metadata"]["name"] for one in place.rebuilds()] == ["first"]
    assert rows(database, "SELECT count(*) FROM myria.events")[0][0] > 20


def test_two_installations_do_not_touch_each_other(  # noqa: PLR0917 - fixtures
    bare_cluster: ControlPlane,
    release: Release,
    node: IsolatedNode,
    make_place: Callable[[], Place],
    empty: Callable[[], Database],
    guardian: Guardian,
) -> None:
    """The second needs crds.enabled=false, and is told so; it goes, in the middle of a build, and the first stays.

    The build that was running is ended by the operator that goes: its pod, frozen until then, publishes nothing.
    """
    connect(node, empty())
    release.install(ONE_SERVER)
    second = Release(make_place(), release.chart)
    there = IsolatedNode(node.control_plane, guardian, second.place.name).start()
    try:
        database = empty()
        connect(there, database)
        with pytest.raises(helm.HelmError, match=r"this is a second installation, so set crds\.enabled to false"):
            second.install(ONE_SERVER)
        assert second.place.kubectl("get", "all,cm,sa,role", "-o", "name").stdout.split() in (
            [],
            ["serviceaccount/default"],
        )
        second.install(ONE_SERVER, NO_DEFINITION, {"builder": {"terminationGracePeriodSeconds": 3}}, wait_s=180)
        append(port_of(there, second), "only there")
        second.place.rebuild("frozen")
        wait_until(lambda: pods(there, "builder"), 30, "the build's pod")
        (builder,) = pods(there, "builder")
        assert not pods(node, "builder")
        freeze(builder)
        wait_until(lambda: second.place.get("frozen")["status"].get("jobName"), 10, "the Job's name")

        second.uninstall()
        ended = "SELECT status FROM myria.builds WHERE finished_at IS NOT NULL"
        wait_until(lambda: [row["status"] for row in rows(database, ended)] == ["failed"], 60, "the end of the build")
        wait_until(lambda: reason(second.place.get("frozen")) == ("False", "Uninstalled"), 60, "the reason")
        thaw(builder)
        wait_until(lambda: not there.running(), 60, "the end of all pods")
        assert rows(database, "SELECT count(*) FROM myria.active_snapshots")[0][0] == 0
        assert second.place.get("frozen")["spec"]["tenant"] == "default"
        wait_until(lambda: not remains(second), 60, "the end of account, rights and Jobs")

        release.place.rebuild("untouched")
        release.place.wait_terminal("untouched")
        wait_until(lambda: [one.ready for one in pods(node, "server")] == [True], 30, "one server, ready")
    finally:
        there.stop()
        second.close()


def test_a_trial_that_goes_in_the_middle_of_a_build_publishes_nothing(release: Release, node: IsolatedNode) -> None:
    """Its PostgreSQL stays until the operator has ended the build and said so; the next installation finds it ended.

    Before, a first install with a wrong image is removed, which asks no pod for anything, and another one is mended: an
    upgrade with the right image brings everything up.
    """
    trial = {"crds": {"enabled": False}, "postgres": {"mode": "trial"}, "builder": {"terminationGracePeriodSeconds": 3}}
    wrong = {"image": {"repository": "missing/myria"}}
    place, database = release.place, f"{release.fullname}-trial-db"
    release.install(trial, ONE_SERVER, wrong)
    release.uninstall()
    assert place.admin.objects("Deployment", place.name) == []
    release.install(trial, ONE_SERVER, wrong)

    def pulls() -> bool:
        found = place.admin.objects("Pod", place.name, labels="app.kubernetes.io/component=trial-db")
        statuses = [one for pod in found for one in pod["status"].get("containerStatuses") or []]
        return any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in statuses)

    wait_until(pulls, 60, "the pod whose image is missing")
    release.upgrade(trial, ONE_SERVER, wait_s=240)
    assert place.admin.get("StatefulSet", database, place.name)["spec"]["podManagementPolicy"] == "Parallel"

    append(port_of(node, release), "before the end")
    place.rebuild("frozen")
    wait_until(lambda: pods(node, "builder"), 60, "the build's pod")
    (builder,) = pods(node, "builder")
    freeze(builder)
    release.uninstall()
    wait_until(lambda: reason(place.get("frozen")) == ("False", "Uninstalled"), 60, "the reason")
    thaw(builder)
    wait_until(lambda: not node.running(), 120, "the end of all pods")
    wait_until(lambda: not remains(release), 60, "the end of account, rights and Jobs")

    release.install(trial, ONE_SERVER, wait_s=240)
    append(port_of(node, release), "after it")
    assert reason(place.get("frozen")) == ("False", "Uninstalled")
    place.rebuild("again")
    place.kubectl("wait", "mrb/again", "--for=condition=Published", "--timeout=180s")


def remains(release: Release) -> set[str]:
    """Return what must not outlive a release: accounts, rights, Jobs."""
    found = release.place.kubectl("get", "sa,role,rolebinding,job", "-o", "name").stdout.split()
    return {one for one in found if not one.endswith("/default")}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"postgres": {"mode": "cnpg"}},
            r"postgres\.mode cnpg needs .*postgresql\.cnpg\.io/v1/Cluster.* CloudNativePG",
        ),
        (
            {"monitoring": {"serviceMonitor": {"enabled": True}}},
            r"serviceMonitor\.enabled needs .* Prometheus operator",
        ),
        (
            {"monitoring": {"prometheusRule": {"enabled": True}}},
            r"prometheusRule\.enabled needs .* Prometheus operator",
        ),
    ],
)
def test_a_kind_that_the_cluster_does_not_serve_is_named(release: Release, values: Json, said: str) -> None:
    """An install that needs it is refused by the chart, with what to install or set; nothing is made."""
    with pytest.raises(helm.HelmError, match=said):
        release.install(NO_DEFINITION, ONE_SERVER, values)
    assert release.place.admin.objects("Deployment", release.place.name) == []


def freeze(pod: Pod) -> None:
    """Stop the process of a pod in the middle of its work: it hears SIGTERM no more, only SIGKILL."""
    for child in children(pod):
        os.kill(child, signal.SIGSTOP)


def thaw(pod: Pod) -> None:
    """Let a frozen process go on."""
    for child in children(pod):
        os.kill(child, signal.SIGCONT)


def children(pod: Pod) -> list[int]:
    """Return the ids of what runs in a pod."""
    there = Path(f"/proc/{pod.pid}/task/{pod.pid}/children")
    wait_until(there.read_text, 10, "the pod's process")
    return [int(child) for child in there.read_text().split()]
