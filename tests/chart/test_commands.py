"""Every command that the chart renders is one that the image has, with options that it knows."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from myria_cli.app import app
from tests.chart.rendering import SETS, rendered


@pytest.mark.parametrize("name", SETS)
def test_commands_parse(name: str) -> None:
    """A misspelt option would show only in a cluster, as a pod that never starts."""
    program: Any = typer.main.get_command(app)
    outer = program.make_context("myria", [], resilient_parsing=True)
    parsed = 0
    for pod in rendered(name).pods():
        for container in pod.containers:
            if container.get("command", [""])[0] != "myria":
                continue  # somebody else's, given by values
            words = [*container["command"][1:], *container.get("args", [])]
            if pod.source.startswith("PodTemplate/"):
                words += ["--build", "bld_1"]  # what the operator adds
            found, command, rest = program.resolve_command(outer, words)
            command.make_context(found, rest, parent=outer)  # raises the sentence that the pod would end with
            parsed += 1
    assert parsed
