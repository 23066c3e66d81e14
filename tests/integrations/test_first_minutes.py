"""The first minutes of somebody who has the wheels and the tarball alone: install, serve, connect, remember, recall.

With `make integrations`: what Myria needs comes from the package index.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts import typescript_client
from tests.clients import toolchain
from tests.integrations.test_frameworks import ROOT, WANTED
from tests.support.place import throw_away_folder
from tests.support.processes import Guardian, Spawner

INSTALL_TIMEOUT_S = 1_800
PAGE = ROOT / "docs" / "clients.md"


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program; return what it printed."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, check=False, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What `make wheel` and `make clients` make, and a virtual environment that has uv and nothing else."""

    myria: Path
    python_client: Path
    typescript_client: Path
    uvx: Path


@pytest.fixture(scope="module")
def parcel(tmp_path_factory: pytest.TempPathFactory) -> Parcel:
    """The packages, built now."""
    place = tmp_path_factory.mktemp("parcel")
    build = ("-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", place)
    for source in (ROOT, ROOT / "clients/python"):
        run(sys.executable, *build, source, cwd=place)
    run(sys.executable, "-m", "venv", place / "uv", cwd=place)
    run(place / "uv/bin/pip", "install", "--quiet", "uv", cwd=place)
    (myria,), (client,) = place.glob("myria-*.whl"), place.glob("myria_client-*.whl")
    tarball = typescript_client.pack(place)
    return Parcel(myria=myria, python_client=client, typescript_client=tarball, uvx=place / "uv/bin/uvx")


@pytest.fixture
def home(guardian: Guardian) -> Iterator[Path]:
    """A new user's home folder."""
    with throw_away_folder(guardian) as folder:
        folder.chmod(0o755)
        yield folder


def first_program(language: str) -> str:
    """Return the first program in a language that the page on clients prints."""
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


if WANTED == "all":

    @pytest.mark.processes
    @pytest.mark.parametrize("way", ["pip", "uvx"])
    def test_the_first_minutes(way: str, parcel: Parcel, home: Path, spawn: Spawner) -> None:
        """`myria up` serves, `myria connect` shows what it would write, Python and TypeScript remember and recall."""
        python = home / "fresh/bin/python"
        run(sys.executable, "-m", "venv", home / "fresh", cwd=home)
        run(python, "-m", "pip", "install", "--quiet", parcel.python_client, cwd=home)
        myria: tuple[str | Path, ...] = (parcel.uvx, "--from", parcel.myria, "myria")
        if way == "pip":
            run(python, "-m", "pip", "install", "--quiet", parcel.myria, cwd=home)
            myria = (home / "fresh/bin/myria",)
        own = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "MYRIA_DATA_DIR": ""}
        up = spawn(*myria, "up", "--port", "0", "--json", env=own, cwd=home)
        url = json.loads(up.wait_for(r'^\{"url".*\}$')[0])["url"].removesuffix("/mcp")

        shown = spawn(*myria, "connect", "claude-code", "--dry-run", "--url", url, env=own, cwd=home)
        assert shown.wait() == 0
        assert f'"url": "{url}/mcp/agent"' in shown.output()
        assert not (home / ".claude.json").exists()

        code = first_program("python").replace("http://127.0.0.1:8321", url)
        assert len(code.splitlines()) == 6  # five, and an empty one
        assert run(python, "-c", code, cwd=home) == "['Ada prefers tea.']\n"

        folder = home / "npm"
        folder.mkdir()
        (folder / "package.json").write_text('{"private": true}', encoding="utf-8")
        run(*toolchain.npm(), "install", "--offline", "--no-audit", "--no-fund", parcel.typescript_client, cwd=folder)
        code = first_program("js").replace("http://127.0.0.1:8321", url)
        (folder / "first.mjs").write_text(code, encoding="utf-8")
        assert run(toolchain.node(), folder / "first.mjs", cwd=folder) == "Ada prefers tea.\n"
