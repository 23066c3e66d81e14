"""Check the rules of the house that no linter knows; print every breach and exit 1 when there is one.

- operator/ holds its package folder and nothing else: a Python file beside it would shadow the standard library's
  `operator` module.
- Tests live under tests/ alone.
- The version is the same in pyproject.toml and CHANGELOG.md's newest entry.
- What the code imports is declared in pyproject.toml, and what is declared there is explained in docs/dependencies.md.
- Links between the pages of the documentation lead somewhere.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLANES = ("core", "server", "operator", "builder_job", "rebuilds", "monitoring", "embedded", "cli", "migrations")
OURS = {
    "tests",
    "benchmarks",
    "scripts",
    "myria",
    "myria_server",
    "myria_operator",
    "myria_builder",
    "myria_rebuilds",
    "myria_monitoring",
    "myria_embedded",
    "myria_cli",
    "myria_migrations",
}


def main() -> int:
    """Return the exit status."""
    breaches = [
        *operator_breaches(),
        *test_breaches(),
        *version_breaches(),
        *import_breaches(),
        *explanation_breaches(),
        *link_breaches(),
    ]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


def operator_breaches() -> Iterator[str]:
    """Yield what stands in operator/ beside its package folder."""
    for path in sorted((ROOT / "operator").iterdir()):
        if path.name not in {"myria_operator", "__pycache__"}:
            yield f"{path.relative_to(ROOT)}: operator/ may hold only myria_operator/"


def test_breaches() -> Iterator[str]:
    """Yield tests that stand inside the packages."""
    for plane in PLANES:
        for path in sorted((ROOT / plane).rglob("*.py")):
            if path.name == "conftest.py" or path.name.startswith("test_"):
                yield f"{path.relative_to(ROOT)}: tests belong under tests/"


def version_breaches() -> Iterator[str]:
    """Yield a version that the change log does not know."""
    version = project()["version"]
    entries = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if version not in entries:
        yield f"CHANGELOG.md: no entry for the version {version} of pyproject.toml"


def import_breaches() -> Iterator[str]:
    """Yield imports of distributions that pyproject.toml does not declare."""
    distributions = packages_distributions()
    declared = {normal(name) for name in declared_names()}
    for folder in (*PLANES, "tests", "benchmarks", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for name in sorted(imported(path) - OURS - sys.stdlib_module_names):
                providers = {normal(provider) for provider in distributions.get(name, [name])}
                if not providers & declared:
                    yield f"{path.relative_to(ROOT)}: imports {name}, which pyproject.toml does not declare"


def explanation_breaches() -> Iterator[str]:
    """Yield declared distributions that docs/dependencies.md does not name."""
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").lower()
    for name in sorted({*declared_names()}):
        if not re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", page):
            yield f"docs/dependencies.md: does not explain {name}"


def link_breaches() -> Iterator[str]:
    """Yield links of the documentation to files that are not there."""
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{page.relative_to(ROOT)}: leads to {target}, which is not there"


def imported(path: Path) -> set[str]:
    """Return the top-level names of the modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


def declared_names() -> Iterator[str]:
    """Yield the distributions that pyproject.toml names, whatever their extra."""
    optional: dict[str, list[str]] = project()["optional-dependencies"]
    for requirement in [*project()["dependencies"], *(item for items in optional.values() for item in items)]:
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        assert match is not None
        yield match[0]


def normal(name: str) -> str:
    """Return a distribution's name as the registry compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def project() -> dict[str, Any]:
    """Return the [project] table."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


if __name__ == "__main__":
    raise SystemExit(main())
