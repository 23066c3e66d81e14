"""There is one way into the log: nothing else inserts events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("core", "server", "operator", "builder_job", "rebuilds", "monitoring", "embedded", "cli", "migrations")


def lines_with(pattern: str, *endings: str) -> Iterator[str]:
    """Yield the files of the product, once for each line that a pattern is found in."""
    for part in PRODUCT:
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in endings and not path.is_symlink():
                for line in path.read_text(encoding="utf-8").splitlines():
                    if re.search(pattern, line):
                        yield str(path.relative_to(ROOT))


def test_one_function_inserts_events() -> None:
    """In SQL and in Python together."""
    assert list(lines_with(r"INSERT INTO myria\.events\b", ".sql", ".py")) == [
        "migrations/myria_migrations/schema/72_functions_append.sql"
    ]


def test_each_way_of_appending_has_one_caller() -> None:
    """The general one, and the one round trip of what is new and folds nothing."""
    assert list(lines_with(r'"events\.append"', ".py")) == ["core/myria/log/transaction.py"]
    assert list(lines_with(r'"events\.append_alone"', ".py")) == ["core/myria/db/database.py"]
    assert list(lines_with(r"\.append_alone\(", ".py")) == ["core/myria/log/transaction.py"]


def test_one_module_appends_for_all_writers() -> None:
    """It alone has what commits, so that nobody goes past redaction, names, sizes and quotas."""
    assert list(lines_with(r"\bGroupCommit\(|\bAppendTransaction\(", ".py")) == ["core/myria/log/event_log.py"]
    assert list(lines_with(r"quotas\.append\(", ".py")) == ["core/myria/log/event_log.py"]


def test_one_module_redacts_for_all_writers() -> None:
    """Beside it, only the words of a model's provider are redacted, which are in no event."""
    assert list(lines_with(r"\bPayloadRedactor\(", ".py")) == [
        "core/myria/log/event_log.py",
        "core/myria/log/redaction/redactor.py",
    ]
    assert list(lines_with(r"\bwithout_credentials\(", ".py")) == [
        "core/myria/llm/saying.py",
        "core/myria/log/redaction/redactor.py",
    ]


def test_no_projection_is_asked_what_it_is() -> None:
    """Each says by its methods what it does."""
    assert list(lines_with(r"isinstance\(.*Projection", ".py")) == []
