"""`make release`: what it builds, that it is what it says, and that it can be installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.release.conftest import ROOT, copied, git
from tests.support.place import throw_away_folder
from tests.support.processes import Guardian

pytestmark = pytest.mark.processes

VERSION = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[0]
CHART = yaml.safe_load((ROOT / "charts/myria/Chart.yaml").read_text(encoding="utf-8"))["version"]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout that is released."""
    return copied(tmp_path_factory.mktemp("origin") / "checkout")


def release(checkout: Path, folder: Path, umask: int = 0o022) -> Path:
    """Release a checkout into a folder; return the folder."""
    command = [sys.executable, str(checkout / "scripts/release.py"), str(folder)]
    done = subprocess.run(command, umask=umask, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def released(origin: Path) -> Path:
    """What was released."""
    return release(origin, origin.parent / "released")


def sums(folder: Path) -> dict[str, str]:
    """Return SHA256SUMS."""
    lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: value for value, name in (line.split("  ") for line in lines)}


def read(path: Path) -> Any:
    """Return a JSON document."""
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_kind_of_package_is_there_once(released: Path) -> None:
    """Under its version, with a digest that holds; the image itself where a Docker daemon was."""
    listed = sums(released)
    for name, value in listed.items():
        assert hashlib.sha256((released / name).read_bytes()).hexdigest() == value
    assert listed.keys() - {f"image/myria-{VERSION}-image.oci.tar"} == {
        f"python/myria-{VERSION}-py3-none-any.whl",
        f"python/myria-{VERSION}.tar.gz",
        f"python/myria_client-{VERSION}-py3-none-any.whl",
        f"python/myria_client-{VERSION}.tar.gz",
        f"npm/myria-client-{VERSION}.tgz",
        f"image/myria-{VERSION}-image-context.tar.gz",
        f"chart/myria-{CHART}.tgz",
        f"chart/myria-{CHART}-chart.oci.tar",
        f"chart/myria-{CHART}-chart.cdx.json",
        f"myria-{VERSION}.cdx.json",
        "provenance.json",
    }


def test_one_commit_gives_the_same_bytes(origin: Path, released: Path, tmp_path: Path) -> None:
    """From another folder, by a user with another umask; what is not committed does not count."""
    git(tmp_path, "clone", "--quiet", str(origin), "elsewhere")
    other = tmp_path / "elsewhere"
    (other / "core/myria/errors.py").write_text("broken", encoding="utf-8")
    again, before = sums(release(other, tmp_path / "released", umask=0o077)), sums(released)
    assert {name: value for name, value in again.items() if "image.oci" not in name} == {
        name: value for name, value in before.items() if "image.oci" not in name
    }


def test_the_provenance_names_commit_builder_and_all_files(origin: Path, released: Path) -> None:
    """An in-toto statement with SLSA's predicate, and the base image by its digest."""
    statement = read(released / "provenance.json")
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert named == {name: value for name, value in sums(released).items() if name != "provenance.json"}
    stands_on = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert stands_on[0]["digest"] == {"gitCommit": git(origin, "rev-parse", "HEAD")}
    base = stands_on[-1]
    recipe = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f"ARG BASE={base['name']}@sha256:{base['digest']['sha256']}\n" in recipe
    assert statement["predicate"]["runDetails"]["builder"]["id"]


def test_the_bills_of_materials_are_valid_and_whole(released: Path) -> None:
    """CycloneDX 1.6: the locked packages of the image and nothing else; and the chart with its image."""
    path = released / f"myria-{VERSION}.cdx.json"
    for each in (path, released / f"chart/myria-{CHART}-chart.cdx.json"):
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(each.read_text(encoding="utf-8")) is None
    lock = (ROOT / "requirements/image.txt").read_text(encoding="utf-8")
    everywhere = set(re.findall(r"^([\w.-]+==\S+) \\", lock, re.MULTILINE))
    locked = everywhere | set(re.findall(r"^([\w.-]+==\S+) ;", lock, re.MULTILINE))
    listed = {f"{one['name']}=={one['version']}".lower().replace("_", "-") for one in read(path)["components"]}
    assert {one.replace("_", "-") for one in everywhere} <= listed <= {one.replace("_", "-") for one in locked}
    assert read(path)["metadata"]["component"]["version"] == VERSION


