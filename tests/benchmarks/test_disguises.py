"""Disguised conversations are the same conversations: same questions, same gold, other looks."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from benchmarks.disguises import DISGUISES, disguised, figures, mistyped, scores, typed, unasked

TURNS = (("Ada", "Hello Bob! I bought a telescope."), ("Bob", "Wow. Where did you get it?"), ("Ada", "In Porto."))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one short conversation and one question about its last turn."""
    events = [
        {
            "channel": "chat",
            "type": "message",
            "participants": ["Ada", "Bob"],
            "timestamp": f"2025-03-04T18:0{at}:00+00:00",
            "source_event_key": f"turn-{at}",
            "payload": {"speaker": speaker, "text": text},
        }
        for at, (speaker, text) in enumerate(TURNS)
    ]
    question = {
        "question": "Where did Ada buy the telescope?",
        "participants": ["Ada", "Bob"],
        "evidence": ["turn-0", "turn-2"],
        "category": 1,
        "category_name": "multi-hop",
        "conversation": "one",
    }
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, events)))
    (tmp_path / "questions.jsonl").write_bytes(orjson.dumps(question))
    return tmp_path


@pytest.mark.parametrize("name", DISGUISES)
def test_the_gold_turns_are_found_in_every_disguise(folder: Path, name: str) -> None:
    """A few turns are all found, whatever they look like."""
    memory = disguised(folder, DISGUISES[name])
    found = [(question, scores(memory, question)) for question in memory.questions]
    assert figures(found)[1] == 1.0


def test_bursts_keep_what_was_said_and_who_said_it(folder: Path) -> None:
    """Each sentence is a message of its own and leads back to its turn."""
    memory = disguised(folder, DISGUISES["bursts"])
    assert list(memory.turn_of.values()) == [1, 1, 2, 2, 3]


def test_rewriting_is_by_rule() -> None:
    """Case, marks and letters change as said, the same each time."""
    assert unasked("Why? Really?") == "Why Really"
    assert typed("We went home.") == "we went home"
    words = "elephant garden station picture weather holiday brother"
    assert mistyped(words) == mistyped(words) != words
