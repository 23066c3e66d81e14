"""Check the project's own rules, which no linter knows; print every breach and exit 1 when there is one.

- operator/ holds its package folder and nothing else: a Python file beside it would shadow the standard library's
  `operator` module.
- Tests live under tests/ alone.
- No test asserts that something took less than some time: a busy machine takes as long as it takes.
- The version is the same in pyproject.toml and CHANGELOG.md's newest entry.
- What the code imports is declared in pyproject.toml, and what is declared there is explained in docs/dependencies.md.
- Every SQL statement, and every name that a package defines for others, is used by the product (`UNUSED` says why not).
- The baseline and the numbered migrations of the newest release (git's newest tag v*) never change again.
- Where charts/myria is not as that release has it, its version is greater.
- No two classes of the packages have one name.
- Every package of the lock has a hash, and no line of it names a registry.
- Links between the pages of the documentation lead somewhere.
"""

from __future__ import annotations

import ast
import re
import subprocess
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
    "myria_client",
    "myria_migrations",
}

UNUSED = {
    "capture_signals": "uvicorn calls it",
    "in_use": "tests watch a pool by it",
    "send_400_response": "uvicorn calls it",
    "eof_received": "asyncio calls it",
}
"""Names that nothing in the product, its scripts or its benchmarks uses, with the reason why they stay."""


def main() -> int:
    """Return the exit status."""
    breaches = [
        *operator_breaches(),
        *test_breaches(),
        *clock_breaches(),
        *version_breaches(),
        *import_breaches(),
        *explanation_breaches(),
        *statement_breaches(),
        *migration_breaches(),
        *chart_breaches(),
        *name_breaches(),
        *class_breaches(),
        *lock_breaches(),
        *link_breaches(),
    ]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


def lock_breaches() -> Iterator[str]:
    """Yield packages of requirements/*.txt without a hash, and lines that name where to get them."""
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        place = path.relative_to(ROOT)
        for entry in re.split(r"(?m)^(?=[A-Za-z0-9])", path.read_text(encoding="utf-8"))[1:]:
            name = entry.split()[0]
            if "==" not in name or "--hash=sha256:" not in entry:
                yield f"{place}: {name} has no exact version with a hash; `make lock`"
        if re.search(r"(?m)^\s*--(extra-)?index-url|^[^#]*https?://", path.read_text(encoding="utf-8")):
            yield f"{place}: names a registry or an address; `make lock`"


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


def clock_breaches() -> Iterator[str]:
    """Yield assertions of tests that the difference of two readings of a clock is below something.

    The difference stands in the assertion, or under a name that was given to it anywhere in the file.
    """
    passed = r"(?:monotonic|perf_counter|process_time|thread_time|time\.time)(?:_ns)?\(\) - \w+"
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        names = re.findall(rf"^ *(\w+) (?:=|\+=) [^\n]*{passed}", text, re.MULTILINE)
        times = "|".join([passed, *(rf"\b{name}\b" for name in names)])
        for match in re.finditer(
            rf"^ *assert [^\n]*(?:{times})[^\n]* <|^ *assert [^\n]*> [^\n]*(?:{times})", text, re.MULTILINE
        ):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}: asserts how long something takes at most; count work instead"


def version_breaches() -> Iterator[str]:
    """Yield a breach when the change log has no entry for the version."""
    version = project()["version"]
    entries = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if version not in entries:
        yield f"CHANGELOG.md: no entry for the version {version} of pyproject.toml"


def import_breaches() -> Iterator[str]:
    """Yield imports of distributions that pyproject.toml does not declare.

    A program with a requirements.txt beside it runs in an environment of its own.
    """
    distributions = packages_distributions()
    declared = {normal(name) for name in declared_names()}
    for folder in (*PLANES, "tests", "benchmarks", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.with_name("requirements.txt").exists():
                continue
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


def statement_breaches() -> Iterator[str]:
    """Yield SQL statements that no program refers to."""
    programs = "".join(path.read_text(encoding="utf-8") for path in product_files())
    for path in sorted(file for plane in PLANES if plane != "migrations" for file in (ROOT / plane).rglob("*.sql")):
        for name in re.findall(r"^-- name: ([a-z0-9_]+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            if f'"{path.stem}.{name}"' not in programs:
                yield f"{path.relative_to(ROOT)}: nothing executes {path.stem}.{name}"


def migration_breaches() -> Iterator[str]:
    """Yield changes of SQL that the newest release applies; its functions may change."""
    release = released()
    if release is None:
        return
    folder = "migrations/myria_migrations"
    for line in git("diff", "--name-status", "--no-renames", release, "--", f"{folder}/schema", f"{folder}/numbered"):
        status, name = line.split("\t")
        if name.endswith(".sql") and "_functions_" not in name and (status != "A" or "/schema/" in name):
            yield f"{name}: was released; write a numbered migration instead"


def chart_breaches() -> Iterator[str]:
    """Yield a chart that changed since the newest release under the version it had then."""
    release = released()
    if release is None or not git("diff", "--name-only", release, "--", "charts/myria"):
        return
    then = "\n".join(git("show", f"{release}:charts/myria/Chart.yaml"))
    now = (ROOT / "charts/myria/Chart.yaml").read_text(encoding="utf-8")
    if _chart_version(now) <= _chart_version(then):
        yield "charts/myria: changed since the release before; give Chart.yaml a greater version"


def released() -> str | None:
    """Return the tag of the newest release that git knows here; None before the first, and where git is not there."""
    tags = git("describe", "--tags", "--abbrev=0", "--match", "v*")
    return tags[0] if tags else None


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints; none where it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def _chart_version(text: str) -> tuple[int, ...]:
    found = re.search(r"^version: (\d+)\.(\d+)\.(\d+)$", text, re.MULTILINE)
    return tuple(map(int, found.groups())) if found else ()


def name_breaches() -> Iterator[str]:
    """Yield functions, classes, methods and constants that nothing but a test uses, and exemptions that are over."""
    defined: dict[str, Path] = {}
    used: set[str] = set()
    for path in [*product_files(), *(ROOT / "scripts").glob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                used.update(alias.name for alias in node.names if alias.asname not in {None, alias.name})
        if path.relative_to(ROOT).parts[0] in PLANES:
            defined |= dict.fromkeys(definitions(tree), path)
    for name in sorted(defined.keys() - used - UNUSED.keys()):
        yield f"{defined[name].relative_to(ROOT)}: nothing uses {name}"
    for name in sorted(UNUSED.keys() - (defined.keys() - used)):
        yield f"scripts/check_house.py: {name} is used or gone, and needs no exemption"


def definitions(tree: ast.Module) -> Iterator[str]:
    """Yield the functions, classes, methods and constants of a module; a decorator that registers is a use."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in [*tree.body, *(member for class_ in classes for member in class_.body)]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            passive = {"property", "cached_property", "staticmethod", "classmethod", "dataclass", "contextmanager"}
            names = {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list}
            if names <= passive and not node.name.startswith("__"):
                yield node.name
    for node in tree.body:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                yield target.id


def class_breaches() -> Iterator[str]:
    """Yield names that stand for two classes."""
    homes: dict[str, list[str]] = {}
    for path in product_files():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield f"{' and '.join(paths)}: two classes named {name}"


def product_files() -> list[Path]:
    """Return the Python files of the packages."""
    return sorted(path for plane in PLANES for path in (ROOT / plane).rglob("*.py"))


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
