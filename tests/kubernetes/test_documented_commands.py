"""The commands of docs/kubernetes.md and of its examples, pasted into a shell as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.test_pages import blocks, text_of
from tests.kubernetes.manifests import EXAMPLES, ROOT
from tests.kubernetes.operating import Installation, reason
from tests.kubernetes.place import Place, kubectl_program

PAGE = text_of("docs/kubernetes.md")
Shell = Callable[..., str]


@pytest.fixture
def shell(place: Place) -> Shell:
    """Run text in a shell in the project's folder as a person with the role `edit`; return what it prints."""

    def run(text: str, *, who: str = "anna", status: int = 0) -> str:
        done = subprocess.run(
            ["/bin/sh", "-eu", "-c", text],
            cwd=ROOT,
            env={
                **os.environ,
                "HOME": str(place.control_plane.folder),
                "KUBECONFIG": str(place.kubeconfig(who)),
                "PATH": f"{Path(kubectl_program()).parent}{os.pathsep}{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == status, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def section(title: str) -> str:
    """Return one section of the page."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def printed(name: str) -> list[str]:
    """Return the commands in the head of an example."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    return [line.partition(" # ")[0].rstrip() for line in re.findall(r"^# {3}(kubectl .*)$", text, re.MULTILINE)]


def asked(what: str) -> str:
    """Return the command in a row of the table under "Asking"."""
    (row,) = [line for line in section("Asking").splitlines() if line.startswith(f"| {what} |")]
    commands: list[str] = re.findall(r"`(kubectl patch[^`]*)`", row)
    assert len(commands) == 1, row
    return commands[0]


def test_each_example_does_what_its_head_says(installation: Installation, shell: Shell) -> None:
    """Rebuild, hold, approve, plan anew and roll back: every command in the examples' heads runs and finds its end."""
    place = installation.place
    installation.start()
    ends = {
        "rebuild": ("True", "BuildPublished"),
        "held": ("True", "Held"),
        "full": ("True", "NothingToDo"),
        "rollback": ("True", "RolledBack"),
    }
    for number, name in enumerate(("rebuild", "held", "approve", "full", "rollback")):
        if name in ("rebuild", "held"):
            installation.append(8, seed=number, start=number * 50_000)
        commands = printed(f"{name}.yaml")
        assert commands, name
        for command in commands:
            shell(command)
        if name in ends:
            assert reason(place.get(name)) == ends[name], name
        if name in ("rebuild", "approve"):
            published = place.get("held" if name == "approve" else name)["status"]["snapshotID"]
        if name in ("held", "approve"):
            told = ("False", "AwaitingApproval") if name == "held" else ("True", "Approved")
            assert reason(place.get("held"), "Published") == told
            assert installation.active() == published


def test_pipelines_wait_as_the_page_says(installation: Installation, shell: Shell) -> None:
    """The waits for success, for failure and for either end return; the test after them tells the two apart."""
    listed, either = blocks(section("Reading"), "sh")
    success, failure, approved, described = listed.strip().splitlines()
    installation.append(8)
    installation.start()
    place = installation.place
    place.rebuild("rebuild", tenant="nobody")
    shell(failure)
    shell(either, status=1)
    shell(f"kubectl delete mrb rebuild && {printed('rebuild.yaml')[0]}")
    shell(success)
    shell(either)
    assert "BuildPublished" in shell(described)
    installation.append(8, seed=2, start=50_000)
    shell(" && ".join([*printed("held.yaml"), printed("approve.yaml")[-1]]))
    shell(approved)
    for name in re.findall(r"^ {4}\$ (kubectl .*)$", section("Reading"), re.MULTILINE):
        assert "BuildPublished" in shell(name)
    assert "parallelism" in shell("kubectl explain mrb.spec --recursive")


def test_a_waiting_rebuild_is_changed_by_the_commands_of_the_table(installation: Installation, shell: Shell) -> None:
    """Suspending, going on, allowing more time and stopping: each command of the table takes hold."""
    place = installation.place
    installation.append(8)
    installation.start()
    place.rebuild("waits", suspend=True)
    place.wait_condition("waits", "Suspended", ("True",))
    shell(asked("allow more time").replace("NAME", "waits"))
    assert place.get("waits")["spec"]["build"]["deadlineSeconds"] == 7200
    suspended = asked("wait, go on").replace("NAME", "waits")
    shell(suspended.replace("true", "false"))
    assert reason(place.wait_terminal("waits")) == ("True", "BuildPublished")
    place.rebuild("stops", suspend=True)
    place.wait_condition("stops", "Suspended", ("True",))
    shell(suspended.replace("waits", "stops"))
    shell(asked("stop for good").replace("NAME", "stops"))
    assert reason(place.wait_terminal("stops")) == ("False", "Aborted")


def test_an_installation_by_hand_is_made_as_the_page_says(place: Place, shell: Shell) -> None:
    """Its commands make the accounts, Roles and the Secret, here in the test's own namespace."""
    (block,) = [text for text in blocks(section("Installing"), "sh") if "create namespace" in text]
    definition, made, *rest = block.strip().splitlines()
    assert definition == "kubectl apply -f crds/myriarebuild.yaml"  # the control plane has it, fitted to its version
    assert made == "kubectl create namespace myria"
    for name in ("myria-operator", "myria-builder"):
        place.admin.delete("ServiceAccount", name, place.name)
    for command in rest:
        shell(command.replace("-n myria ", f"-n {place.name} "), who="admin")
    for name in ("myria-operator", "myria-builder"):
        assert place.admin.find("ServiceAccount", name, place.name) is not None
    assert place.admin.find("Secret", "myria-postgres", place.name) is not None
