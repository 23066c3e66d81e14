"""Build the TypeScript client's tarball, or write its types for an editor.

Usage: typescript_client.py pack FOLDER | types

`src/openapi.ts`, the types of what the server takes and answers, is made from the server's OpenAPI document each time
the package is built, so it is not kept in git. `pack` compiles the client, puts its tarball into the folder and prints
where it is. `types` writes the file beside the other sources, for whoever works on them. What both need besides Node.js
is in clients/typescript/package-lock.json and comes once per machine into the user's cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from myria_server.api.memtrace.openapi import document
from tests.clients import toolchain

CLIENT = Path(__file__).resolve().parent.parent / "clients" / "typescript"
TYPES = Path("src", "openapi.ts")


def main(arguments: Sequence[str]) -> int:
    """Do what is asked; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("types")
    actions.add_parser("pack").add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    if options.action == "pack":
        print(pack(options.folder))
    else:
        write_types(CLIENT / TYPES)
    return 0


def write_types(file: Path) -> None:
    """Write the types that the server's OpenAPI document describes."""
    with tempfile.TemporaryDirectory() as scratch:
        described = Path(scratch, "openapi.json")
        described.write_text(json.dumps(document("")), encoding="utf-8")
        program = toolchain.node_folder(CLIENT) / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
        options = ("--output", file, "--default-non-nullable", "false")
        _run([toolchain.node(), program, described, *options], Path(scratch))


def pack(folder: Path) -> Path:
    """Compile the client and return its tarball, which is put into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name in ("package.json", "tsconfig.json", "README.md"):
            shutil.copy(CLIENT / name, place)
        shutil.copytree(CLIENT / "src", place / "src")
        write_types(place / TYPES)
        shutil.copy(CLIENT.parent.parent / "LICENSE", place)
        (place / "node_modules").symlink_to(toolchain.node_folder(CLIENT) / "node_modules")
        _run([toolchain.node(), place / "node_modules" / "typescript" / "bin" / "tsc", "--project", place], place)
        packed = _run(
            [*toolchain.npm(), "pack", "--json", "--ignore-scripts", "--pack-destination", folder.resolve()], place
        )
    tarball: str = json.loads(packed)[0]["filename"]
    return folder / tarball


def _run(command: Sequence[str | Path], place: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=place, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
