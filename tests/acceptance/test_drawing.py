"""Trees in a terminal stay within it."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console

from myria_cli.draw import answer_lines, span
from tests.cli.conftest import call


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
        console = Console(width=80)
        for line in answer_lines(answer):
            for part in line.wrapped(console):
                assert cell_len(part.plain) <= 80


def test_events_without_room_are_told() -> None:
    """The last line says how many events had no room in the answer."""
    root = {"kind": "root", "participants": ["a"], "children": []}
    answer = {"root": root, "truncated": True, "skipped": {"count": 2, "event_ids": ["evt_1", "evt_2"]}}
    *_, last = answer_lines(answer)
    assert "2 events too large to show" in last.text.plain


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
