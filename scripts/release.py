"""Build what a release publishes, from the commit that is checked out.

Usage: release.py FOLDER

Puts into the folder: wheels and source distributions of Myria and of its Python client, the npm package, the Helm
chart (as a package, and as an OCI layout with its bill of materials and provenance attached), the context of the image
and, where a Docker daemon answers, the image; bills of materials (CycloneDX), `provenance.json` (an in-toto statement
with SLSA's predicate) and `SHA256SUMS`. docs/releasing.md describes each.

What is not committed is not built: the sources are exported from git. Times in archives are the commit's, so one commit
gives the same bytes on every run; only the image, which Docker builds, is not promised to.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts import build_rootfs, sbom

ROOT = Path(__file__).resolve().parent.parent
BUILD_TYPE = "urn:myria:make-release:1"
STATEMENT = "application/vnd.in-toto+json"
BILL = "application/vnd.cyclonedx+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The exported sources of a commit."""

    folder: Path
    commit: str
    epoch: int
    """The commit's time, in seconds since 1970."""

    @property
    def version(self) -> str:
        """The version of the program, its image and its clients."""
        about = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))
        return str(about["project"]["version"])

    @property
    def environment(self) -> dict[str, str]:
        """The environment for programs that build: its time, and its packages before the installed ones."""
        settings = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))
        packages = settings["tool"]["hatch"]["build"]["dev-mode-dirs"]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(self.folder / name) for name in packages),
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def main(arguments: list[str]) -> int:
    """Build a release; return the exit status."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    os.umask(0o022)  # npm keeps the modes of what is compiled
    folder = Path(arguments[0]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if git("status", "--porcelain"):
        print("There are changes that are not committed; they are not in this release.", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / "built"
        build(exported(Path(scratch) / "source"), built)
        shutil.copytree(built, folder, dirs_exist_ok=True)
        print((folder / "SHA256SUMS").read_text(encoding="utf-8"), end="")
    return 0


def build(source: Source, built: Path) -> None:
    """Build everything into a folder, with a folder for each kind of package."""
    python, npm, image, charts = (built / name for name in ("python", "npm", "image", "chart"))
    for place in (python, npm, image, charts):
        place.mkdir(parents=True)
    shutil.copy(source.folder / "LICENSE", source.folder / "clients/python")
    for project in (source.folder, source.folder / "clients/python"):
        run(source, sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", python, cwd=project)
    run(source, sys.executable, source.folder / "scripts/typescript_client.py", "pack", npm)

    write_context(source, image / f"myria-{source.version}-image-context.tar.gz")
    build_image(source, image / f"myria-{source.version}-image.oci.tar")
    packages = bill_of_packages(source)
    (built / f"myria-{source.version}.cdx.json").write_text(packages, encoding="utf-8")

    chart = Path(helm.package(source.folder / "charts/myria", destination=charts))
    bill = bill_of_chart(source)
    (charts / f"{chart.stem}-chart.cdx.json").write_text(bill, encoding="utf-8")
    write_chart_layout(source, charts / f"{chart.stem}-chart.oci.tar", chart, bill)

    (built / "provenance.json").write_text(provenance(source, digests(built)), encoding="utf-8")
    sums = "".join(f"{value}  {name}\n" for name, value in digests(built).items())
    (built / "SHA256SUMS").write_text(sums, encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its path there, in order."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): digest(path.read_bytes()) for path in files}


def exported(folder: Path) -> Source:
    """Export the commit that is checked out; every file has the commit's time."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return Source(folder=folder, commit=git("rev-parse", "HEAD"), epoch=int(git("log", "-1", "--format=%ct")))


def git(*arguments: str) -> str:
    """Return what git says."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run(source: Source, *command: str | Path, cwd: Path | None = None) -> None:
    """Run a program that builds; its output goes to standard error, as standard output lists what was built."""
    folder, environment = cwd or source.folder, source.environment
    subprocess.run([*map(str, command)], cwd=folder, env=environment, stdout=sys.stderr, check=True)


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def archive_of(files: Mapping[str, bytes], epoch: int) -> bytes:
    """Return a tar archive of files, the same bytes for the same files and time."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), epoch, 0o644
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def write_context(source: Source, path: Path) -> None:
    """Write what `docker build - < FILE` needs: the Dockerfile and what it copies."""
    recipe = (source.folder / "Dockerfile").read_text(encoding="utf-8")
    files = {name: (source.folder / name).read_bytes() for name in ("Dockerfile", ".dockerignore")}
    for name, operands in build_rootfs.instructions(recipe):
        if name == "COPY" and not operands.startswith("--"):
            for copied in operands.split()[:-1]:
                files |= {
                    str(each.relative_to(source.folder)): each.read_bytes() for each in _files(source.folder / copied)
                }
    path.write_bytes(gzip.compress(archive_of(files, source.epoch), mtime=0))


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else (each for each in path.rglob("*") if each.is_file())


