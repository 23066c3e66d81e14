"""Follow the Dockerfile without a daemon: build its root file system in a clean folder.

Usage: build_rootfs.py FOLDER

COPY and RUN are carried out below FOLDER with this machine's Python in place of the base image; absolute paths under
/opt become paths under FOLDER. What the last stage does not copy is removed again. FOLDER/image.json then says how the
image runs: environment, user, entrypoint, labels. Only the instructions that the Dockerfile uses are known, and an
unknown one is an error, so that the two cannot drift apart.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IGNORED = ("EXPOSE",)


@dataclass(slots=True, kw_only=True)
class Image:
    """The image's configuration, from the instructions of the last stage."""

    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile: name and the rest, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, operands = line.strip().partition(" ")
            yield name.upper(), operands.strip()


class Builder:
    """Carries out a Dockerfile of two stages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arguments: dict[str, str] = {}
        self.image = Image()
        self._declared: set[str] = set()
        self._stages = 0
        self._source = folder / "src"
        self._kept: set[Path] = set()

    def build(self) -> Image:
        """Build everything; return how the image runs."""
        for name, operands in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
            if name in IGNORED:
                continue
            step = getattr(self, f"_{name.lower()}", None)
            if step is None:
                raise SystemExit(f"Dockerfile: {name} is not known to scripts/build_rootfs.py")
            step(operands)
        for entry in [*self.folder.iterdir(), *(self.folder / "opt").iterdir()]:
            if not any(entry == copied or entry in copied.parents or copied in entry.parents for copied in self._kept):
                shutil.rmtree(entry)
        return self.image

    def _is_last(self) -> bool:
        return self._stages == 2

    def _filled(self, text: str) -> str:
        """Return text with build arguments in it; a stage knows only those that it declares itself."""
        return re.sub(
            r"\$\{(\w+)\}", lambda match: self.arguments[match[1]] if match[1] in self._declared else "", text
        )

    def _arg(self, operands: str) -> None:
        key, _, value = operands.partition("=")
        self.arguments[key] = value or self.arguments.get(key, "")
        self._declared.add(key)

    def _from(self, operands: str) -> None:
        self._stages += 1
        self._declared = set()
        expected = "${BASE} AS build" if self._stages == 1 else "${BASE}"
        if operands != expected or self._stages > 2:
            raise SystemExit(f"Dockerfile: FROM {operands} is not what scripts/build_rootfs.py follows")

    def _workdir(self, operands: str) -> None:
        if self._is_last():
            self.image.workdir = operands
        elif operands == "/src":
            self._source.mkdir(parents=True)
        else:
            raise SystemExit(f"Dockerfile: WORKDIR {operands} in the first stage")

    def _copy(self, operands: str) -> None:
        if self._is_last():
            option, source, target = operands.split()
            if option != "--from=build" or not source.startswith("/opt/"):
                raise SystemExit(f"Dockerfile: COPY {operands} in the last stage")
            destination = self.folder / target.lstrip("/")
            if source != target:
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._below(source), destination)
            self._kept.add(destination)
            return
        *names, target = operands.split()
        for name in names:
            wanted = ROOT / name
            destination = self._source / target / wanted.name if len(names) > 1 else self._source / target
            destination.parent.mkdir(parents=True, exist_ok=True)
            if wanted.is_dir():
                shutil.copytree(wanted, destination, ignore=_ignored, dirs_exist_ok=True)
            elif _is_ignored(wanted):
                raise SystemExit(f".dockerignore keeps {name} out, which the Dockerfile copies")
            else:
                shutil.copy(wanted, destination)

    def _run(self, operands: str) -> None:
        if self._is_last():
            raise SystemExit("Dockerfile: RUN in the last stage would add a layer; do it in the first")
        command = [self._below(word) if word.startswith("/opt/") else word for word in shlex.split(operands)]
        environment = {
            key: value for key, value in os.environ.items() if key in {"PATH", "HOME"} or key.startswith("PIP_")
        }
        python = Path(sys.executable).parent
        environment["PATH"] = f"{python}:{environment.get('PATH', os.defpath)}"
        subprocess.run(command, check=True, cwd=self._source, env=environment, stdin=subprocess.DEVNULL)

    def _below(self, path: str) -> str:
        return str(self.folder / path.lstrip("/"))

    def _label(self, operands: str) -> None:
        for word in shlex.split(self._filled(operands)):
            key, _, value = word.partition("=")
            self.image.labels[key] = value

    def _env(self, operands: str) -> None:
        for word in shlex.split(operands):
            key, _, value = word.partition("=")
            self.image.environment[key] = value.replace("/opt/", f"{self.folder}/opt/")

    def _user(self, operands: str) -> None:
        self.image.user = operands

    def _entrypoint(self, operands: str) -> None:
        self.image.entrypoint = json.loads(operands)

    def _cmd(self, operands: str) -> None:
        self.image.command = json.loads(operands)


def _rules() -> list[str]:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _is_ignored(path: Path) -> bool:
    """Tell whether .dockerignore keeps a file or folder out; the last rule that matches counts."""
    name = path.relative_to(ROOT).as_posix()
    ignored = False
    for rule in _rules():
        pattern = rule.removeprefix("!")
        within = pattern.startswith("**/") and fnmatch.fnmatch(path.name, pattern.removeprefix("**/"))
        if within or any(fnmatch.fnmatch(prefix, pattern) for prefix in _prefixes(name)):
            ignored = not rule.startswith("!")
    return ignored


def _prefixes(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _ignored(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if _is_ignored(Path(folder) / name)}


def main(arguments: list[str]) -> int:
    """Build into a new folder; return the exit status."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0]).absolute()
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder} is not empty", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    image = Builder(folder).build()
    configuration = {name: getattr(image, name) for name in Image.__dataclass_fields__}
    (folder / "image.json").write_text(json.dumps(configuration, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
