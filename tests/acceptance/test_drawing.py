"""Trees in a terminal stay within it."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from myria_cli.draw import answer_tree, span
from tests.cli.conftest import call


def drawn(answer: dict[str, Any]) -> list[str]:
    """Return the lines of an answer on a terminal of 80 columns."""
    terminal = StringIO()
    Console(width=80, file=terminal).print(answer_tree(answer))
    return terminal.getvalue().splitlines()


def test_no_line_is_wider_than_the_terminal() -> None:
    """Continuation lines stand further in than the first, and are broken earlier for it."""
    words = "preorders open on Thursday and somebody has to pay for the mould before there is a box " * 2
    event = {"kind": "event", "timestamp": "2026-02-24T09:38:00Z", "event_id": "evt_1", "participants": ["a"]}
    leaf = {"kind": "leaf_topic", "label": words, "summary": words, "participants": ["a"]}
    for depth in range(1, 6):
        node: dict[str, object] = leaf | {"children": [event | {"payload": {"text": words}, "score": 7}]}
        for _ in range(depth):
            node = leaf | {"children": [node, node]}
        answer = {"root": {"kind": "root", "participants": ["a"], "children": [node]}}
        lines = drawn(answer)
        assert max(map(cell_len, lines)) <= 80
        assert any("preorders" in line for line in lines)


def test_events_without_room_are_told() -> None:
    """The last line says how many events had no room in the answer."""
    root = {"kind": "root", "participants": ["a"], "children": []}
    answer = {"root": root, "truncated": True, "skipped": {"count": 2, "event_ids": ["evt_1", "evt_2"]}}
    assert "2 events too large to show" in " ".join(drawn(answer))


def test_the_year_1_has_four_digits() -> None:
    """Spans of time look alike in every year."""
    year_1 = -62_135_596_800_000_000
    assert span(year_1, year_1) == "0001-01-01 00:00"
    assert span(year_1, 0) == "0001-01-01 – 1970-01-01"


def test_help_flows_with_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paragraphs are broken where the terminal ends, not where the source was."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip() for line in call("import", "--help").out.splitlines()]
    paragraph = lines[next(at for at, line in enumerate(lines) if line.startswith("Each line is")) :]
    assert all(len(line) > 60 for line in paragraph[:3])
