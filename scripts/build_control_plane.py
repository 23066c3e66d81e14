"""Provide a real Kubernetes control plane for the tests: etcd, kube-apiserver and kube-controller-manager.

Usage: build_control_plane.py [--find] [--mirror URL]

Prints the folder that holds the three programs. That is KUBEBUILDER_ASSETS when it is set; else a folder in the
user's cache (`$XDG_CACHE_HOME/myria`, else `~/.cache/myria`), where they are built once from Debian 12's own packages:
Kubernetes 1.20.2 from source with Debian's Go 1.19, and Debian's etcd 3.4. `--find` never builds and exits 1 when
they are absent.

The build takes 4 to 10 minutes on two cores, 3 GB of scratch beside the result (134 MB) and a Debian mirror: the one
this machine's apt already uses, or `--mirror`. It runs as any user, changes nothing outside its folder and, when it was
stopped, goes on where it was. Needs Debian's apt and dpkg, tar and the keyring of the Debian archive.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts import debian

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
VERSION = "1.20.2"
GO = "go-1.19"
PACKAGES = ("golang-1.19-go", "golang-1.19-src", "etcd-server", "golang-github-modern-go-reflect2-dev")
STEPS = 4


def main(arguments: Sequence[str]) -> int:
    """Find or build the programs; return the exit status."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and not debian.has_programs(Path(assets), PROGRAMS):
        print(f"KUBEBUILDER_ASSETS={assets} lacks one of {', '.join(PROGRAMS)}.", file=sys.stderr)
        return 1
    folder = Path(assets) if assets else debian.cache_folder() / f"control-plane-{VERSION}"
    return debian.provide("control plane", PROGRAMS, folder, build, arguments)


def build(made: Path, scratch: Path, mirror: str) -> None:
    """Build the programs into a new folder.

    Raises CalledProcessError when a step fails.
    """
    os.nice(10)
    started = time.monotonic()
    say(1, "download the packages")
    downloads = debian.download(scratch, mirror, PACKAGES, sources=["kubernetes"])
    say(2, "unpack them")
    source = unpack(scratch, downloads)
    environment = go_environment(scratch)
    say(3, "generate the OpenAPI definitions")
    generate_openapi(scratch, source, environment)
    say(4, "compile kube-apiserver and kube-controller-manager (minutes)")
    compile_programs(scratch, source, environment)
    (scratch / "bin").rename(made)
    print(f"Built in {time.monotonic() - started:.0f} s.", file=sys.stderr)


def say(step: int, what: str) -> None:
    """Write to standard error which step begins; standard output holds only the result."""
    print(f"control plane {step}/{STEPS}: {what}", file=sys.stderr, flush=True)


def unpack(scratch: Path, downloads: Path) -> Path:
    """Lay out Go and the source as Go's old GOPATH wants them; return the folder of Kubernetes' source."""
    source = scratch / "go/src/k8s.io/kubernetes"
    unpacked = scratch / "unpacked"
    if unpacked.exists():
        return source
    for part in (scratch / "go", scratch / "root", scratch / "bin"):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
    debian.unpack(downloads, scratch / "root")
    (original,) = downloads.glob("kubernetes_*.orig.tar.gz")
    source.mkdir(parents=True)
    debian.run(["tar", "-xzf", original, "--strip-components=1", "-C", source], cwd=scratch, environment=os.environ)
    shutil.copy2(scratch / "root/usr/bin/etcd", scratch / "bin/etcd")
    # reflect2 1.0.1, which Kubernetes carries, crashes under Go >= 1.18 on every custom resource; Debian has 1.0.2.
    carried = source / "vendor/github.com/modern-go/reflect2"
    for old in [*carried.glob("*.go"), *carried.glob("*.s")]:
        old.unlink()
    newer = scratch / "root/usr/share/gocode/src/github.com/modern-go/reflect2"
    for new in [*newer.glob("*.go"), *newer.glob("*.s")]:
        if not new.name.endswith("_test.go"):
            shutil.copy2(new, carried / new.name)
    unpacked.touch()
    return source


def go_environment(scratch: Path) -> dict[str, str]:
    """Return the environment of the Go tools: nothing from the network, nothing outside the scratch folder."""
    root = scratch / "root/usr/lib" / GO
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GO", "CGO_"))}
    return {
        **inherited,
        "GOROOT": str(root),
        "GOPATH": str(scratch / "go"),
        "GOCACHE": str(scratch / "go-cache"),
        "GOENV": "off",
        "GO111MODULE": "off",
        "GOPROXY": "off",
        "CGO_ENABLED": "0",
        "PATH": f"{root}/bin:{os.environ['PATH']}",
    }


def generate_openapi(scratch: Path, source: Path, environment: Mapping[str, str]) -> None:
    """Write the Go file with the OpenAPI definitions, which the release's source leaves out."""
    if (scratch / "generated").exists():
        return
    generator, package = f"{scratch}/openapi-gen", "k8s.io/kubernetes/pkg/generated/openapi"
    debian.run(
        ["go", "build", "-o", generator, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen"],
        cwd=source,
        environment=environment,
    )
    inputs = ",".join(f"k8s.io/kubernetes/{folder}" for folder in marked_folders(source))
    output_options = ["--logtostderr", "-i", inputs, "-p", package, "-O", "zz_generated.openapi"]
    report_options = ["-h", "vendor/k8s.io/code-generator/hack/boilerplate.go.txt", "-r", f"{scratch}/violations"]
    debian.run([generator, *output_options, *report_options], cwd=source, environment=environment)
    (scratch / "generated").touch()


def marked_folders(source: Path) -> list[str]:
    """Return, in order, the folders whose Go files ask for OpenAPI definitions."""
    folders = set()
    staged = [
        source / "vendor/k8s.io" / path.name for path in (source / "vendor/k8s.io").iterdir() if path.is_symlink()
    ]
    for top in [source / "pkg", *staged]:
        for parent, _, files in os.walk(f"{top}/"):
            relative = os.path.relpath(parent, source)
            if any(part in relative for part in ("code-generator", "sample-apiserver")):
                continue
            for file in files:
                if file.endswith(".go") and not file.endswith("_test.go"):
                    text = (Path(parent) / file).read_text(encoding="utf-8", errors="replace")
                    if "+k8s:openapi-gen=" in text:
                        folders.add(relative)
                        break
    return sorted(folders)


def compile_programs(scratch: Path, source: Path, environment: Mapping[str, str]) -> None:
    """Compile the two programs of Kubernetes; they name the version they were made from."""
    major, minor, _ = VERSION.split(".")
    stamps = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(
        f"-X k8s.io/kubernetes/vendor/k8s.io/{package}.{name}={value}"
        for package in ("component-base/version", "client-go/pkg/version")
        for name, value in stamps.items()
    )
    programs = [f"k8s.io/kubernetes/cmd/{program}" for program in PROGRAMS[1:]]
    debian.run(
        ["go", "build", "-tags", "providerless", "-ldflags", f"-s -w {flags}", "-o", f"{scratch / 'bin'}/", *programs],
        cwd=source,
        environment=environment,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
