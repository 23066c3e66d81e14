"""A command line imports the module of its command alone, and nobody sees a difference."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from myria_cli import commands
from myria_cli.app import SUBJECTS, application

HEAVY = ("httpx", "mcp", "numpy", "asyncpg", "myria.memory", "myria.settings")
"""What `myria version` has no use for."""

_RUN = """
import sys
from myria_cli.main import main

sys.argv = ["myria", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, sep="\\n")
"""


def _first_words(app: typer.Typer) -> tuple[str, ...]:
    group: Any = typer.main.get_group(app)
    return tuple(group.commands)


def _help(app: typer.Typer, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="myria")
    assert result.exit_code == 0
    return result.stdout


def test_the_table_names_every_module() -> None:
    """A module that the table lacks would be a command that nobody finds."""
    assert set(SUBJECTS) == {module.name for module in pkgutil.iter_modules(commands.__path__)}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_table_says_what_a_module_registers(subject: str) -> None:
    """A word that the table lacks would be slow; one that stands under another module would be unknown."""
    for word in SUBJECTS[subject]:
        assert set(_first_words(application([word]))) == set(SUBJECTS[subject])


def test_help_and_misspelt_words_know_every_command() -> None:
    """No argument, an option first, or an unknown word: each word of the table is there, once."""
    words = [word for subject in SUBJECTS.values() for word in subject]
    for arguments in ([], ["--help"], ["--version", "verify"], ["verfy"], ["--", "verify"]):
        assert sorted(_first_words(application(arguments))) == sorted(words)


@pytest.mark.parametrize("word", [word for words in SUBJECTS.values() for word in words])
def test_help_is_the_same_from_one_module(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command's page, and the pages of a group's commands, do not depend on what else is registered."""
    monkeypatch.setenv("COLUMNS", "110")
    narrow, whole = application([word]), application()
    assert _help(narrow, word) == _help(whole, word)
    group: Any = typer.main.get_group(narrow)
    for inner in getattr(group.commands[word], "commands", ()):
        assert _help(narrow, word, inner) == _help(whole, word, inner)


@pytest.mark.parametrize("arguments", [("version", "--json"), ("--version",)])
def test_a_small_command_imports_little(arguments: tuple[str, ...]) -> None:
    """Most of the time of a short command went into modules that it never used."""
    command = [sys.executable, "-c", _RUN, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert not set(HEAVY) & set(done.stdout.splitlines()[1:])
