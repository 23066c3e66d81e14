"""Days on which more than a build is lost: the namespace with the operator's rights, the definition; and who did it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from myria_operator import reconcile
from tests.kubernetes import manifests
from tests.kubernetes.api import Json
from tests.kubernetes.inside import operator, until
from tests.kubernetes.node import Node
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.place import Place, rebuild
from tests.kubernetes.processes import Processes
from tests.support.processes import Guardian, wait_until
from tests.support.skips import not_here

DOCUMENT = manifests.ROOT / "docs" / "kubernetes.md"


def hold(_pod: Json, command: list[str]) -> list[str]:
    """Let a pod wait before it works."""
    return ["/bin/sh", "-c", 'sleep 60; exec "$@"', "sh", *command]


def test_a_namespace_is_deleted_with_all_that_is_in_it(
    installation: Installation, guardian: Guardian, tmp_path: Path
) -> None:
    """Its operator, without rights now, lives on; the next one on the database, elsewhere, frees the tenant's slot."""
    place = installation.place
    installation.append(12)
    installation.node.rewrites = hold
    first = installation.start()
    place.rebuild("going")
    wait_until(installation.node.running, 20, "the pod")
    place.admin.delete("Namespace", place.name)
    wait_until(lambda: place.admin.find("MyriaRebuild", "going", place.name) is None, 20, "the end of the resource")
    wait_until(lambda: place.admin.find("Role", "myria-operator", place.name) is None, 20, "the end of the rights")
    first.wait_for("reconcile_waits|sweep_waits|resource_gone", 20)
    assert first.process.poll() is None
    first.kill()
    installation.node.stop()

    folder = tmp_path / "elsewhere"
    folder.mkdir()
    second = Place(place.control_plane, folder)
    node = Node(place.control_plane, guardian, second.name, Processes).start()
    moved = dataclasses.replace(installation, place=second, node=node, folder=folder, operators=[])
    try:
        moved.start(operator_sweep_s="0.5")
        wait_until(lambda: moved.builds()[0]["status"] in {"aborted", "failed"}, 20, "the end of the build")
        second.rebuild("again")
        assert reason(second.wait_terminal("again", 30)) == ("True", "BuildPublished")
    finally:
        node.stop()
        second.close()
        moved.close()


async def test_an_older_definition_is_replaced(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A field that it drops is told of, and builds go on; nothing is taken while the status could not keep whose it is,
    and soon after the right definition it goes on."""
    place, shipped = installation.place, manifests.definition()
    installation.append(4)
    monkeypatch.setattr(reconcile, "_DEFINITION_S", 1.0)

    async def install(definition: Json) -> None:
        await asyncio.to_thread(place.control_plane.install, manifests.without_cel(definition))

    async def ask(name: str) -> None:
        await asyncio.to_thread(place.rebuild, name, build={"full": True, "force": True})

    async def published(name: str) -> Json:
        ended = await asyncio.to_thread(place.wait_terminal, name, 20)
        assert reason(ended) == ("True", "BuildPublished")
        return ended

    def told(name: str) -> bool:
        events = place.admin.objects("Event", place.name)
        return "CRDOutdated" in {one["reason"] for one in events if one["involvedObject"]["name"] == name}

    await install(manifests.without_status_field(shipped, "cutoff"))
    try:
        async with operator(installation, monkeypatch):
            await ask("older")
            assert "cutoff" not in (await published("older"))["status"]
            await until(lambda: told("older"))
            assert "drops status.cutoff" in caplog.text
        await install(manifests.without_status_field(shipped, "installationID"))
        async with operator(installation, monkeypatch):
            await ask("oldest")
            await until(lambda: told("oldest"))
            assert len(await asyncio.to_thread(installation.builds)) == 1
            await install(shipped)
            await ask("new")
            for name in ("oldest", "new"):
                await published(name)
    finally:
        await install(shipped)


def test_history_and_audit_log_are_joined_as_documented(installation: Installation) -> None:
    """The commands of docs/kubernetes.md name the verified person behind a move of the pointer."""
    if not (shutil.which("jq") and shutil.which("psql")):
        not_here("jq and psql, which the documented commands use, are not installed")
    place = installation.place
    installation.append(4)
    installation.start()
    place.person("anna").create(rebuild("hers", reason="for the audit"), place.name)
    uid = place.wait_terminal("hers")["metadata"]["uid"]
    (commands,) = re.findall(r"```sh\n(psql .*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    shutil.copy(place.control_plane.folder / "audit.log", installation.folder / "audit.log")
    done = subprocess.run(
        ["/bin/sh", "-ec", commands],
        cwd=installation.folder,
        env={**os.environ, "DSN": installation.database.tcp.owner},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    decoder, text, found = json.JSONDecoder(), done.stdout.strip(), []
    while text:
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:].lstrip()
    asked = [one for one in found if one["verb"] == "create"]
    assert [(one["user"], one["kind"]) for one in asked] == [("anna", "publish")], (uid, found)


def test_every_bad_day_of_the_documentation_has_its_test() -> None:
    """What README.md says is shown by a test is: the tests and the files it names are there."""
    section = Path(__file__).with_name("README.md").read_text(encoding="utf-8").partition("## Bad days")[2]
    shown = [row.split("|")[3] for row in section.splitlines() if row.startswith("| ") and "shown by" not in row]
    assert len(shown) >= 20
    there = "".join(path.read_text(encoding="utf-8") for path in manifests.ROOT.glob("tests/[ko]*/test_*.py"))
    for cell in shown:
        for name in re.findall(r"`(\w+)`", cell):
            assert re.search(rf"def test_{name}\(", there), name
        for name in re.findall(r"\btest_\w+", cell):
            assert list(manifests.ROOT.glob(f"tests/[ko]*/{name}.py")), name
