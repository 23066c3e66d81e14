"""The runbooks: a page per alert, and commands, queries and SQL on them that exist and run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import typer
import yaml

from myria_cli.app import app
from tests.monitoring.rules import RUNBOOKS, alerts
from tests.support.postgres import Database

PAGES = sorted(RUNBOOKS.glob("*.md"))
OWNERS = "-- as the owner of the schema"
"""How a block of SQL begins that the operator's login may not run."""
SECTIONS = ["Meaning", "First looks", "Fix"]


def blocks(kind: str) -> Iterator[tuple[Path, str]]:
    """Yield every fenced block of a language, with its page."""
    for page in PAGES:
        for found in re.findall(rf"```{kind}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            yield page, found


def commands() -> list[str]:
    """Return every command of blocks and of running text, once."""
    found = {line for _, block in blocks("sh") for line in block.splitlines() if line.strip()}
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        found |= set(re.findall(r"`((?:kubectl|myria) (?!\.)[^`]+)`", text))
    return sorted(found)


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    """And the index lists all of them."""
    names = {rule["alert"] for rule in alerts()}
    assert {page.stem for page in PAGES} == names | {"README"}
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^- \[(\w+)\]\(\1\.md\)", index, re.MULTILINE) == sorted(
        names, key=lambda name: index.index(f"[{name}]")
    )


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "README"], ids=lambda page: page.stem)
def test_a_page_is_found_the_way_around_at_night(page: Path) -> None:
    """Every page has the same sections in the same order, and says how severe it is."""
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem}\n\n**")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    severities = {rule["labels"]["severity"] for rule in alerts() if rule["alert"] == page.stem}
    assert {one.lower() for one in re.findall(r"\*\*(Critical|Warning|warning)\.?\*\*", text)} >= severities
    assert re.search(r"```(sh|promql)", text)


@pytest.mark.parametrize("line", [one for one in commands() if re.search(r"(^|-- )myria ", one)])
def test_commands_of_myria_exist(line: str) -> None:
    """Each names a command of the command line, and options that it has."""
    words = shlex.split(line)
    words = words[words.index("myria") + 1 :]
    known = typer.main.get_group(app).commands
    assert words[0] in known
    options = {name for parameter in known[words[0]].params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_commands_of_kubectl_exist() -> None:
    """Kubectl knows each verb, and all flags that are used with it."""
    asked: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line in commands():
        if line.startswith("kubectl"):
            words = shlex.split(line.removeprefix("kubectl").removeprefix(" -n $NS").partition(" -- ")[0])
            verb = tuple(words[: 2 if words[0] == "rollout" else 1])
            asked[verb] += words[len(verb) :]
    assert len(asked) > 10
    for verb, words in asked.items():
        done = subprocess.run(
            [Path(sys.executable).with_name("kubectl"), *verb, "-n", "myria", *words, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{verb} {words}: {done.stderr}"
        assert f"kubectl {' '.join(verb)} " in done.stdout.partition("Usage:")[2], verb


def test_prometheus_can_read_every_query(prometheus: Path, tmp_path: Path) -> None:
    """What a page says to type into Prometheus is PromQL."""
    every = [block.replace("$NS", "myria") for _, block in blocks("promql")]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(every)]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    done = subprocess.run(
        [prometheus / "promtool", "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_sql_runs(database: Database) -> None:
    """Each statement works for the operator's login and shows every tenant, or says that it takes the owner's."""
    operator = await asyncpg.connect(database.operator_dsn)
    owner = await asyncpg.connect(database.dsn)
    try:
        for page, block in blocks("sql"):
            connection = owner if block.startswith(OWNERS) else operator
            for statement in block.split(";\n"):
                if statement.strip():
                    try:
                        await connection.execute(statement)
                    except asyncpg.PostgresError as error:
                        raise AssertionError(f"{page.name}: {error}\n{statement}") from error
    finally:
        await operator.close()
        await owner.close()