def build_image(source: Source, target: Path) -> None:
    """Build the image as an OCI archive, where a Docker daemon answers and buildx is there."""
    for needed in (["docker", "info"], ["docker", "buildx", "version"]):
        if shutil.which("docker") is None or subprocess.run(needed, capture_output=True, check=False).returncode:
            print("The image is NOT built: no Docker daemon, or no buildx. Its context is.", file=sys.stderr)
            return
    arguments = {"VERSION": source.version, "REVISION": source.commit, "SOURCE_DATE_EPOCH": str(source.epoch)}
    given = [part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")]
    output = f"type=oci,dest={target},name=myria:{source.version},rewrite-timestamp=true"
    run(source, "docker", "buildx", "build", "--provenance=false", *given, f"--output={output}", ".")


def bill_of_packages(source: Source) -> str:
    """Return the bill of materials of the image's Python packages, which are those of the wheel with all extras."""
    lock = (source.folder / "requirements/image.txt").read_text(encoding="utf-8")
    locked = {"myria", *(sbom.normal(name) for name in re.findall(r"^([\w.-]+)==", lock, re.MULTILINE))}
    return sbom.bill([each for each in sbom.installed(sys.executable) if sbom.normal(each["name"]) in locked])


def bill_of_chart(source: Source) -> str:
    """Return the bill of materials of the chart: the image that it runs."""
    about = chart_metadata(source)
    image: Json = {"type": "container", "name": "myria", "version": about["appVersion"], "bom-ref": "image"}
    chart: Json = {"type": "application", "name": f"{about['name']} (Helm chart)", "version": about["version"]}
    chart |= {"bom-ref": "chart", "licenses": [{"expression": about["annotations"]["licenses"]}]}
    bom: Json = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": chart}}
    bom |= {"components": [image], "dependencies": [{"ref": "chart", "dependsOn": [image["bom-ref"]]}]}
    return json.dumps(bom, indent=1, sort_keys=True)


def chart_metadata(source: Source) -> Json:
    """Return what Chart.yaml says."""
    metadata: Json = yaml.safe_load((source.folder / "charts/myria/Chart.yaml").read_text(encoding="utf-8"))
    return metadata


def provenance(source: Source, files: Mapping[str, str]) -> str:
    """Return the statement by which commit, builder and locks some files came about; their SHA-256 by name."""
    locks = ["requirements/image.txt", "requirements/image-build.txt", "clients/typescript/package-lock.json"]
    origin = os.environ.get("GITHUB_SERVER_URL", "") + "/" + os.environ.get("GITHUB_REPOSITORY", "")
    builder = os.environ.get("GITHUB_WORKFLOW_REF")
    statement: Json = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": value}} for name, value in sorted(files.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"command": "make release"},
                "resolvedDependencies": [
                    {"uri": f"git+{origin}" if builder else "git", "digest": {"gitCommit": source.commit}},
                    *(
                        {"name": name, "digest": {"sha256": digest((source.folder / name).read_bytes())}}
                        for name in locks
                    ),
                    base_image(source),
                ],
            },
            "runDetails": {"builder": {"id": f"{origin}/{builder}" if builder else "urn:myria:local"}},
        },
    }
    return json.dumps(statement, indent=1, sort_keys=True)


def base_image(source: Source) -> Json:
    """Return the image's base as a resolved dependency."""
    recipe = (source.folder / "Dockerfile").read_text(encoding="utf-8")
    name, _, value = re.findall(r"^ARG BASE=(\S+)$", recipe, re.MULTILINE)[0].partition("@sha256:")
    return {"name": name, "digest": {"sha256": value}}


@dataclass(slots=True, kw_only=True)
class Layout:
    """An OCI image layout in memory: blobs by their digest, and the manifests that its index lists."""

    files: dict[str, bytes] = field(default_factory=dict)
    manifests: list[Json] = field(default_factory=list)

    def blob(self, content: bytes, media_type: str) -> Json:
        """Add a blob; return its descriptor."""
        self.files[f"blobs/sha256/{digest(content)}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest(content)}", "size": len(content)}

    def manifest(self, config: Json, layers: Sequence[Json], *, tag: str | None = None, **more: Any) -> Json:
        """Add a manifest to the index, under a tag or none; return its descriptor."""
        body = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [*layers], **more}
        listed = self.blob(json.dumps(body, sort_keys=True).encode(), MANIFEST)
        labels = {"annotations": {"org.opencontainers.image.ref.name": tag}} if tag else {}
        self.manifests.append({**listed, **labels})
        return listed

    def written(self, epoch: int) -> bytes:
        """Return the layout as a tar archive."""
        index = {"schemaVersion": 2, "manifests": self.manifests}
        heads = {"oci-layout": {"imageLayoutVersion": "1.0.0"}, "index.json": index}
        return archive_of(self.files | {name: json.dumps(head).encode() for name, head in heads.items()}, epoch)


def write_chart_layout(source: Source, path: Path, chart: Path, bill: str) -> None:
    """Write the chart as OCI registries hold it, with its bill of materials and provenance as referrers."""
    about = chart_metadata(source)
    layout = Layout()
    config = layout.blob(json.dumps(about, sort_keys=True).encode(), CHART_CONFIG)
    content = layout.blob(chart.read_bytes(), CHART_CONTENT)
    annotations = {
        "org.opencontainers.image.title": about["name"],
        "org.opencontainers.image.version": about["version"],
        "org.opencontainers.image.revision": source.commit,
    }
    subject = layout.manifest(config, [content], tag=about["version"], annotations=annotations)
    statement = provenance(source, {chart.name: digest(chart.read_bytes()), about["name"]: subject["digest"][7:]})
    for kind, attached in ((BILL, bill), (STATEMENT, statement)):
        layer = layout.blob(attached.encode(), kind)
        layout.manifest(layout.blob(b"{}", EMPTY), [layer], artifactType=kind, subject=subject)
    path.write_bytes(layout.written(source.epoch))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
