"""SECURITY.md names a test for every wall, docs/oauth.md one for each habit of a client, and the tests are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def walls() -> list[list[str]]:
    """Return the rows of the table of walls, cell by cell."""
    section = (ROOT / "SECURITY.md").read_text().split("### Walls")[1].split("\n### ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_wall_names_tests() -> None:
    """No wall is only claimed, and none stands there twice."""
    table = walls()
    assert len(table) >= 20
    for row in table:
        assert len(row) == 3, row
        nodes = [cell.strip() for cell in row[2].split(",")]
        assert nodes, row
        assert all(_NODE.fullmatch(node) for node in nodes), row
    names = [row[0] for row in table]
    assert len(set(names)) == len(names)


def test_the_tests_that_are_named_are_there() -> None:
    """Each node id is a test function of that file, and none of them is skipped always."""
    habits = _NODE.findall((ROOT / "docs" / "oauth.md").read_text())
    assert len(habits) >= 10
    for path, name in {match for row in walls() for match in _NODE.findall(row[2])} | set(habits):
        file = ROOT / path
        assert file.is_file(), path
        functions = {
            node.name: node
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in functions, f"{path} has no test {name}"
        marks = [ast.unparse(mark) for mark in functions[name].decorator_list]
        assert not any(mark.startswith(("pytest.mark.skip(", "pytest.mark.xfail")) for mark in marks), marks
