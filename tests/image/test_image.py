"""The image's recipe: what the Dockerfile says, and the root file system that its steps make, run as a pod would."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import files, version
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import httpx
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.markers import Marker

from scripts.build_rootfs import Builder
from tests.support.counts import SOAK
from tests.support.postgres import Database
from tests.support.processes import Guardian, Spawned, Spawner, free_port, wait_until
from tests.support.skips import not_here

ROOT = Path(__file__).resolve().parents[2]
LOCKED = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)(?: ; (.*?))? \\$", re.MULTILINE)
ENVIRONMENT = "sh scripts/image_steps environment /opt/myria"

IN_A_POD = """
mount --bind "$0/etc/passwd" /etc/passwd
mount --bind "$0/etc/group" /etc/group
mount -t tmpfs tmpfs /tmp
mount -o remount,bind,ro /
cd /tmp
exec unshare --user --map-user="$UID_WANTED" --map-group="$UID_WANTED" -- "$@"
"""
"""As a pod would run it: the image's users, an empty /tmp, the root file system read-only, a user without rights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A root file system, and how to run commands in it."""

    folder: Path
    told: Mapping[str, Any]

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        (found,) = (self.folder / "opt" / "myria" / "lib").glob("python3*/site-packages")
        return found

    def command(self, *arguments: str) -> list[str]:
        """Return the command line that runs `arguments` in the image."""
        return ["unshare", "--mount", "sh", "-ec", IN_A_POD, str(self.folder), *arguments]

    def environment(self, user: str | None = None, **more: str) -> dict[str, str]:
        """Return its environment, and nothing of ours."""
        number = user or self.told["user"].split(":")[0]
        return {**self.told["environment"], "UID_WANTED": number, **more}

    def run(self, *arguments: str, user: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(user, **more),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


class Linked(Builder):
    """As the Dockerfile says, but the locked packages are links to those of the tests' own environment, bytecode
    included: pip and the compiler take half a minute of CPU for the same files. In soak runs they do it."""

    def _build(self, name: str, operands: str) -> None:
        if (name, operands) != ("RUN", ENVIRONMENT):
            super()._build(name, operands)
            return
        prefix = self._below("/opt/myria")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
        packages = Path(sysconfig.get_path("purelib", vars={"base": prefix, "platbase": prefix}))
        lock = (ROOT / "requirements" / "image.txt").read_text(encoding="utf-8")
        for package, locked, marker in LOCKED.findall(lock):
            if marker and not Marker(marker).evaluate():
                continue
            assert version(package) == locked
            for file in files(package) or ():
                if ".." in file.parts:  # it starts a program, by the name of its environment
                    continue
                source, target = Path(str(file.locate())), packages / file
                link_or_copy(source, target)
                if source.suffix == ".py" and (compiled := Path(cache_from_source(str(source)))).exists():
                    link_or_copy(compiled, Path(cache_from_source(str(target))))


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it to another disk; one that is there stays."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        return
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def image(guardian: Guardian) -> Iterator[Image]:
    """The root file system, made once; not under /tmp, which a pod has for itself."""
    folder = Path(tempfile.mkdtemp(prefix="myria-image-", dir="/var/tmp"))
    guardian.tell(f"folder {folder}")
    folder.chmod(0o755)
    if SOAK:
        command = [sys.executable, str(ROOT / "scripts" / "build_rootfs.py"), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        Linked(folder).build()
    one = Image(folder=folder, told=json.loads((folder / "image.json").read_text(encoding="utf-8")))
    if one.run("true").returncode != 0:
        not_here("nobody may mount: " + one.run("true").stderr)
    yield one
    shutil.rmtree(folder, ignore_errors=True)


def serve(image: Image, spawn: Spawner, dsn: str) -> tuple[Spawned, int]:
    """Start `myria serve` in the image; return it with its port."""
    port = free_port()
    variables = image.environment(MYRIA_POSTGRES_DSN=dsn, MYRIA_MCP_HOST="127.0.0.1", MYRIA_MCP_PORT=str(port))
    program = spawn(
        "env", "-i", *(f"{key}={value}" for key, value in variables.items()), *image.command("myria", "serve")
    )
    return program, port


def test_the_dockerfile_keeps_what_it_promises() -> None:
    """Two stages of one slim base, nothing run in the last one, a numeric user, no host, everything pinned."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    last = "\n".join(lines).rsplit("FROM", 1)[1]
    assert [line for line in lines if re.fullmatch(r"ARG BASE=python:3\.11-slim@sha256:[0-9a-f]{64}", line)]
    assert text.count("\nFROM ") == 2
    assert "RUN" not in last
    assert re.search(r"^USER \d+:\d+$", last, re.MULTILINE)
    assert "USER=myria" in last
    assert not re.search(r"https?://|apt|curl|wget|latest", text)
    steps = (ROOT / "scripts" / "image_steps").read_text(encoding="utf-8")
    assert steps.count("--require-hashes") == steps.count("--requirement ") == 2
    assert not re.search(r"https?://|index-url", steps)
    for label in ("title", "description", "licenses", "version", "revision", "base.name"):
        assert f"org.opencontainers.image.{label}=" in last


def test_the_context_holds_only_what_is_copied() -> None:
    """.dockerignore begins with everything and lets in just what the Dockerfile copies."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    let_in = {rule.removeprefix("!").removesuffix("/*.txt") for rule in rules if rule.startswith("!")}
    assert let_in == names


def test_the_lock_of_the_image_agrees_with_the_others() -> None:
    """Each package has hashes, and the version that is developed and tested with."""
    locks = {}
    for name in ("run", "image", "image-build", "dev"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        assert text.count("==") <= text.count("--hash=sha256:")
        locks[name] = {(package, marker): version for package, version, marker in LOCKED.findall(text)}
    assert locks["image"]
    assert locks["image"].items() <= locks["dev"].items()
    assert locks["run"].items() <= locks["dev"].items()
    beside = {name for name, _ in locks["run"]} - {name for name, _ in locks["image"]}
    assert beside <= {"editables", *(name for name, _ in locks["image-build"])}


def test_the_commands_run_without_rights_on_a_read_only_root(image: Image) -> None:
    """`myria version` works as the image's user, who has a name, and can write nothing but /tmp."""
    version = image.run("myria", "version", "--json")
    assert version.returncode == 0, version.stderr
    assert json.loads(version.stdout)["myria"] == image.told["labels"]["org.opencontainers.image.version"]
    assert image.told["labels"]["org.opencontainers.image.base.name"].startswith("python:3.11-slim@sha256:")
    assert image.run("id", "-un").stdout.strip() == "myria"
    assert image.run("touch", "/etc/here").returncode != 0
    assert image.run("touch", str(image.folder / "opt" / "myria" / "here")).returncode != 0
    assert image.run("touch", "/tmp/here").returncode == 0
    help_text = image.run(*image.told["entrypoint"], *image.told["command"])
    assert help_text.returncode == 0
    assert "operate" in help_text.stdout


def test_its_default_computes_vectors(image: Image) -> None:
    """The image holds the local model, and a text gets its vector without a network or a file to write."""
    program = (
        "from myria.index.embeddings.choosing import chosen; from myria.index.embeddings.local import LocalModel; "
        "from myria.settings import Settings; vector = LocalModel.installed()._vector('bread'); "
        "print(chosen(Settings()).model, len(vector))"
    )
    assert image.run("python", "-c", program).stdout == "local 384\n"


def test_a_user_without_a_name_can_run_it_as_well(image: Image) -> None:
    """Platforms choose the user's number: serving, building and operating need no entry in passwd."""
    assert image.run("id", "-un", user="1000660000").returncode != 0
    assert image.run("myria", "version", user="1000660000").returncode == 0
    operate = image.run("myria", "operate", "--dsn", "postgresql://a@127.0.0.1:1/b", user="1000660000")
    assert operate.returncode == 6
    assert "no way to the Kubernetes API" in operate.stderr


def test_it_migrates_and_serves(image: Image, database: Database, spawn: Spawner) -> None:
    """`migrate --check` answers by its exit status, `serve` becomes ready and takes an event, SIGTERM ends it."""
    dsn = database.tcp
    assert image.run("myria", "migrate", "--check", MYRIA_POSTGRES_DSN=dsn.owner).returncode == 0
    program, port = serve(image, spawn, dsn.server)
    address = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return httpx.get(f"{address}/readyz", verify=False).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(ready, 60, "readiness")
    smoke = image.run("myria", "smoke", "--url", f"{address}/mcp", "--no-build")
    assert smoke.returncode == 0, smoke.stderr
    program.end(30)


def test_the_trials_postgres_runs_in_it(image: Image, spawn: Spawner) -> None:
    """The same image carries the PostgreSQL of `postgres.mode: trial`, as the same user, with only /tmp to write to."""
    port = free_port()
    planes = {"MIGRATE": "owner", "SERVER": "server", "OPERATOR": "operator", "BUILDER": "builder"}
    dsns = {f"{plane}_DSN": f"postgresql://myria_{role}:p@127.0.0.1:{port}/myria" for plane, role in planes.items()}
    variables = image.environment(**dsns)
    command = image.command("myria", "trial-postgres", "--data-dir", "/tmp/data", "--port", str(port))
    spawn("env", "-i", *(f"{key}={value}" for key, value in variables.items()), *command)
    done = image.run("myria", "migrate", "--wait", "60", "--grant", "--dsn", dsns["MIGRATE_DSN"])
    assert done.returncode == 0, done.stderr
    assert image.run("myria", "migrate", "--check", "--dsn", dsns["BUILDER_DSN"]).returncode == 0


def test_nothing_in_it_builds_or_tests(image: Image) -> None:
    """No pip, no compiler's leftovers, no test suites, no development tools."""
    programs = {path.name for path in (image.folder / "opt" / "myria" / "bin").iterdir()}
    assert "myria" in programs
    assert not programs & {"pip", "pip3", "pytest", "mypy", "ruff", "hatchling"}
    assert not [path for path in image.packages.rglob("tests") if path.is_dir()]
    assert not list(image.packages.rglob("*.pyx"))
    assert sorted(os.listdir(image.folder)) == ["etc", "image.json", "opt"]
    assert os.listdir(image.folder / "opt") == ["myria"]


def test_every_module_of_it_is_compiled(image: Image) -> None:
    """Nobody can write bytecode on a read-only root: what is missing would be compiled at every start."""
    for package in ("myria", "myria_cli", "myria_server", "mcp", "pydantic"):
        sources = list((image.packages / package).rglob("*.py"))
        assert sources
        assert [path for path in sources if not Path(cache_from_source(str(path))).is_file()] == []


def test_the_bill_of_materials_lists_what_is_installed(image: Image) -> None:
    """It is valid CycloneDX 1.6, names every distribution with its version, and comes out the same again."""
    path = image.folder / "opt" / "myria" / "share" / "myria" / "sbom.cdx.json"
    text = path.read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    listed = {one["purl"] for one in bill["components"]} | {bill["metadata"]["component"]["purl"]}
    installed = set()
    for folder in image.packages.glob("*.dist-info"):
        text_of = (folder / "METADATA").read_text(encoding="utf-8")
        about = dict(re.findall(r"^(Name|Version): (.+)$", text_of, re.MULTILINE))
        name = re.sub(r"[._-]+", "-", about["Name"]).lower()
        installed.add(f"pkg:pypi/{name}@{about['Version']}")
    assert listed == installed
    python = str(image.folder / "opt" / "myria" / "bin" / "python")
    again = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "sbom.py"), python], capture_output=True, text=True, check=True
    )
    assert again.stdout == text
