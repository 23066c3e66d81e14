"""Conversations written down line by line."""

from __future__ import annotations

import pytest

from benchmarks.retrieval_logs import written

PEOPLE = ("Ann", "Ben")


def test_lines_become_events_with_their_sessions_marks_and_small_talk() -> None:
    """A session's first line has its time, small talk is said in turn, and a mark names the number of its line."""
    events, numbers = written(
        "@ 2025-02-03 18:00\nAnn: hi: you\n~ 3\nBen: [cat] a cat!", PEOPLE, iter(["one", "two", "three"])
    )
    texts = {number: event["payload"]["text"] for number, event in events.items()}
    assert texts == {1: "hi: you", 2: "one", 3: "two", 4: "three", 5: "a cat!"}
    assert [event["payload"]["speaker"] for event in events.values()] == ["Ann", "Ann", "Ben", "Ann", "Ben"]
    assert events[1]["timestamp"] == "2025-02-03T18:00:00+00:00"
    assert numbers == {"cat": 5}


@pytest.mark.parametrize("said", ["Cem: hello", "no speaker", "Ann: [a] one\nBen: [a] two"])
def test_what_nobody_could_have_meant_is_refused(said: str) -> None:
    """A stranger, a line without a speaker and a mark given twice are mistakes of the data."""
    with pytest.raises(ValueError, match=r"not a line|given twice"):
        written(said, PEOPLE)
