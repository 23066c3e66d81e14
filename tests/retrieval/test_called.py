"""Whom a question names by another spelling than the log's: short forms and misspellings of the speakers' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from myria.index import Corpus, Doc, LooseBlock
from myria.retrieval.best import Ranking
from myria.retrieval.called import names_like
from myria.retrieval.question import Question
from myria.retrieval.ranking import rank

HOUR = 3_600_000_000
TALK = (
    ("Melanie", "My kids and I made a clay pot at the workshop."),
    ("Johnny", "My kids and I made a clay bowl at the workshop."),
    ("Johnny", "Hey Mel! Bread is dear this week."),
    ("Melanie", "The train was late again."),
)


def _corpus(turns: Sequence[tuple[str, str]] = TALK, *, hidden: Sequence[str] = ()) -> Corpus:
    docs = [
        Doc.of_payload({"text": text, "speaker": who}, event_seq=seq, timestamp=seq * HOUR, channel="chat")
        for seq, (who, text) in enumerate(turns, 1)
    ]
    tail = LooseBlock().extended(docs)
    shown = {doc.event_seq for doc in docs if doc.speaker not in hidden}
    mask = np.array([seq in shown for seq in tail.seq.tolist()]) if hidden else None
    return Corpus(participants=("Johnny", "Melanie"), tail=tail, tail_mask=mask)


def _ask(text: str, turns: Sequence[tuple[str, str]] = TALK, **fields: Any) -> Ranking:
    return rank(Question(text=text), (_corpus(turns, **fields),), limit=10)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("Mel", "Melanie"),
        ("Mela", "Melanie"),
        ("Melnie", "Melanie"),
        ("Melonie", "Melanie"),
        ("Meelanie", "Melanie"),
        ("John", "Johnny"),
        ("Johny", "Johnny"),
        ("Jonhny", "Johnny"),
    ],
)
def test_another_spelling_of_a_speaker_is_answered_as_the_name(asked: str, name: str) -> None:
    """What a short form or a misspelt name finds is byte for byte what the name itself finds."""
    answers = [_ask(f"What pottery did {who} and the kids make?") for who in (asked, name)]
    assert answers[0] == answers[1]
    assert answers[0].hits[0].event_seq == (1 if name == "Melanie" else 2)


@pytest.mark.parametrize(
    ("asked", "turns"),
    [
        ("Mel", (*TALK, ("Melissa", "Bread is dear."))),
        ("Mel", (*TALK, ("Melanie", "Mel is my neighbour."))),
        ("Melonie", (*TALK, ("Johnny", "I met Melonie, the new teacher."))),
        ("mel", TALK),
        ("Me", TALK),
        ("MEL", TALK),
        ("Walter", TALK),
    ],
)
def test_what_may_be_somebody_else_names_nobody(asked: str, turns: Sequence[tuple[str, str]]) -> None:
    """Two speakers, a name that its bearer would not say, one that a text spells so, small letters, two letters."""
    named, unnamed = (_ask(f"What pottery did {who} and the kids make?", turns) for who in ("Melanie", asked))
    assert [hit.score for hit in named.hits if hit.event_seq == 1] > [
        hit.score for hit in unnamed.hits if hit.event_seq == 1
    ]


def test_a_speaker_who_is_not_visible_is_named_by_nothing() -> None:
    """Whether somebody hidden has a name like it moves no score."""
    turns = (*TALK, ("Melissa", "Bread is dear."))
    assert _ask("What pottery did Mel make?", turns, hidden=["Melissa"]) == _ask("What pottery did Mel make?")


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("jon", ["john", "jonas"]),
        ("anna", ["annabel", "anne"]),
        ("тимура", []),
        ("priyas", []),
        ("an", []),
        ("ben", []),
    ],
)
def test_names_like_a_word(word: str, names: list[str]) -> None:
    """Beginnings of names and names one letter away; no endings, no names of three letters, no other beginnings."""
    known = sorted(["annabel", "anne", "bea", "john", "jonas", "priya", "walter", "тимур"])
    assert list(names_like(word, known)) == names
