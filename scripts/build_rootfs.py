"""Follow the Dockerfile without a daemon: build its root file system in a clean folder.

Usage: build_rootfs.py FOLDER

COPY and RUN are carried out below FOLDER with this machine's Python in place of the base image; absolute paths under
/opt become paths under FOLDER. What the last stage does not copy is removed again. FOLDER/image.json then says how the
image runs: environment, user, entrypoint, labels. Only the instructions that the Dockerfile uses are known, and an
unknown one is an error, so that the two cannot drift apart.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Dockerfile: name and the rest, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, operands = line.strip().partition(" ")
            yield name.upper(), operands.strip()


class Builder:
    """Carries out a Dockerfile of two stages: the first builds, the last configures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image: dict[str, Any] = {"environment": {}, "labels": {}}
        self._arguments: dict[str, str] = {}
        self._copied: set[Path] = set()

    def build(self) -> None:
        """Carry out the Dockerfile, and say in image.json how the image runs."""
        self.follow((ROOT / "Dockerfile").read_text(encoding="utf-8"))
        (self.folder / "image.json").write_text(json.dumps(self.image, indent=1), encoding="utf-8")

    def follow(self, recipe: str) -> None:
        """Carry out a recipe, and remove what the last stage does not have.

        Raises:
            SystemExit: an instruction is not one that is known here.
        """
        stages = 0
        for name, operands in instructions(recipe):
            if name == "FROM":
                stages += 1
            elif name == "ARG":
                key, _, value = operands.partition("=")
                self._arguments[key] = value or self._arguments.get(key, "")
            elif stages == 1:
                self._build(name, operands)
            else:
                self._configure(name, operands)
        if stages != 2:
            raise SystemExit("Dockerfile: it must have two stages")
        for entry in [*self.folder.iterdir(), *(self.folder / "opt").iterdir()]:
            if not any(entry in {copied, *copied.parents} or copied in entry.parents for copied in self._copied):
                shutil.rmtree(entry)

    def _build(self, name: str, operands: str) -> None:
        source = self.folder / "src"
        if (name, operands) == ("WORKDIR", "/src"):
            source.mkdir(parents=True)
        elif name == "COPY":
            *names, target = operands.split()
            for each in names:
                destination = source / target / (Path(each).name if len(names) > 1 else "")
                destination.parent.mkdir(parents=True, exist_ok=True)
                if (ROOT / each).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")  # as .dockerignore has them
                    shutil.copytree(ROOT / each, destination, ignore=ignored, dirs_exist_ok=True)
                else:
                    shutil.copy(ROOT / each, destination)
        elif name == "RUN":
            command = [self._below(word) if word.startswith("/opt/") else word for word in shlex.split(operands)]
            environment = {key: os.environ[key] for key in os.environ if key == "HOME" or key.startswith("PIP_")}
            environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
            subprocess.run(command, check=True, cwd=source, env=environment, stdin=subprocess.DEVNULL)
        else:
            raise SystemExit(f"Dockerfile: {name} {operands} is not known to scripts/build_rootfs.py")

    def _configure(self, name: str, operands: str) -> None:
        if name == "COPY" and operands.startswith("--from=build /opt/"):
            _, source, target = operands.split()
            destination = Path(self._below(target))
            if source != target:
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self._below(source), destination)
            self._copied.add(destination)
        elif name == "LABEL":
            text = re.sub(r"\$\{(\w+)\}", lambda match: self._arguments[match[1]], operands)
            self.image["labels"] |= dict(word.split("=", 1) for word in shlex.split(text))
        elif name == "ENV":
            text = operands.replace("/opt/", f"{self.folder}/opt/")
            self.image["environment"] |= dict(word.split("=", 1) for word in shlex.split(text))
        elif name in {"USER", "WORKDIR"}:
            self.image[name.lower()] = operands
        elif name in {"ENTRYPOINT", "CMD"}:
            self.image["command" if name == "CMD" else "entrypoint"] = json.loads(operands)
        elif name != "EXPOSE":
            raise SystemExit(f"Dockerfile: {name} {operands} in the last stage; do it in the first")

    def _below(self, path: str) -> str:
        return str(self.folder / path.lstrip("/"))


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
    Builder(folder).build()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
