"""Compare what users can rely on in an older commit and in this checkout; exit 1 when something is gone.

Usage: compare_promises.py REVISION [--all]

It reads names where users find them, so that code may move: tools with their arguments and answers, settings, error
codes and metrics from the pages that `make docs` writes; routes from the server's table; commands with their options
from the command line's own tree; fields of the MyriaRebuild resource; values of the chart. It prints one Markdown
table, then what is gone; `--all` also lists what is new.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "server", "operator", "builder_job", "rebuilds", "monitoring", "embedded", "cli", "migrations")
LIST_COMMANDS = """
import typer
import myria_cli.app

app = getattr(myria_cli.app, "app", None) or myria_cli.app.application()

def walk(command, path):
    options = [name for each in command.params for name in (*each.opts, *each.secondary_opts) if name.startswith("--")]
    print(" ".join(path))
    for option in options:
        print(" ".join((*path, option)))
    for name, below in getattr(command, "commands", {}).items():
        walk(below, (*path, name))

walk(typer.main.get_command(app), ("myria",))
"""


def main(arguments: list[str]) -> int:
    """Print the comparison; return the exit status."""
    given = [each for each in arguments if each != "--all"]
    if len(given) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.Popen(["git", "archive", given[0]], cwd=ROOT, stdout=subprocess.PIPE)
        with tarfile.open(fileobj=archive.stdout, mode="r|") as files:
            files.extractall(folder, filter="data")
        before = promises(Path(folder))
    now = promises(ROOT)
    print(f"| | {given[0]} | now | gone | new |\n|---|---|---|---|---|")
    for what, names in before.items():
        gone, new = names - now[what], now[what] - names
        print(f"| {what} | {len(names)} | {len(now[what])} | {len(gone)} | {len(new)} |")
    for what, names in before.items():
        for name in sorted(names - now[what]):
            print(f"gone: {what}: {name}")
        for name in sorted(now[what] - names) if "--all" in arguments else ():
            print(f"new: {what}: {name}")
    return 1 if any(names - now[what] for what, names in before.items()) else 0


_ROUTE = re.compile(r'(?:method=)?"(GET|POST|PUT|PATCH|DELETE)",\s+(?:path=)?"(/[^"]*)"')


def promises(root: Path) -> Mapping[str, set[str]]:
    """Return the names that a checkout promises, by kind."""
    pages = {
        name: (root / f"docs/{name}.md").read_text(encoding="utf-8")
        for name in ("tools", "settings", "errors", "metrics")
    }
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for name in ("routes.py", "handlers.py")
        for path in (root / "server").rglob(name)
    )
    resource = yaml.safe_load((root / "crds/myriarebuild.yaml").read_text(encoding="utf-8"))
    values = yaml.safe_load((root / "charts/myria/values.yaml").read_text(encoding="utf-8"))
    return {
        "tools": set(re.findall(r"^## (myria_\w+|[a-z_]+)$", pages["tools"], re.MULTILINE)),
        "arguments of tools": set(arguments_of_tools(pages["tools"])),
        "fields of answers": set(answers_of_tools(pages["tools"])),
        "routes": {f"{method} {path}" for method, path in _ROUTE.findall(sources)},
        "settings with defaults": set(settings(pages["settings"])),
        "error codes": set(
            re.findall(r"^(?:- |\| |[^\w\n]*\w+ +)`?([a-z]+(?:_[a-z]+)+)`?\b", pages["errors"], re.MULTILINE)
        ),
        "metrics": set(re.findall(r"^(?:- |\| )`(myria_\w+)`", pages["metrics"], re.MULTILINE)),
        "commands and options": commands(root),
        "fields of MyriaRebuild": {
            f"{version['name']}{path}"
            for version in resource["spec"]["versions"]
            for path in fields(version["schema"]["openAPIV3Schema"])
        },
        "values of the chart": set(keys(values)),
    }


def sections(page: str) -> Iterator[tuple[str, str]]:
    """Yield the headings of a page's second level, each with its text."""
    for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        yield heading.strip(), text


def arguments_of_tools(page: str) -> Iterator[str]:
    """Yield each tool's arguments."""
    listed: dict[str, list[str]] = {}
    for common, tool, text in tools_of_groups(page):
        names = re.findall(r"^\| `(\w+)`", text, re.MULTILINE) + common
        for line in re.findall(r"^- (.*)$", text, re.MULTILINE):
            shared = re.match(r"As for `(\w+)`(?:: (.*))?$", line)
            # One line may name several arguments, some with their types in parentheses.
            own = re.match(r"((?:`\w+`(?: \((?:[^()]|\([^()]*\))*\))?,? ?)+)", line)
            if shared:
                names += re.findall(r"`(\w+)`", shared[2] or "") or listed.get(shared[1], [])
            elif own:
                names += re.findall(r"`(\w+)`(?= \(|,|:|$| $)", own[1] + ":")
        listed[tool] = names
        yield from (f"{tool}({name})" for name in names)


def tools_of_groups(page: str) -> Iterator[tuple[list[str], str, str]]:
    """Yield each tool with the arguments that its whole group has, and its text."""
    for group in re.split(r"^# At ", page, flags=re.MULTILINE):
        common = re.findall(r"^- `(\w+)`", group.partition("\n## ")[0], re.MULTILINE)
        yield from ((common, tool, text) for tool, text in sections(group))


def answers_of_tools(page: str) -> Iterator[str]:
    """Yield the fields of each tool's answer."""
    listed: dict[str, list[str]] = {}
    for tool, text in sections(page):
        for same, line in re.findall(r"^Answers (as )?(.*)$", text, re.MULTILINE):
            names = re.findall(r"`(\w+)`", line)
            listed[tool] = listed[names[0]] if same else names
            yield from (f"{tool} -> {name}" for name in listed[tool])


def settings(page: str) -> Iterator[str]:
    """Yield each setting with its default."""
    for section, text in sections(page):
        for name, default in re.findall(r"^\| `(\w+)`<br>\S+ \| (.*?) \|", text, re.MULTILINE):
            yield f"{section}.{name}: {default.strip('`')}"
        for name, accepts in re.findall(r"^- `(\w+)` \((.*?)\): ", text, re.MULTILINE):
            yield f"{section}.{name}: {accepts.rpartition('; ')[2].strip('`')}"


def commands(root: Path) -> set[str]:
    """Return the commands of a checkout and their options."""
    done = subprocess.run(
        [sys.executable, "-c", LIST_COMMANDS],
        env={"PYTHONPATH": ":".join(str(root / package) for package in PACKAGES), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines())


def fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of a schema's properties."""
    for name, below in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from fields(below.get("items", below), f"{path}.{name}")


def keys(values: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys."""
    if isinstance(values, dict):
        for name, below in values.items():
            yield f"{path}.{name}"
            yield from keys(below, f"{path}.{name}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