@contextmanager
def registry(layout: dict[str, bytes]) -> Iterator[str]:
    """Serve an OCI layout as a registry does, read-only; yield its host and port."""
    index = json.loads(layout["index.json"])
    tags = {
        one["annotations"]["org.opencontainers.image.ref.name"]: one
        for one in index["manifests"]
        if "annotations" in one
    }
    types = {one["digest"]: one["mediaType"] for one in index["manifests"]}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            *_, kind, reference = ["", *self.path.split("/")]
            wanted = tags[reference]["digest"] if reference in tags else reference
            content = layout.get(
                f"blobs/sha256/{wanted.removeprefix('sha256:')}", b"{}" if self.path == "/v2/" else b""
            )
            self.send_response(200 if content else 404)
            self.send_header("Content-Type", types.get(wanted, "application/octet-stream"))
            self.send_header("Content-Length", str(len(content)))
            if kind == "manifests":
                self.send_header("Docker-Content-Digest", wanted)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 - the name that the library calls

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def test_helm_pulls_the_chart_out_of_its_layout(released: Path, tmp_path: Path) -> None:
    """Served as a registry, it is the package beside it; bill and provenance refer to it, and name its digests."""
    package = released / f"chart/myria-{CHART}.tgz"
    with tarfile.open(released / f"chart/myria-{CHART}-chart.oci.tar") as archive:
        layout = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert all(
        hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]
        for name, content in layout.items()
        if name.startswith("blobs/")
    )
    with registry(layout) as place:
        helm.pull(f"oci://{place}/charts/myria", version=CHART, destination=tmp_path, plain_http=True)
    assert (tmp_path / package.name).read_bytes() == package.read_bytes()
    with helm.Chart.load(tmp_path / package.name) as chart:
        assert chart.metadata["appVersion"] == VERSION

    tagged, *referrers = json.loads(layout["index.json"])["manifests"]
    attached = {}
    for one in referrers:
        manifest = json.loads(layout[f"blobs/sha256/{one['digest'][7:]}"])
        assert manifest["subject"]["digest"] == tagged["digest"]
        attached[manifest["artifactType"]] = json.loads(layout[f"blobs/sha256/{manifest['layers'][0]['digest'][7:]}"])
    bill, statement = attached["application/vnd.cyclonedx+json"], attached["application/vnd.in-toto+json"]
    assert bill == read(released / f"chart/myria-{CHART}-chart.cdx.json")
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert named == {package.name: sums(released)[f"chart/{package.name}"], "myria": tagged["digest"][7:]}


def test_the_context_is_enough_for_the_dockerfile(released: Path) -> None:
    """It holds the recipe and every file below what the recipe copies, and nothing else."""
    with tarfile.open(released / f"image/myria-{VERSION}-image-context.tar.gz") as archive:
        held = set(archive.getnames())
    recipe = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.findall(r"^COPY (?!--)(.+) \S+$", recipe, re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    for name in copied:
        assert any(one == name or one.startswith(f"{name}/") for one in held), name
    assert {one for one in held if not any(one == name or one.startswith(f"{name}/") for name in copied)} == {
        "Dockerfile",
        ".dockerignore",
    }


def test_the_npm_package_has_code_types_and_licence(released: Path) -> None:
    """Under its version; tests/clients/test_typescript.py installs it and compiles against its types."""
    with tarfile.open(released / f"npm/myria-client-{VERSION}.tgz") as archive:
        held = set(archive.getnames())
        about = json.load(archive.extractfile("package/package.json"))  # type: ignore[arg-type]
    assert about["version"] == VERSION
    assert {"package/LICENSE", about["exports"]["."]["types"].replace("./", "package/")} <= held
    assert about["exports"]["."]["default"].replace("./", "package/") in held


def test_licence_and_notice_are_in_every_python_package(released: Path) -> None:
    """The client, which holds nothing by others, has the licence alone."""
    for path in (released / "python").glob("*.whl"):
        held = {name.rpartition("/")[2] for name in zipfile.ZipFile(path).namelist() if "/licenses/" in name}
        assert held == ({"LICENSE"} if "client" in path.name else {"LICENSE", "NOTICE"})


@pytest.fixture
def folder(guardian: Guardian) -> Iterator[Path]:
    """A folder that PostgreSQL's user may enter."""
    with throw_away_folder(guardian) as made:
        made.chmod(0o755)
        yield made


def test_the_source_distribution_gives_the_same_wheel(released: Path, tmp_path: Path) -> None:
    """Whoever builds from it has file for file what whoever takes the wheel has."""
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    source = released / f"python/myria-{VERSION}.tar.gz"
    subprocess.run([*command, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    name = f"myria-{VERSION}-py3-none-any.whl"

    def contents(wheel: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(wheel) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    assert contents(tmp_path / name) == contents(released / "python" / name)


def test_it_installs_into_a_fresh_environment_and_runs_the_demo(released: Path, folder: Path) -> None:
    """`myria version` says the version and `myria demo --once` answers its questions, without a checkout."""
    package = f"myria-{VERSION}-py3-none-any.whl"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "fresh"], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "fresh"), "platbase": str(folder / "fresh")}))
    # Myria's dependencies, and what builds a source distribution, come from the environment of these tests. A line of
    # a .pth file adds a folder without its own .pth files, so the checkout's packages do not come with it.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    install = (
        "-m",
        "pip",
        "--python",
        folder / "fresh/bin/python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--ignore-installed",
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {"HOME": str(folder), "MYRIA_EMBEDDINGS_MODEL": "off"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=folder, env=environment, check=False, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(sys.executable, *install, released / "python" / package)
    myria = folder / "fresh/bin/myria"
    assert json.loads(run(myria, "version", "--json"))["myria"] == VERSION
    place = run(folder / "fresh/bin/python", "-c", "import myria, myria_cli; print(myria.__file__, myria_cli.__file__)")
    assert all(one.startswith(str(site)) for one in place.split())
    assert "workshop" in run(myria, "demo", "--once", "--port", "0", "--data-dir", folder / "memory").lower()
